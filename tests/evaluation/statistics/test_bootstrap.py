"""The paired bootstrap: pairing, redraws, and known distributions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from contract.errors import MetricError
from evaluation.metrics.classification import binary_metrics
from evaluation.metrics.overlap import Difference, mean_metric
from evaluation.statistics.bootstrap import estimate, estimate_unranked
from evaluation.statistics.intervals import percentile_interval


def test_interval_of_a_mean_is_that_of_the_normal_law():
    """The mean of n = 400 values with standard deviation s has standard error s / 20; 95% lie within 1.96 of it."""
    values = np.random.default_rng(0).normal(0.6, 0.2, 400)
    found = estimate({"m": mean_metric(values)}, 400, 4000, 1).by_metric["m"]
    half = 1.96 * values.std() / 20
    assert found.value == pytest.approx(values.mean())
    assert found.ci95_low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert found.ci95_high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_equal_seed_gives_equal_intervals_and_other_seeds_others():
    metric = {"m": mean_metric(np.arange(20.0))}
    first, again, other = (estimate(metric, 20, 50, seed) for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_metrics_share_their_draws():
    """m and 1 - m over the same patients mirror each other in every replicate, so their intervals do."""
    values = np.random.default_rng(2).random(30)
    found = estimate({"m": mean_metric(values), "n": mean_metric(1 - values)}, 30, 200, 3)
    m, n = found.by_metric["m"], found.by_metric["n"]
    assert m.ci95_low == pytest.approx(1 - n.ci95_high)
    assert m.ci95_high == pytest.approx(1 - n.ci95_low)


def test_replicates_without_a_class_are_drawn_again_and_counted():
    """One negative among 10: a draw misses it with probability 0.9^10 = 0.349.

    Of 400 replicates the redraws number 400 * 0.349 / 0.651 = 214 on average, with a deviation of
    sqrt(400 * 0.349) / 0.651 = 18.
    """
    positive = np.arange(10) > 0
    accuracy = binary_metrics(positive, np.ones(10, np.bool_))["balanced_accuracy"]
    found = estimate({"squared": lambda weights: accuracy(weights) ** 2}, 10, 400, 5)
    assert 214 - 5 * 18 < found.redraws < 214 + 5 * 18
    assert found.by_metric["squared"].ci95_low == 1.0


def test_intervals_of_fractions_of_patients_are_not_those_of_draws():
    """Nine of nine and one of one right: Wilson's lower ends are 9 / (9 + z^2) = 0.701 and 1 / (1 + z^2) = 0.207.

    The mean's is 1 - sqrt(0.299^2 + 0.793^2) / 2 = 0.576; every draw would give 1. Unranked metrics need no draws, and
    have an interval although more than half of the samples may lack the class. Without intervals there is none.
    """
    metrics = binary_metrics(np.arange(10) > 0, np.ones(10, np.bool_))
    unranked = estimate_unranked(metrics, 10, 40, 5)
    assert unranked.redraws == 0
    for found in (estimate(metrics, 10, 40, 5), unranked):
        ends = {name: (one.value, one.ci95_low, one.ci95_high) for name, one in found.by_metric.items()}
        assert ends["sensitivity"] == pytest.approx((1, 0.701, 1), abs=5e-4)
        assert ends["specificity"] == pytest.approx((1, 0.207, 1), abs=5e-4)
        assert ends["balanced_accuracy"] == pytest.approx((1, 0.576, 1), abs=5e-4)
    for found in (estimate(metrics, 10, 0, 5), estimate_unranked(metrics, 10, 0, 5)):
        assert found.by_metric["sensitivity"].ci95_low is None


def test_the_interval_of_a_difference_is_that_of_its_test():
    """Of a mean: difference -+ t x deviation, n - 1 = 59 degrees of freedom at most; of one negative there is none.

    One answer has both of two negatives right and the other none, in every draw: a percentile interval would be 0.5 to
    0.5. Positives: b' = c' = 0.5, N = 60: 1 / 3600; negatives: b' = 2.5, c' = 0.5, N = 4: (3 - 1) / 16 = 0.125. A quarter
    of the sum is the variance, 0.0313194, and it has almost one degree of freedom, that of two negatives.
    """
    rng = np.random.default_rng(7)
    values = rng.normal(0.5, 0.2, (2, 60))
    first, second = map(mean_metric, values)
    found = estimate({"d": Difference(first, second)}, 60, 4000, 8).by_metric["d"]
    gaps = values[0] - values[1]
    assert found.value == pytest.approx(gaps.mean())
    half = t.ppf(0.975, 59) * gaps.std(ddof=1) / np.sqrt(60)
    assert (found.ci95_low, found.ci95_high) == pytest.approx((gaps.mean() - half, gaps.mean() + half), abs=0.1 * half)
    for negatives in (1, 2):
        positive = np.arange(60) >= negatives
        right, wrong = (binary_metrics(positive, one)["balanced_accuracy"] for one in (np.ones(60, np.bool_), positive))
        for found in (
            estimate({"d": Difference(right, wrong)}, 60, 40, 8),
            estimate_unranked({"d": Difference(right, wrong)}, 60, 40, 8),
        ):
            one = found.by_metric["d"]
            assert one.value == 0.5
            if negatives == 1:
                assert (one.ci95_low, one.ci95_high) == (None, None)
                continue
            parts = np.array([1 / 3600, 0.125]) / 4
            half = t.ppf(0.975, parts.sum() ** 2 / (parts[0] ** 2 / 57 + parts[1] ** 2)) * np.sqrt(parts.sum())
            assert (one.ci95_low, one.ci95_high) == pytest.approx((0.5 - half, 0.5 + half))


def test_a_redraw_moves_no_other_replicate():
    """Replicate i has its own stream: adding a metric that is often undefined does not change the others."""
    values = np.random.default_rng(6).random(12)
    seen = []

    def spy(weights):
        seen.append(weights.copy())
        return mean_metric(values)(weights)

    sometimes = np.where(np.arange(12) < 2, 1.0, np.nan)
    estimate({"m": spy}, 12, 30, 9)
    alone = seen[1]
    seen.clear()
    estimate({"m": spy, "s": mean_metric(sometimes)}, 12, 30, 9)
    np.testing.assert_array_equal(seen[1], alone)
    assert len(seen) > 2


def test_undefined_metric_has_no_interval_and_hinders_no_other():
    found = estimate({"m": mean_metric(np.arange(4.0)), "u": mean_metric(np.full(4, np.nan))}, 4, 20, 0)
    assert found.by_metric["u"].value is None
    assert found.by_metric["m"].ci95_low is not None
    assert found.redraws == 0


def test_a_metric_that_no_draw_can_define_is_an_error(monkeypatch):
    monkeypatch.setattr("evaluation.statistics.bootstrap.MAX_REDRAWS_PER_REPLICATE", 20)

    def only_whole(weights):
        return np.where((weights == 1).all(axis=1) & (len(weights) == 1), 1.0, np.nan)

    with pytest.raises(MetricError, match="undefined"):
        estimate({"m": only_whole}, 30, 5, 0)


def test_infinite_values_are_values():
    """A share p of infinite replicates above 2.5% makes the upper end infinite, the lower one stays finite."""

    def worst_if_first_is_drawn(weights):
        return np.where(weights[:, 0] > 0, np.inf, weights[:, 1])

    found = estimate({"m": worst_if_first_is_drawn}, 10, 200, 8)
    assert found.redraws == 0
    assert (found.by_metric["m"].value, found.by_metric["m"].ci95_high) == (np.inf, np.inf)
    assert np.isfinite(found.by_metric["m"].ci95_low)


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=30))
def test_interval_is_that_of_numpy(values):
    np.testing.assert_allclose(percentile_interval(np.array(values)), np.percentile(values, [2.5, 97.5]), atol=1e-9)
