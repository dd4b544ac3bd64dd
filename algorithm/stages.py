"""What each stage of a run took, and one line that says it all."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from algorithm.budget import Budget
from algorithm.masks.segmentation import Segmentation


@dataclass
class Stages:
    """Seconds by stage, in the order in which they ran; calling it times a block."""

    budget: Budget
    seconds: dict[str, float] = field(default_factory=dict)
    segmentation: str = ""
    _running: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Time the block as stage `name`."""
        begun = self._running[name] = time.monotonic()
        try:
            yield
        finally:
            self._running.pop(name, None)
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - begun

    def passes(self, segmentation: Segmentation) -> None:
        """Note how the segmentation that is written was made."""
        self.segmentation = (
            f"{segmentation.passes_done} of {segmentation.passes_planned} passes over {segmentation.how}"
            if segmentation.by_network
            else "no pass, by PET threshold"
        )

    def summary(self) -> str:
        """Seconds a stage, passes done of those planned and where, peak memory of RAM and GPU, what time was left."""
        parts = [f"{name} {seconds:.1f} s" for name, seconds in list(self.seconds.items())]
        # After an early end another thread may still be in a stage.
        now = time.monotonic()
        parts += [f"{name} {now - begun:.1f} s so far" for name, begun in list(self._running.items())]
        if self.segmentation:
            parts.append(self.segmentation)
        parts.append(f"peak memory {peak_memory_mib():.0f} MiB")
        gpu_mib = _gpu_peak_mib()
        if gpu_mib is not None:
            parts.append(f"on the GPU {gpu_mib:.0f} MiB")
        parts.append(f"{self.budget.margin_s():.1f} s of {self.budget.time_limit_s:g} s left")
        return ", ".join(parts)


def peak_memory_mib() -> float:
    """The largest resident set of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _gpu_peak_mib() -> float | None:
    if "torch" not in sys.modules:  # asking must not cost an import
        return None
    from algorithm.network.devices import gpu_peak_mib

    return gpu_peak_mib()
