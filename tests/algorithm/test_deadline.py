from __future__ import annotations

import math
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from algorithm.deadline import Deadline, Termination
from contract.errors import TimeLimitError


def test_the_reserve_is_a_tenth() -> None:
    """Of 600 s 60 are reserve: at 100 s 440 are left, and the clock started at 50."""
    now = 50.0
    deadline = Deadline(600.0, lambda: now)
    now = 150.0
    assert (deadline.elapsed_s(), deadline.left_s()) == (100.0, 440.0)
    assert deadline.fits(440.0)
    assert not deadline.fits(440.1)


def test_the_reserve_is_at_least_ten_seconds_and_at_most_half() -> None:
    assert Deadline(50.0, lambda: 0.0).left_s() == 40.0
    assert Deadline(5.0, lambda: 0.0).left_s() == 2.5


def test_time_spent_before_the_start_counts() -> None:
    deadline = Deadline(600.0, lambda: 50.0, spent_s=8.0)
    assert (deadline.elapsed_s(), deadline.margin_s()) == (8.0, 592.0)


def test_overdue_is_when_half_of_the_reserve_is_gone() -> None:
    """Of 600 s 60 are reserve: at 570 s it is half gone."""
    now = 0.0
    deadline = Deadline(600.0, lambda: now)
    now = 570.0
    assert not deadline.overdue()
    now = 570.1
    assert deadline.overdue()


def test_the_age_of_this_process() -> None:
    """A child that sleeps for half a second before it asks is at least that old, and no minute."""
    program = "import time; time.sleep(0.5); from algorithm.deadline import process_age_s; print(process_age_s())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 0.5 <= float(done.stdout) < 60


@pytest.mark.parametrize("limit_s", [0.0, -1.0, math.nan, math.inf])
def test_a_limit_must_be_positive(limit_s: float) -> None:
    with pytest.raises(TimeLimitError, match="expected a positive number"):
        Deadline(limit_s, lambda: 0.0)


def test_an_interrupt_stops_the_computation_and_nothing_is_written_afterwards() -> None:
    """Ctrl-C reaches the waiting thread only; the other one ends at its next look and writes nothing."""
    ended, written = threading.Event(), []

    class Interrupting(Termination):
        @property
        def requested(self) -> bool:  # type: ignore[override]
            if self.begun.is_set():
                raise KeyboardInterrupt
            return False

        @requested.setter
        def requested(self, _: bool) -> None:
            self.begun = threading.Event()

    termination = Interrupting()
    deadline = Deadline(600.0, termination=termination)

    def compute() -> Any:
        termination.begun.set()
        while not deadline.stopped():
            time.sleep(0.01)
        ended.set()
        return None

    with pytest.raises(KeyboardInterrupt):
        deadline.answer(compute, written.append)
    assert ended.wait(5)
    for thread in threading.enumerate():
        if thread.name == "case":
            thread.join(5)
    assert written == []
