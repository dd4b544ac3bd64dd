"""Intervals of fractions and their means: by hand, exact coverage, and what must always hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from evaluation.metrics.classification import NO_CLASS, binary_metrics, many_classes_metrics
from evaluation.metrics.overlap import WeightedSum, mean_metric, on_cohort, weighted_groups
from evaluation.statistics.intervals import interval_of_fractions, wilson_interval


def recalls(sizes, right):
    """The balanced accuracy of classes of these sizes, of which so many patients are right."""
    actual = np.repeat(np.arange(len(sizes)), sizes)
    correct = np.concatenate([np.arange(size) < count for size, count in zip(sizes, right, strict=True)])
    return many_classes_metrics(actual, np.where(correct, actual, NO_CLASS), len(sizes))["balanced_accuracy"]


def ends(metric):
    return interval_of_fractions(weighted_groups(metric))


def test_wilson_s_interval_is_that_of_scipy():
    """Newcombe 1998, Stat Med 17:857-872, table I: 81 of 263 is 0.2553 to 0.3662, 0 of 20 is 0 to 0.1611."""
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson_interval(20, 20) == pytest.approx((1 - 0.1611, 1.0), abs=5e-5)
    theirs = binomtest(3, 11).proportion_ci(method="wilson")
    assert wilson_interval(3, 11) == pytest.approx((theirs.low, theirs.high))
    assert {(wilson_interval(0, n)[0], wilson_interval(n, n)[1]) for n in range(1, 40)} == {(0.0, 1.0)}


def test_two_classes_by_hand():
    """Two of two and 29 of 58 right. Wilson's ends: 2 / (2 + z^2) = 0.3424 and 1; 0.5 -+ z / (2 sqrt(58 + z^2)) = 0.1246.

    MOVER: 0.75 - sqrt(0.6576^2 + 0.1246^2) / 2 = 0.4153 and 0.75 + 0.1246 / 2 = 0.8123. A bootstrap sample always has
    all of the small class right, so that its percentile interval would begin near 0.69.
    """
    assert ends(recalls([2, 58], [2, 29])) == pytest.approx((0.4153, 0.8123), abs=5e-5)


@pytest.mark.parametrize("n", [50, 100, 400])
def test_coverage_of_a_balanced_accuracy(n):
    """Exact, as a sum over all counts, with a tenth in the smaller class; a percentile interval has 0.741 at n = 50."""
    sizes, truth = (n // 10, n - n // 10), (0.8, 0.7)
    first, second = (binom.pmf(np.arange(size + 1), size, p) for size, p in zip(sizes, truth, strict=True))
    covered = 0.0
    for one in range(sizes[0] + 1):
        for two in np.flatnonzero(second > 1e-6):
            low, high = ends(recalls(sizes, (one, two)))
            covered += first[one] * second[two] * (low <= np.mean(truth) <= high)
    assert 0.935 < covered < 0.97


def test_fractions_of_the_same_patients_are_correlated():
    """Two copies of one answer know no more than one; independent fractions would give an interval 1 / sqrt(2) as wide.

    Of an answer with all of a class right the correlation is unknown, and its part counts as independent.
    """
    one = recalls([10, 20, 30], [7, 9, 24])
    assert ends(WeightedSum([(0.5, one), (0.5, one)])) == pytest.approx(ends(one))
    low, high = ends(WeightedSum([(0.5, recalls([10, 20], [10, 20]))] * 2))
    assert high == 1
    alone = [1 - wilson_interval(size, size)[0] for size in (10, 20)]
    assert low == pytest.approx(1 - np.sqrt(sum(2 * (part / 4) ** 2 for part in alone)))


@given(st.lists(st.tuples(st.integers(1, 40), st.floats(0, 1)), min_size=2, max_size=4))
def test_intervals_lie_around_the_value_and_in_the_range(classes):
    sizes = [size for size, _ in classes]
    metric = recalls(sizes, [round(size * share) for size, share in classes])
    low, high = ends(metric)
    value = float(metric(np.ones((1, sum(sizes))))[0])
    assert -1e-12 <= low <= value + 1e-12
    assert value - 1e-12 <= high <= 1 + 1e-12


def test_metrics_as_weighted_groups():
    """Contributions add up to the metric, also on a larger cohort; other metrics have no groups."""
    positive, correct = np.arange(8) < 3, np.arange(8) % 3 > 0
    metrics = binary_metrics(positive, correct)
    places = np.array([0, 2, 3, 4, 6, 7, 9, 10])
    for metric in (*metrics.values(), mean_metric(np.array([0.5, np.nan, 1, 0, 0, 0.25, 0.25, 1]))):
        value = metric(np.ones((1, 8)))[0]
        assert weighted_groups(metric).contributions.sum() == pytest.approx(value)
        larger = on_cohort(metric, places, 11)
        weights = np.random.default_rng(0).integers(0, 3, (5, 11)).astype(float)
        np.testing.assert_allclose(larger(weights), metric(weights[:, places]))
        assert weighted_groups(larger).contributions.sum() == pytest.approx(value)
    assert weighted_groups(lambda weights: weights.sum(axis=1)) is None
    assert weighted_groups(WeightedSum([(1.0, metrics["sensitivity"]), (1.0, lambda w: w.sum(axis=1))])) is None
    assert weighted_groups(recalls([4, 0], [2, 0])) is None
    assert not weighted_groups(mean_metric(np.array([0.5]))).are_fractions
