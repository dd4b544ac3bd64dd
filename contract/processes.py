"""Worker processes that end with their parent, and the CPUs that they may use.

Libraries count the host's cores and ignore the CPU quota of a container.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from contract.entry import mark_last_resort
from contract.errors import HecktorError

CGROUP_ROOT: Final = Path("/sys/fs/cgroup")
MORE_RESOURCES: Final = "more memory or processes (ulimit -v, ulimit -u)"
# One passes results on, one sends work.
_POOL_THREADS: Final = 2


def fresh_processes(count: int, begin: Callable[[], object] | None = None) -> ProcessPoolExecutor:
    """Start a pool of spawned interpreters; forked ones inherit the locks of ITK's threads and can hang.

    They do not import the program's main module, so that a script needs no `if __name__ == "__main__"`; the work must
    be a function of another module.

    Args:
        count: number of processes, at least 1.
        begin: initializer of each process, a function at module level.

    Returns:
        The pool. Its processes exit when the parent is killed; without that they would wait for work forever.

    Raises:
        HecktorError: there is no shared memory for the locks of a pool; when work is submitted, no thread starts.
    """
    context = multiprocessing.get_context("spawn")
    try:
        return _Pool(count, mp_context=context, initializer=_begin, initargs=(begin,))
    except OSError as problem:
        found = f"no shared memory in /dev/shm ({problem.strerror})"
        raise HecktorError("worker processes", found, "a writable tmpfs there") from None


class _Pool(ProcessPoolExecutor):
    def _start_executor_manager_thread(self) -> None:
        """A pool whose own threads do not start would wait for its results for ever."""
        pool: Any = self  # of private attributes
        try:
            if pool._executor_manager_thread is None:
                _start_threads(_POOL_THREADS)
            super()._start_executor_manager_thread()
        except RuntimeError as problem:
            for process in (self._processes or {}).values():
                process.kill()
            pool._executor_manager_thread = None
            raise HecktorError("worker processes", f"no thread starts ({problem})", MORE_RESOURCES) from None

    def _spawn_process(self) -> None:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        # Ctrl-C goes to all processes of a terminal; a new one inherits what is blocked, and leaves it to its parent.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            super()._spawn_process()  # type: ignore[misc]
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            sys.modules["__main__"] = main

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> bool | None:
        """Wait for the work; after an error for what has begun, after Ctrl-C or another end for nothing."""
        if kind is not None and not issubclass(kind, Exception):
            for process in list((self._processes or {}).values()):
                process.kill()
        self.shutdown(cancel_futures=kind is not None)
        return None


def _start_threads(count: int) -> None:
    """Start and end some threads. Raises RuntimeError: a limit of memory or processes forbids it."""
    end = threading.Event()
    try:
        for _ in range(count):
            threading.Thread(target=end.wait, daemon=True).start()
    finally:
        end.set()


def _begin(begin: Callable[[], object] | None) -> None:
    mark_last_resort()
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent.join,), daemon=True).start()
    if begin is not None:
        begin()


def _end_after(wait: Callable[[], object]) -> None:
    wait()
    os._exit(1)


def usable_cpus() -> int:
    """CPUs by affinity and by the control group's quota (version 2 or 1), rounded up; at least 1."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota(CGROUP_ROOT)
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def _quota(root: Path) -> float | None:
    """CPU seconds per second that the control group grants, None without a limit."""
    version_2, version_1 = root / "cpu.max", root / "cpu" / "cpu.cfs_quota_us"
    if version_2.is_file():
        granted, period = version_2.read_text().split()
        return None if granted == "max" else int(granted) / int(period)
    if version_1.is_file():
        granted_us = int(version_1.read_text())
        return None if granted_us < 0 else granted_us / int((version_1.parent / "cpu.cfs_period_us").read_text())
    return None
