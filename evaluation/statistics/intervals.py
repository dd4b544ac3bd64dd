"""95% intervals: percentiles of replicates, and of fractions of patients, such as recalls, and their weighted means."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from evaluation.metrics.overlap import Floats, WeightedGroups

_Z: Final = 1.959963984540054
_TAILS: Final = (0.025, 0.975)


def interval(values: Floats) -> tuple[float, float]:
    """The 95% percentile interval of replicates, see `quantiles`."""
    low, high = interval_bounds(np.sort(values)[None])
    return float(low[0]), float(high[0])


def interval_bounds(ordered: Floats) -> tuple[Floats, Floats]:
    """As `interval` for each row of (rows, replicates), see `quantiles`."""
    return quantiles(ordered, _TAILS[0]), quantiles(ordered, _TAILS[1])


def quantiles(ordered: Floats, tail: float) -> Floats:
    """The quantile of each row, linear between neighbours; next to an infinite value, that value.

    Rows have shape (rows, values) and rise; NaN, which stand last, do not count.
    """
    last = np.maximum((~np.isnan(ordered)).sum(axis=1) - 1, 0)
    place = tail * last
    lower = place.astype(np.intp)
    rows = np.arange(len(ordered))
    below, above = ordered[rows, lower], ordered[rows, np.minimum(lower + 1, last)]
    share = place - lower
    is_finite = np.isfinite(below) & np.isfinite(above)
    step = np.subtract(above, below, out=np.zeros(len(ordered)), where=is_finite)
    return np.asarray(np.where((share > 0) & np.isinf(above), above, below + share * step))


def wilson_interval(found: float, cases: float) -> tuple[float, float]:
    """The 95% interval of a fraction of independent cases. Source: Wilson 1927, J Am Stat Assoc 22:209-212."""
    share, spread = found / cases, _Z**2 / cases
    middle = (share + spread / 2) / (1 + spread)
    half = _Z * float(np.sqrt(share * (1 - share) / cases + spread / (4 * cases))) / (1 + spread)
    return 0.0 if found == 0 else middle - half, 1.0 if found == cases else middle + half


def interval_of_fractions(groups: WeightedGroups) -> tuple[float, float]:
    """The 95% interval of a weighted mean of fractions: Wilson's interval of each, joined by MOVER.

    With weights w, fractions p, their lower ends l and the correlations r of the fractions, the lower end is
    sum w p - sqrt(sum_ij w_i w_j r_ij (p_i - l_i) (p_j - l_j)), the upper end likewise. Classes of one answer share no
    patient, so that r is 0; those of two answers do. Unlike bootstrap samples, Wilson's interval knows that a class
    with all of few patients right may have a recall below 1.

    Sources: Wilson 1927, J Am Stat Assoc 22:209-212; Zou and Donner 2008, Stat Med 27:1693-1702 (MOVER).
    """
    sizes = groups.members.sum(axis=1)
    found = (groups.members * groups.values).sum(axis=1)
    fractions = found / sizes
    low, high = np.array([wilson_interval(n, of) for n, of in zip(found.tolist(), sizes.tolist(), strict=True)]).T
    correlations = _correlations(groups, fractions)
    value = float(groups.weights @ fractions)
    below = _length(groups.weights * (fractions - low), correlations)
    return value - below, value + _length(groups.weights * (high - fractions), correlations)


def _length(parts: Floats, correlations: Floats) -> float:
    return math.sqrt(max(0.0, float(parts @ correlations @ parts)))


def _correlations(groups: WeightedGroups, fractions: Floats) -> Floats:
    """Correlations of the fractions, (groups, groups); 0 for one that is 0 or 1, whose correlation is unknown."""
    residuals = groups.members * (groups.values - fractions[:, None])
    covariances = residuals @ residuals.T
    scale = np.sqrt(np.diag(covariances))
    known = np.outer(scale, scale)
    correlations: Floats = np.divide(covariances, known, out=np.zeros(known.shape), where=known > 0)
    np.fill_diagonal(correlations, 1.0)
    return correlations
