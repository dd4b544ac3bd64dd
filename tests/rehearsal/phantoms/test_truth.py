"""C-index and balanced accuracy by hand."""

from __future__ import annotations

import pytest

from rehearsal.phantoms.truth import balanced_accuracy, c_index


def test_c_index_by_hand() -> None:
    """Events at 100 and 300 days, censored at 200 and 300.

    Pairs: (100, 200), (100, 300), (100, 300 censored), and (300, 300 censored). The risk 5 of the first is above 1, equal
    to 5 and above 2: 1 + 0.5 + 1. The third's 5 is above 2: 1. Together 3.5 of 4.
    """
    assert c_index([100, 200, 300, 300], [True, False, True, False], [5, 1, 5, 2]) == pytest.approx(3.5 / 4)


def test_c_index_without_an_event() -> None:
    assert c_index([100, 200], [False, False], [1, 2]) is None


def test_balanced_accuracy_by_hand() -> None:
    """T1: 2 of 3 right, T2: 1 of 1; T3 has no reference, T0 and a missing reference do not count: (2/3 + 1) / 2."""
    pairs = [("T1", "T1"), ("T1", "T1"), ("T1", "T2"), ("T2", "T2"), ("T0", "T1"), (None, "T3")]
    assert balanced_accuracy(pairs, ("T1", "T2", "T3")) == pytest.approx(5 / 6, abs=1e-4)


def test_balanced_accuracy_without_a_reference() -> None:
    assert balanced_accuracy([(None, "T1")], ("T1",)) is None
