"""Resident memory of this process, of a tree of processes and of a CUDA card, in MiB."""

from __future__ import annotations

import resource
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

SAMPLING_STEP_S: Final = 0.02
LONGEST_STEP_S: Final = 0.2


class PeakSampler:
    """Samples a memory figure in a thread while the block runs.

    Args:
        sample_mib: returns the memory now.
        limit_mib: above this `on_excess` is called.
        step_s: shortest time between samples.
    """

    def __init__(
        self,
        sample_mib: Callable[[], float],
        limit_mib: float = float("inf"),
        on_excess: Callable[[], None] = lambda: None,
        step_s: float = SAMPLING_STEP_S,
    ) -> None:
        self.peak_mib = 0.0
        self._sample_mib, self._limit_mib, self._on_excess = sample_mib, limit_mib, on_excess
        self._step_s, self._ended = step_s, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> PeakSampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        step_s = self._step_s
        while not self._ended.wait(step_s):
            begun = time.thread_time()
            self.peak_mib = max(self.peak_mib, self._sample_mib())
            # Sampling takes at most a tenth of a core from the processes that it watches.
            step_s = max(self._step_s, min(10 * (time.thread_time() - begun), LONGEST_STEP_S))
            if self.peak_mib > self._limit_mib:
                self._on_excess()


def tree_memory_mib(pid: int) -> float:
    """Resident memory of a process and its descendants, 0 if it has ended.

    A page that several processes share is divided among them (proportional set size), so it counts once.
    """
    members = _tree(pid)
    if len(members) == 1:
        return _field_mib(Path(f"/proc/{pid}/status"), "VmRSS")  # children born since then must not count in full
    return sum(_field_mib(Path(f"/proc/{member}/smaps_rollup"), "Pss") for member in members)


def peak_memory_mib() -> float:
    """Highest resident memory of this process since `reset_peak`, or since its start if the reset is refused."""
    peak_mib = _field_mib(Path("/proc/self/status"), "VmHWM")
    return peak_mib or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def reset_peak() -> None:
    """Reset the high-water mark; some sandboxes refuse it."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def card_memory_mib() -> float | None:
    """Memory taken on the first CUDA card by the driver's count, None without a card."""
    if not shutil.which("nvidia-smi"):
        return None
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = process.stdout.split()
    return float(lines[0]) if process.returncode == 0 and lines and lines[0].isdigit() else None


def _tree(pid: int) -> list[int]:
    try:
        # A child belongs to the thread that started it; some sandboxes list it under every thread.
        children = {n for path in Path(f"/proc/{pid}").glob("task/*/children") for n in path.read_text().split()}
    except (FileNotFoundError, ProcessLookupError):
        return [pid]
    return [pid, *(member for child in children for member in _tree(int(child)))]


def _field_mib(path: Path, field: str) -> float:
    """A field in kB of a file under `/proc`; 0 if the process has ended."""
    try:
        lines = path.read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    for line in lines:
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) / 1024
    return 0.0
