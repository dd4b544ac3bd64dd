"""95% intervals of replicates by percentiles, and of recalls and their mean in closed form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from evaluation.metrics.overlap import Floats, MeanRecall

_Z: Final = 1.959963984540054
_TAILS: Final = (0.025, 0.975)


def percentile_interval(values: Floats) -> tuple[float, float]:
    """Return the 95% percentile interval of replicates, see `quantiles`."""
    ordered = np.sort(values)[None]
    low, high = (float(quantiles(ordered, tail)[0]) for tail in _TAILS)
    return low, high


def quantiles(ordered: Floats, tail: float) -> Floats:
    """Return a quantile of each row, by linear interpolation; next to an infinite value it is the infinite value.

    Args:
        ordered: Sorted rows, shape (rows, values). NaN come last and do not count.
        tail: Fraction of the values below the quantile.
    """
    last = np.maximum((~np.isnan(ordered)).sum(axis=1) - 1, 0)
    position = tail * last
    lower = position.astype(np.intp)
    rows = np.arange(len(ordered))
    below, above = ordered[rows, lower], ordered[rows, np.minimum(lower + 1, last)]
    fraction = position - lower
    is_finite = np.isfinite(below) & np.isfinite(above)
    step = np.subtract(above, below, out=np.zeros(len(ordered)), where=is_finite)
    return np.asarray(np.where((fraction > 0) & np.isinf(above), above, below + fraction * step))


def quartiles(values: Sequence[float] | Floats) -> tuple[float, float, float]:
    """Return the quartiles of one or more values that are not NaN, see `quantiles`."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))[None]
    q1, median, q3 = (float(quantiles(ordered, tail)[0]) for tail in (0.25, 0.5, 0.75))
    return q1, median, q3


def wilson_interval(successes: float, cases: float) -> tuple[float, float]:
    """Return the 95% interval of the fraction of successes among independent cases.

    Source: Wilson 1927, J Am Stat Assoc 22:209-212.
    """
    fraction, spread = successes / cases, _Z**2 / cases
    middle = (fraction + spread / 2) / (1 + spread)
    half = _Z * float(np.sqrt(fraction * (1 - fraction) / cases + spread / (4 * cases))) / (1 + spread)
    return 0.0 if successes == 0 else middle - half, 1.0 if successes == cases else middle + half


def mean_recall_interval(metric: MeanRecall) -> tuple[float, float]:
    """Return the 95% interval of a mean of k recalls p of separate classes: Wilson's intervals, joined by MOVER.

    If l are the lower ends of Wilson's intervals of the recalls, the lower end for their mean is the mean minus
    sqrt(sum (p - l)^2) / k. The upper end is computed likewise. If all patients of a small class are right, every
    bootstrap sample has a recall of 1 for this class; Wilson's interval allows a recall below 1.

    Sources: Wilson 1927, J Am Stat Assoc 22:209-212; Zou and Donner 2008, Stat Med 27:1693-1702 (MOVER).
    """
    members = metric.members[metric.members.any(axis=1)]
    sizes, successes = members.sum(axis=1), members @ metric.correct
    recalls = successes / sizes
    intervals = [wilson_interval(right, size) for right, size in zip(successes.tolist(), sizes.tolist(), strict=True)]
    low, high = np.array(intervals).T
    value, classes = float(recalls.mean()), len(recalls)
    return value - math.hypot(*(recalls - low)) / classes, value + math.hypot(*(high - recalls)) / classes
