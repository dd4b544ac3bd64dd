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
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
_MEMORY_POLL_S: Final = 0.5
_CGROUPS: Final = Path("/sys/fs/cgroup")

# Called with None while the process runs, and at its end with the kernel's resource usage;
# returns the peak so far in bytes, or None.
PeakMemory = Callable[[Any], int | None]
Stopper = Callable[[bool], None]


@dataclass(frozen=True)
class RunOutcome:
    """The end of a run, or a server's answer to one case.

    `exit_code` is negative for a signal that ended a plain process, 137 for SIGKILL in a container, and None for a
    server that still runs. `http_status` is a server's answer, None without one. A server's peak memory counts from
    its start. `disk_failure` is the reason why a program was killed for the size of its files.
    """

    exit_code: int | None
    seconds: float
    timed_out: bool
    peak_memory_bytes: int | None
    http_status: int | None = None
    disk_failure: str | None = None


def wait_for(
    process: subprocess.Popen[bytes],
    time_limit_s: float,
    stop: Stopper | None,
    peak_memory: PeakMemory,
    cancelled: threading.Event | None = None,
) -> RunOutcome:
    """Wait for a process that was just started; send SIGTERM after `time_limit_s` from now and SIGKILL 5 s later.

    `stop` is called with False to terminate and True to kill; None signals the process group. Another thread kills it
    by `cancelled`.
    """
    started = time.monotonic()
    stopper = group_stopper(process.pid) if stop is None else stop
    peak: int | None = None
    next_look = started
    terminated_at: float | None = None
    killed = False
    try:
        while (usage := _ended(process)) is None:
            if cancelled is not None and cancelled.is_set():
                kill_until_ended(process, stopper)
                break
            now = time.monotonic()
            if now >= next_look:
                peak = _larger(peak, peak_memory(None))
                next_look = now + _MEMORY_POLL_S
            if terminated_at is None and now - started > time_limit_s:
                stopper(False)
                terminated_at = now
            elif terminated_at is not None and not killed and now - terminated_at > GRACE_S:
                stopper(True)
                killed = True
            time.sleep(_POLL_S)
    except BaseException:
        kill_until_ended(process, stopper)
        raise
    seconds = time.monotonic() - started
    peak = _larger(peak, peak_memory(usage))
    return RunOutcome(process.returncode, seconds, terminated_at is not None, peak)


def kill_until_ended(process: subprocess.Popen[bytes], stopper: Stopper) -> None:
    """Kill again until it ends: the client of an engine may not have made its container yet."""
    while True:
        stopper(True)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_KILL_AGAIN_S)
            return


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block as an exception does, so programs end and folders go; then both are ignored.

    The exit status is that of a shell, 128 and the number of the signal. Only the main thread can handle signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: object) -> None:
        for one in _ENDING:
            signal.signal(one, signal.SIG_IGN)
        raise SystemExit(128 + number)

    # nohup ignores SIGHUP on purpose
    earlier = {one: signal.getsignal(one) for one in _ENDING if signal.getsignal(one) != signal.SIG_IGN}
    try:
        for one in earlier:
            signal.signal(one, end)
        yield
    finally:
        for one, handler in earlier.items():
            signal.signal(one, handler)


def rusage_peak_bytes(usage: Any) -> int | None:
    """Peak resident memory of the largest process, as reported by the kernel at its end."""
    return None if usage is None else int(usage.ru_maxrss) * 1024


def process_peak_bytes(pid: int) -> int | None:
    """Peak resident memory of a running process so far; None if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)


def cgroup_peak_reader(container_process: Callable[[], int | None]) -> PeakMemory:
    """A reader of the peak memory of a container's control group, page cache included.

    `container_process` returns the pid of the container's first process on this host, None before it runs.
    """
    peak_files: list[Path] = []

    def read(usage: Any) -> int | None:
        if not peak_files and usage is None:
            pid = container_process()
            file = None if pid is None else _peak_file(pid)
            if file is not None:
                peak_files.append(file)
        if not peak_files:
            return None
        try:
            return int(peak_files[0].read_text())
        except (OSError, ValueError):
            return None

    return read


def _peak_file(pid: int) -> Path | None:
    """The kernel's file with the peak memory of a process's control group, version 2 or 1."""
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


def _ended(process: subprocess.Popen[bytes]) -> Any:
    """The resource usage of an ended process, None while it runs."""
    pid, status, usage = os.wait4(process.pid, os.WNOHANG)
    if pid == 0:
        return None
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage


def group_stopper(group: int) -> Stopper:
    """A function that signals a process group; a group that has ended is no error."""

    def stop(force: bool) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL if force else signal.SIGTERM)

    return stop


def _larger(first: int | None, second: int | None) -> int | None:
    return max((value for value in (first, second) if value is not None), default=None)
