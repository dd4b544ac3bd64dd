"""The time limit of one case, and the errors and requests that end its computation early."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from contract.errors import TimeLimitError

# Without a time limit a computation counts as hung after this time without a finished tile.
MAX_SILENCE_S: Final = 1800.0


class Termination:
    """A request to end early, made by any thread or by a signal handler."""

    def __init__(self) -> None:
        self.requested = False

    def request(self) -> None:
        """Ask the computation to end; calling it again has no effect."""
        self.requested = True


class StoppedError(Exception):
    """The thread that watches the time stopped the computation."""


class NoPassFitsError(Exception):
    """There is too little time or memory for a single pass of the networks."""


class Deadline:
    """A time limit on a monotonic clock.

    A tenth of the limit, at least ten seconds but never more than half of the limit, is reserved for the steps after
    the networks' passes: the mask is restored, the heads answer and the files are written. A case is overdue when half
    of this reserve is used up. Without a limit a case is overdue if no tile ends for `MAX_SILENCE_S`.

    Args:
        time_limit_s: Seconds for the case; None sets no limit.
        clock: A clock that never jumps.
        spent_s: Seconds that were used before, such as the start of Python.

    Raises:
        TimeLimitError: The limit is not a positive number.
    """

    def __init__(
        self, time_limit_s: float | None, clock: Callable[[], float] = time.monotonic, spent_s: float = 0.0
    ) -> None:
        if time_limit_s is not None and not 0 < time_limit_s < math.inf:
            raise TimeLimitError("time limit", f"{time_limit_s} s", "a positive number of seconds")
        self.clock, self.time_limit_s = clock, time_limit_s
        self._limit_s = math.inf if time_limit_s is None else time_limit_s
        self._reserve_s = 0.0 if time_limit_s is None else min(max(10.0, 0.1 * time_limit_s), 0.5 * time_limit_s)
        self._last_sign_s = clock()
        self._started_s = self._last_sign_s - spent_s
        self._stop = threading.Event()

    def elapsed_s(self) -> float:
        """Return the seconds since the start, `spent_s` included."""
        return self.clock() - self._started_s

    def left_s(self) -> float:
        """Return the seconds left for passes: negative once the reserve is in use, infinite without a limit."""
        return self._limit_s - self._reserve_s - self.elapsed_s()

    def margin_s(self) -> float:
        """Return the seconds until the limit itself, the reserve included; infinite without a limit."""
        return self._limit_s - self.elapsed_s()

    def is_overdue(self) -> bool:
        """Return whether half of the reserve is used up; without a limit, whether the computation hangs."""
        if self.time_limit_s is None:
            return self.clock() - self._last_sign_s > MAX_SILENCE_S
        return self.margin_s() < 0.5 * self._reserve_s

    def fits(self, cost_s: float) -> bool:
        """Return whether work of `cost_s` seconds would end before the reserve begins."""
        return cost_s <= self.left_s()

    def stop(self) -> None:
        """Ask the computing thread to end after its current tile."""
        self._stop.set()

    def is_stopped(self) -> bool:
        """Return whether the computing thread should end."""
        return self._stop.is_set()

    def check(self) -> None:
        """Record that the computation is alive; raise `StoppedError` if it should end."""
        self._last_sign_s = self.clock()
        if self.is_stopped():
            raise StoppedError("asked to end")


def process_age_s() -> float:
    """Return the seconds since this process started, including the start of Python and the imports (Linux only)."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_s
