"""Intervals of recalls and their means: by hand, exact coverage, and what must always hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from evaluation.metrics.classification import NO_CLASS, binary_metrics, multiclass_metrics
from evaluation.metrics.overlap import WeightedSum, extend_to_cohort, mean_metric, split_into_recalls
from evaluation.statistics.intervals import mean_recall_interval, wilson_interval


def make_balanced_accuracy(sizes, right):
    """Return the balanced accuracy of classes with these sizes and numbers of right patients."""
    actual = np.repeat(np.arange(len(sizes)), sizes)
    correct = np.concatenate([np.arange(size) < count for size, count in zip(sizes, right, strict=True)])
    return multiclass_metrics(actual, np.where(correct, actual, NO_CLASS), len(sizes))["balanced_accuracy"]


def test_wilson_s_interval_is_that_of_scipy():
    """Newcombe 1998, Stat Med 17:857-872, table I: 81 of 263 is 0.2553 to 0.3662, 0 of 20 is 0 to 0.1611."""
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson_interval(20, 20) == pytest.approx((1 - 0.1611, 1.0), abs=5e-5)
    by_scipy = binomtest(3, 11).proportion_ci(method="wilson")
    assert wilson_interval(3, 11) == pytest.approx((by_scipy.low, by_scipy.high))
    assert {(wilson_interval(0, n)[0], wilson_interval(n, n)[1]) for n in range(1, 40)} == {(0.0, 1.0)}


def test_two_classes_by_hand():
    """Two of two and 29 of 58 right. Wilson's ends: 2 / (2 + z^2) = 0.3424 and 1; 0.5 -+ z / (2 sqrt(58 + z^2)) = 0.1246.

    MOVER: 0.75 - sqrt(0.6576^2 + 0.1246^2) / 2 = 0.4153 and 0.75 + 0.1246 / 2 = 0.8123. A bootstrap sample always has
    all of the small class right, so that its percentile interval would begin near 0.69.
    """
    assert mean_recall_interval(make_balanced_accuracy([2, 58], [2, 29])) == pytest.approx((0.4153, 0.8123), abs=5e-5)


@pytest.mark.parametrize("n", [50, 100, 400])
def test_coverage_of_a_balanced_accuracy(n):
    """Exact, as a sum over all counts, with a tenth in the smaller class; a percentile interval has 0.741 at n = 50."""
    sizes, truth = (n // 10, n - n // 10), (0.8, 0.7)
    first, second = (binom.pmf(np.arange(size + 1), size, p) for size, p in zip(sizes, truth, strict=True))
    covered = 0.0
    for right in range(sizes[0] + 1):
        for right_in_second in np.flatnonzero(second > 1e-6):
            low, high = mean_recall_interval(make_balanced_accuracy(sizes, (right, right_in_second)))
            covered += first[right] * second[right_in_second] * (low <= np.mean(truth) <= high)
    assert 0.935 < covered < 0.97


@given(st.lists(st.tuples(st.integers(1, 40), st.floats(0, 1)), min_size=2, max_size=4))
def test_intervals_contain_the_value_and_lie_in_the_range(classes):
    sizes = [size for size, _ in classes]
    metric = make_balanced_accuracy(sizes, [round(size * share) for size, share in classes])
    low, high = mean_recall_interval(metric)
    value = float(metric(np.ones((1, sum(sizes))))[0])
    assert -1e-12 <= low <= value + 1e-12
    assert value - 1e-12 <= high <= 1 + 1e-12


def test_a_class_without_patients_is_left_out():
    assert mean_recall_interval(make_balanced_accuracy([2, 0, 58], [2, 0, 29])) == mean_recall_interval(
        make_balanced_accuracy([2, 58], [2, 29])
    )


def test_recalls_on_a_larger_cohort_and_in_a_sum():
    positive, correct = np.arange(8) < 3, np.arange(8) % 3 > 0
    metrics = binary_metrics(positive, correct)
    places = np.array([0, 2, 3, 4, 6, 7, 9, 10])
    weights = np.random.default_rng(0).integers(0, 3, (5, 11)).astype(float)
    for metric in metrics.values():
        larger = extend_to_cohort(metric, places, 11)
        np.testing.assert_allclose(larger(weights), metric(weights[:, places]))
        assert mean_recall_interval(larger) == mean_recall_interval(metric)
    mean, recall = mean_metric(np.array([0.5])), metrics["sensitivity"]
    inner = WeightedSum([(0.4, recall), (0.6, metrics["specificity"])])
    weights_of = split_into_recalls(WeightedSum([(0.5, inner), (0.5, recall)]))
    assert weights_of == pytest.approx({recall: 0.7, metrics["specificity"]: 0.3})
    assert split_into_recalls(WeightedSum([(0.5, inner), (0.5, mean)])) == split_into_recalls(mean) == {}
