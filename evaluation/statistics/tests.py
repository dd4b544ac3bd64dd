"""Tests of whether one team is better than another, and the correction for multiple tests.

Every test is one-sided, with a small p if the first team is better, and paired by case.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import binom, wilcoxon

from evaluation.metrics.overlap import Booleans, Floats


@dataclass(frozen=True)
class Test:
    """Advantage of the first team, in the metric's unit and sign, and the one-sided p of having none."""

    difference: float
    p: float


def holm(p_values: Floats) -> Floats:
    """Holm's step-down correction over all of `p_values`, in their order.

    The k-th smallest of m is multiplied by m - k + 1, made at least as large as the one before, and cut at 1.
    Source: Holm 1979, Scand J Stat 6:65-70.
    """
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(p_values.size, 0, -1)
    corrected = np.empty(p_values.size)
    corrected[order] = np.minimum(np.maximum.accumulate(p_values[order] * factors), 1.0)
    return corrected


def signed_rank(goodness_a: Floats, goodness_b: Floats) -> Test:
    """Wilcoxon's signed-rank test on per-case values, higher = better; equal pairs are left out.

    A case with a NaN does not count. Two infinite values of one sign are equal; one infinite value differs more than
    any finite one. The difference is between means, or between medians if a value is infinite. The p is exact up to 50
    pairs without ties, otherwise from the normal approximation. Without a differing pair p is 1.
    """
    both = ~(np.isnan(goodness_a) | np.isnan(goodness_b))
    a, b = goodness_a[both], goodness_b[both]
    if a.size == 0:
        return Test(0.0, 1.0)
    differs = a != b
    gap = np.subtract(a, b, out=np.zeros(a.size), where=differs)
    finite = bool(np.isfinite(a).all() and np.isfinite(b).all())
    middle = float(np.mean(a) - np.mean(b)) if finite else _gap_of_medians(a, b)
    if not differs.any():
        return Test(middle, 1.0)
    # Only ranks matter, so any gap larger than all others can replace an infinite one.
    largest = np.abs(gap[np.isfinite(gap)]).max(initial=0.0) + 1.0
    gap = np.clip(gap, -largest, largest)[differs]
    tied = np.unique(np.abs(gap)).size < gap.size
    method: Literal["exact", "asymptotic"] = "exact" if gap.size <= 50 and not tied else "asymptotic"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        result = wilcoxon(gap, alternative="greater", method=method)  # type: ignore[call-overload]
    return Test(middle, float(result.pvalue))


def _gap_of_medians(a: Floats, b: Floats) -> float:
    high, low = float(np.median(a)), float(np.median(b))
    return 0.0 if high == low else high - low


def mcnemar(correct_a: Booleans, correct_b: Booleans) -> Test:
    """McNemar's exact test: whether the first team has more than half of the cases that only one team has right.

    The difference is between the fractions of correct cases. Without such a case p is 1.
    Source: McNemar 1947, Psychometrika 12:153-157; the exact form is the sign test of the discordant pairs.
    """
    only_a, only_b = int((correct_a & ~correct_b).sum()), int((correct_b & ~correct_a).sum())
    discordant = only_a + only_b
    difference = (only_a - only_b) / max(1, correct_a.size)
    if discordant == 0:
        return Test(0.0, 1.0)
    return Test(difference, float(binom.sf(only_a - 1, discordant, 0.5)))


def bootstrap_difference(gain: float, replicate_gains: Floats) -> Test:
    """Whether the gain of the first team over the second in an aggregate is stable under resampling of the cases.

    Args:
        gain: first minus second in the whole cohort, higher = better.
        replicate_gains: the same in each paired bootstrap replicate; NaN if undefined.

    p is the fraction of replicates without a gain, ties counted as half, with one added to both counts so that it is
    never 0 (Davison and Hinkley 1997, section 4.2). Without a gain in the cohort and in any replicate p is 1.
    """
    gains = replicate_gains[~np.isnan(replicate_gains)]
    if gain == 0 and not gains.any():
        return Test(0.0, 1.0)
    without = float((gains < 0).sum() + 0.5 * (gains == 0).sum())
    return Test(gain, min(1.0, (without + 1) / (gains.size + 1)))


def kendall_tau(rankings: Floats, reference: Floats) -> Floats:
    """Kendall's tau-b of each ranking with one reference; shape (replicates, teams) and (teams,) to (replicates,).

    NaN if the ranking or the reference ties all teams.
    """
    first, second = np.triu_indices(reference.size, k=1)
    mine = np.sign(rankings[:, first] - rankings[:, second])
    theirs = np.sign(reference[first] - reference[second])
    untied = np.sqrt((mine**2).sum(axis=1) * (theirs**2).sum())
    undefined: Floats = np.full(len(rankings), np.nan)
    taus: Floats = np.divide(mine @ theirs, untied, out=undefined, where=untied > 0)
    return taus
