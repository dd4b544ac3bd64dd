"""The paired patient bootstrap: one draw of patients serves every metric, and every team of the same cohort."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias, TypeVar

import numpy as np

from contract.errors import MetricError
from evaluation.metrics.overlap import Difference, Floats, MeanRecall, WeightedMetric
from evaluation.metrics.survival import CIndex
from evaluation.statistics.gains import difference_interval
from evaluation.statistics.intervals import mean_recall_interval, percentile_interval

Key = TypeVar("Key", bound=Hashable)
Seed: TypeAlias = int | Sequence[int]

MAX_REDRAWS_PER_REPLICATE: Final = 10_000
# Number of samples that show whether a metric is always defined.
_PROBES: Final = 100
# A metric that is undefined in a larger fraction of these samples gets no interval.
_MAX_UNDEFINED_FRACTION: Final = 0.5
# Number of weights in memory at the same time, when each case is left out in turn.
_MAX_NUMBERS_IN_MEMORY: Final = 4_000_000


@dataclass(frozen=True)
class Estimate:
    """A metric with its 95% interval; None if the metric is undefined for this cohort.

    `p` is the two-sided p of a difference of two metrics; None for all other metrics.
    """

    value: float | None
    ci95_low: float | None
    ci95_high: float | None
    p: float | None = None


@dataclass(frozen=True)
class Estimates:
    """Estimates of several metrics.

    Attributes:
        by_metric: Estimate of every metric.
        redraws: Number of replicates that were drawn again.
        extra_redraws: This number for the metrics that do not rank, which have their own draws.
    """

    by_metric: Mapping[str, Estimate]
    redraws: int
    extra_redraws: int = 0


def estimate(metrics: Mapping[str, WeightedMetric], n_cases: int, bootstraps: int, seed: Seed) -> Estimates:
    """Estimate every metric over the cohort, with a 95% interval.

    The interval of a recall is Wilson's, and the interval of a mean of recalls joins Wilson's intervals by MOVER. The
    interval of a difference of two metrics is the interval of its test (`gains`), and there is no interval if too few
    patients differ. All other metrics have percentile intervals from resampled patients. All metrics share the draws,
    and every metric is defined in each of them, so that a ranking can repeat the draws.

    Args:
        metrics: Functions of weights (replicates, cases), NaN where undefined; infinite values are allowed.
        n_cases: Number of patients in the cohort. They are sorted by name, so teams with the same seed share
            their draws.
        bootstraps: Number of replicates; 0 gives no intervals.
        seed: Seed of the draws. Replicate i has its own stream, so a second draw of it changes no other replicate.

    Raises:
        MetricError: A replicate stays undefined after 10,000 draws.
    """
    whole = {name: float(metric(np.ones((1, n_cases)))[0]) for name, metric in metrics.items()}
    defined = {name: metric for name, metric in metrics.items() if not np.isnan(whole[name])}
    values, redraws = draw_replicates(defined, n_cases, bootstraps, seed)
    by_metric = {}
    for name, value in whole.items():
        if name not in defined:
            by_metric[name] = Estimate(None, None, None)
        elif bootstraps == 0:
            by_metric[name] = Estimate(value, None, None)
        else:
            by_metric[name] = _make_estimate(metrics[name], value, values[name], n_cases)
    return Estimates(by_metric, redraws)


def _make_estimate(metric: WeightedMetric, value: float, values: Floats, n_cases: int) -> Estimate:
    if isinstance(metric, MeanRecall):
        return Estimate(value, *mean_recall_interval(metric))
    if isinstance(metric, Difference):
        interval = difference_interval(metric, value, values, leave_one_out(metric, n_cases))
        if interval is None:
            return Estimate(value, None, None)
        return Estimate(value, interval.low, interval.high, interval.p)
    return Estimate(value, *percentile_interval(values))


def estimate_unranked(metrics: Mapping[str, WeightedMetric], n_cases: int, bootstraps: int, seed: Seed) -> Estimates:
    """Estimate metrics that do not rank, with 95% intervals.

    A metric gets no interval if most samples of this cohort leave it undefined. Metrics that are defined in each of a
    hundred probe samples share their draws. Every other metric has its own draws, and a sample that leaves the metric
    undefined is drawn again. Recalls and their mean need no samples.
    """
    cohort = np.ones((1, n_cases))
    estimates = {}
    for name, metric in metrics.items():
        if isinstance(metric, MeanRecall) and not np.isnan(metric(cohort)[0]):
            low, high = mean_recall_interval(metric) if bootstraps else (None, None)
            estimates[name] = Estimate(float(metric(cohort)[0]), low, high)
    resampled = {name: metric for name, metric in metrics.items() if name not in estimates}
    probes = _draw_probes(_make_key(seed), n_cases)
    undefined_fraction = {name: float(np.isnan(metric(probes)).mean()) for name, metric in resampled.items()}
    groups = [{name: metric for name, metric in resampled.items() if undefined_fraction[name] == 0}]
    groups += [{name: metric} for name, metric in resampled.items() if undefined_fraction[name] > 0]
    redraws = 0
    for group in groups:
        has_interval = all(undefined_fraction[name] <= _MAX_UNDEFINED_FRACTION for name in group)
        drawn = estimate(group, n_cases, bootstraps if has_interval else 0, seed)
        estimates |= drawn.by_metric
        redraws += drawn.redraws
    return Estimates({name: estimates[name] for name in metrics}, redraws)


def leave_one_out(metric: WeightedMetric, n_cases: int) -> Floats:
    """Compute the metric with each case left out in turn, shape (cases,); NaN where it is then undefined."""
    if isinstance(metric, CIndex):
        return metric.leave_one_out()
    step = max(1, _MAX_NUMBERS_IN_MEMORY // max(1, n_cases))
    parts = []
    for start in range(0, n_cases, step):
        weights = np.ones((min(step, n_cases - start), n_cases))
        weights[np.arange(len(weights)), start + np.arange(len(weights))] = 0.0
        parts.append(metric(weights))
    return np.concatenate(parts) if parts else np.zeros(0)


def draw_replicates(
    metrics: Mapping[Key, WeightedMetric], n_cases: int, bootstraps: int, seed: Seed
) -> tuple[dict[Key, Floats], int]:
    """Compute each metric in bootstrap replicates, drawing a replicate again if any metric is undefined in it.

    Returns:
        The values of each metric, shape (replicates,), and the number of replicates that were drawn again.

    Raises:
        MetricError: A replicate stays undefined after 10,000 draws.
    """
    values = {name: np.full(bootstraps, np.nan) for name in metrics}
    if not metrics or bootstraps == 0:
        return values, 0
    weights = _draw_samples(_make_key(seed), n_cases, bootstraps)
    open_replicates = np.arange(bootstraps)
    streams: dict[int, np.random.Generator] = {}
    redraws = 0
    for _ in range(MAX_REDRAWS_PER_REPLICATE):
        for name, metric in metrics.items():
            values[name][open_replicates] = metric(weights)
        undefined = np.any([np.isnan(values[name][open_replicates]) for name in metrics], axis=0)
        open_replicates = open_replicates[undefined]
        if open_replicates.size == 0:
            return values, redraws
        redraws += open_replicates.size
        if not streams:
            streams = {int(replicate): _make_stream(seed, int(replicate)) for replicate in open_replicates}
            for stream in streams.values():
                _draw_sample(stream, n_cases)  # the sample that was just used
        weights = np.stack([_draw_sample(streams[int(replicate)], n_cases) for replicate in open_replicates])
    raise MetricError(
        "bootstrap", f"replicates stay undefined after {MAX_REDRAWS_PER_REPLICATE} draws of {n_cases} cases"
    )


def _make_key(seed: Seed) -> int | tuple[int, ...]:
    return tuple(seed) if isinstance(seed, Sequence) else seed


@lru_cache(maxsize=1)
def _draw_samples(seed: int | tuple[int, ...], n_cases: int, bootstraps: int) -> Floats:
    """Draw the first sample of each replicate, which metrics and teams share; the array is read-only."""
    samples = np.stack([_draw_sample(_make_stream(seed, replicate), n_cases) for replicate in range(bootstraps)])
    samples.flags.writeable = False
    return samples


@lru_cache(maxsize=1)
def _draw_probes(seed: int | tuple[int, ...], n_cases: int) -> Floats:
    """Draw samples that show whether a metric is always defined; the array is read-only."""
    probes = np.random.default_rng(seed).multinomial(n_cases, np.full(n_cases, 1 / n_cases), _PROBES).astype(np.float64)
    probes.flags.writeable = False
    return probes


def _make_stream(seed: Seed, replicate: int) -> np.random.Generator:
    """Make the stream of one replicate, the same as `default_rng(seed).spawn` makes."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(replicate,)))


def _draw_sample(stream: np.random.Generator, n_cases: int) -> Floats:
    return np.bincount(stream.integers(0, n_cases, n_cases), minlength=n_cases).astype(np.float64)
