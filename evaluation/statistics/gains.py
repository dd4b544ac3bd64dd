"""The paired bootstrap of differences: how much better each team is than each other one, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import stdtr

from evaluation.metrics.overlap import Floats
from evaluation.statistics.bootstrap import interval_bounds
from evaluation.statistics.tests import DECIMALS, SMALLEST_P

# Student's t with more degrees of freedom is the normal distribution.
_NORMAL: Final = 1e6


@dataclass(frozen=True)
class PairedGains:
    """The gain of each team over each other one; all of shape (teams, teams), `[a, b]` for team a over team b.

    Attributes:
        difference: in the metric's unit, positive if team a is better.
        sd: standard deviation of the difference in the bootstrap replicates.
        ci95_low: lower end of the difference's 95% percentile interval.
        ci95_high: upper end.
        p: one-sided, small if team a is better.
    """

    difference: Floats
    sd: Floats
    ci95_low: Floats
    ci95_high: Floats
    p: Floats


def paired_gains(values: Floats, replicates: Floats, left_out: Floats) -> PairedGains:
    """The gain of each team over each other one, with its uncertainty from common draws of cases.

    Args:
        values: the metric in the whole cohort, higher = better, infinite values allowed; shape (teams,).
        replicates: the same in each bootstrap replicate, NaN if undefined; shape (teams, replicates).
        left_out: the same with each case left out in turn, NaN if undefined; shape (teams, cases).

    difference / sd is referred to Student's t, as far as `sd` is finite and above 0. Its degrees of freedom follow
    from the influence of each case (`degrees_of_freedom`): with few patients of a class, or a few large volumes, `sd`
    rests on few cases, and the normal distribution would find too many differences. The p is then not limited by the
    number of replicates, as Holm's correction over many pairs needs. Otherwise, for example where a median is infinite
    in some replicates, p is the fraction of replicates without a gain, ties counted as half, with one added to both
    counts (Davison and Hinkley 1997, section 4.2). Teams that are equal in every replicate have p = 1.

    Source: Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapters 12 and 16.
    """
    teams = values.size
    figures = np.zeros((5, teams, teams))
    figures[-1] = 1.0
    for team in range(teams - 1):
        others = slice(team + 1, teams)
        difference = _gap(values[team], values[others])
        ordered = np.sort(_gap(replicates[team], replicates[others]), axis=1)
        sd, (low, high) = _deviation(ordered), interval_bounds(ordered)
        freedom = degrees_of_freedom(_gap(left_out[team], left_out[others]))
        there, back = (_p_values(sign * difference, sd, freedom, sign * ordered) for sign in (1.0, -1.0))
        figures[:, team, others] = difference, sd, low, high, there
        figures[:, others, team] = -difference, sd, -high, -low, back
    return PairedGains(*figures)


def degrees_of_freedom(left_out: Floats) -> Floats:
    """Degrees of freedom of a bootstrap variance, from a statistic with each case left out; (rows, cases) to (rows,).

    The variance is about V = sum d_i^2, where d_i is the influence of case i, the mean of these values less its own
    one. As a sum over independent cases, V has a variance of about sum d_i^4 - V^2 / n, and a multiple of chi-square
    with 2 V^2 / (sum d_i^4 - V^2 / n) degrees of freedom has the same mean and variance. About n for normal influences,
    twice the number of cases on which two teams differ if each of these counts the same.

    Undefined values (NaN) do not count. Influences of one size, or infinite ones, give the normal distribution.
    Source: Satterthwaite 1946, Biometrics Bulletin 2:110-114.
    """
    counted = ~np.isnan(left_out)
    cases = np.maximum(counted.sum(axis=1), 1)
    usable = np.isinf(left_out).sum(axis=1) == 0
    filled = np.where(counted & usable[:, None], left_out, 0.0)
    influence = np.where(counted, filled - (filled.sum(axis=1) / cases)[:, None], 0.0)
    variance = (influence**2).sum(axis=1)
    spread = (influence**4).sum(axis=1) - variance**2 / cases
    freedom: Floats = np.full(len(left_out), _NORMAL)
    np.divide(2 * variance**2, spread, out=freedom, where=usable & (spread * _NORMAL > 2 * variance**2))
    return freedom


def _gap(mine: Floats, theirs: Floats) -> Floats:
    """First less second, 0 between equal ones, also between infinite ones."""
    first, second = np.broadcast_arrays(mine, theirs)
    gap: Floats = np.round(np.subtract(first, second, out=np.zeros(first.shape), where=first != second), DECIMALS)
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


def _p_values(difference: Floats, sd: Floats, freedom: Floats, gaps: Floats) -> Floats:
    size = (~np.isnan(gaps)).sum(axis=1)
    without = (gaps < 0).sum(axis=1) + 0.5 * (gaps == 0).sum(axis=1)
    shares = np.minimum(1.0, (without + 1) / (size + 1))
    varies = sd > 0
    p = np.where(varies, stdtr(freedom, -difference / np.where(varies, sd, 1.0)), shares)
    is_equal = (difference == 0) & ((gaps == 0) | np.isnan(gaps)).all(axis=1)
    return np.where(is_equal, 1.0, np.maximum(p, SMALLEST_P))
