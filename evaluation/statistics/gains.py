"""Differences between teams with their uncertainty, from a paired bootstrap or, for recalls, in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from evaluation.metrics.overlap import Booleans, Difference, Floats, WeightedMetric
from evaluation.statistics.recall_differences import compute_recall_deviations
from evaluation.statistics.tests import DECIMALS, MIN_P

ALPHA: Final = 0.025
# With fewer degrees of freedom, the bootstrap's standard error is too uncertain for a test.
MIN_DEGREES_OF_FREEDOM: Final = 5


@dataclass(frozen=True)
class PairedGains:
    """The gain of each team over every other team; all arrays have shape (teams, teams), `[a, b]` for team a over b.

    Where too few patients differ to test, p and the interval are NaN.

    Attributes:
        difference: Difference in the metric's unit, positive if team a is better.
        sd: Standard error of the difference.
        df: Degrees of freedom of `sd`; NaN where `sd` is 0 or infinite.
        ci95_low: Lower end of the difference's 95% interval. The interval excludes 0 exactly if the p of one of the
            two directions is at most 0.025.
        ci95_high: Upper end of this interval.
        p: One-sided p, small if team a is better.
    """

    difference: Floats
    sd: Floats
    df: Floats
    ci95_low: Floats
    ci95_high: Floats
    p: Floats


def compute_gains(values: Floats, replicates: Floats, left_out: Floats) -> PairedGains:
    """Compute the gain of each team over every other team, with its uncertainty from common draws of cases.

    difference / sd is compared with Student's t distribution, and the interval is difference -+ t x sd. The degrees of
    freedom follow from the influence of each case (`degrees_of_freedom`). If a few cases have large volumes, `sd`
    depends on these cases, and the normal distribution would make too many differences significant. With fewer than
    five degrees of freedom there is no p. The number of replicates does not limit how small p can be, because Holm's
    correction over many pairs needs small p. No p is below 2^-n for n cases.

    Args:
        values: The metric in the whole cohort, higher = better, infinite values allowed; shape (teams,).
        replicates: The same in each bootstrap replicate, NaN if undefined; shape (teams, replicates).
        left_out: The same with each case left out in turn, NaN if undefined; shape (teams, cases).

    Sources: Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapter 16; Hinkley 1977, Biometrika 64:21-28
    (Student's t for resampled deviations).
    """
    shape = (values.size, values.size)
    difference, sd, df = np.zeros(shape), np.full(shape, np.nan), np.full(shape, np.nan)
    for team in range(values.size - 1):
        later = slice(team + 1, values.size)
        difference[team, later] = gap(values[team], values[later])
        difference[later, team] = 0.0 - difference[team, later]
        sd[team, later] = _standard_deviation(np.sort(gap(replicates[team], replicates[later]), axis=1))
        sd[later, team] = sd[team, later]
        df[team, later] = degrees_of_freedom(gap(left_out[team], left_out[later]))
        df[later, team] = df[team, later]
    df[~(sd > 0)] = np.nan
    return _apply_t_test(difference, sd, df, df >= MIN_DEGREES_OF_FREEDOM, 0.5 ** left_out.shape[1])


def compute_recall_gains(metrics: Sequence[WeightedMetric], values: Floats) -> PairedGains | None:
    """Compute the gain of each team over every other team in closed form (`compute_recall_deviations`).

    The result is None if the metric is not a mean or weighted sum of recalls. There is no p if a class has only one
    patient.

    Args:
        metrics: The metric of each team.
        values: The metric in the whole cohort, higher = better; shape (teams,).
    """
    deviations = compute_recall_deviations(metrics)
    if deviations is None:
        return None
    return _apply_t_test(gap(values[:, None], values), deviations.sd, deviations.df, deviations.df > 0, MIN_P)


def _apply_t_test(difference: Floats, sd: Floats, df: Floats, is_tested: Booleans, min_p: float) -> PairedGains:
    """Compute p, which is at least `min_p`, and the interval by Student's t where `is_tested` is true."""
    from scipy.special import stdtr, stdtrit

    tested_df, tested_sd = np.where(is_tested, df, np.nan), np.where(is_tested, sd, np.nan)
    # Both teams of a pair have the same degrees of freedom, so each quantile is computed once.
    distinct_df, indices = np.unique(tested_df, return_inverse=True)
    half = stdtrit(distinct_df, 1 - ALPHA)[indices].reshape(tested_df.shape) * tested_sd
    p = np.maximum(stdtr(tested_df, -difference / tested_sd), max(min_p, MIN_P))
    return PairedGains(difference, sd, df, difference - half, difference + half, p)


@dataclass(frozen=True)
class DifferenceInterval:
    """The 95% interval of a difference, and the two-sided p of the same Student's t."""

    low: float
    high: float
    p: float


def difference_interval(
    metric: Difference, difference: float, replicates: Floats, left_out: Floats
) -> DifferenceInterval | None:
    """Return the 95% interval and p of the difference of two metrics of the same cases; None if too few cases differ.

    Args:
        metric: The two metrics.
        difference: Their difference in the whole cohort.
        replicates: The difference in each bootstrap replicate, NaN if undefined; shape (replicates,).
        left_out: The difference with each case left out in turn, NaN if undefined; shape (cases,).
    """
    values = np.array([difference, 0.0])
    gains = compute_recall_gains((metric.first, metric.second), values)
    if gains is None:
        drawn = np.stack([replicates, np.zeros(replicates.size)])
        gains = compute_gains(values, drawn, np.stack([left_out, np.zeros(left_out.size)]))
    low, high = float(gains.ci95_low[0, 1]), float(gains.ci95_high[0, 1])
    if np.isnan(low):
        return None
    return DifferenceInterval(low, high, min(1.0, 2 * float(min(gains.p[0, 1], gains.p[1, 0]))))


def degrees_of_freedom(left_out: Floats) -> Floats:
    """Compute the degrees of freedom of a bootstrap variance from a statistic with each case left out.

    The variance is about V = sum d_i^2. Here d_i is the influence of case i: the mean of the left-out values minus the
    value without case i. As a sum over independent cases, V has a variance of about sum d_i^4 - V^2 / n. A multiple of
    chi-square with 2 V^2 / (sum d_i^4 - V^2 / n) degrees of freedom has the same mean and variance. If the influences
    are normally distributed, the degrees of freedom are about n; if only k of n cases matter, and equally, about 2k.

    The result is at most n - 1, for example for influences of equal size, whose squares vary too little to estimate
    their variance. Undefined values (NaN) do not count. Infinite influences give n - 1.

    Args:
        left_out: The statistic without each case, shape (rows, cases).

    Returns:
        Degrees of freedom of each row, shape (rows,).

    Source: Satterthwaite 1946, Biometrics Bulletin 2:110-114; Hinkley 1977, Biometrika 64:21-28.
    """
    counted = ~np.isnan(left_out)
    cases = np.maximum(counted.sum(axis=1), 1)
    usable = np.isinf(left_out).sum(axis=1) == 0
    filled = np.where(counted & usable[:, None], left_out, 0.0)
    influence = np.where(counted, filled - (filled.sum(axis=1) / cases)[:, None], 0.0)
    squares = influence**2
    variance = squares.sum(axis=1)
    spread = (squares**2).sum(axis=1) - variance**2 / cases
    max_freedom: Floats = np.maximum(cases - 1.0, 1.0)
    freedom: Floats = max_freedom.copy()
    np.divide(2 * variance**2, spread, out=freedom, where=usable & (spread * max_freedom > 2 * variance**2))
    return freedom


def gap(first: Floats, second: Floats) -> Floats:
    """Subtract the second value from the first; the gap of equal values is 0, also if both are infinite."""
    a, b = np.broadcast_arrays(first, second)
    gap: Floats = np.round(np.subtract(a, b, out=np.zeros(a.shape), where=a != b), DECIMALS)
    # The sum with zero turns -0.0 into 0.0.
    return gap + 0.0


def _standard_deviation(ordered: Floats) -> Floats:
    """Compute the standard deviation of each sorted row, in which NaN do not count.

    It is NaN for a row with fewer than two values or with an infinite value.
    """
    counted = ~np.isnan(ordered)
    size = counted.sum(axis=1)
    usable = (size > 1) & ~np.isinf(ordered).any(axis=1)
    # The first value is subtracted, so that equal values have a deviation of exactly 0.
    filled = np.where(counted & usable[:, None], ordered - np.where(usable, ordered[:, 0], 0.0)[:, None], 0.0)
    centred = np.where(counted, filled - (filled.sum(axis=1) / np.maximum(size, 1))[:, None], 0.0)
    deviation: Floats = np.full(len(ordered), np.nan)
    np.divide((centred**2).sum(axis=1), size - 1, out=deviation, where=usable)
    return np.sqrt(deviation)
