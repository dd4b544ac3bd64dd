"""Wait for a process under the platform's time limit, and measure its peak memory."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

GRACE_S: Final = 5.0
_POLL_S: Final = 0.05
_KILL_AGAIN_S: Final = 0.5
_END_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
_MEMORY_POLL_S: Final = 0.5
_CGROUPS: Final = Path("/sys/fs/cgroup")

# Function that returns the peak memory so far in bytes, or None. It is called with None while the process runs, and
# with the kernel's resource usage at its end.
PeakMemory = Callable[[Any], int | None]
# Function that ends a program: with False it terminates it, with True it kills it.
Stopper = Callable[[bool], None]


@dataclass(frozen=True)
class RunOutcome:
    """The end of a run, or a server's answer to one case.

    Attributes:
        exit_code: Negative if a signal ended a plain process, 137 for SIGKILL in a container, None for a server that
            still runs.
        peak_memory_bytes: Peak memory; the memory of a server counts from its start.
        http_status: Status of a server's answer, None without an answer.
        disk_failure: Reason why a program was killed because of the size of its files.
    """

    exit_code: int | None
    seconds: float
    timed_out: bool
    peak_memory_bytes: int | None
    http_status: int | None = None
    disk_failure: str | None = None


def wait_for_end(
    process: subprocess.Popen[bytes],
    time_limit_s: float,
    stop: Stopper | None,
    peak_memory: PeakMemory,
    cancelled: threading.Event | None = None,
) -> RunOutcome:
    """Wait for the end of a process that was just started; send SIGTERM at the time limit and SIGKILL 5 s later.

    Args:
        process: The process.
        time_limit_s: Time limit, which starts now.
        stop: Ends the program; None sends signals to the process group.
        peak_memory: Reads the peak memory.
        cancelled: Event by which another thread kills the process.
    """
    start_s = time.monotonic()
    stopper = make_group_stopper(process.pid) if stop is None else stop
    peak: int | None = None
    next_look_s = start_s
    terminated_at_s: float | None = None
    is_killed = False
    try:
        usage = _poll_end(process)
        while usage is None:
            if cancelled is not None and cancelled.is_set():
                kill_until_ended(process, stopper)
                break
            now = time.monotonic()
            if now >= next_look_s:
                peak = _max_known(peak, peak_memory(None))
                next_look_s = now + _MEMORY_POLL_S
            if terminated_at_s is None and now - start_s > time_limit_s:
                stopper(False)
                terminated_at_s = now
            elif terminated_at_s is not None and not is_killed and now - terminated_at_s > GRACE_S:
                stopper(True)
                is_killed = True
            time.sleep(_POLL_S)
            usage = _poll_end(process)
    except BaseException:
        kill_until_ended(process, stopper)
        raise
    seconds = time.monotonic() - start_s
    peak = _max_known(peak, peak_memory(usage))
    return RunOutcome(process.returncode, seconds, terminated_at_s is not None, peak)


def kill_until_ended(process: subprocess.Popen[bytes], stopper: Stopper) -> None:
    """Kill a process until it ends; this may take several times, until an engine has made its container."""
    while True:
        stopper(True)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_KILL_AGAIN_S)
            return


@contextlib.contextmanager
def end_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as an exception does, so that programs end and folders are removed.

    Further signals are then ignored. The exit status is 128 plus the number of the signal, as in a shell. Only the main
    thread can handle signals, so in another thread this has no effect.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: object) -> None:
        for signal_number in _END_SIGNALS:
            signal.signal(signal_number, signal.SIG_IGN)
        raise SystemExit(128 + number)

    handlers = {signal_number: signal.getsignal(signal_number) for signal_number in _END_SIGNALS}
    # An ignored signal stays ignored, as nohup does with SIGHUP.
    handlers = {signal_number: handler for signal_number, handler in handlers.items() if handler != signal.SIG_IGN}
    try:
        for signal_number in handlers:
            signal.signal(signal_number, end)
        yield
    finally:
        for signal_number, handler in handlers.items():
            signal.signal(signal_number, handler)


def read_rusage_peak_bytes(usage: Any) -> int | None:
    """Read the peak resident memory of the largest process from the kernel's report at its end."""
    return None if usage is None else int(usage.ru_maxrss) * 1024


def read_process_peak_bytes(pid: int) -> int | None:
    """Read the peak resident memory of a running process so far; None if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)


def make_cgroup_peak_reader(container_process: Callable[[], int | None]) -> PeakMemory:
    """Make a reader of the peak memory of a container's control group, including the page cache.

    `container_process` returns the pid of the container's first process on this host, None before it runs.
    """
    peak_files: list[Path] = []

    def read(usage: Any) -> int | None:
        if not peak_files and usage is None:
            pid = container_process()
            file = None if pid is None else _find_peak_file(pid)
            if file is not None:
                peak_files.append(file)
        if not peak_files:
            return None
        try:
            return int(peak_files[0].read_text())
        except (OSError, ValueError):
            return None

    return read


def _find_peak_file(pid: int) -> Path | None:
    """Find the kernel's file with the peak memory of a process's control group, version 2 or 1."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return None
    candidates = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            candidates.append(_CGROUPS / path.lstrip("/") / "memory.peak")
        elif "memory" in controllers.split(","):
            candidates.append(_CGROUPS / "memory" / path.lstrip("/") / "memory.max_usage_in_bytes")
    return next((file for file in candidates if file.is_file()), None)


def _poll_end(process: subprocess.Popen[bytes]) -> Any:
    """Return the resource usage of a process that has ended, None while it runs."""
    pid, status, usage = os.wait4(process.pid, os.WNOHANG)
    if pid == 0:
        return None
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage


def make_group_stopper(group: int) -> Stopper:
    """Make a function that sends a signal to a process group; a group that has ended is ignored."""

    def stop(force: bool) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL if force else signal.SIGTERM)

    return stop


def _max_known(first: int | None, second: int | None) -> int | None:
    return max((value for value in (first, second) if value is not None), default=None)
