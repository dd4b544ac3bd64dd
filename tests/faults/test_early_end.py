"""Only one of two threads may write: the one that computes, or the one that watches the clock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from algorithm.case.read import Case
from algorithm.masks.segmentation import Segmented
from algorithm.once import WriteOnce
from contract.errors import OutputError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from contract.patient import Patient


def answer() -> Segmented:
    grid = Geometry((1, 1, 1), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    return Segmented(Case(Volume(np.zeros((1, 1, 1), np.int16), grid), None, Patient()), None)


class Disk:
    """Refuses the first `refusals` answers, then counts those written."""

    def __init__(self, refusals: int = 0) -> None:
        self.refusals, self.written = refusals, 0

    def __call__(self, _: Segmented) -> int:
        if self.refusals:
            self.refusals -= 1
            raise OutputError("the disk is full")
        self.written += 1
        return self.written


def test_nothing_is_written_after_the_last() -> None:
    """Otherwise a run that has reported a failure could still leave an answer."""
    disk = Disk(refusals=1)
    output = WriteOnce(disk)
    with pytest.raises(OutputError):
        output.write_last(answer)
    output.write(answer())
    assert disk.written == 0


def test_the_last_writes_if_the_other_could_not() -> None:
    output = WriteOnce(Disk(refusals=1))
    with pytest.raises(OutputError):
        output.write(answer())
    assert output.write_last(answer) == 1


def test_the_last_makes_no_answer_if_one_is_written() -> None:
    output = WriteOnce(Disk())
    output.write(answer())
    assert output.write_last(lambda: pytest.fail("made an answer")) == output.result() == 1


@pytest.mark.parametrize("last", [lambda output: output.write(answer()), lambda output: output.write_last(answer)])
def test_a_write_in_progress_is_waited_for(last: Callable[[WriteOnce[Any]], object]) -> None:
    begun, go_on, calls = threading.Event(), threading.Event(), []

    def slow(_: Segmented) -> str:
        begun.set()
        go_on.wait(60)
        calls.append("slow")
        return "slow"

    output = WriteOnce(slow)
    writer = threading.Thread(target=output.write, args=(answer(),))
    writer.start()
    begun.wait(60)
    threading.Timer(0.1, go_on.set).start()
    last(output)
    assert (calls, output.result()) == (["slow"], "slow")
    writer.join()
