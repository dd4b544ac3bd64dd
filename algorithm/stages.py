"""Seconds of each stage of a run, and peak memory."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stages:
    """Seconds by stage, in the order in which they ran; calling it times a block."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._begun: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Time the block as stage `name`."""
        begun = self._begun[name] = time.monotonic()
        try:
            yield
        finally:
            self._begun.pop(name, None)
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - begun

    def unfinished(self) -> dict[str, float]:
        """Seconds so far of stages that another thread is still in, after an early end."""
        now = time.monotonic()
        return {name: now - begun for name, begun in list(self._begun.items())}


def peak_memory_mib() -> float:
    """The largest resident set of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def gpu_peak_memory_mib() -> float | None:
    """The largest memory reserved on the card by this process, in MiB; None if no card was used."""
    torch = sys.modules.get("torch")  # asking must not cost an import
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    return float(torch.cuda.max_memory_reserved() / 2**20)
