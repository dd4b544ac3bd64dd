"""The time limit of one case: the time left for passes, and a request to end early."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from contract.errors import TimeLimitError


class Termination:
    """A request to end early, made from any thread or from a signal handler."""

    def __init__(self) -> None:
        self.requested = False

    def request(self) -> None:
        self.requested = True


class StoppedError(Exception):
    """The watchdog stopped the computation."""


class Deadline:
    """A time limit on a monotonic clock.

    A tenth of the limit, at least ten seconds but never more than half of it, is the reserve for the steps after the
    network's passes: restoring the mask, heads and writing. When half of the reserve is used up, the case is overdue.

    Args:
        time_limit_s: seconds that the platform gives.
        clock: a clock that never jumps.
        spent_s: seconds already used, such as the start of Python.

    Raises:
        TimeLimitError: the limit is not a positive number.
    """

    def __init__(self, time_limit_s: float, clock: Callable[[], float] = time.monotonic, spent_s: float = 0.0) -> None:
        if not 0 < time_limit_s < math.inf:
            raise TimeLimitError("time limit", f"{time_limit_s} s", "a positive number of seconds")
        self.clock, self.time_limit_s = clock, time_limit_s
        self.reserve_s = min(max(10.0, 0.1 * time_limit_s), 0.5 * time_limit_s)
        self._started_s = clock() - spent_s
        self._stop = threading.Event()

    def elapsed_s(self) -> float:
        return self.clock() - self._started_s

    def left_s(self) -> float:
        """Seconds left for passes; negative once the reserve is being used."""
        return self.time_limit_s - self.reserve_s - self.elapsed_s()

    def margin_s(self) -> float:
        """Seconds until the time limit itself."""
        return self.time_limit_s - self.elapsed_s()

    def overdue(self) -> bool:
        """True when half of the reserve is used up."""
        return self.margin_s() < 0.5 * self.reserve_s

    def fits(self, cost_s: float) -> bool:
        """True if work of `cost_s` seconds would end before the reserve begins."""
        return cost_s <= self.left_s()

    def stop(self) -> None:
        """Ask the computing thread to end at its next tile."""
        self._stop.set()

    def stopped(self) -> bool:
        """True once the computing thread should end."""
        return self._stop.is_set()

    def check(self) -> None:
        """Raise `StoppedError` once the computing thread should end."""
        if self.stopped():
            raise StoppedError("asked to end")


def process_age_s() -> float:
    """Seconds since this process was started, including Python's own start and the imports (Linux)."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_s
