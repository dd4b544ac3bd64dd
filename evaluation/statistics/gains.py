"""Paired bootstrap of the differences between teams, with their uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from evaluation.metrics.overlap import Booleans, Difference, Floats, WeightedMetric, recalls_alone
from evaluation.statistics.tests import DECIMALS, SMALLEST_P

ALPHA: Final = 0.025
# With fewer degrees of freedom, or fewer patients in a class, a deviation says too little.
LEAST_FREEDOM: Final = 5
LEAST_OF_A_CLASS: Final = 4


@dataclass(frozen=True)
class PairedGains:
    """The gain of each team over each other one; all of shape (teams, teams), `[a, b]` for team a over team b.

    Where too few patients differ to test, p and the interval are NaN: the degrees of freedom are fewer than five, or a
    class says too little (`classes_suffice`).

    Attributes:
        difference: in the metric's unit, positive if team a is better.
        sd: standard deviation of the difference in the bootstrap replicates.
        df: degrees of freedom of `sd`; NaN where `sd` is 0 or infinite.
        testable: see `classes_suffice`; True for a metric without classes.
        ci95_low: lower end of the difference's 95% interval, which leaves out 0 exactly if a p is at most 0.025.
        ci95_high: upper end.
        p: one-sided, small if team a is better.
    """

    difference: Floats
    sd: Floats
    df: Floats
    testable: Booleans
    ci95_low: Floats
    ci95_high: Floats
    p: Floats


def paired_gains(values: Floats, replicates: Floats, left_out: Floats, testable: Booleans | None = None) -> PairedGains:
    """The gain of each team over each other one, with its uncertainty from common draws of cases.

    Args:
        values: the metric in the whole cohort, higher = better, infinite values allowed; shape (teams,).
        replicates: the same in each bootstrap replicate, NaN if undefined; shape (teams, replicates).
        left_out: the same with each case left out in turn, NaN if undefined; shape (teams, cases).
        testable: see `classes_suffice`; None for a metric without classes.

    difference / sd is referred to Student's t, and the interval is difference -+ t x sd. The degrees of freedom follow
    from the influence of each case (`degrees_of_freedom`): with few patients of a class, or a few large volumes, `sd`
    rests on few cases, and the normal distribution would find too many differences. The p is not limited by the number
    of replicates, as Holm's correction over many pairs needs. No p is below 2^-n for n cases.

    Sources: Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapter 16; Hinkley 1977, Biometrika 64:21-28
    (Student's t for resampled deviations).
    """
    from scipy.special import stdtr, stdtrit

    shape = (values.size, values.size)
    testable = np.ones(shape, dtype=np.bool_) if testable is None else testable
    difference, sd, df = np.zeros(shape), np.full(shape, np.nan), np.full(shape, np.nan)
    for team in range(values.size - 1):
        others = slice(team + 1, values.size)
        difference[team, others] = gap(values[team], values[others])
        sd[team, others] = _deviation(np.sort(gap(replicates[team], replicates[others]), axis=1))
        df[team, others] = degrees_of_freedom(gap(left_out[team], left_out[others]))
        difference[others, team] = -difference[team, others]
        sd[others, team], df[others, team] = sd[team, others], df[team, others]
    df[~(sd > 0)] = np.nan
    tested = (df >= LEAST_FREEDOM) & testable
    freedom, scale = np.where(tested, df, np.nan), np.where(tested, sd, np.nan)
    half = stdtrit(freedom, 1 - ALPHA) * scale
    p = np.maximum(stdtr(freedom, -difference / scale), max(0.5 ** left_out.shape[1], SMALLEST_P))
    return PairedGains(difference, sd, df, testable, difference - half, difference + half, p)


def classes_suffice(metrics: Sequence[WeightedMetric]) -> Booleans:
    """True where every class has at least four patients, and the two teams differ on at least one; (teams, teams).

    Where one team is right and the other wrong in every patient of a class, or both agree in all of them, no sample of
    these patients varies: a p from the deviation of the other classes would be near 0 for two patients. With four
    patients or more and one on whom the teams differ the test keeps its level (`test_gains.py`). True for a metric that
    is no weighted sum of recalls and balanced accuracies alone: in one with other parts, as the score of 2026, the
    degrees of freedom suffice.
    """
    testable = np.ones((len(metrics), len(metrics)), dtype=np.bool_)
    for a, b in combinations(range(len(metrics)), 2):
        for one, two in zip(recalls_alone(metrics[a]), recalls_alone(metrics[b]), strict=True):
            both = one.members * two.members
            sizes, differing = both.sum(axis=1), both @ (one.correct != two.correct)
            enough = (sizes == 0) | ((sizes >= LEAST_OF_A_CLASS) & (differing > 0))
            testable[a, b] = testable[b, a] = testable[a, b] and enough.all()
    return testable


def interval_of_difference(
    metric: Difference, difference: float, replicates: Floats, left_out: Floats
) -> tuple[float, float] | tuple[None, None]:
    """The 95% interval of the difference of two metrics of the same cases, as of two teams; None if too few differ.

    `replicates` has shape (replicates,) and `left_out` (cases,), as in `paired_gains`.
    """
    gains = paired_gains(
        np.array([difference, 0.0]),
        np.stack([replicates, np.zeros(replicates.size)]),
        np.stack([left_out, np.zeros(left_out.size)]),
        classes_suffice((metric.first, metric.second)),
    )
    low, high = float(gains.ci95_low[0, 1]), float(gains.ci95_high[0, 1])
    return (None, None) if np.isnan(low) else (low, high)


def degrees_of_freedom(left_out: Floats) -> Floats:
    """Degrees of freedom of a bootstrap variance, from a statistic with each case left out; (rows, cases) to (rows,).

    The variance is about V = sum d_i^2, where d_i is the influence of case i, the mean of these values less its own
    one. As a sum over independent cases, V has a variance of about sum d_i^4 - V^2 / n, and a multiple of chi-square
    with 2 V^2 / (sum d_i^4 - V^2 / n) degrees of freedom has the same mean and variance. With normal
    influences these are about n; if only k of n cases matter equally, about 2k.

    At most n - 1, as for influences of one size, whose squares vary too little to tell. Undefined values (NaN) do not
    count; infinite influences give n - 1.

    Source: Satterthwaite 1946, Biometrics Bulletin 2:110-114; Hinkley 1977, Biometrika 64:21-28.
    """
    counted = ~np.isnan(left_out)
    cases = np.maximum(counted.sum(axis=1), 1)
    usable = np.isinf(left_out).sum(axis=1) == 0
    filled = np.where(counted & usable[:, None], left_out, 0.0)
    influence = np.where(counted, filled - (filled.sum(axis=1) / cases)[:, None], 0.0)
    variance = (influence**2).sum(axis=1)
    spread = (influence**4).sum(axis=1) - variance**2 / cases
    most: Floats = np.maximum(cases - 1.0, 1.0)
    freedom: Floats = most.copy()
    np.divide(2 * variance**2, spread, out=freedom, where=usable & (spread * most > 2 * variance**2))
    return freedom


def gap(first: Floats, second: Floats) -> Floats:
    """First less second, 0 between equal ones, also between infinite ones."""
    value, other = np.broadcast_arrays(first, second)
    gap: Floats = np.round(np.subtract(value, other, out=np.zeros(value.shape), where=value != other), DECIMALS)
    return gap


def _deviation(ordered: Floats) -> Floats:
    """Standard deviation of each row without NaN, rising; NaN with fewer than two values or an infinite one."""
    counted = ~np.isnan(ordered)
    size = counted.sum(axis=1)
    usable = (size > 1) & ~np.isinf(ordered).any(axis=1)
    # Less the first value, so that equal values have a deviation of exactly 0.
    filled = np.where(counted & usable[:, None], ordered - np.where(usable, ordered[:, 0], 0.0)[:, None], 0.0)
    centred = np.where(counted, filled - (filled.sum(axis=1) / np.maximum(size, 1))[:, None], 0.0)
    deviation: Floats = np.full(len(ordered), np.nan)
    np.divide((centred**2).sum(axis=1), size - 1, out=deviation, where=usable)
    return np.sqrt(deviation)
