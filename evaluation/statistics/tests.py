"""Tests of whether one team is better than another, and the correction for multiple tests.

Every test is one-sided, with a small p if the first team is better, and paired by case.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from evaluation.metrics.overlap import Booleans, Floats

# Values are equal to this many decimals; sums in another order differ by rounding alone.
DECIMALS: Final = 12
# Up to this many differing pairs without ties the signed-rank test is exact.
_EXACT_PAIRS: Final = 50
# In place of a p that is too small for a floating-point number.
SMALLEST_P: Final = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class PairwiseTest:
    """A test of each team against each other one; all of shape (teams, teams), `[a, b]` for team a over team b.

    `difference` is the advantage of team a in the test's own unit, `p` one-sided, 1 on the diagonal.
    """

    difference: Floats
    p: Floats


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


def signed_ranks(goodness: Floats) -> PairwiseTest:
    """Wilcoxon's signed-rank test of each team over each other one.

    Args:
        goodness: per-case values, higher = better, shape (teams, cases).

    A case with a NaN does not count for its pair of teams, nor does one with equal values. Two infinite values of one
    sign are equal; one infinite value differs more than any finite one. The p is exact up to 50 differing pairs
    without ties, otherwise from the normal approximation. Without a differing pair p is 1. The difference is the
    rank-biserial correlation: the share of the ranks that speak for the team less that of those against it.
    """
    shape = (len(goodness), len(goodness))
    difference, p = np.zeros(shape), np.ones(shape)
    for a, b in combinations(range(len(goodness)), 2):
        difference[a, b], p[a, b], p[b, a] = _signed_rank(goodness[a], goodness[b])
        difference[b, a] = -difference[a, b]
    return PairwiseTest(difference, p)


def _signed_rank(goodness_a: Floats, goodness_b: Floats) -> tuple[float, float, float]:
    """The rank-biserial correlation, and the p of a over b and of b over a."""
    from scipy.special import ndtr
    from scipy.stats import rankdata, wilcoxon

    counted = ~(np.isnan(goodness_a) | np.isnan(goodness_b)) & (goodness_a != goodness_b)
    gap = np.round(goodness_a[counted] - goodness_b[counted], DECIMALS)
    gap = gap[gap != 0]
    if gap.size == 0:
        return 0.0, 1.0, 1.0
    ranks = rankdata(np.abs(gap))
    difference = float((np.sign(gap) * ranks).sum() / ranks.sum())
    _, ties = np.unique(ranks, return_counts=True)
    if gap.size <= _EXACT_PAIRS and ties.size == gap.size:
        # Only ranks matter, so they can replace gaps, of which some may be infinite.
        signed = np.sign(gap) * ranks
        there, back = (wilcoxon(side, alternative="greater", method="exact").pvalue for side in (signed, -signed))
        return difference, float(there), float(back)
    n = gap.size
    variance = n * (n + 1) * (2 * n + 1) / 24 - (ties**3 - ties).sum() / 48
    z = (ranks[gap > 0].sum() - n * (n + 1) / 4) / np.sqrt(variance)
    return difference, _at_least_tiny(ndtr(-z)), _at_least_tiny(ndtr(z))


def _at_least_tiny(p: float) -> float:
    return max(float(p), SMALLEST_P)


def mcnemar(correct: Booleans, counted: Booleans) -> PairwiseTest:
    """McNemar's exact test: whether a team has more than half of the patients that only one of two teams has right.

    Args:
        correct: whether a team's answer is right, shape (teams, patients).
        counted: whether the patient counts for the team, of the same shape; a pair of teams shares those of both.

    The difference is between the fractions of correct patients. If both teams have the same patients right, p is 1.
    Source: McNemar 1947, Psychometrika 12:153-157; the exact form is the sign test of the discordant pairs.
    """
    from scipy.stats import binom

    right, wrong = (np.asarray(side & counted, dtype=np.float64) for side in (correct, ~correct))
    alone = right @ wrong.T
    shared = (right + wrong) @ (right + wrong).T
    difference: Floats = (alone - alone.T) / np.maximum(1.0, shared)
    return PairwiseTest(difference, np.asarray(binom.sf(alone - 1, alone + alone.T, 0.5)))


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
