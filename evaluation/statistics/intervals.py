"""95% intervals: percentiles of replicates, and those of recalls and their mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from evaluation.metrics.overlap import Floats, MeanRecall

_Z: Final = 1.959963984540054
_TAILS: Final = (0.025, 0.975)


def percentile_interval(values: Floats) -> tuple[float, float]:
    """The 95% percentile interval of replicates, see `quantiles`."""
    ordered = np.sort(values)[None]
    low, high = (float(quantiles(ordered, tail)[0]) for tail in _TAILS)
    return low, high


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


def quartiles(values: Sequence[float] | Floats) -> tuple[float, float, float]:
    """The quartiles of one or more values, none of them NaN, see `quantiles`."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))[None]
    q1, median, q3 = (float(quantiles(ordered, tail)[0]) for tail in (0.25, 0.5, 0.75))
    return q1, median, q3


def wilson_interval(found: float, cases: float) -> tuple[float, float]:
    """The 95% interval of a fraction of independent cases. Source: Wilson 1927, J Am Stat Assoc 22:209-212."""
    share, spread = found / cases, _Z**2 / cases
    middle = (share + spread / 2) / (1 + spread)
    half = _Z * float(np.sqrt(share * (1 - share) / cases + spread / (4 * cases))) / (1 + spread)
    return 0.0 if found == 0 else middle - half, 1.0 if found == cases else middle + half


def interval_of_recalls(metric: MeanRecall) -> tuple[float, float]:
    """The 95% interval of a mean of k recalls p of separate classes: Wilson's interval of each, joined by MOVER.

    With the lower ends l of Wilson's intervals the lower end is the mean less sqrt(sum (p - l)^2) / k, the upper end
    likewise. Unlike bootstrap samples, Wilson's interval knows that a class with all of few patients right may have a
    recall below 1.

    Sources: Wilson 1927, J Am Stat Assoc 22:209-212; Zou and Donner 2008, Stat Med 27:1693-1702 (MOVER).
    """
    members = metric.members[metric.members.any(axis=1)]
    sizes, found = members.sum(axis=1), members @ metric.correct
    recalls = found / sizes
    low, high = np.array([wilson_interval(n, of) for n, of in zip(found.tolist(), sizes.tolist(), strict=True)]).T
    value, classes = float(recalls.mean()), len(recalls)
    return value - math.hypot(*(recalls - low)) / classes, value + math.hypot(*(high - recalls)) / classes
