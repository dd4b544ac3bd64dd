"""The paired patient bootstrap: one draw of patients serves every metric, and every team of the same cohort."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from contract.errors import MetricError
from evaluation.metrics.overlap import Difference, Floats, MeanRecall, WeightedMetric
from evaluation.metrics.survival import CIndex
from evaluation.statistics.gains import interval_of_difference
from evaluation.statistics.intervals import interval_of_recalls, percentile_interval

Key = TypeVar("Key", bound=Hashable)

MAX_REDRAWS_PER_REPLICATE: Final = 10_000
# Samples that show whether a metric is always defined, and the share of undefined ones up to which it is estimated.
_PROBES: Final = 100
_MOSTLY: Final = 0.5
# Largest number of weights in memory at once, when each case is left out in turn.
_NUMBERS_AT_ONCE: Final = 4_000_000


@dataclass(frozen=True)
class Estimate:
    """A metric with its 95% interval; None if the metric is undefined for this cohort.

    `p` is two-sided and belongs to a difference of two metrics; other metrics have none.
    """

    value: float | None
    ci95_low: float | None
    ci95_high: float | None
    p: float | None = None


@dataclass(frozen=True)
class Estimates:
    """The estimate of every metric, and the number of replicates that were drawn again.

    `extra_redraws` counts the redraws of metrics that do not rank, which have their own draws.
    """

    by_metric: Mapping[str, Estimate]
    redraws: int
    extra_redraws: int = 0


def estimate(
    metrics: Mapping[str, WeightedMetric], n_cases: int, bootstraps: int, rng: np.random.Generator
) -> Estimates:
    """Every metric over the cohort, with a 95% interval.

    Recalls and their mean have Wilson's intervals, joined by MOVER, differences of two metrics that of their test
    (`gains`), none where too few patients differ, all other metrics percentile intervals from resampled patients. All
    share the draws, in which every metric is defined, so that a ranking can repeat them.

    Args:
        metrics: functions of weights (replicates, cases), NaN where undefined; infinite values count as values.
        n_cases: patients in the cohort, sorted by name, so that teams with one seed share their draws.
        bootstraps: replicates; 0 gives no intervals.
        rng: the source of the draws. Replicate i has its own stream, so that drawing one again moves no other.

    Raises MetricError: a replicate stays undefined after 10,000 draws.
    """
    whole = {name: float(metric(np.ones((1, n_cases)))[0]) for name, metric in metrics.items()}
    defined = {name: metric for name, metric in metrics.items() if not np.isnan(whole[name])}
    values, redraws = draw_replicates(defined, n_cases, bootstraps, rng)
    by_metric = {}
    for name, value in whole.items():
        if name not in defined:
            by_metric[name] = Estimate(None, None, None)
        elif bootstraps == 0:
            by_metric[name] = Estimate(value, None, None)
        else:
            by_metric[name] = _with_interval(metrics[name], value, values[name], n_cases)
    return Estimates(by_metric, redraws)


def _with_interval(metric: WeightedMetric, value: float, values: Floats, n_cases: int) -> Estimate:
    if isinstance(metric, MeanRecall):
        return Estimate(value, *interval_of_recalls(metric))
    if isinstance(metric, Difference):
        interval = interval_of_difference(metric, value, values, leave_one_out(metric, n_cases))
        if interval is None:
            return Estimate(value, None, None)
        return Estimate(value, interval.low, interval.high, interval.p)
    return Estimate(value, *percentile_interval(values))


def estimate_unranked(
    metrics: Mapping[str, WeightedMetric], n_cases: int, bootstraps: int, seed: int | Sequence[int]
) -> Estimates:
    """Metrics that do not rank with 95% intervals, or without one if most samples of this cohort leave it undefined.

    Metrics that are defined in each of a hundred probe samples share their draws. Each of the others has its own
    draws, and a sample that leaves it undefined is drawn again. Recalls and their mean need no samples.
    """
    ones = np.ones((1, n_cases))
    recalls = {
        name: (metric, float(metric(ones)[0]))
        for name, metric in metrics.items()
        if isinstance(metric, MeanRecall) and not np.isnan(metric(ones)[0])
    }
    estimates = {
        name: Estimate(value, *(interval_of_recalls(metric) if bootstraps else (None, None)))
        for name, (metric, value) in recalls.items()
    }
    others = {name: metric for name, metric in metrics.items() if name not in recalls}
    probes = np.random.default_rng(seed).multinomial(n_cases, np.full(n_cases, 1 / n_cases), _PROBES)
    undefined = {name: float(np.isnan(metric(probes.astype(float))).mean()) for name, metric in others.items()}
    always = {name: metric for name, metric in others.items() if undefined[name] == 0}
    redraws = 0
    for group in [always, *({name: metrics[name]} for name, share in undefined.items() if share > 0)]:
        replicates = bootstraps if all(undefined[name] <= _MOSTLY for name in group) else 0
        drawn = estimate(group, n_cases, replicates, np.random.default_rng(seed))
        estimates |= drawn.by_metric
        redraws += drawn.redraws
    return Estimates({name: estimates[name] for name in metrics}, redraws)


def leave_one_out(metric: WeightedMetric, n_cases: int) -> Floats:
    """The metric with each case left out in turn, shape (cases,); NaN where it is then undefined."""
    if isinstance(metric, CIndex):
        return metric.leave_one_out()
    step = max(1, _NUMBERS_AT_ONCE // max(1, n_cases))
    parts = []
    for start in range(0, n_cases, step):
        weights = np.ones((min(step, n_cases - start), n_cases))
        weights[np.arange(len(weights)), start + np.arange(len(weights))] = 0.0
        parts.append(metric(weights))
    return np.concatenate(parts) if parts else np.zeros(0)


def draw_replicates(
    metrics: Mapping[Key, WeightedMetric], n_cases: int, bootstraps: int, rng: np.random.Generator
) -> tuple[dict[Key, Floats], int]:
    """Each metric in each replicate, and the number of repeated draws: those in which any metric is undefined.

    Raises MetricError: a replicate stays undefined after 10,000 draws.
    """
    streams = rng.spawn(bootstraps)
    values = {name: np.full(bootstraps, np.nan) for name in metrics}
    open_replicates = np.arange(bootstraps)
    redraws = 0
    for _ in range(MAX_REDRAWS_PER_REPLICATE):
        if not metrics or open_replicates.size == 0:
            return values, redraws
        weights = np.stack([_draw(streams[int(replicate)], n_cases) for replicate in open_replicates])
        for name, metric in metrics.items():
            values[name][open_replicates] = metric(weights)
        undefined = np.any([np.isnan(values[name][open_replicates]) for name in metrics], axis=0)
        open_replicates = open_replicates[undefined]
        redraws += open_replicates.size
    raise MetricError(
        "bootstrap", f"replicates stay undefined after {MAX_REDRAWS_PER_REPLICATE} draws of {n_cases} cases"
    )


def _draw(stream: np.random.Generator, n_cases: int) -> Floats:
    return np.bincount(stream.integers(0, n_cases, n_cases), minlength=n_cases).astype(np.float64)
