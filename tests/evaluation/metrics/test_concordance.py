"""C-indices and AUCs of risks against loops over all pairs, by hand and with censoring."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation.metrics import concordance
from evaluation.metrics.concordance import PairCounter, SharedFollowUp, find_follow_up
from evaluation.metrics.survival import SurvivalCohort, c_index_metric, dynamic_auc_metric, uno_c_metric

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


@settings(max_examples=50)
@given(patients, missing_scores, st.sampled_from([1.0, 0.25, 2.0**22]))
def test_sums_equal_those_of_a_loop(rows, missing_score, unit):
    """Also of fractional weights and of sums that single precision cannot hold: quarters and powers of 2 are exact."""
    times, events, risks, weights, earlier = make_columns(rows)
    counter = PairCounter(times, events, risks, missing_score)
    sums = counter.count(unit * weights[None], unit * earlier[None])
    assert (sums.comparable[0] / unit**2, sums.concordant[0] / unit**2) == count_naively(rows, missing_score)


@settings(max_examples=50)
@given(patients, missing_scores, st.integers(1, 30))
def test_blocks_of_pairs_have_the_sums_of_all_pairs(rows, missing_score, max_pairs):
    times, events, risks, weights, earlier = make_columns(rows)
    counter = PairCounter(times, events, risks, missing_score)
    with patch.object(concordance, "_MAX_PAIRS_IN_MEMORY", max_pairs):
        sums = counter.count(weights[None], earlier[None])
        left_out = counter.leave_one_out()
    assert (sums.comparable[0], sums.concordant[0]) == count_naively(rows, missing_score)
    np.testing.assert_array_equal(left_out.concordant, counter.leave_one_out().concordant)


@settings(max_examples=50)
@given(patients, missing_scores)
def test_leaving_out_each_patient_equals_the_count_without_it(rows, missing_score):
    times, events, risks, *_ = make_columns(rows)
    counter = PairCounter(times, events, risks, missing_score)
    sums, expected = counter.leave_one_out(), counter.count(1.0 - np.eye(len(rows)))
    for name in ("comparable", "concordant"):
        np.testing.assert_array_equal(getattr(sums, name), getattr(expected, name))


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


@pytest.mark.parametrize(
    ("times", "events", "risks", "missing_score", "expected"),
    [
        ([1, 2, 2, 2, 3], [1, 1, 1, 0, 0], [5, 4, 1, 3, 2], 0.0, 0.75),
        ([5, 5], [1, 0], [0.1, 0.9], 0.0, 0.0),
        ([1, 2, 3, 4], [1, 1, 0, 1], [4, np.nan, 2, 1], 0.0, 0.4),
        ([1, 2, 3, 4], [1, 1, 0, 1], [4, np.nan, 2, 1], 0.5, 0.7),
        ([2, 2], [1, 1], [3, 2], 0.0, np.nan),
    ],
)
def test_golden_values(times, events, risks, missing_score, expected):
    """By hand, first row: patient 1 is comparable with four others, all concordant; 2 and 3 (both recurred at 2)
    with patients 4 and 5: 4 > 3, 4 > 2 concordant, 1 < 3, 1 < 2 not: 6 of 8. Two recurrences at one time have no order.
    """
    counter = PairCounter(np.array(times, float), np.array(events, bool), np.array(risks, float), missing_score)
    c = counter.count(np.ones((1, len(times)))).concordance()[0]
    assert c == pytest.approx(expected, abs=1e-12, nan_ok=True)


def make_cohort(seed, n=40, censoring=0.5):
    rng = np.random.default_rng(seed)
    times = rng.integers(1, 15, n).astype(float)
    return SurvivalCohort(times, rng.random(n) >= censoring, rng.normal(size=n).round(1))


def compute_g(patients, time):
    """Kaplan-Meier of censoring just before `time`; recurrences at a time leave before the censored do."""
    g = 1.0
    for t in sorted(set(patients.times_days[patients.times_days < time])):
        at = patients.times_days == t
        exposed = (patients.times_days >= t).sum() - (at & patients.events).sum()
        g *= 1 - (at & ~patients.events).sum() / exposed if exposed else 1.0
    return g


def score(risk, later_risk):
    return 1.0 if risk > later_risk else 0.5 if risk == later_risk else 0.0


def compute_uno(patients):
    top = bottom = 0.0
    for i in np.flatnonzero(patients.events):
        worth = compute_g(patients, patients.times_days[i]) ** -2
        for j in range(patients.times_days.size):
            later = patients.times_days[j] > patients.times_days[i]
            if later or (patients.times_days[j] == patients.times_days[i] and not patients.events[j]):
                top += worth * score(patients.risks[i], patients.risks[j])
                bottom += worth
    return top / bottom


def compute_auc(patients, time):
    top = bottom = 0.0
    for i in np.flatnonzero(patients.events & (patients.times_days <= time)):
        worth = 1 / compute_g(patients, patients.times_days[i])
        for j in np.flatnonzero(patients.times_days > time):
            top += worth * score(patients.risks[i], patients.risks[j])
            bottom += worth
    return top / bottom


@pytest.mark.parametrize("seed", range(4))
def test_the_oracles_agree(seed):
    """Patients of weight 2 count twice, and patients of weight 0 do not count; without censoring Uno's C is Harrell's.

    An AUC without cases or controls does not exist.
    """
    patients = make_cohort(seed)
    once = np.ones((1, patients.times_days.size))
    assert uno_c_metric(patients, "non_concordant")(once)[0] == pytest.approx(compute_uno(patients))
    assert dynamic_auc_metric(patients, "non_concordant", 6.0)(once)[0] == pytest.approx(compute_auc(patients, 6.0))
    for years in (0.5, 99.0):
        assert np.isnan(dynamic_auc_metric(patients, "tie", years)(once)[0])
    weights = np.random.default_rng(seed).integers(0, 3, patients.times_days.size)
    drawn = np.repeat(np.arange(patients.times_days.size), weights)
    repeated = SurvivalCohort(patients.times_days[drawn], patients.events[drawn], patients.risks[drawn])
    for make in (uno_c_metric, lambda c, rule: dynamic_auc_metric(c, rule, 6.0)):
        whole, weighted = make(repeated, "tie")(np.ones((1, drawn.size))), make(patients, "tie")(weights[None] * 1.0)
        assert weighted[0] == pytest.approx(whole[0], nan_ok=True)
    uncensored = make_cohort(seed, censoring=0.0)
    harrell = c_index_metric(uncensored, "non_concordant")(once)[0]
    assert uno_c_metric(uncensored, "non_concordant")(once)[0] == pytest.approx(harrell)


def test_uncensored_before_by_hand():
    """Times 1 (recurrence), 2 (censored), 3, 4: of three at risk at 2 one is censored, so G is 2/3 from then on."""
    weighted = SharedFollowUp(np.array([1.0, 2, 3, 4]), np.array([True, False, True, False])).weigh(np.ones((1, 4)))
    np.testing.assert_allclose(weighted.censoring_survival[0], [1, 1, 2 / 3, 2 / 3])


def test_a_perfect_order_is_never_above_one():
    """Sums of the weights 1 / G^2 depend on the order of their terms."""
    times = np.arange(1.0, 41.0)
    perfect = SurvivalCohort(times, times % 3 != 0, -times)
    drawn = np.random.default_rng(3).multinomial(40, np.full(40, 1 / 40), 500).astype(float)
    for metric in (uno_c_metric(perfect, "tie"), dynamic_auc_metric(perfect, "tie", 20.0)):
        values = metric(drawn)
        assert values.max() == 1.0
        assert values.min() >= 1.0 - 1e-12
