"""Tests of whether one team is better than another, and the correction for multiple tests.

Every test is one-sided, with a small p if the first team is better, and paired by case.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from evaluation.metrics.concordance import comparable_pairs
from evaluation.metrics.overlap import Booleans, Floats, Integers

# Values are equal to this many decimals; sums in another order differ by rounding alone.
DECIMALS: Final = 12
# Up to this many differing pairs the signed-rank test is exact.
_EXACT_PAIRS: Final = 50
# In place of a p that is too small for a floating-point number.
MIN_P: Final = float(np.finfo(np.float64).tiny)


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


def rank_values(values: Floats, ties: str) -> Floats:
    """Rank values along the last axis, 1 for the smallest; equal values rank by `ties`.

    `ties` is `min`, `max`, `average` or `dense`, as in `scipy.stats.rankdata`, whose import takes a second. Values may
    be infinite, but not NaN.
    """
    order = np.argsort(values, axis=-1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=-1)
    starts_group = np.ones(values.shape, dtype=np.bool_)
    starts_group[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    places = np.arange(values.shape[-1])
    first = np.maximum.accumulate(np.where(starts_group, places, 0), axis=-1)
    ends_group = np.ones(values.shape, dtype=np.bool_)
    ends_group[..., :-1] = starts_group[..., 1:]
    last = np.where(ends_group, places, places.size)[..., ::-1]
    last = np.minimum.accumulate(last, axis=-1)[..., ::-1]
    ranks_of = {
        "min": first + 1.0,
        "max": last + 1.0,
        "average": (first + last) / 2 + 1.0,
        "dense": np.cumsum(starts_group, axis=-1).astype(np.float64),
    }
    ranks: Floats = np.empty(values.shape)
    np.put_along_axis(ranks, order, ranks_of[ties], axis=-1)
    return ranks


def signed_rank_test(goodness: Floats) -> PairwiseTest:
    """Wilcoxon's signed-rank test of each team over each other one.

    Args:
        goodness: per-case values, higher = better, shape (teams, cases).

    A case with a NaN does not count for its pair of teams, nor does one with equal values. Two infinite values of one
    sign are equal; one infinite value differs more than any finite one. The p is exact up to 50 differing pairs, with
    ties as well, otherwise from the normal approximation. Without a differing pair p is 1. The difference is the
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

    counted = ~(np.isnan(goodness_a) | np.isnan(goodness_b)) & (goodness_a != goodness_b)
    gap = np.round(goodness_a[counted] - goodness_b[counted], DECIMALS)
    gap = gap[gap != 0]
    if gap.size == 0:
        return 0.0, 1.0, 1.0
    ranks = rank_values(np.abs(gap), "average")
    difference = float((np.sign(gap) * ranks).sum() / ranks.sum())
    if gap.size <= _EXACT_PAIRS:
        return difference, _exact_p(ranks, gap > 0), _exact_p(ranks, gap < 0)
    _, ties = np.unique(ranks, return_counts=True)
    n = gap.size
    variance = n * (n + 1) * (2 * n + 1) / 24 - (ties**3 - ties).sum() / 48
    z = (ranks[gap > 0].sum() - n * (n + 1) / 4) / np.sqrt(variance)
    return difference, _at_least_tiny(ndtr(-z)), _at_least_tiny(ndtr(z))


def _exact_p(ranks: Floats, in_favour: Booleans) -> float:
    """Of all ways to give the ranks signs, the fraction with at least as large a sum of ranks in favour."""
    steps = np.rint(2 * ranks).astype(int)  # ranks of ties end in a half
    chances = np.zeros(steps.sum() + 1)
    chances[0] = 1.0
    for step in steps:
        chances += np.concatenate([np.zeros(step), chances[:-step]])
        chances /= 2
    return float(chances[steps[in_favour].sum() :].sum())


def _at_least_tiny(p: float) -> float:
    return max(float(p), MIN_P)


def kendall_tau(rankings: Floats, reference: Floats) -> Floats:
    """Kendall's tau-b of each ranking with one reference; shape (replicates, teams) and (teams,) to (replicates,).

    NaN if the ranking or the reference ties all teams.
    """
    first, second = np.triu_indices(reference.size, k=1)
    orders = np.sign(rankings[:, first] - rankings[:, second])
    reference_order = np.sign(reference[first] - reference[second])
    untied = np.sqrt((orders**2).sum(axis=1) * (reference_order**2).sum())
    undefined: Floats = np.full(len(rankings), np.nan)
    taus: Floats = np.divide(orders @ reference_order, untied, out=undefined, where=untied > 0)
    return taus


# Pairs of patients times teams in memory at once: some tens of MB.
_PAIRS_AT_ONCE: Final = 1_000_000


@dataclass(frozen=True)
class TeamRisks:
    """Risks of several teams for the same patients.

    Attributes:
        times: follow-up, shape (patients,).
        events: True for a recurrence, shape (patients,).
        risks: higher for earlier recurrence, NaN where missing, shape (teams, patients).
        missing_score: what a pair counts for a team that lacks a risk in it.
    """

    times: Floats
    events: Booleans
    risks: Floats
    missing_score: float


def kang(patients: TeamRisks) -> PairwiseTest:
    """Tests of the higher C-index (Kang et al. 2015, Stat Med 34:685-703), for each pair of teams.

    With c_ij = 1 where patient i recurred and j was free for longer, and g_ij = c_ij times how far that pair is
    concordant by a less the same by b, sum over ordered pairs the symmetric kernels q_ij = c_ij + c_ji and
    d_ij = g_ij + g_ji. The difference of the two indices is D = d.. / q.., a ratio of U-statistics of degree two. To
    first order its error is that of the U-statistic with the kernel w_ij = (d_ij - D q_ij) / (q.. / N), N = n (n - 1),
    whose mean over pairs is 0. For any two symmetric kernels the product of means over pairs that share no patient is
    an unbiased estimate of the product of expectations:

        sum over disjoint pairs of w_ij w_kl = (w..)^2 - 4 sum_i (w_i.)^2 + 2 sum_ij w_ij^2

    (4 positions in which one index may be shared, pairs that share both counted twice among them). The variance is
    the square of the mean less that estimate; as w.. = 0 here, it is

        var D = (4 sum_i (w_i.)^2 - 2 sum_ij w_ij^2) / (n (n - 1) (n - 2) (n - 3)).

    Of c_ij and c_ji one is 0, so that with D c.. = g.. the sum of squares is 2 (sum g_ij^2 - D^2 c..) / (q.. / N)^2:
    sums over rows, columns and all of c and g are enough, and these are added up a block of rows at a time.

    D / sqrt(var D) is taken for standard normal. Fewer than 4 patients, no comparable pair or an estimate that is
    not positive (for example with equal predictions) give p = 1.
    """
    from scipy.special import ndtr

    n, sums = patients.times.size, _pair_sums(patients)
    teams, total = len(patients.risks), float(sums.compared.sum()) / 2
    test = PairwiseTest(np.zeros((teams, teams)), np.ones((teams, teams)))
    if total == 0:
        return test
    scale = n * (n - 1) / (2 * total)
    own = np.diag(sums.products)
    for team in range(teams):
        gained = sums.concordant[team] - sums.concordant
        difference = gained.sum(axis=1) / 2 / total
        test.difference[team] = difference
        if n < 4:
            continue
        squares = own[team] + own - 2 * sums.products[team]
        of_patients = ((gained - difference[:, None] * sums.compared) ** 2).sum(axis=1)
        spread = scale**2 * (4 * of_patients - 4 * (squares - difference**2 * total))
        variance = spread / (n * (n - 1) * (n - 2) * (n - 3))
        # Rounding leaves about 1e-32 where the estimate is 0.
        has_error = variance > 1e-24
        z = np.divide(difference, np.sqrt(np.where(has_error, variance, 1.0)))
        test.p[team] = np.where(has_error, np.maximum(ndtr(-z), MIN_P), 1.0)
    return test


@dataclass(frozen=True)
class _PairSums:
    """Sums over comparable pairs.

    `compared` counts the pairs of each patient, and `concordant` how far a team has them right, shape (teams,
    patients). `products` are, for two teams, the sums over pairs of the products of both teams' scores.
    """

    compared: Floats
    concordant: Floats
    products: Floats


def _pair_sums(patients: TeamRisks) -> _PairSums:
    teams, n = patients.risks.shape
    sums = _PairSums(np.zeros(n), np.zeros((teams, n)), np.zeros((teams, teams)))
    for rows in _blocks(patients.events, teams):
        pairs = comparable_pairs(patients.times, patients.events, rows)
        scores = np.stack([pairs * concordance_scores(risks, patients.missing_score, rows) for risks in patients.risks])
        for part, of_pairs in ((sums.compared, pairs), (sums.concordant, scores)):
            part[..., rows] += of_pairs.sum(axis=-1)
            part[...] += of_pairs.sum(axis=-2)
        flat = scores.reshape(teams, -1)
        sums.products[...] += flat @ flat.T
    return sums


def _blocks(events: Booleans, teams: int) -> Iterator[Integers]:
    """The patients who recurred, in blocks; no other patient is the earlier one of a comparable pair."""
    recurred = np.flatnonzero(events)
    step = max(1, _PAIRS_AT_ONCE // max(1, events.size * teams))
    for start in range(0, recurred.size, step):
        yield recurred[start : start + step]


def concordance_scores(risks: Floats, missing_score: float, rows: Integers) -> Floats:
    """(rows, patients), 1 where the row's risk is higher, 0.5 where equal, `missing_score` where one is NaN."""
    risk, other = risks[rows, None], risks[None, :]
    score = (risk > other) + 0.5 * (risk == other)
    scores: Floats = np.where(np.isnan(risk) | np.isnan(other), missing_score, score)
    return scores
