"""Who may write when two threads could: the one that computes and the one that watches the clock."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from algorithm.best import BestAnswer

from contract.errors import OutputError


def refused() -> None:
    raise OutputError("the disk is full")


def test_nobody_writes_after_the_last() -> None:
    """Otherwise a run that has reported a failure could still leave an answer."""
    best, written = BestAnswer(), []
    with pytest.raises(OutputError):
        best.write_last(refused)
    best.write_once(lambda: written.append("late"))
    assert (written, best.written) == ([], False)


def test_the_last_writes_where_the_other_could_not() -> None:
    best, written = BestAnswer(), []
    with pytest.raises(OutputError):
        best.write_once(refused)
    best.write_last(lambda: written.append("last"))
    assert (written, best.written) == (["last"], True)


@pytest.mark.parametrize("last", [BestAnswer.write_once, BestAnswer.write_last])
def test_what_is_being_written_is_waited_for(last: Callable[[BestAnswer, Callable[[], None]], None]) -> None:
    best, written = BestAnswer(), []
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        go_on.wait(60)
        written.append("slow")

    writer = threading.Thread(target=best.write_once, args=(slow,))
    writer.start()
    begun.wait(60)
    threading.Timer(0.1, go_on.set).start()
    last(best, lambda: written.append("last"))
    assert written == ["slow"]
    writer.join()
