"""Watch a running program: its time limit, peak memory, disk space and logs."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

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

_DISK_POLL_S: Final = 0.5
# Measuring the files of a program may take at most this time.
MAX_MEASURE_S: Final = 60.0
# The first and the last bytes of a part of a log that are kept.
KEPT_BYTES: Final = 1024 * 1024
_BLOCK_BYTES: Final = 64 * 1024
_MAX_BLOCKS_IN_PIPE: Final = 32
_LOG_POLL_S: Final = 0.2


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended, or how a server answered one case.

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


class DiskWatch:
    """A thread that kills a program as soon as its folders contain more than `max_bytes` together.

    `layer_bytes` returns the bytes that a container has written outside these folders, None if they are unknown.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        max_bytes: int,
        stop: Stopper,
        layer_bytes: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._folders = folders
        self._max_bytes = max_bytes
        self._stop = stop
        self._layer_bytes = layer_bytes
        self._ended = threading.Event()
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def __enter__(self) -> DiskWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def failure(self) -> str | None:
        """Return the reason why the program was killed; None if its files fit the limit."""
        return self._failure

    def measure(self) -> None:
        """Measure once more; files may be written, or become readable, shortly before the end."""
        if self._failure is not None:
            return
        try:
            size = measure_used_bytes(self._folders) + (self._layer_bytes() or 0)
        except subprocess.TimeoutExpired:
            self._fail(f"its files cannot be measured within {MAX_MEASURE_S:g} s")
            return
        if size > self._max_bytes:
            self._fail(f"its files take {size / 1e9:.3g} GB")

    def _fail(self, problem: str) -> None:
        limit = f"at most {self._max_bytes / 1e9:.3g} GB in /output and /tmp together"
        self._failure = f"disk limit exceeded: {problem}, expected {limit}; it was killed"

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._ended.wait(_DISK_POLL_S):
            self.measure()
            if self._failure is not None:
                # This is repeated until the end, since the client of an engine may not have made its container yet.
                self._stop(True)


def measure_used_bytes(folders: Sequence[Path]) -> int:
    """Measure the disk space of all files below some folders at any depth; holes of sparse files do not count.

    Folders that this user cannot open count as empty.

    Raises:
        subprocess.TimeoutExpired: There are so many files that measuring them takes more than `MAX_MEASURE_S` seconds.
    """
    command = ["du", "--summarize", "--total", "--block-size=1", "--", *map(str, folders)]
    done = subprocess.run(command, check=False, capture_output=True, timeout=MAX_MEASURE_S)
    total = re.search(rb"^(\d+)\ttotal\n\Z", done.stdout, re.MULTILINE)
    return int(total[1]) if total else 0


class Logs:
    """The output streams of a running program in two files.

    The output of a server has one part for each case; `cut` ends a part. The first and the last KEPT_BYTES of a part
    are kept, and a line in the file states how many bytes between them were left out. A thread reads each stream, so
    that the program does not have to wait.
    """

    def __init__(self, process: subprocess.Popen[bytes], stdout: Path, stderr: Path) -> None:
        pipes = (process.stdout, process.stderr)
        self._streams = [_LogStream(pipe, path) for pipe, path in zip(pipes, (stdout, stderr), strict=True) if pipe]

    def __enter__(self) -> Logs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def flush(self) -> None:
        """Write all output up to now into the files; raise `OSError` if a file cannot be written."""
        for stream in self._streams:
            stream.flush()

    def cut(self, *targets: Path) -> None:
        """Copy the output since the last cut to `targets`, the files for stdout and stderr."""
        for stream, target in zip(self._streams, targets, strict=True):
            target.write_bytes(stream.cut())

    def close(self) -> None:
        """Write all output and stop reading; a process that outlives the program cannot print any more."""
        for stream in self._streams:
            stream.close()


class _LogStream:
    """One stream; the first bytes of a part are in the file, the last bytes stay in memory until `flush`."""

    def __init__(self, pipe: IO[bytes], path: Path) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._pipe = pipe
        self._path = path
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._error: OSError | None = None
        # Position in the file at which the current part begins, bytes of its head, and bytes dropped after the head.
        self._part_start = 0
        self._head = 0
        self._dropped = 0
        self._tail = bytearray()
        path.write_bytes(b"")
        threading.Thread(target=self._follow, daemon=True).start()

    def flush(self) -> None:
        with self._lock:
            # Earlier output may still be in the pipe. The program may refill the pipe as fast as it is read.
            for _ in range(0 if self._ended.is_set() else _MAX_BLOCKS_IN_PIPE):
                if not self._read_block():
                    break
            self._shorten_tail()
            note = f"\n[{self._dropped} bytes are left out here]\n" if self._dropped else ""
            self._write(note.encode() + self._tail)
            self._tail.clear()
            self._dropped = 0
        if self._error is not None:
            raise self._error

    def cut(self) -> bytes:
        """Return the text since the last cut, and begin a new part."""
        self.flush()
        with self._path.open("rb") as file:
            file.seek(self._part_start)
            part = file.read()
        self._part_start += len(part)
        self._head = 0
        return part

    def close(self) -> None:
        self.flush()
        self._ended.set()

    def _follow(self) -> None:
        """Read until the stream ends or is closed."""
        with self._pipe:
            while not self._ended.is_set():
                readable, _, _ = select.select([self._pipe], [], [], _LOG_POLL_S)
                with self._lock:
                    if readable and not self._ended.is_set() and self._read_block() == b"":
                        self._ended.set()

    def _read_block(self) -> bytes | None:
        """Read a block from the pipe; return None if the pipe is empty, and no bytes at its end."""
        try:
            block = os.read(self._pipe.fileno(), _BLOCK_BYTES)
        except BlockingIOError:
            return None
        room = KEPT_BYTES - self._head
        if len(block) > room:
            room = _find_character_start(block, room)
            self._head = KEPT_BYTES
        else:
            self._head += len(block)
        self._write(block[:room])
        self._tail += block[room:]
        if len(self._tail) > 2 * KEPT_BYTES:
            self._shorten_tail()
        return block

    def _shorten_tail(self) -> None:
        """Keep only the last KEPT_BYTES of the tail, starting with a whole character."""
        if len(self._tail) > KEPT_BYTES:
            start = _find_character_start(self._tail, len(self._tail) - KEPT_BYTES)
            self._dropped += start
            del self._tail[:start]

    def _write(self, content: bytes | bytearray) -> None:
        """Append to the file; an error is raised by the next `flush`, in the caller's thread."""
        try:
            if content:
                with self._path.open("ab") as file:
                    file.write(content)
        except OSError as error:
            self._error = error


def _find_character_start(text: bytes | bytearray, index: int) -> int:
    """Return `index`, or the start of the UTF-8 character if `index` is inside a character."""
    starts = (at for at in range(index, max(index - 4, -1), -1) if text[at] & 0xC0 != 0x80)
    return next(starts, index)
