"""The exact exchange of two teams' answers: by hand, against every exchange, and what must always hold."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evaluation.metrics.classification import binary_metrics, many_classes_metrics
from evaluation.metrics.overlap import WeightedSum, fractions_within, mean_metric, weighted_groups
from evaluation.statistics.exchange import exchange, missed_variance, paired_exchange
from evaluation.statistics.gains import paired_gains


def of_two(metric_of, answers, *, wanted=True):
    groups = [weighted_groups(metric_of(one)) for one in answers]
    return paired_exchange(groups, np.full((2, 2), wanted))


@pytest.mark.parametrize(("negatives", "p"), [(2, 1 / 4), (4, 1 / 16)])
def test_a_small_class_by_hand(negatives, p):
    """One team is right and the other wrong in each negative patient of sixty; both are right in all others.

    Of the 2^k ways to swap the answers of k patients, one alone gives a gain as large: 1/4 for two, 1/16 for four. The
    other way each is as large: 1. No draw of patients varies, so that a deviation of 0 would prove anything.
    """
    positive = np.arange(60) >= negatives
    test = of_two(lambda right: binary_metrics(positive, right)["balanced_accuracy"], np.array([[True] * 60, positive]))
    assert (test.p[0, 1], test.p[1, 0]) == pytest.approx((p, 1))
    assert test.reach[0, 1] == 0.5
    assert test.decides[0, 1]
    gains = paired_gains(
        np.array([1.0, 0.5]), np.array([[1.0] * 1000, [0.5] * 1000]), np.array([[1.0] * 60, [0.5] * 60])
    )
    assert gains.p[0, 1] == 1 / 1001
    decided = gains.decided_by(test)
    assert (decided.p[0, 1], decided.p[1, 0]) == pytest.approx((p, 1))
    assert (decided.ci95_low[0, 1], decided.ci95_high[0, 1]) == (0, 1)
    assert decided.exchanged.tolist() == [[False, True], [True, False]]


def test_two_classes_by_hand():
    """Of a positive class of four, two are discordant, one for each team; of a negative one of two, two for the first.

    The difference is (0 / 4 + 2 / 2) / 2. A swap gives 0 or +-2 over 4 (1/2, 1/4, 1/4) and 0 or +-2 over 2; at least as
    large are 2/2 + 0/4 and 2/2 + 2/4: 1/4 x 3/4 = 3/16. The other way all but 2/2 reversed with 2/4 reversed: 15/16.
    """
    positive = np.arange(6) < 4
    answers = np.array([[1, 0, 1, 1, 1, 1], [0, 1, 1, 1, 0, 0]], dtype=bool)
    test = of_two(lambda right: binary_metrics(positive, right)["balanced_accuracy"], answers)
    assert (test.p[0, 1], test.p[1, 0]) == pytest.approx((3 / 16, 15 / 16))
    # The largest sum of all, (2/2 + 2/4) / 2, is reached by 1 swap of 16.
    assert test.reach[0, 1] == pytest.approx(0.75)


def test_one_class_is_the_sign_test():
    """Of 20 discordant patients 15 speak for the first team: P(15 or more heads of 20) = 0.0207, and its interval.

    14 or more heads have 0.0577, so that a gain of 8 of 40 patients can be reached by chance: 0.25 -+ 0.2 without 0.
    """
    answers = np.ones((2, 40), dtype=bool)
    answers[0, :5] = answers[1, 5:20] = False

    def metric_of(right):
        return binary_metrics(np.ones(40, bool), right)["sensitivity"]

    test, beside = (of_two(metric_of, answers, wanted=wanted) for wanted in (True, False))
    assert test.p[0, 1] == pytest.approx(stats.binom.sf(14, 20, 0.5))
    assert test.p[1, 0] == pytest.approx(stats.binom.sf(4, 20, 0.5))
    assert test.reach[0, 1] == pytest.approx(8 / 40, abs=1e-6)
    assert (test.decides[0, 1], beside.decides[0, 1], beside.exists[0, 1]) == (True, False, True)
    assert beside.p.tolist() == test.p.tolist()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(4, 9), st.sampled_from([2, 3, 4]))
def test_every_exchange_of_balanced_accuracies(seed, patients, classes):
    """Also of the mean of two answers, whose patients swap both."""
    rng = np.random.default_rng(seed)
    actual = rng.integers(0, classes, (2, patients))
    actual[:, :2] = [0, 1]
    answers = rng.integers(0, 2, (2, patients, 2)).astype(bool)

    def metric_of(right):
        found = [
            many_classes_metrics(of, np.where(ok, of, -1), classes) for of, ok in zip(actual, right.T, strict=True)
        ]
        return WeightedSum([(weight, one["balanced_accuracy"]) for weight, one in zip((0.4, 0.6), found, strict=True)])

    test = of_two(metric_of, answers)
    whole = np.ones((1, patients))
    gains, swaps = [], itertools.product((False, True), repeat=patients)
    for swap in swaps:
        first, second = np.where(np.array(swap)[None, :, None], answers[::-1], answers)
        gains.append(float(metric_of(first)(whole)[0] - metric_of(second)(whole)[0]))
    gains = np.array(gains)
    expected = (gains >= gains[0] - 1e-9).mean(), (gains <= gains[0] + 1e-9).mean()
    assert (test.p[0, 1], test.p[1, 0]) == pytest.approx(expected)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 14))
def test_an_interval_holds_0_exactly_if_no_p_is_below_a_fortieth(seed, patients):
    """The p and the reach, the largest sum with a probability above 0.025 to be reached, by listing all sums."""
    gaps = np.random.default_rng(seed).normal(0.3, 1, patients).round(2)
    there, back, reach = exchange(gaps)
    sums = np.array(list(itertools.product((1, -1), repeat=patients))) @ np.abs(gaps)
    total = gaps.sum()
    assert (there, back) == pytest.approx(((sums >= total - 1e-9).mean(), (sums <= total + 1e-9).mean()))
    expected = max((one for one in sums if (sums >= one - 1e-9).mean() > 0.025), default=0.0)
    assert reach == pytest.approx(expected, abs=1e-5)
    if abs(abs(total) - expected) > 1e-4:
        assert (abs(total) > reach) == (min(there, back) <= 0.025)


def test_a_lattice_of_many_sums_agrees_with_all_of_them(monkeypatch):
    """The rounding to 1/4096 of the sum of all terms moves a p by much less than 0.01."""
    gaps = np.random.default_rng(5).normal(0.2, 1, 20)
    exact = exchange(gaps)
    monkeypatch.setattr("evaluation.statistics.exchange._MOST_SUMS", 1)
    assert exchange(gaps) == pytest.approx(exact, rel=0.01)
    assert 0 < exchange(np.ones(1500))[0] < 1e-300
    normal = np.random.default_rng(6).normal(0.1, 1, 300)
    z = normal.sum() / np.sqrt((normal**2).sum())
    assert exchange(normal)[0] == pytest.approx(stats.norm.sf(z), abs=0.005)


def test_teams_that_count_other_cases_have_no_exchange():
    """Nor have metrics that are no means; means are tested only where it is wanted."""
    some, others = mean_metric(np.array([1.0, np.nan, 0.5])), mean_metric(np.array([1.0, 1.0, 0.0]))
    groups = [weighted_groups(one) for one in (some, others, lambda weights: weights.sum(axis=1))]
    test = paired_exchange(groups, np.ones((3, 3), dtype=bool))
    assert not test.exists.any()
    assert (test.p == 1).all()
    same = [groups[1], weighted_groups(mean_metric(np.array([0.5, 0.5, 0.0])))]
    assert not paired_exchange(same, np.zeros((2, 2), dtype=bool)).exists.any()
    assert paired_exchange(same, np.ones((2, 2), dtype=bool)).exists_for_all


def test_equal_answers_have_p_1_and_reach_nothing():
    assert exchange(np.zeros(5)) == (1, 1, 0)
    assert exchange(np.array([1e-14, -1e-15])) == (1, 1, 0)


def test_the_type_i_error_is_at_most_5_percent():
    """Exactly, over all outcomes of 8 discordant patients in classes of 12 and 30: an exchangeable pair of teams."""
    terms = np.array([1 / 24] * 3 + [1 / 60] * 5)
    p = [exchange(np.array(signs) * terms)[0] for signs in itertools.product((1, -1), repeat=8)]
    assert np.mean(np.array(p) <= 0.05) <= 0.05
    assert np.mean(np.array(p) <= 0.5) <= 0.5


def test_what_draws_miss_in_small_classes_by_hand():
    """Of 2 negatives both speak for the first team, of 58 positives 2 for it and 1 for the other, of 40 others 6.

    Balanced accuracy of the first two: ((2 / 2)^2 / 2 + (1 / 58)^2 / 58) / 4 = 0.125001; a tenth of it in a sum with
    another metric a hundredth. A class with five discordant patients varies enough: nothing.
    """
    positive = np.arange(60) >= 2
    first, second = np.ones((2, 60), dtype=bool)
    first[5], second[[0, 1, 10, 11]] = False, False
    teams = [binary_metrics(positive, right)["balanced_accuracy"] for right in (first, second)]
    expected = (1 / 2 + (1 / 58) ** 2 / 58) / 4
    assert missed_variance([fractions_within(one) for one in teams])[0, 1] == pytest.approx(expected)
    sums = [WeightedSum([(0.1, one), (0.9, lambda weights: weights.sum(axis=1))]) for one in teams]
    assert weighted_groups(sums[0]) is None
    missed = missed_variance([fractions_within(one) for one in sums])
    assert missed == pytest.approx(np.array([[0, expected], [expected, 0]]) / 100)
    many = [binary_metrics(positive, right)["sensitivity"] for right in (first, np.arange(60) >= 8)]
    assert missed_variance([fractions_within(one) for one in many]).tolist() == [[0, 0], [0, 0]]
    assert fractions_within(lambda weights: weights.sum(axis=1)) is None
    values, draws = np.array([1.0, 0.0]), np.array([[0.9, 1.0, 1.1], [0.0, 0.0, 0.0]])
    gains = paired_gains(values, draws, np.zeros((2, 60)), np.array([[0.0, 0.03], [0.03, 0.0]]))
    assert gains.sd[0, 1] == pytest.approx(0.2)
