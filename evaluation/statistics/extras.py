"""Intervals of metrics that do not rank; their draws are separate, so that the ranked metrics keep theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from evaluation.metrics.overlap import WeightedMetric
from evaluation.statistics.bootstrap import Estimate, Estimates, estimate

_PROBES: Final = 100
_MOSTLY: Final = 0.5


def estimate_extras(
    metrics: Mapping[str, WeightedMetric],
    n_cases: int,
    bootstraps: int,
    seed: int | Sequence[int],
    method: str = "percentile",
) -> Estimates:
    """Every metric with its 95% interval, or without one if most samples of this cohort leave it undefined.

    Metrics that are defined in each of a hundred probe samples share their draws. Each of the others has its own
    draws, and a sample that leaves it undefined is drawn again.
    """
    probes = np.random.default_rng(seed).multinomial(n_cases, np.full(n_cases, 1 / n_cases), _PROBES)
    undefined = {name: float(np.isnan(metric(probes.astype(float))).mean()) for name, metric in metrics.items()}
    always = {name: metric for name, metric in metrics.items() if undefined[name] == 0}
    groups = [always, *({name: metrics[name]} for name, share in undefined.items() if share > 0)]
    estimates: dict[str, Estimate] = {}
    redraws = 0
    for group in groups:
        replicates = bootstraps if all(undefined[name] <= _MOSTLY for name in group) else 0
        drawn = estimate(group, n_cases, replicates, np.random.default_rng(seed), method)
        estimates |= drawn.by_metric
        redraws += drawn.redraws
    return Estimates({name: estimates[name] for name in metrics}, redraws)
