"""Weighted pair sums against a loop over all pairs."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evaluation.metrics import concordance
from evaluation.metrics.concordance import PairCounter

patients = st.lists(
    st.tuples(
        *(st.integers(1, 6), st.booleans(), st.sampled_from([float("nan"), 0.0, 0.5, 2.0])),
        *(st.integers(0, 3), st.integers(0, 3)),
    ),
    min_size=1,
    max_size=12,
)


def naive(rows):
    comparable = concordant = unknown = 0.0
    for time, event, risk, _, weight in rows:
        for later, later_event, later_risk, later_weight, _ in rows:
            if event and (time < later or (time == later and not later_event)):
                product = weight * later_weight
                comparable += product
                if np.isnan(risk) or np.isnan(later_risk):
                    unknown += product
                else:
                    concordant += product * ((risk > later_risk) + 0.5 * (risk == later_risk))
    return comparable, concordant, unknown


@given(patients)
def test_sums_equal_those_of_a_loop(rows):
    times, events, risks, weights, earlier = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    found = PairCounter(times, events.astype(bool), risks).count(weights[None], earlier[None])
    assert (found.comparable[0], found.concordant[0], found.unknown[0]) == naive(rows)


def test_no_replicate_and_no_patient():
    counter = PairCounter(np.array([1.0, 2.0]), np.array([True, False]), np.array([1.0, 0.0]))
    assert counter.count(np.zeros((0, 2))).comparable.size == 0
    nobody = PairCounter(np.zeros(0), np.zeros(0, dtype=bool), np.zeros(0))
    assert nobody.count(np.ones((3, 0))).comparable.tolist() == [0, 0, 0]


@given(patients)
def test_large_cohorts_without_a_matrix_have_the_same_sums(rows):
    times, events, risks, weights, earlier = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    with patch.object(concordance, "_MAX_MATRIX_PAIRS", -1):
        found = PairCounter(times, events.astype(bool), risks).count(weights[None], earlier[None])
    assert (found.comparable[0], found.concordant[0], found.unknown[0]) == naive(rows)


@given(patients)
def test_leaving_out_each_patient_equals_the_count_without_it(rows):
    times, events, risks, *_ = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    counter = PairCounter(times, events.astype(bool), risks)
    found, expected = counter.leave_one_out(), counter.count(1.0 - np.eye(len(rows)))
    for name in ("comparable", "concordant", "unknown"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_the_worked_example_of_the_docstring():
    """A and B recur first, C is censored, D recurs last: 3.5 of the pairs AB, AC, AD, BC and BD are concordant."""
    counter = PairCounter(
        np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, True, False, True]), np.array([0.9, 0.4, 0.4, 0.7])
    )
    with patch.object(concordance, "_MAX_MATRIX_PAIRS", -1):
        sums = counter.count(np.ones((1, 4)))
    assert (sums.comparable[0], sums.concordant[0], sums.concordance()[0]) == (5, 3.5, 0.7)
