"""What still fits into the time limit."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from contract.errors import TimeLimitError


@dataclass(frozen=True)
class Budget:
    """A deadline on a monotonic clock.

    `reserve_s` is kept for what follows the network's passes: restoring the mask, heads and writing. When half of it
    is gone the best answer in hand is written, whatever is still being computed.
    """

    started_s: float
    time_limit_s: float
    reserve_s: float
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def start(cls, time_limit_s: float, clock: Callable[[], float] = time.monotonic, spent_s: float = 0.0) -> Budget:
        """Start the clock.

        Args:
            time_limit_s: seconds that the platform gives. A tenth of it, and at least ten seconds, is kept in
                reserve, but never more than half of it.
            clock: a clock that never jumps.
            spent_s: seconds that are gone already, such as the start of Python.

        Raises:
            TimeLimitError: the limit is no positive number.
        """
        if not 0 < time_limit_s < math.inf:
            raise TimeLimitError(f"time limit {time_limit_s} s, expected a positive number of seconds")
        return cls(clock() - spent_s, time_limit_s, min(max(10.0, 0.1 * time_limit_s), 0.5 * time_limit_s), clock)

    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return self.clock() - self.started_s

    def left_s(self) -> float:
        """Seconds that are left for passes; negative once the reserve is being used."""
        return self.time_limit_s - self.reserve_s - self.elapsed_s()

    def margin_s(self) -> float:
        """Seconds until the time limit itself."""
        return self.time_limit_s - self.elapsed_s()

    def overdue(self) -> bool:
        """Whether half of the reserve is gone: time to write what there is."""
        return self.margin_s() < 0.5 * self.reserve_s

    def fits(self, cost_s: float) -> bool:
        """Whether work of `cost_s` seconds would end before the reserve begins."""
        return cost_s <= self.left_s()


def process_age_s() -> float:
    """Seconds since this process was started, Python's own start and the imports included (Linux)."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_s
