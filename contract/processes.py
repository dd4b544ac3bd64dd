"""Run work in processes that end with their parent, and count the CPUs that a program may use.

`ProcessPoolExecutor` passes work through queues that threads of the program serve. If one of these threads cannot start
or dies, for example because memory is short, the program waits forever. `map_in_processes` has one pipe per process
and needs no thread, lock or semaphore in the program: it waits until a pipe has a message or a process has ended.

Libraries count the host's cores and ignore the CPU quota of a container, so `count_usable_cpus` reads the quota.
"""

from __future__ import annotations

import atexit
import math
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar

from contract.entry import mark_last_resort
from contract.errors import HecktorError

Item = TypeVar("Item")
Result = TypeVar("Result")

CGROUP_ROOT: Final = Path("/sys/fs/cgroup")
MORE_RESOURCES: Final = "more memory or processes (ulimit -v, ulimit -u)"
# Time from the start of a process until it has imported the work. Imports from a network drive take a minute.
MAX_START_S: Final = 300
# A process that does not end by itself within this time after its last item is killed.
MAX_END_S: Final = 10
# Number of consecutive processes that may die during their start. Each of them is replaced.
_MAX_FAILED_STARTS: Final = 1


@dataclass(frozen=True)
class WorkerDeath:
    """Result of an item whose process ended before it returned a result."""

    reason: str


@dataclass(frozen=True)
class _Ready:
    """Message of a process that has imported the work."""


@dataclass(frozen=True)
class _CannotStart:
    """Message of a process that cannot import the work."""

    reason: str


@dataclass(frozen=True)
class _Returned:
    """Result of one item."""

    result: Any


@dataclass(frozen=True)
class _Raised:
    """Exception of one item with its traceback as text."""

    exception: BaseException
    trace: str


_Message = _Ready | _CannotStart | _Returned | _Raised


def map_in_processes(
    work: Callable[[Item], Result], items: Sequence[Item], count: int, initializer: Callable[[], object] | None = None
) -> Generator[tuple[int, Result | WorkerDeath], None, None]:
    """Apply `work` to every item in spawned interpreters; yield index and result in the order of completion.

    Forked processes would inherit the locks of ITK's threads and can hang. The processes do not import the program's
    main module, so a script needs no `if __name__ == "__main__"`; `work` must be a function of another module.
    They exit when their parent is killed. A process that dies is replaced, but its item is not repeated.

    After an exception, processes may complete the items that they have begun within `MAX_END_S` seconds. After Ctrl-C,
    or if the iterator is closed early, they are killed.

    Args:
        work: Function of one item. It must be picklable, as must the items and results.
        items: Items of the work.
        count: Number of processes; at least one is started, and at most one per item.
        initializer: Function at module level that each process calls first.

    Yields:
        The index of an item and its result, `WorkerDeath` if its process ended.

    Raises:
        HecktorError: No process can be started.
        Exception: The first exception of `work`, with the traceback of its process as a note.
    """
    waiting = list(enumerate(items))[::-1]
    workers: list[_Worker] = []
    failed_starts = 0
    grace_period_s: float = 0
    try:
        while waiting or any(worker.is_busy for worker in workers):
            n_items = len(waiting) + sum(worker.is_busy for worker in workers)
            while len(workers) < min(max(1, count), n_items):
                workers.append(_Worker(initializer, work))
            for worker in _wait_for_messages(workers):
                index, message = worker.index, worker.receive()
                if isinstance(message, WorkerDeath):
                    workers.remove(worker)
                    _end_workers([worker], grace_period_s=0)
                    failed_starts += not worker.is_ready
                    _check_starts(failed_starts, message.reason)
                    result: Any = message
                else:
                    result = _unpack_result(message)
                    worker.is_ready, failed_starts = True, 0
                    if waiting:
                        worker.send(*waiting.pop())
                if index is not None:
                    yield index, result
        grace_period_s = MAX_END_S
    except Exception:
        grace_period_s = MAX_END_S
        raise
    finally:
        _end_workers(workers, grace_period_s)


def _check_starts(failed_starts: int, reason: str) -> None:
    if failed_starts > _MAX_FAILED_STARTS:
        raise HecktorError("worker processes", f"each process ends while it starts ({reason})", MORE_RESOURCES)


def _unpack_result(message: _Message) -> Any:
    """Return the result of an item, or None if the process is only ready; raise the exception of other messages."""
    if isinstance(message, _CannotStart):
        raise HecktorError("worker processes", message.reason, MORE_RESOURCES)
    if isinstance(message, _Raised):
        message.exception.add_note(f"In a worker process:\n{message.trace.rstrip()}")
        raise message.exception
    return message.result if isinstance(message, _Returned) else None


class _Worker:
    """A process and its pipe.

    Attributes:
        index: Index of the item that it processes; None while it is idle.
        is_ready: Whether it has imported the work.
    """

    def __init__(self, initializer: Callable[[], object] | None, work: Callable[[Any], object]) -> None:
        """Start the process; raise `HecktorError` if the system allows no further process."""
        self.index: int | None = None
        self.is_ready = False
        self._start_deadline_s = time.monotonic() + MAX_START_S
        # Ctrl-C goes to all processes of a terminal. The new process inherits the signal mask, so only the parent acts.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            context = multiprocessing.get_context("spawn")
            self.connection, remote_connection = context.Pipe()
            with remote_connection:
                self.process = context.Process(target=_serve, args=(remote_connection,))
                _LIVE.add(self)
                self.process.start()
        except OSError as problem:
            raise HecktorError("worker processes", f"no process starts ({problem.strerror})", MORE_RESOURCES) from None
        finally:
            sys.modules["__main__"] = main
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        self._send(initializer)
        self._send(work)

    @property
    def is_busy(self) -> bool:
        """Whether the process works on an item."""
        return self.index is not None

    @property
    def seconds_to_start(self) -> float | None:
        """Time left for the imports; None once they are complete."""
        return None if self.is_ready else max(0.0, self._start_deadline_s - time.monotonic())

    def send(self, index: int, item: object) -> None:
        """Send an item; if the process has died, `receive` reports it."""
        self.index = index
        self._send(item)

    def _send(self, content: object) -> None:
        with suppress(OSError):
            self.connection.send(content)

    def receive(self) -> _Message | WorkerDeath:
        """Return the message that has arrived, or the reason why no message will arrive."""
        self.index = None
        if self.seconds_to_start == 0:
            return WorkerDeath(f"no import within {MAX_START_S} s")
        try:
            if self.connection.poll():
                message: _Message = self.connection.recv()
                return message
        except (EOFError, OSError):
            pass
        self.process.join(MAX_END_S)
        status = self.process.exitcode
        return WorkerDeath(f"signal {-status}" if status is not None and status < 0 else f"exit status {status}")

    def kill(self) -> None:
        """End the process at once, if it was started."""
        if self.process.pid is not None:
            self.process.kill()


# Processes that an interrupted or abandoned iterator has not ended. They are killed when the program ends, which would
# otherwise wait for them.
_LIVE: Final[set[_Worker]] = set()


@atexit.register
def _kill_all() -> None:
    for worker in list(_LIVE):
        worker.kill()


def _wait_for_messages(workers: Sequence[_Worker]) -> list[_Worker]:
    """Wait until a process has sent a message, has ended or has not started in time; return these workers."""
    limits_s = [seconds for worker in workers if (seconds := worker.seconds_to_start) is not None]
    handles = [handle for worker in workers for handle in (worker.connection, worker.process.sentinel)]
    ready = wait(handles, min(limits_s, default=None))
    return [
        worker
        for worker in workers
        if worker.connection in ready or worker.process.sentinel in ready or worker.seconds_to_start == 0
    ]


def _end_workers(workers: Sequence[_Worker], grace_period_s: float) -> None:
    """Let processes that have started end by themselves within `grace_period_s` seconds; kill all others."""
    deadline_s = time.monotonic() + grace_period_s
    for worker in workers:
        worker.connection.close()
        if not (worker.is_ready and grace_period_s):
            worker.kill()
    for worker in workers:
        worker.process.join(max(0.0, deadline_s - time.monotonic()))
        worker.kill()
        worker.process.join()
        worker.process.close()
        _LIVE.discard(worker)


def _serve(connection: Connection) -> None:
    """Receive initializer, work and items until the parent closes the pipe; the main function of a worker process."""
    try:
        mark_last_resort()
        _end_with_parent()
        initializer = connection.recv()
        if initializer is not None:
            initializer()
        work = connection.recv()
    except Exception as problem:  # noqa: BLE001 - the parent raises it
        with suppress(OSError):
            connection.send(_CannotStart(f"cannot start ({type(problem).__name__}: {problem})"))
        return
    with suppress(EOFError, OSError):  # The parent needs no further result.
        connection.send(_Ready())
        while True:
            content = connection.recv_bytes()
            connection.send_bytes(_process_item(work, content))


def _process_item(work: Callable[[Any], object], content: bytes) -> bytes:
    """Apply `work` to one pickled item and return the pickled message for the parent."""
    try:
        return pickle.dumps(_Returned(work(pickle.loads(content))))  # noqa: S301 - from the parent
    except BaseException as problem:  # noqa: BLE001 - the parent raises it
        trace = traceback.format_exc()
        # Not every exception can be pickled, and SystemExit would end the program.
        if isinstance(problem, Exception | KeyboardInterrupt):
            with suppress(Exception):
                message = pickle.dumps(_Raised(problem, trace))
                pickle.loads(message)  # noqa: S301 - from this function
                return message
        return pickle.dumps(_Raised(RuntimeError(f"{type(problem).__name__}: {problem}"), trace))


def _end_with_parent() -> None:
    """Start a thread that ends this process when its parent has ended: the process may be busy for a long time."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_wait_and_exit, args=(parent.join,), daemon=True).start()


def _wait_and_exit(wait_for_parent: Callable[[], object]) -> None:
    wait_for_parent()
    os._exit(1)


def count_usable_cpus() -> int:
    """Count the CPUs by affinity and by the control group's quota (version 2 or 1), rounded up; at least 1."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _read_quota(CGROUP_ROOT)
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def _read_quota(root: Path) -> float | None:
    """Read the CPU seconds per second that the control group grants; None without a limit."""
    version_2, version_1 = root / "cpu.max", root / "cpu" / "cpu.cfs_quota_us"
    if version_2.is_file():
        granted, period = version_2.read_text().split()
        return None if granted == "max" else int(granted) / int(period)
    if version_1.is_file():
        granted_us = int(version_1.read_text())
        return None if granted_us < 0 else granted_us / int((version_1.parent / "cpu.cfs_period_us").read_text())
    return None
