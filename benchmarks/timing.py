"""Seconds of repeated calls or commands, and the memory that they reach."""

from __future__ import annotations

import resource
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from contract.errors import HecktorError

SAMPLING_STEP_S = 0.02


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


def time_command(command: Sequence[str], repeats: Repeats) -> Timing:
    """Time whole processes, from their start to their end; memory is that of the process and its descendants.

    Raises:
        HecktorError: the command fails.
    """
    seconds: list[float] = []
    peak_mib = 0.0
    while repeats.go_on(len(seconds), sum(seconds)):
        begun = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        watch = _TreeMemory(process.pid)
        said, _ = process.communicate()
        seconds.append(time.perf_counter() - begun)
        peak_mib = max(peak_mib, watch.stop())
        if process.returncode:
            raise HecktorError(f"{' '.join(command)}: status {process.returncode}, it said: {said[-2000:]}")
    return Timing(tuple(seconds), peak_mib, 0.0)


class _TreeMemory:
    """Samples the resident memory of a process and all its descendants, summed, until it is stopped."""

    def __init__(self, pid: int) -> None:
        self._pid, self._peak_mib, self._ended = pid, 0.0, threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        """The highest sum seen, in MiB."""
        self._ended.set()
        self._thread.join()
        return self._peak_mib

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLING_STEP_S):
            self._peak_mib = max(self._peak_mib, tree_memory_mib(self._pid))


def tree_memory_mib(pid: int) -> float:
    """Resident memory of a process and its descendants; pages that they share count once each. Gone: 0."""
    folder = Path("/proc") / str(pid)
    try:
        own = _status_mib(folder / "status", "VmRSS")
        children = " ".join(path.read_text() for path in folder.glob("task/*/children")).split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return own + sum(tree_memory_mib(int(child)) for child in children)


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
