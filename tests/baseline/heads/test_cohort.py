"""Metrics of the evaluation on cohorts of the heads, computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from baseline.heads.cohort import Outcomes, area_under_curve, balanced_accuracy, c_index
from contract.errors import MetricError


def test_the_c_index_by_hand() -> None:
    """Events are at 1 and 3, censorings at 2 and 4. Comparable pairs are (1, 2), (1, 3), (1, 4) and (3, 4).

    Risks of 4, 3, 1 and 2 order three of these four pairs correctly.
    """
    days = np.array([1.0, 2, 3, 4])
    outcomes = Outcomes(np.array([1, 0, 1, 0]), days)
    assert c_index(outcomes, np.array([4.0, 3, 1, 2])) == 0.75
    assert c_index(outcomes, np.zeros(4)) == 0.5
    with pytest.raises(MetricError, match=r"^C-index: no comparable pair among 4 patients"):
        c_index(Outcomes(np.zeros(4, int), days), np.zeros(4))


def test_an_event_comes_before_a_censoring_of_the_same_day() -> None:
    assert c_index(Outcomes(np.array([1, 0]), np.array([5.0, 5])), np.array([0.1, 0.9])) == 0.0


def test_the_area_under_the_curve_by_hand() -> None:
    """Positives score 3 and 1, negatives 2 and 1: two pairs are right, one is wrong, one is tied."""
    assert area_under_curve(Outcomes(np.array([1, 1, 0, 0])), np.array([3.0, 1, 2, 1])) == pytest.approx(2.5 / 4)
    with pytest.raises(MetricError, match="0 of 2 positive"):
        area_under_curve(Outcomes(np.zeros(2, int)), np.zeros(2))


def test_balanced_accuracy_by_hand() -> None:
    """Two of three positives and one of two negatives are right: (2/3 + 1/2) / 2."""
    outcomes = Outcomes(np.array([1, 1, 1, 0, 0]))
    answers = np.array([True, True, False, True, False])
    assert balanced_accuracy(outcomes, answers) == pytest.approx(7 / 12)
    assert np.isnan(balanced_accuracy(outcomes.pick(np.arange(3)), answers[:3]))
