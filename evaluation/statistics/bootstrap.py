"""The paired patient bootstrap: one draw of patients serves every metric, and every team of the same cohort."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from contract.errors import MetricError
from evaluation.metrics.overlap import Floats, WeightedMetric

Key = TypeVar("Key", bound=Hashable)

MAX_REDRAWS_A_REPLICATE: Final = 10_000
# Samples that show whether a metric is always defined, and the share of undefined ones up to which it is estimated.
_PROBES: Final = 100
_MOSTLY: Final = 0.5
_TAILS: Final = (0.025, 0.975)
# Largest number of weights in memory at once, when each case is left out in turn.
_NUMBERS_AT_ONCE: Final = 4_000_000


@dataclass(frozen=True)
class Estimate:
    """A metric with its 95% interval; None if the metric is undefined for this cohort."""

    value: float | None
    ci95_low: float | None
    ci95_high: float | None


@dataclass(frozen=True)
class Estimates:
    """The estimate of every metric, and the number of replicates that were drawn again.

    `extra_redraws` counts the redraws of metrics that do not rank, which have their own draws.
    """

    by_metric: Mapping[str, Estimate]
    redraws: int
    extra_redraws: int = 0


def estimate(
    metrics: Mapping[str, WeightedMetric],
    n_cases: int,
    bootstraps: int,
    rng: np.random.Generator,
    method: str = "percentile",
) -> Estimates:
    """Every metric over the cohort, with 95% intervals from resampled patients.

    Args:
        metrics: functions of weights (replicates, cases), NaN where undefined; infinite values count as values.
        n_cases: patients in the cohort, sorted by name, so that teams with one seed share their draws.
        bootstraps: replicates; 0 gives no intervals.
        rng: the source of the draws. Replicate i has its own stream, so that drawing one again moves no other.
        method: `percentile`, or `bca` (bias-corrected and accelerated).

    Raises:
        MetricError: a replicate stays undefined after 10,000 draws.
    """
    whole = {name: float(metric(np.ones((1, n_cases)))[0]) for name, metric in metrics.items()}
    defined = {name: metric for name, metric in metrics.items() if not np.isnan(whole[name])}
    values, redraws = replicates(defined, n_cases, bootstraps, rng)
    by_metric = {}
    for name, value in whole.items():
        if name not in defined:
            by_metric[name] = Estimate(None, None, None)
        elif bootstraps == 0:
            by_metric[name] = Estimate(value, None, None)
        else:
            tails = _TAILS if method == "percentile" else _bca_tails(value, values[name], defined[name], n_cases)
            by_metric[name] = Estimate(value, *interval(values[name], tails))
    return Estimates(by_metric, redraws)


def estimate_unranked(
    metrics: Mapping[str, WeightedMetric],
    n_cases: int,
    bootstraps: int,
    seed: int | Sequence[int],
    method: str = "percentile",
) -> Estimates:
    """Metrics that do not rank with 95% intervals, or without one if most samples of this cohort leave it undefined.

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


def interval(values: Floats, tails: tuple[float, float] = _TAILS) -> tuple[float, float]:
    """Quantiles of replicates, linear between neighbours; next to an infinite value, that value."""
    low, high = interval_bounds(np.sort(values)[None], tails)
    return float(low[0]), float(high[0])


def interval_bounds(ordered: Floats, tails: tuple[float, float] = _TAILS) -> tuple[Floats, Floats]:
    """As `interval` for each row of (rows, replicates) in rising order; NaN, which stand last, do not count."""
    return _quantiles(ordered, tails[0]), _quantiles(ordered, tails[1])


def _quantiles(ordered: Floats, tail: float) -> Floats:
    last = np.maximum((~np.isnan(ordered)).sum(axis=1) - 1, 0)
    place = tail * last
    lower = place.astype(np.intp)
    rows = np.arange(len(ordered))
    below, above = ordered[rows, lower], ordered[rows, np.minimum(lower + 1, last)]
    share = place - lower
    is_finite = np.isfinite(below) & np.isfinite(above)
    step = np.subtract(above, below, out=np.zeros(len(ordered)), where=is_finite)
    quantiles: Floats = np.where((share > 0) & np.isinf(above), above, below + share * step)
    return quantiles


def _bca_tails(value: float, values: Floats, metric: WeightedMetric, n_cases: int) -> tuple[float, float]:
    """Ends of the bias-corrected and accelerated interval, as quantiles of the replicates.

    With z0 the normal quantile of the share of replicates below the value (ties half; never 0 or 1), and the
    acceleration a = sum d^3 / (6 (sum d^2)^1.5) from d = mean - value with each case left out, the tail of normal
    quantile z stands at the share Phi(z0 + (z0 + z) / (1 - a (z0 + z))). Cases without which the metric is not
    defined do not count for a; a value or case of infinite influence, or one beyond the formula's pole, gives the
    percentile interval. Source: Efron 1987, J Am Stat Assoc 82:171-185.
    """
    from scipy.special import ndtr, ndtri

    left_out = leave_one_out(metric, n_cases)
    left_out = left_out[~np.isnan(left_out)]
    if not np.isfinite(value) or left_out.size == 0 or not np.isfinite(left_out).all():
        return _TAILS
    below = float((values < value).mean() + 0.5 * (values == value).mean())
    least = 0.5 / values.size
    z0 = float(ndtri(min(max(below, least), 1 - least)))
    d = left_out.mean() - left_out
    spread = float((d**2).sum())
    acceleration = float((d**3).sum()) / (6 * spread**1.5) if spread > 0 else 0.0
    low, high = (z0 + float(ndtri(tail)) for tail in _TAILS)
    if 1 - acceleration * low <= 0 or 1 - acceleration * high <= 0:
        return _TAILS
    return float(ndtr(z0 + low / (1 - acceleration * low))), float(ndtr(z0 + high / (1 - acceleration * high)))


def leave_one_out(metric: WeightedMetric, n_cases: int) -> Floats:
    """The metric with each case left out in turn, shape (cases,); NaN where it is then undefined."""
    step = max(1, _NUMBERS_AT_ONCE // max(1, n_cases))
    parts = []
    for start in range(0, n_cases, step):
        weights = np.ones((min(step, n_cases - start), n_cases))
        weights[np.arange(len(weights)), start + np.arange(len(weights))] = 0.0
        parts.append(metric(weights))
    return np.concatenate(parts) if parts else np.zeros(0)


def replicates(
    metrics: Mapping[Key, WeightedMetric], n_cases: int, bootstraps: int, rng: np.random.Generator
) -> tuple[dict[Key, Floats], int]:
    """Each metric in each replicate, and the number of repeated draws: those in which any metric is undefined.

    Raises:
        MetricError: a replicate stays undefined after 10,000 draws.
    """
    streams = rng.spawn(bootstraps)
    values = {name: np.full(bootstraps, np.nan) for name in metrics}
    open_replicates = np.arange(bootstraps)
    redraws = 0
    for _ in range(MAX_REDRAWS_A_REPLICATE):
        if not metrics or open_replicates.size == 0:
            return values, redraws
        weights = np.stack([_draw(streams[int(replicate)], n_cases) for replicate in open_replicates])
        for name, metric in metrics.items():
            values[name][open_replicates] = metric(weights)
        undefined = np.any([np.isnan(values[name][open_replicates]) for name in metrics], axis=0)
        open_replicates = open_replicates[undefined]
        redraws += open_replicates.size
    raise MetricError(
        "bootstrap", f"replicates stay undefined after {MAX_REDRAWS_A_REPLICATE} draws of {n_cases} cases"
    )


def _draw(stream: np.random.Generator, n_cases: int) -> Floats:
    return np.bincount(stream.integers(0, n_cases, n_cases), minlength=n_cases).astype(np.float64)
