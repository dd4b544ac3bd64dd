"""What still fits into the time limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from contract.errors import TimeLimitError


@dataclass(frozen=True)
class Budget:
    """A deadline on a monotonic clock.

    `reserve_s` is kept for what follows the network's passes: restoring the mask, heads and writing.
    """

    started_s: float
    time_limit_s: float
    reserve_s: float
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def start(cls, time_limit_s: float, clock: Callable[[], float] = time.monotonic) -> Budget:
        """Start the clock; a tenth of the limit, and at least ten seconds, is kept in reserve.

        Raises:
            TimeLimitError: the limit is no positive number.
        """
        if not time_limit_s > 0:
            raise TimeLimitError(f"time limit {time_limit_s} s, expected a positive number of seconds")
        return cls(clock(), time_limit_s, max(10.0, 0.1 * time_limit_s), clock)

    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return self.clock() - self.started_s

    def left_s(self) -> float:
        """Seconds that are left for passes; negative once the reserve is being used."""
        return self.time_limit_s - self.reserve_s - self.elapsed_s()

    def fits(self, cost_s: float) -> bool:
        """Whether work of `cost_s` seconds would end before the reserve begins."""
        return cost_s <= self.left_s()
