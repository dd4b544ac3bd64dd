"""Weighted pair sums against a loop over all pairs."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.metrics import concordance
from evaluation.metrics.concordance import PairCounter, find_follow_up

patients = st.lists(
    st.tuples(
        *(st.integers(1, 6), st.booleans(), st.sampled_from([float("nan"), float("inf"), 0.0, 0.5, 2.0])),
        *(st.integers(0, 3), st.integers(0, 3)),
    ),
    min_size=1,
    max_size=12,
)
missing_scores = st.sampled_from([0.0, 0.5])


def count_naively(rows, missing_score):
    comparable = concordant = 0.0
    for time, event, risk, _, weight in rows:
        for later, later_event, later_risk, later_weight, _ in rows:
            if event and (time < later or (time == later and not later_event)):
                product = weight * later_weight
                comparable += product
                if np.isnan(risk) or np.isnan(later_risk):
                    concordant += product * missing_score
                else:
                    concordant += product * ((risk > later_risk) + 0.5 * (risk == later_risk))
    return comparable, concordant


def make_columns(rows):
    times, events, risks, weights, earlier = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    return times, events.astype(bool), risks, weights, earlier


@given(patients, missing_scores, st.sampled_from([1.0, 0.25, 2.0**22]))
def test_sums_equal_those_of_a_loop(rows, missing_score, unit):
    """Also of fractional weights and of sums that single precision cannot hold: quarters and powers of 2 are exact."""
    times, events, risks, weights, earlier = make_columns(rows)
    counter = PairCounter(times, events, risks, missing_score)
    sums = counter.count(unit * weights[None], unit * earlier[None])
    assert (sums.comparable[0] / unit**2, sums.concordant[0] / unit**2) == count_naively(rows, missing_score)


@given(patients, missing_scores, st.integers(1, 30))
def test_blocks_of_pairs_have_the_sums_of_all_pairs(rows, missing_score, max_pairs):
    times, events, risks, weights, earlier = make_columns(rows)
    counter = PairCounter(times, events, risks, missing_score)
    with patch.object(concordance, "_MAX_PAIRS_IN_MEMORY", max_pairs):
        sums = counter.count(weights[None], earlier[None])
        left_out = counter.leave_one_out()
    assert (sums.comparable[0], sums.concordant[0]) == count_naively(rows, missing_score)
    np.testing.assert_array_equal(left_out.concordant, counter.leave_one_out().concordant)


@given(patients, missing_scores)
def test_leaving_out_each_patient_equals_the_count_without_it(rows, missing_score):
    times, events, risks, *_ = make_columns(rows)
    counter = PairCounter(times, events, risks, missing_score)
    sums, expected = counter.leave_one_out(), counter.count(1.0 - np.eye(len(rows)))
    for name in ("comparable", "concordant"):
        np.testing.assert_array_equal(getattr(sums, name), getattr(expected, name))


@given(patients, st.integers(0, 1000))
def test_a_bootstrap_sample_repeats_patients(rows, seed):
    """Without a comparable pair a sample has no index; otherwise it has the index of the repeated patients."""
    n = len(rows)
    times, events, risks, *_ = make_columns(rows)
    samples = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), 5)
    values = PairCounter(times, events, risks).count(samples.astype(float)).concordance()
    for sample, value in zip(samples, values, strict=True):
        comparable, concordant = count_naively([(*rows[i][:3], 1, 1) for i in np.repeat(np.arange(n), sample)], 0.0)
        assert value == pytest.approx(concordant / comparable if comparable else np.nan, abs=1e-15, nan_ok=True)


def test_no_replicate_and_no_patient():
    counter = PairCounter(np.array([1.0, 2.0]), np.array([True, False]), np.array([1.0, 0.0]))
    assert counter.count(np.zeros((0, 2))).comparable.size == 0
    empty = PairCounter(np.zeros(0), np.zeros(0, dtype=bool), np.zeros(0))
    assert empty.count(np.ones((3, 0))).comparable.tolist() == [0, 0, 0]
    assert empty.leave_one_out().comparable.size == 0


def test_only_draws_that_cannot_be_written_are_remembered():
    """Teams with equal follow-up share the sums under such draws; changed weights are summed again."""
    times, events = np.array([1.0, 2.0, 3.0]), np.array([True, True, False])
    draws = np.ones((1, 3))
    counter = PairCounter(times, events, np.array([3.0, 2.0, 1.0]))
    assert counter.count(draws).comparable[0] == 3
    draws[0, 2] = 5
    assert counter.count(draws).comparable[0] == 11
    draws.flags.writeable = False
    assert find_follow_up(times, events) is find_follow_up(times.copy(), events.copy())
    assert find_follow_up(times, events).weigh(draws) is find_follow_up(times, events).weigh(draws)
    assert counter.count(draws).comparable[0] == 11


def test_sums_by_hand():
    """Patients A and B recur first, C is censored, D recurs last: 3.5 of the pairs AB, AC, AD, BC and BD are concordant."""
    counter = PairCounter(
        np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, True, False, True]), np.array([0.9, 0.4, 0.4, 0.7])
    )
    sums = counter.count(np.ones((1, 4)))
    assert (sums.comparable[0], sums.concordant[0], sums.concordance()[0]) == (5, 3.5, 0.7)
