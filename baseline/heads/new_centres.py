"""Metrics to expect at new centres, from the values of centres that were left out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy import stats

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class CentreEstimate:
    """The mean of a metric over the centres that were left out, with 95% intervals.

    Attributes:
        value: mean over the centres; None if the metric is undefined at all of them.
        centres: number of centres whose value is known.
        ci95_low, ci95_high: interval of the mean over new centres, within 0 and 1; None for fewer than two centres.
        new_centres: number of new centres in the edition's test set; None if it is not known.
        test_low, test_high: interval of the mean over that many new centres; None if either number is missing.
    """

    value: float | None
    centres: int
    ci95_low: float | None = None
    ci95_high: float | None = None
    new_centres: int | None = None
    test_low: float | None = None
    test_high: float | None = None


def estimate_new_centres(values: Iterable[float | None], new_centres: int | None = None) -> CentreEstimate:
    """Compute the t interval of the mean over centres, and the prediction interval for a test set of new centres.

    The centres are the sample: their values differ by their patients and by effects of the centre, and both are in the
    standard deviation s. With k centres the mean's standard error is s / sqrt(k); the mean of m new centres differs
    from it with s * sqrt(1 / k + 1 / m).

    Args:
        values: Metric of each centre, from 0 to 1, None where it is undefined.
        new_centres: Number m of new centres in the test set.
    """
    known = np.array([value for value in values if value is not None and math.isfinite(value)], dtype=np.float64)
    if not known.size:
        return CentreEstimate(None, 0, new_centres=new_centres)
    mean = float(known.mean())
    if known.size < 2:
        return CentreEstimate(mean, int(known.size), new_centres=new_centres)
    half = float(stats.t.ppf((1 + _CONFIDENCE) / 2, known.size - 1) * known.std(ddof=1))
    low, high = _limits(mean, half * math.sqrt(1 / known.size))
    if new_centres is None:
        return CentreEstimate(mean, int(known.size), low, high)
    test = _limits(mean, half * math.sqrt(1 / known.size + 1 / new_centres))
    return CentreEstimate(mean, int(known.size), low, high, new_centres, *test)


def _limits(mean: float, half: float) -> tuple[float, float]:
    return max(mean - half, 0.0), min(mean + half, 1.0)


def describe_new_centres(estimate: CentreEstimate) -> str:
    """Describe value and intervals in words; the value is known."""
    parts = []
    if estimate.ci95_low is None or estimate.ci95_high is None:
        parts.append("no interval, which needs two centres")
    else:
        low, high = estimate.ci95_low, estimate.ci95_high
        parts.append(f"95% interval of the mean {low:z.3f} to {high:z.3f} by {estimate.centres} centres")
        if estimate.new_centres is None:
            parts.append("the number of new centres in the test set is unknown")
        elif estimate.test_low is not None and estimate.test_high is not None:
            count = f"{estimate.new_centres} new centre{'s' * (estimate.new_centres != 1)}"
            parts.append(f"95% of test sets of {count} within {estimate.test_low:z.3f} to {estimate.test_high:z.3f}")
    return f"{estimate.value:z.3f} ({'; '.join(parts)})"
