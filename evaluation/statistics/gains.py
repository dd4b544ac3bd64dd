"""The paired bootstrap of differences: how much better each team is than each other one, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from evaluation.metrics.overlap import Booleans, Difference, Floats, fractions_within, weighted_groups
from evaluation.statistics.exchange import ALPHA, PairedExchange, missed_variance, paired_exchange
from evaluation.statistics.intervals import interval_bounds
from evaluation.statistics.tests import DECIMALS, SMALLEST_P

# With fewer degrees of freedom a deviation says too little.
LEAST_FREEDOM: Final = 5


@dataclass(frozen=True)
class PairedGains:
    """The gain of each team over each other one; all of shape (teams, teams), `[a, b]` for team a over team b.

    Attributes:
        difference: in the metric's unit, positive if team a is better.
        sd: standard deviation of the difference in the bootstrap replicates, with what they miss in small classes.
        df: degrees of freedom of `sd`; NaN where `sd` is 0 or infinite.
        ci95_low: lower end of the difference's 95% interval, which contains 0 exactly if both p are above 0.025.
        ci95_high: upper end.
        p: one-sided, small if team a is better.
        exchanged: whether the exact exchange decides.
    """

    difference: Floats
    sd: Floats
    df: Floats
    ci95_low: Floats
    ci95_high: Floats
    p: Floats
    exchanged: Booleans

    @property
    def rests_on_few(self) -> Booleans:
        """Pairs whose deviation is of no use or has fewer than five degrees of freedom."""
        rests: Booleans = ~(self.df >= LEAST_FREEDOM)
        return rests

    def decided_by(self, exchange: PairedExchange) -> PairedGains:
        """With p and intervals of the exchange where that decides."""
        exchanged = exchange.decides
        p = np.where(exchanged, exchange.p, self.p)
        low = np.where(exchanged, self.difference - exchange.reach, self.ci95_low)
        high = np.where(exchanged, self.difference + exchange.reach, self.ci95_high)
        return replace(self, **_agreeing(p, low, high), exchanged=exchanged)


def paired_gains(
    values: Floats, replicates: Floats, left_out: Floats, missed_variance: Floats | None = None
) -> PairedGains:
    """The gain of each team over each other one, with its uncertainty from common draws of cases.

    Args:
        values: the metric in the whole cohort, higher = better, infinite values allowed; shape (teams,).
        replicates: the same in each bootstrap replicate, NaN if undefined; shape (teams, replicates).
        left_out: the same with each case left out in turn, NaN if undefined; shape (teams, cases).
        missed_variance: is added to that of the replicates, shape (teams, teams); None for none.

    difference / sd is referred to Student's t, as far as `sd` is finite and above 0, and the interval is difference
    -+ t x sd. The degrees of freedom follow from the influence of each case (`degrees_of_freedom`): with few patients
    of a class, or a few large volumes, `sd` rests on few cases, and the normal distribution would find too many
    differences. The p is then not limited by the number of replicates, as Holm's correction over many pairs needs.
    Otherwise, for example where a median is infinite in some replicates, p is the fraction of replicates without a
    gain, with one added to both counts (Davison and Hinkley 1997, section 4.2), and the interval that of the
    percentiles. No p is below 2^-n for n cases, the least that an exchange of the teams' answers could give. Teams
    that are equal in every replicate have p = 1.

    Sources: Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapters 12 and 16; Hinkley 1977, Biometrika
    64:21-28 (Student's t for resampled deviations).
    """
    teams, least = values.size, max(0.5 ** left_out.shape[1], SMALLEST_P)
    figures = np.zeros((6, teams, teams))
    figures[2], figures[-1] = np.nan, 1.0
    for team in range(teams - 1):
        others = slice(team + 1, teams)
        difference = _gap(values[team], values[others])
        ordered = np.sort(_gap(replicates[team], replicates[others]), axis=1)
        sd = _deviation(ordered)
        if missed_variance is not None:
            sd = np.sqrt(sd**2 + missed_variance[team, others])
        df = np.where(sd > 0, degrees_of_freedom(_gap(left_out[team], left_out[others])), np.nan)
        low, high = _interval(difference, sd, df, ordered)
        there, back = (_p_values(sign * difference, sd, df, sign * ordered, least) for sign in (1.0, -1.0))
        figures[:, team, others] = difference, sd, df, low, high, there
        figures[:, others, team] = -difference, sd, df, -high, -low, back
    difference, sd, df, low, high, p = figures
    nothing = np.zeros((teams, teams), dtype=np.bool_)
    return PairedGains(difference, sd, df, **_agreeing(p, low, high), exchanged=nothing)


def interval_of_difference(
    metric: Difference, difference: float, replicates: Floats, left_out: Floats
) -> tuple[float, float]:
    """The 95% interval of the difference of two metrics of the same cases, as of two teams.

    `replicates` has shape (replicates,) and `left_out` (cases,), as in `paired_gains`.
    """
    both = (metric.first, metric.second)
    gains = paired_gains(
        np.array([difference, 0.0]),
        np.stack([replicates, np.zeros(replicates.size)]),
        np.stack([left_out, np.zeros(left_out.size)]),
        missed_variance(list(map(fractions_within, both))),
    )
    decided = gains.decided_by(paired_exchange(list(map(weighted_groups, both)), gains.rests_on_few))
    return float(decided.ci95_low[0, 1]), float(decided.ci95_high[0, 1])


def _agreeing(p: Floats, low: Floats, high: Floats) -> dict[str, Floats]:
    """The p and the interval, extended to 0 where its p is above 0.025 by rounding or as the least possible p."""
    return {
        "p": p,
        "ci95_low": np.where((p > ALPHA) & (low > 0), 0.0, low),
        "ci95_high": np.where((p.T > ALPHA) & (high < 0), 0.0, high),
    }


def _interval(difference: Floats, sd: Floats, df: Floats, ordered: Floats) -> tuple[Floats, Floats]:
    """difference -+ t x sd, or the percentiles of the replicates, in rising order, where `sd` is of no use."""
    from scipy.special import stdtrit

    half = stdtrit(df, 1 - ALPHA) * sd
    low, high = interval_bounds(ordered)
    return np.where(sd > 0, difference - half, low), np.where(sd > 0, difference + half, high)


def degrees_of_freedom(left_out: Floats) -> Floats:
    """Degrees of freedom of a bootstrap variance, from a statistic with each case left out; (rows, cases) to (rows,).

    The variance is about V = sum d_i^2, where d_i is the influence of case i, the mean of these values less its own
    one. As a sum over independent cases, V has a variance of about sum d_i^4 - V^2 / n, and a multiple of chi-square
    with 2 V^2 / (sum d_i^4 - V^2 / n) degrees of freedom has the same mean and variance. About n for normal influences,
    twice the number of cases on which two teams differ if each of these counts the same.

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


def _p_values(difference: Floats, sd: Floats, df: Floats, gaps: Floats, least: float) -> Floats:
    from scipy.special import stdtr

    size = (~np.isnan(gaps)).sum(axis=1)
    shares = np.minimum(1.0, ((gaps <= 0).sum(axis=1) + 1) / (size + 1))
    varies = sd > 0
    p = np.where(varies, stdtr(df, -difference / np.where(varies, sd, 1.0)), shares)
    is_equal = (difference == 0) & ((gaps == 0) | np.isnan(gaps)).all(axis=1)
    return np.where(is_equal, 1.0, np.maximum(p, least))
