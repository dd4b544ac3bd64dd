"""The paired patient bootstrap: one draw of patients serves every metric, and every team of the same cohort."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from contract.errors import MetricError
from evaluation.overlap import Floats, WeightedMetric

MAX_REDRAWS_A_REPLICATE: Final = 10_000
_PERCENTILES: Final = (2.5, 97.5)


@dataclass(frozen=True)
class Estimate:
    """A metric with its 95% interval; None where the metric is not defined for this cohort."""

    value: float | None
    ci95_low: float | None
    ci95_high: float | None


@dataclass(frozen=True)
class Estimates:
    """Every metric's estimate, and how many replicates were drawn again."""

    by_metric: Mapping[str, Estimate]
    redraws: int


def estimate(
    metrics: Mapping[str, WeightedMetric], n_cases: int, bootstraps: int, rng: np.random.Generator
) -> Estimates:
    """Every metric over the cohort, with percentile 95% intervals from resampled patients.

    Args:
        metrics: functions of weights (replicates, cases), NaN where not defined.
        n_cases: patients in the cohort, sorted by name, so that teams with one seed share their draws.
        bootstraps: replicates; 0 gives no intervals.
        rng: the source of the draws. Replicate i has its own stream, so that drawing one again moves no other.

    Raises:
        MetricError: a replicate stays undefined after 10,000 draws.
    """
    whole = {name: float(metric(np.ones((1, n_cases)))[0]) for name, metric in metrics.items()}
    defined = {name: metric for name, metric in metrics.items() if np.isfinite(whole[name])}
    replicates, redraws = _replicates(defined, n_cases, rng.spawn(bootstraps))
    by_metric = {}
    for name, value in whole.items():
        if name not in defined:
            by_metric[name] = Estimate(None, None, None)
        elif bootstraps == 0:
            by_metric[name] = Estimate(value, None, None)
        else:
            low, high = np.percentile(replicates[name], _PERCENTILES)
            by_metric[name] = Estimate(value, float(low), float(high))
    return Estimates(by_metric, redraws)


def _replicates(
    metrics: Mapping[str, WeightedMetric], n_cases: int, streams: Sequence[np.random.Generator]
) -> tuple[dict[str, Floats], int]:
    """Each metric in each replicate; a replicate in which any metric is undefined is drawn again."""
    values = {name: np.full(len(streams), np.nan) for name in metrics}
    open_replicates = np.arange(len(streams))
    redraws = 0
    for _ in range(MAX_REDRAWS_A_REPLICATE):
        if not metrics or open_replicates.size == 0:
            return values, redraws
        weights = np.stack([_draw(streams[int(replicate)], n_cases) for replicate in open_replicates])
        for name, metric in metrics.items():
            values[name][open_replicates] = metric(weights)
        complete = np.all([np.isfinite(values[name][open_replicates]) for name in metrics], axis=0)
        open_replicates = open_replicates[~complete]
        redraws += open_replicates.size
    raise MetricError(f"bootstrap: replicates stay undefined after {MAX_REDRAWS_A_REPLICATE} draws of {n_cases} cases")


def _draw(stream: np.random.Generator, n_cases: int) -> Floats:
    return np.bincount(stream.integers(0, n_cases, n_cases), minlength=n_cases).astype(np.float64)
