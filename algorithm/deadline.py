"""The time limit of one case: the time left, the best answer so far, and the watch over clock and signals."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from algorithm.masks.segmentation import Segmented
from algorithm.once import LastResort, Result, WriteOnce, computed
from contract.errors import HecktorError, InputError, TimeLimitError

LOGGER = logging.getLogger("hecktor")
POLL_S: Final = 0.05
# Seconds to wait for an answer in another thread after SIGTERM; the platform kills 5 s after it.
PATIENCE_S: Final = 3.0


class Termination:
    """A request to end early, made from any thread or from a signal handler."""

    def __init__(self) -> None:
        self.requested = False

    def request(self) -> None:
        self.requested = True


class Deadline:
    """A time limit on a monotonic clock, and the best answer to write before it.

    A tenth of the limit, at least ten seconds but never more than half of it, is the reserve for the steps after the
    network's passes: restoring the mask, heads and writing. When half of the reserve is used up, the best answer so
    far is written.

    Args:
        time_limit_s: seconds that the platform gives.
        clock: a clock that never jumps.
        spent_s: seconds already used, such as the start of Python.
        termination: requests an early end; the answer so far is written then.

    Raises:
        TimeLimitError: the limit is not a positive number.
    """

    def __init__(
        self,
        time_limit_s: float,
        clock: Callable[[], float] = time.monotonic,
        spent_s: float = 0.0,
        termination: Termination | None = None,
    ) -> None:
        if not 0 < time_limit_s < math.inf:
            raise TimeLimitError("time limit", f"{time_limit_s} s", "a positive number of seconds")
        self.clock, self.time_limit_s = clock, time_limit_s
        self.reserve_s = min(max(10.0, 0.1 * time_limit_s), 0.5 * time_limit_s)
        self._started_s = clock() - spent_s
        self._termination = termination or Termination()
        self._stop = threading.Event()
        self._best: Callable[[], Segmented] | None = None
        self._last_resort: LastResort | None = None

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

    def offer(self, make: Callable[[], Segmented]) -> None:
        """Replace the best answer so far; `make` is called only if that answer is needed."""
        self._best = make

    def stop(self) -> None:
        """Ask the computing thread to end at its next tile."""
        self._stop.set()

    def stopped(self) -> bool:
        """True once the computing thread should end."""
        return self._stop.is_set()

    def answer(
        self,
        compute: Callable[[], Segmented],
        write: Callable[[Any], Result],
        *,
        prepare: Callable[[Segmented], Any] = lambda answer: answer,
        last_resort: LastResort | None = None,
    ) -> Result:
        """Compute an answer in a thread of its own and write it before the time is up.

        The best answer so far is written from the calling thread if `termination` is requested, if half of the reserve
        is used up, or if another function fails through a bug or a lack of memory. The other thread then stops at its
        next tile; it may still be computing when this method returns.

        Args:
            compute: gives the answer and offers better and better ones before.
            write: writes what `prepare` made of an answer.
            prepare: the steps from an answer to what is written.
            last_resort: makes an answer from next to nothing, for the given reason. It is written if there is no other
                answer yet, if that one cannot be prepared or written, or if the input is unusable.

        Returns:
            The result of `write`, whose effects happen at most once.

        Raises:
            HecktorError: model or output is unusable; or input is, or the end came before there was an answer, and
                there is no last resort.
            Exception: a bug, before there was an answer and without a last resort.
        """
        output = WriteOnce(write, prepare)
        self._last_resort = last_resort
        if (reason := self._reason_to_end()) is not None:
            return self._end_early(reason, output)
        failure: list[BaseException] = []
        worker = threading.Thread(target=computed, args=(compute, output, failure), name="case", daemon=True)
        try:
            worker.start()
        except RuntimeError as problem:  # no memory for another thread
            return self._recovered(problem, output)
        try:
            while worker.is_alive():
                worker.join(POLL_S)
                if worker.is_alive() and (reason := self._reason_to_end()) is not None:
                    return self._end_early(reason, output)
        except BaseException:  # Ctrl-C in a notebook, whose process lives on
            self.stop()
            output.close()
            raise
        return self._recovered(failure[0], output) if failure else output.result()

    def _reason_to_end(self) -> str | None:
        if self._termination.requested:
            return "asked to end"
        has_answer = self._best is not None or self._last_resort is not None
        return "time is nearly up" if has_answer and self.overdue() else None

    def _recovered(self, problem: BaseException, output: WriteOnce[Result]) -> Result:
        if isinstance(problem, InputError) and self._last_resort is not None:
            self._best = None
            return self._end_early(problem.message, output)
        if isinstance(problem, HecktorError) or (self._best is None and self._last_resort is None):
            raise problem
        _log_bug(problem)
        return self._end_early(type(problem).__name__, output)

    def _end_early(self, reason: str, output: WriteOnce[Result]) -> Result:
        self.stop()
        if self._last_resort is None:
            return output.write_last(lambda: self._best_answer(reason))
        try:
            return output.write_last(lambda: self._best_answer(reason), self._patience_s(), self._last_resort)
        except HecktorError:
            raise
        except Exception as problem:  # noqa: BLE001  the last resort follows
            _log_bug(problem)
            why = type(problem).__name__
        return output.write_last(lambda: self._from_nothing(why), PATIENCE_S, self._last_resort)

    def _patience_s(self) -> float:
        """Seconds to wait for an answer that another thread is about to write."""
        return PATIENCE_S if self._termination.requested else max(0.0, 0.5 * self.margin_s())

    def _best_answer(self, reason: str) -> Segmented:
        if self._best is None:
            return self._from_nothing(reason)
        best = self._best()
        if best.by_network:
            LOGGER.warning("*** EARLY END *** %s: the best answer so far is written", reason)
        else:
            LOGGER.warning("*** FALLBACK *** %s: no pass is made yet, the PET threshold answers", reason)
        return best

    def _from_nothing(self, reason: str) -> Segmented:
        if self._last_resort is None:
            raise TimeLimitError(f"{reason}: no answer yet after {self.elapsed_s():.1f} s, nothing is written")
        return self._last_resort(reason)


def _log_bug(problem: BaseException) -> None:
    LOGGER.error("a bug or a lack of memory, not the case's fault", exc_info=problem)
    problem.__traceback__ = None  # it keeps the memory of the failed computation alive


def process_age_s() -> float:
    """Seconds since this process was started, including Python's own start and the imports (Linux)."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_s
