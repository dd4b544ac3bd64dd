"""Seconds of repeated calls or commands, and the memory that they reach."""

from __future__ import annotations

import math
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from contract.errors import HecktorError

SAMPLING_STEP_S = 0.02
LONGEST_STEP_S = 0.2


@dataclass(frozen=True)
class Repeats:
    """How often to repeat: ``least`` times, then on until ``least_s`` seconds are spent or ``most`` is reached."""

    least: int
    least_s: float = 0.0
    most: int = 200

    def go_on(self, done: int, spent_s: float) -> bool:
        """Whether another repeat is due."""
        return done < self.least or (spent_s < self.least_s and done < self.most)


@dataclass(frozen=True)
class Timing:
    """Seconds of each repeat, the highest resident memory while they ran, and what was resident before, in MiB."""

    seconds: tuple[float, ...]
    peak_memory_mib: float
    memory_before_mib: float

    @property
    def median_s(self) -> float:
        """Median over the repeats, in seconds."""
        return float(np.median(self.seconds))

    def as_json(self) -> dict[str, Any]:
        """Minimum, median and p90 (linear between repeats) in seconds, memory in MiB, and every repeat."""
        return {
            "seconds": {
                "min": min(self.seconds),
                "median": self.median_s,
                "p90": float(np.percentile(self.seconds, 90)),
                "all": list(self.seconds),
            },
            "peak_memory_mib": self.peak_memory_mib,
            "memory_before_mib": self.memory_before_mib,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Timing:
        """The timing that `as_json` wrote."""
        return cls(tuple(content["seconds"]["all"]), content["peak_memory_mib"], content["memory_before_mib"])


def time_calls(call: Callable[[], object], repeats: Repeats, *, warm_up: bool = True) -> Timing:
    """Time ``call`` in this process, after one call whose time is not counted unless ``warm_up`` is False.

    The uncounted call fills file and allocator caches; its memory does count.
    """
    before_mib = current_memory_mib()
    _forget_peak()
    if warm_up:
        call()
    seconds: list[float] = []
    while repeats.go_on(len(seconds), sum(seconds)):
        begun = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begun)
    return Timing(tuple(seconds), peak_memory_mib(), before_mib)


def tree_memory_mib(pid: int) -> float:
    """Resident memory of a process and its descendants; pages that they share count for each. Gone: 0."""
    return sum(_memory_mib(member, "status", "VmRSS") for member in _tree(pid))


def tree_memory_once_mib(pid: int) -> float:
    """Resident memory of a process and its descendants; pages that they share count once. Gone: 0.

    A page that several processes share is divided among them (proportional set size).
    """
    members = _tree(pid)
    if len(members) == 1:
        return _memory_mib(pid, "status", "VmRSS")  # children that were born since must not count whole
    return sum(_memory_mib(member, "smaps_rollup", "Pss") for member in members)


def _tree(pid: int) -> list[int]:
    try:
        # A child belongs to the thread that started it; some sandboxes list it for every thread.
        children = {n for path in Path(f"/proc/{pid}").glob("task/*/children") for n in path.read_text().split()}
    except (FileNotFoundError, ProcessLookupError):
        return [pid]
    return [pid, *(member for child in children for member in _tree(int(child)))]


def _memory_mib(pid: int, name: str, field: str) -> float:
    try:
        return _status_mib(Path(f"/proc/{pid}/{name}"), field)
    except (FileNotFoundError, ProcessLookupError):
        return 0.0


@dataclass(frozen=True)
class CommandRun:
    """One run of a command: its seconds, the peak memory of it and its descendants, and how it ended.

    `killed` says that it was ended for taking more memory than it may.
    """

    seconds: float
    peak_memory_mib: float
    status: int
    said: str
    killed: bool = False


def run_command(
    command: Sequence[str],
    *,
    most_memory_mib: float = math.inf,
    environment: Mapping[str, str] | None = None,
    memory_mib: Callable[[int], float] = tree_memory_mib,
) -> CommandRun:
    """Run a command to its end, or until it and its descendants together take more than `most_memory_mib`.

    Args:
        command: program and arguments.
        most_memory_mib: where they are killed.
        environment: the whole environment; None passes on this process's own.
        memory_mib: their memory, by the command's process ID.
    """
    begun = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=None if environment is None else dict(environment),
        start_new_session=True,
    )
    watch = _TreeMemory(process.pid, memory_mib, most_memory_mib)
    try:
        said, _ = process.communicate()
    except BaseException:  # an interrupt reaches this process alone
        watch.kill()
        raise
    seconds = time.perf_counter() - begun
    return CommandRun(seconds, watch.stop(), process.returncode, said, watch.killed)


def time_command(command: Sequence[str], repeats: Repeats) -> Timing:
    """Time whole processes, from their start to their end; memory is that of the process and its descendants.

    Raises:
        HecktorError: the command fails.
    """
    runs: list[CommandRun] = []
    while repeats.go_on(len(runs), sum(run.seconds for run in runs)):
        run = run_command(command)
        if run.status:
            raise HecktorError(f"{' '.join(command)}: status {run.status}, it said: {run.said[-2000:]}")
        runs.append(run)
    return Timing(tuple(run.seconds for run in runs), max(run.peak_memory_mib for run in runs), 0.0)


class _TreeMemory:
    """Samples the memory of a process and all its descendants until it is stopped.

    Above `most_mib` the process and its descendants, which must be a session of their own, are killed.
    """

    def __init__(self, pid: int, memory_mib: Callable[[int], float], most_mib: float) -> None:
        self._pid, self._memory_mib, self._most_mib = pid, memory_mib, most_mib
        self._peak_mib, self._ended = 0.0, threading.Event()
        self.killed = False
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        """The highest sum seen, in MiB."""
        self._ended.set()
        self._thread.join()
        return self._peak_mib

    def kill(self) -> None:
        """End the whole session at once."""
        self.killed = True
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)

    def _sample(self) -> None:
        step_s = SAMPLING_STEP_S
        while not self._ended.wait(step_s):
            begun = time.thread_time()
            self._peak_mib = max(self._peak_mib, self._memory_mib(self._pid))
            # Looking should take no more than a tenth of a core from what it looks at.
            step_s = min(max(SAMPLING_STEP_S, 10 * (time.thread_time() - begun)), LONGEST_STEP_S)
            if self._peak_mib > self._most_mib:
                self.kill()


def current_memory_mib() -> float:
    """Resident memory of this process now."""
    return _status_mib(Path("/proc/self/status"), "VmRSS")


def peak_memory_mib() -> float:
    """Highest resident memory of this process since `_forget_peak`, or since its start where that is refused."""
    peak_mib = _status_mib(Path("/proc/self/status"), "VmHWM")
    return peak_mib or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _forget_peak() -> None:
    # Linux resets the high-water mark on this write; some sandboxes refuse it, and the peak then is the process's.
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _status_mib(path: Path, field: str) -> float:
    """A field of `/proc/<pid>/status` that is given in kB; 0 where it is absent, as for a process that ended."""
    for line in path.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) / 1024
    return 0.0
