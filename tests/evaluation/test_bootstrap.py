"""The paired bootstrap: pairing, redraws, and known distributions."""

from __future__ import annotations

import numpy as np
import pytest

from contract.errors import MetricError
from evaluation.bootstrap import estimate
from evaluation.classification import Answers, classification_metrics
from evaluation.overlap import mean_metric


def test_interval_of_a_mean_is_that_of_the_normal_law():
    """The mean of n = 400 values with standard deviation s has standard error s / 20; 95% lie within 1.96 of it."""
    values = np.random.default_rng(0).normal(0.6, 0.2, 400)
    found = estimate({"m": mean_metric(values)}, 400, 4000, np.random.default_rng(1)).by_metric["m"]
    half = 1.96 * values.std() / 20
    assert found.value == pytest.approx(values.mean())
    assert found.ci95_low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert found.ci95_high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_equal_seed_gives_equal_intervals_and_other_seeds_others():
    metric = {"m": mean_metric(np.arange(20.0))}
    first, again, other = (estimate(metric, 20, 50, np.random.default_rng(seed)) for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_metrics_share_their_draws():
    """m and 1 - m over the same patients mirror each other in every replicate, so their intervals do."""
    values = np.random.default_rng(2).random(30)
    found = estimate({"m": mean_metric(values), "n": mean_metric(1 - values)}, 30, 200, np.random.default_rng(3))
    m, n = found.by_metric["m"], found.by_metric["n"]
    assert m.ci95_low == pytest.approx(1 - n.ci95_high)
    assert m.ci95_high == pytest.approx(1 - n.ci95_low)


def test_replicates_without_a_class_are_drawn_again_and_counted():
    """One negative among 10: a draw misses it with probability 0.9^10 = 0.349.

    Of 400 replicates the redraws number 400 * 0.349 / 0.651 = 214 on average, with a deviation of
    sqrt(400 * 0.349) / 0.651 = 18.
    """
    positive = np.arange(10) > 0
    metrics = classification_metrics(Answers(positive, np.ones(10, np.bool_)))
    found = estimate(metrics, 10, 400, np.random.default_rng(5))
    assert 214 - 5 * 18 < found.redraws < 214 + 5 * 18
    assert found.by_metric["balanced_accuracy"].ci95_low == 1.0


def test_a_redraw_moves_no_other_replicate():
    """Replicate i has its own stream: what is defined at once is the same with a metric that is often undefined."""
    values = np.random.default_rng(6).random(12)
    seen = []

    def spy(weights):
        seen.append(weights.copy())
        return mean_metric(values)(weights)

    sometimes = np.where(np.arange(12) < 2, 1.0, np.nan)
    estimate({"m": spy}, 12, 30, np.random.default_rng(9))
    alone = seen[1]
    seen.clear()
    estimate({"m": spy, "s": mean_metric(sometimes)}, 12, 30, np.random.default_rng(9))
    np.testing.assert_array_equal(seen[1], alone)
    assert len(seen) > 2


def test_undefined_metric_has_no_interval_and_hinders_no_other():
    found = estimate(
        {"m": mean_metric(np.arange(4.0)), "u": mean_metric(np.full(4, np.nan))}, 4, 20, np.random.default_rng(0)
    )
    assert found.by_metric["u"].value is None
    assert found.by_metric["m"].ci95_low is not None
    assert found.redraws == 0


def test_no_bootstraps_no_interval():
    found = estimate({"m": mean_metric(np.arange(4.0))}, 4, 0, np.random.default_rng(0)).by_metric["m"]
    assert (found.value, found.ci95_low, found.ci95_high) == (1.5, None, None)


def test_a_metric_that_no_draw_can_define_is_an_error(monkeypatch):
    monkeypatch.setattr("evaluation.bootstrap.MAX_REDRAWS_A_REPLICATE", 20)

    def only_whole(weights):
        return np.where((weights == 1).all(axis=1) & (len(weights) == 1), 1.0, np.nan)

    with pytest.raises(MetricError, match="undefined"):
        estimate({"m": only_whole}, 30, 5, np.random.default_rng(0))
