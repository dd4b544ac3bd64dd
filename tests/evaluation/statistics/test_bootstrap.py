"""The paired bootstrap and intervals of recalls: pairing, redraws, known distributions, exact coverage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, t

from contract.errors import MetricError
from evaluation.metrics.classification import NO_CLASS, make_binary_metrics, make_multiclass_metrics
from evaluation.metrics.overlap import Difference, WeightedSum, extend_to_cohort, mean_metric, split_into_recalls
from evaluation.statistics.bootstrap import estimate, estimate_unranked
from evaluation.statistics.intervals import mean_recall_interval, percentile_interval, wilson_interval


def test_the_interval_of_a_mean_is_normal():
    """For n = 400 values with standard deviation s the mean has standard error s / 20; 95% lie within 1.96 of it."""
    values = np.random.default_rng(0).normal(0.6, 0.2, 400)
    estimates, again, with_other_seed = (estimate({"m": mean_metric(values)}, 400, 4000, seed) for seed in (1, 1, 2))
    mean = estimates.by_metric["m"]
    half = 1.96 * values.std() / 20
    assert mean.value == pytest.approx(values.mean())
    assert mean.ci95_low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert mean.ci95_high == pytest.approx(values.mean() + half, abs=0.1 * half)
    assert estimates == again
    assert estimates != with_other_seed


def test_replicates_without_a_class_are_drawn_again_and_counted():
    """A draw misses the one negative among 10 with probability 0.9^10 = 0.349.

    Of 400 replicates the redraws number 400 * 0.349 / 0.651 = 214 on average, with a deviation of
    sqrt(400 * 0.349) / 0.651 = 18.
    """
    positive = np.arange(10) > 0
    accuracy = make_binary_metrics(positive, np.ones(10, np.bool_))["balanced_accuracy"]
    estimates = estimate({"squared": lambda weights: accuracy(weights) ** 2}, 10, 400, 5)
    assert 214 - 5 * 18 < estimates.redraws < 214 + 5 * 18
    assert estimates.by_metric["squared"].ci95_low == 1.0


def test_intervals_of_fractions_of_patients_need_no_draws():
    """Nine of nine and one of one right: Wilson's lower ends are 9 / (9 + z^2) = 0.701 and 1 / (1 + z^2) = 0.207.

    The mean's is 1 - sqrt(0.299^2 + 0.793^2) / 2 = 0.576; every draw would give 1. Unranked metrics need no draws, and
    have an interval although more than half of the samples may lack the class.
    """
    metrics = make_binary_metrics(np.arange(10) > 0, np.ones(10, np.bool_))
    unranked = estimate_unranked(metrics, 10, 40, 5)
    assert unranked.redraws == 0
    for estimates in (estimate(metrics, 10, 40, 5), unranked):
        ends = {name: (metric.value, metric.ci95_low, metric.ci95_high) for name, metric in estimates.by_metric.items()}
        assert ends["sensitivity"] == pytest.approx((1, 0.701, 1), abs=5e-4)
        assert ends["specificity"] == pytest.approx((1, 0.207, 1), abs=5e-4)
        assert ends["balanced_accuracy"] == pytest.approx((1, 0.576, 1), abs=5e-4)
    for estimates in (estimate(metrics, 10, 0, 5), estimate_unranked(metrics, 10, 0, 5)):
        assert estimates.by_metric["sensitivity"].ci95_low is None


def test_the_interval_of_a_difference_follows_from_its_test():
    """For a mean it is difference -+ t x deviation with at most n - 1 = 59 degrees of freedom; one negative has no interval.

    One answer has both of two negatives right and the other none, in every draw: a percentile interval would be 0.5 to
    0.5. Positives: b' = c' = 0.5, N = 60: 1 / 3600; negatives: b' = 2.5, c' = 0.5, N = 4: (3 - 1) / 16 = 0.125. A quarter
    of the sum is the variance, 0.0313194, and it has almost one degree of freedom, since there are two negatives.
    """
    rng = np.random.default_rng(7)
    values = rng.normal(0.5, 0.2, (2, 60))
    first, second = map(mean_metric, values)
    gain = estimate({"d": Difference(first, second)}, 60, 4000, 8).by_metric["d"]
    gaps = values[0] - values[1]
    assert gain.value == pytest.approx(gaps.mean())
    half = t.ppf(0.975, 59) * gaps.std(ddof=1) / np.sqrt(60)
    assert (gain.ci95_low, gain.ci95_high) == pytest.approx((gaps.mean() - half, gaps.mean() + half), abs=0.1 * half)
    for negatives in (1, 2):
        positive = np.arange(60) >= negatives
        right, wrong = (
            make_binary_metrics(positive, correct)["balanced_accuracy"] for correct in (np.ones(60, np.bool_), positive)
        )
        for estimates in (
            estimate({"d": Difference(right, wrong)}, 60, 40, 8),
            estimate_unranked({"d": Difference(right, wrong)}, 60, 40, 8),
        ):
            difference = estimates.by_metric["d"]
            assert difference.value == 0.5
            if negatives == 1:
                assert (difference.ci95_low, difference.ci95_high) == (None, None)
                continue
            parts = np.array([1 / 3600, 0.125]) / 4
            half = t.ppf(0.975, parts.sum() ** 2 / (parts[0] ** 2 / 57 + parts[1] ** 2)) * np.sqrt(parts.sum())
            assert (difference.ci95_low, difference.ci95_high) == pytest.approx((0.5 - half, 0.5 + half))


def test_a_redraw_moves_no_other_replicate():
    """Replicate i has its own stream: adding a metric that is often undefined does not change the others."""
    values = np.random.default_rng(6).random(12)
    drawn = []

    def spy(weights):
        drawn.append(weights.copy())
        return mean_metric(values)(weights)

    sometimes = np.where(np.arange(12) < 2, 1.0, np.nan)
    estimate({"m": spy}, 12, 30, 9)
    without_redraws = drawn[1]
    drawn.clear()
    estimate({"m": spy, "s": mean_metric(sometimes)}, 12, 30, 9)
    np.testing.assert_array_equal(drawn[1], without_redraws)
    assert len(drawn) > 2


def test_an_undefined_metric_has_no_interval():
    estimates = estimate({"m": mean_metric(np.arange(4.0)), "u": mean_metric(np.full(4, np.nan))}, 4, 20, 0)
    assert estimates.by_metric["u"].value is None
    assert estimates.by_metric["m"].ci95_low is not None
    assert estimates.redraws == 0


def test_a_metric_that_no_draw_can_define_is_an_error(monkeypatch):
    monkeypatch.setattr("evaluation.statistics.bootstrap.MAX_REDRAWS_PER_REPLICATE", 20)

    def only_whole(weights):
        return np.where((weights == 1).all(axis=1) & (len(weights) == 1), 1.0, np.nan)

    with pytest.raises(MetricError, match="undefined"):
        estimate({"m": only_whole}, 30, 5, 0)


def test_infinite_values_are_values():
    """If more than 2.5% of the replicates are infinite the upper end is infinite and the lower one finite."""

    def worst_if_first_is_drawn(weights):
        return np.where(weights[:, 0] > 0, np.inf, weights[:, 1])

    estimates = estimate({"m": worst_if_first_is_drawn}, 10, 200, 8)
    assert estimates.redraws == 0
    assert (estimates.by_metric["m"].value, estimates.by_metric["m"].ci95_high) == (np.inf, np.inf)
    assert np.isfinite(estimates.by_metric["m"].ci95_low)


@settings(max_examples=30)
@given(st.lists(st.floats(-10, 10), min_size=1, max_size=30))
def test_the_percentile_interval_equals_numpy(values):
    np.testing.assert_allclose(percentile_interval(np.array(values)), np.percentile(values, [2.5, 97.5]), atol=1e-9)


def make_balanced_accuracy(sizes, right):
    """Return the balanced accuracy of classes with these sizes and numbers of right patients."""
    actual = np.repeat(np.arange(len(sizes)), sizes)
    correct = np.concatenate([np.arange(size) < count for size, count in zip(sizes, right, strict=True)])
    return make_multiclass_metrics(actual, np.where(correct, actual, NO_CLASS), len(sizes))["balanced_accuracy"]


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
    interval = mean_recall_interval(make_balanced_accuracy([2, 58], [2, 29]))
    assert interval == pytest.approx((0.4153, 0.8123), abs=5e-5)
    assert mean_recall_interval(make_balanced_accuracy([2, 0, 58], [2, 0, 29])) == interval  # no patient of a class


@pytest.mark.parametrize("n", [50, 100])
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


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(1, 40), st.floats(0, 1)), min_size=2, max_size=4))
def test_intervals_contain_the_value_and_lie_in_the_range(classes):
    sizes = [size for size, _ in classes]
    metric = make_balanced_accuracy(sizes, [round(size * share) for size, share in classes])
    low, high = mean_recall_interval(metric)
    value = float(metric(np.ones((1, sum(sizes))))[0])
    assert -1e-12 <= low <= value + 1e-12
    assert value - 1e-12 <= high <= 1 + 1e-12


def test_recalls_on_a_larger_cohort_and_in_a_sum():
    positive, correct = np.arange(8) < 3, np.arange(8) % 3 > 0
    metrics = make_binary_metrics(positive, correct)
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
