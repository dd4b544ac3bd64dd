"""Restricted mean survival under a baseline hazard."""

from __future__ import annotations

import itertools
import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.heads.parts import Survival

STEPS = Survival(days=(100.0, 200.0, 400.0), cumulative_hazard=(0.5, 0.5, 1.0))


@pytest.mark.parametrize("ratio", [0.2, 1.0, 3.0])
def test_a_restricted_mean_by_hand(ratio: float) -> None:
    """Rates 0.005, 0 and 0.0025 a day. With q = e^(-ratio / 2): 100 days at the mean (1 - q) / (ratio / 2), 100 days at
    q, then 200 days at q times the mean of the first part."""
    q = math.exp(-ratio / 2)
    first = (1 - q) / (ratio / 2)
    assert STEPS.restricted_mean(math.log(ratio)) == pytest.approx(100 * first + 100 * q + 200 * q * first)


def test_the_mean_is_the_integral_of_the_survival() -> None:
    """Trapezes of exp(-2 H) at each hundredth of a day."""
    t = np.linspace(0, 400, 40_001)
    survival = np.exp(-2 * np.interp(t, (0, *STEPS.days), (0, *STEPS.cumulative_hazard)))
    assert STEPS.restricted_mean(math.log(2)) == pytest.approx(np.trapezoid(survival, t), rel=1e-6)


def test_answers_fall_strictly_over_any_score_that_a_model_gives() -> None:
    days = [STEPS.restricted_mean(score) for score in np.arange(-25, 40, 0.01)]
    assert all(high > low for high, low in itertools.pairwise(days))
    assert days[0] == pytest.approx(400)


@pytest.mark.parametrize(
    ("ratio", "day"),
    [
        (2.0, 100 * math.log(2)),  # ln 2 / 2 = 0.347 of 0.5
        (math.log(2) / 0.5, 100.0),  # half at the foot of the plateau
        (1.0, 200 + 200 * (math.log(2) - 0.5) / 0.5),
        (0.5, None),  # 1.386 is above 1
    ],
)
def test_a_median_by_hand(ratio: float, day: float | None) -> None:
    median = STEPS.median(math.log(ratio))
    assert median == (None if day is None else pytest.approx(day))


ascending = st.lists(st.floats(1e-3, 1e5), min_size=1, max_size=64, unique=True).map(sorted)


@given(
    ascending, st.lists(st.floats(1e-6, 1e6), min_size=64, max_size=64).map(sorted), st.lists(st.floats(), max_size=9)
)
def test_answers_are_ordered_and_between_zero_and_the_horizon(
    days: list[float], hazard: list[float], scores: list[float]
) -> None:
    """Rounding may add 1e-9 of the horizon."""
    survival = Survival(days=tuple(days), cumulative_hazard=tuple(hazard[: len(days)]))
    known = sorted(score for score in scores if not math.isnan(score))
    answers = [survival.restricted_mean(score) for score in [-sys.float_info.max, *known, sys.float_info.max]]
    assert all(0 < answer <= survival.horizon_days * (1 + 1e-9) for answer in answers)
    assert all(later <= earlier + 1e-9 * survival.horizon_days for earlier, later in itertools.pairwise(answers))
