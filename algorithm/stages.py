"""What each stage of a run took, and one line that says it all."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Stages:
    """Seconds by stage, in the order in which they ran; calling it times a block."""

    seconds: dict[str, float] = field(default_factory=dict)
    passes_done: int = 0
    passes_planned: int = 0

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Time the block as stage `name`."""
        begun = time.monotonic()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - begun

    def summary(self) -> str:
        """Seconds a stage, passes done of those planned, peak memory of the process."""
        parts = [f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items()]
        if self.passes_planned:
            parts.append(f"{self.passes_done} of {self.passes_planned} passes")
        parts.append(f"peak memory {peak_memory_mib():.0f} MiB")
        return ", ".join(parts)


def peak_memory_mib() -> float:
    """The largest resident set of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
