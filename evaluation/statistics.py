"""Tests that ask whether one team is better than another, and what corrects them for their number.

Every test is one-sided: its p is small where the first team is better. All of them are paired by case.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.stats import binom, norm, wilcoxon

from evaluation.overlap import Floats

Booleans: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Test:
    """How much better the first team is, in the metric's unit and sign, and the one-sided p of its not being so."""

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

    A case in which either value is NaN does not count. Two infinite values of one sign are equal; one infinite
    value is further off than any finite one. The difference is that of the means, of the medians where a value is
    infinite. The p is exact up to 50 pairs without ties, else by the normal law. No differing pair gives p = 1.
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
    # Ranks alone count, so an infinite gap may stand for any that is larger than all others.
    largest = np.abs(gap[np.isfinite(gap)]).max(initial=0.0) + 1.0
    gap = np.clip(gap, -largest, largest)[differs]
    tied = np.unique(np.abs(gap)).size < gap.size
    method: Literal["exact", "asymptotic"] = "exact" if gap.size <= 50 and not tied else "asymptotic"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found = wilcoxon(gap, alternative="greater", method=method)  # type: ignore[call-overload]
    return Test(middle, float(found.pvalue))


def _gap_of_medians(a: Floats, b: Floats) -> float:
    high, low = float(np.median(a)), float(np.median(b))
    return 0.0 if high == low else high - low


def mcnemar(correct_a: Booleans, correct_b: Booleans) -> Test:
    """McNemar's exact test: of the cases that just one team has right, whether the first has more than half.

    The difference is that of the shares of correct cases. No such case gives p = 1.
    Source: McNemar 1947, Psychometrika 12:153-157; the exact form is the sign test of the discordant pairs.
    """
    only_a, only_b = int((correct_a & ~correct_b).sum()), int((correct_b & ~correct_a).sum())
    discordant = only_a + only_b
    difference = (only_a - only_b) / max(1, correct_a.size)
    if discordant == 0:
        return Test(0.0, 1.0)
    return Test(difference, float(binom.sf(only_a - 1, discordant, 0.5)))


def bootstrap_difference(gain: float, replicate_gains: Floats) -> Test:
    """Whether an aggregate's gain of the first team over the second outlasts resampling of the cases.

    Args:
        gain: first less second in the whole cohort, higher = better.
        replicate_gains: the same in each paired bootstrap replicate; NaN where it is not defined.

    p is the share of replicates without a gain, ties counted as half, with one added to both counts so that it is
    never 0 (Davison and Hinkley 1997, section 4.2). No gain in any replicate and in the cohort gives p = 1.
    """
    gains = replicate_gains[~np.isnan(replicate_gains)]
    if gain == 0 and not gains.any():
        return Test(0.0, 1.0)
    without = float((gains < 0).sum() + 0.5 * (gains == 0).sum())
    return Test(gain, min(1.0, (without + 1) / (gains.size + 1)))


def kang(comparable: Floats, score_a: Floats, score_b: Floats) -> Test:
    """Whether one C-index is higher than another of the same patients (Kang et al. 2015, Stat Med 34:685-703).

    Args:
        comparable: (patients, patients), 1 where the row's patient recurred and the column's was free for longer.
        score_a: (patients, patients), how far that pair is concordant by the first team's risks: 0, 0.5 or 1.
        score_b: the same by the second team's.

    With Q = sum over ordered pairs of the symmetric kernel q_ij = comparable_ij + comparable_ji, and d_ij in the
    same way from comparable * (score_a - score_b), the difference of the two indices is D = d.. / q.., a ratio of
    U-statistics of degree two. To first order its error is that of the U-statistic with the kernel
    w_ij = (d_ij - D q_ij) / (q.. / N), N = n (n - 1), whose mean over pairs is 0. For any two symmetric kernels
    the product of means over pairs that share no patient is an unbiased estimate of the product of expectations:

        sum over disjoint pairs of w_ij w_kl = (w..)^2 - 4 sum_i (w_i.)^2 + 2 sum_ij w_ij^2

    (4 positions in which one index may be shared, pairs that share both counted twice among them). The variance is
    the square of the mean less that estimate; as w.. = 0 here, it is

        var D = (4 sum_i (w_i.)^2 - 2 sum_ij w_ij^2) / (n (n - 1) (n - 2) (n - 3)).

    D / sqrt(var D) is taken for standard normal. Fewer than 4 patients, no comparable pair or an estimate that is
    not positive (equal predictions among others) tell nothing: p = 1.
    """
    n = comparable.shape[0]
    pairs = float(comparable.sum())
    if pairs == 0:
        return Test(0.0, 1.0)
    gain = comparable * (score_a - score_b)
    difference = float(gain.sum()) / pairs
    one_sided = gain - difference * comparable
    kernel = (one_sided + one_sided.T) * (n * (n - 1) / (2 * pairs))
    if n < 4:
        return Test(difference, 1.0)
    spread = 4 * float((kernel.sum(axis=1) ** 2).sum()) - 2 * float((kernel**2).sum())
    variance = spread / (n * (n - 1) * (n - 2) * (n - 3))
    # Rounding leaves about 1e-32 where the estimate is 0.
    if variance <= 1e-24:
        return Test(difference, 1.0)
    return Test(difference, float(norm.sf(difference / np.sqrt(variance))))


def comparable_pairs(times: Floats, events: Booleans) -> Floats:
    """(patients, patients), 1 where the row's patient recurred before the column's last follow-up, else 0.

    A recurrence counts as earlier than a censoring at the same time; two recurrences at one time are not compared.
    """
    mine, theirs = times[:, None], times[None, :]
    earlier = (mine < theirs) | ((mine == theirs) & ~events[None, :])
    pairs: Floats = (earlier & events[:, None]).astype(np.float64)
    return pairs


def concordance_scores(risks: Floats, missing_score: float) -> Floats:
    """(patients, patients), 1 where the row's risk is higher, 0.5 where equal, `missing_score` where one is NaN."""
    mine, theirs = risks[:, None], risks[None, :]
    score = (mine > theirs) + 0.5 * (mine == theirs)
    scores: Floats = np.where(np.isnan(mine) | np.isnan(theirs), missing_score, score)
    return scores


def kendall_tau(rankings: Floats, reference: Floats) -> Floats:
    """Kendall's tau-b of each ranking with one reference; shape (replicates, teams) and (teams,) to (replicates,).

    Ties are taken into account (tau-b). A ranking, or a reference, that ties all teams has no tau: NaN.
    """
    first, second = np.triu_indices(reference.size, k=1)
    mine = np.sign(rankings[:, first] - rankings[:, second])
    theirs = np.sign(reference[first] - reference[second])
    untied = np.sqrt((mine**2).sum(axis=1) * (theirs**2).sum())
    undefined: Floats = np.full(len(rankings), np.nan)
    taus: Floats = np.divide(mine @ theirs, untied, out=undefined, where=untied > 0)
    return taus
