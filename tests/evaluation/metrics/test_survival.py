"""C-index: golden values and invariants. test_concordance.py compares the sums over pairs with a loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.metrics.survival import SurvivalCohort, c_index_metric

NAN = float("nan")
patients = st.lists(
    st.tuples(st.integers(1, 8), st.booleans(), st.sampled_from([NAN, -1.0, 0.0, 0.5, 2.0])), min_size=2, max_size=14
)


def make_cohort(times, events, risks):
    return SurvivalCohort(np.array(times, dtype=float), np.array(events, dtype=np.bool_), np.array(risks, dtype=float))


def compute_c_index(patients, rule="non_concordant"):
    return c_index_metric(patients, rule)(np.ones((1, patients.times_days.size)))[0]


@pytest.mark.parametrize(
    ("times", "events", "risks", "rule", "expected"),
    [
        ([1, 2, 2, 2, 3], [1, 1, 1, 0, 0], [5, 4, 1, 3, 2], "non_concordant", 0.75),
        ([5, 5], [1, 0], [0.1, 0.9], "non_concordant", 0.0),
        ([1, 2, 3, 4], [1, 1, 0, 1], [4, NAN, 2, 1], "non_concordant", 0.4),
        ([1, 2, 3, 4], [1, 1, 0, 1], [4, NAN, 2, 1], "tie", 0.7),
    ],
)
def test_golden_values(times, events, risks, rule, expected):
    """By hand, first row: patient 1 is comparable with four others, all concordant; 2 and 3 (both recurred at 2)
    with patients 4 and 5: 4 > 3, 4 > 2 concordant, 1 < 3, 1 < 2 not: 6 of 8.
    """
    assert compute_c_index(make_cohort(times, events, risks), rule) == pytest.approx(expected, abs=1e-12)


def test_without_a_comparable_pair_c_does_not_exist():
    assert np.isnan(compute_c_index(make_cohort([1, 2, 3], [0, 0, 0], [3, 2, 1])))
    assert np.isnan(compute_c_index(make_cohort([2, 2], [1, 1], [3, 2])))


@given(patients)
def test_monotone_transforms_leave_c_unchanged(rows):
    times, events, risks = (np.array(column) for column in zip(*rows, strict=True))
    value = compute_c_index(make_cohort(times, events, risks))
    assert compute_c_index(make_cohort(times, events, np.exp(3 * risks) + 7)) == pytest.approx(value, nan_ok=True)


@given(patients)
def test_opposite_risk_gives_the_complement(rows):
    times, events, risks = (np.array(column) for column in zip(*rows, strict=True))
    risks = np.nan_to_num(risks, nan=0.25) + np.arange(len(rows)) * 1e-3
    value = compute_c_index(make_cohort(times, events, risks))
    assert compute_c_index(make_cohort(times, events, -risks)) == pytest.approx(1 - value, nan_ok=True)
