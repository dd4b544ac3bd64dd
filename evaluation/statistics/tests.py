"""Tests of whether one team is better than another, and the correction for multiple tests.

Every test is one-sided, with a small p if the first team is better, and paired by case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from evaluation.metrics.concordance import find_follow_up
from evaluation.metrics.overlap import Booleans, Floats, Integers, WeightedMetric

# Values that agree to this many decimals are equal: sums in another order differ by rounding.
DECIMALS: Final = 12
# The signed-rank test is exact up to this number of differing pairs.
_MAX_EXACT_PAIRS: Final = 50
# Size of each temporary array of the signed-rank statistic; larger arrays do not fit the processor's cache.
_NUMBERS_IN_CACHE: Final = 32_768
# Replaces a p that is too small for a floating-point number.
MIN_P: Final = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class PairwiseTest:
    """A test of each team against every other team; both arrays have shape (teams, teams), `[a, b]` for team a over b.

    Attributes:
        difference: Advantage of team a in the unit of the test.
        p: One-sided p, 1 on the diagonal.
    """

    difference: Floats
    p: Floats


def holm(p_values: Floats) -> Floats:
    """Correct p values for multiple tests by Holm's step-down method, and return them in their order.

    The k-th smallest of m p values is multiplied by m - k + 1, raised to the corrected p value before it if that is
    larger, and limited to 1.
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
    groups = _group_ties(np.take_along_axis(values, order, axis=-1))
    ranks_of = {
        "min": groups.first + 1.0,
        "max": groups.last + 1.0,
        "average": (groups.first + groups.last) / 2 + 1.0,
        "dense": np.cumsum(groups.starts, axis=-1).astype(np.float64),
    }
    ranks: Floats = np.empty(values.shape)
    np.put_along_axis(ranks, order, ranks_of[ties], axis=-1)
    return ranks


@dataclass(frozen=True)
class _TieGroups:
    """Groups of equal values along the last axis of sorted values; all arrays have the shape of the values.

    Attributes:
        starts: Whether the value is the first of its group.
        first: Index of the first value of the group.
        last: Index of the last value of the group.
    """

    starts: Booleans
    first: Integers
    last: Integers


def _group_ties(ordered: Floats) -> _TieGroups:
    starts = np.ones(ordered.shape, dtype=np.bool_)
    starts[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    indices = np.arange(ordered.shape[-1])
    first = np.maximum.accumulate(np.where(starts, indices, 0), axis=-1)
    ends = np.ones(ordered.shape, dtype=np.bool_)
    ends[..., :-1] = starts[..., 1:]
    last = np.where(ends, indices, indices.size)[..., ::-1]
    return _TieGroups(starts, first, np.minimum.accumulate(last, axis=-1)[..., ::-1])


def rank_within_cases(values: Floats, ties: str = "min") -> Floats:
    """Rank the teams within each case, 1 for the best team; values that agree to 12 decimals tie.

    Args:
        values: Values of the cases, higher = better, shape (teams, cases). A team without a value has NaN.
        ties: Rule for ties, as in `rank_values`.

    Returns:
        Ranks among the teams with a value, NaN for the other teams; shape (teams, cases).
    """
    ranks = np.full(values.shape, np.nan)
    negated = -np.round(values, DECIMALS)
    for case in range(values.shape[1]):
        known = np.flatnonzero(~np.isnan(negated[:, case]))
        ranks[known, case] = rank_values(negated[known, case], ties)
    return ranks


def compare_signed_ranks(values: Floats) -> PairwiseTest:
    """Test each team over every other team by Wilcoxon's signed-rank test.

    A case with a NaN, or with equal values, does not count for the pair of teams. Two infinite values of the same sign
    are equal, and the gap between an infinite and a finite value is the largest. The p is exact up to 50 differing
    pairs, also with ties; for more pairs it is from the normal approximation. If no pair differs, p is 1. The
    difference is the rank-biserial correlation: the fraction of the sum of ranks in favour of the team, minus the
    fraction against it.

    Args:
        values: Values of the cases, higher = better, shape (teams, cases).
    """
    shape = (len(values), len(values))
    difference, p = np.zeros(shape), np.ones(shape)
    for team in range(len(values) - 1):
        later = slice(team + 1, len(values))
        difference[team, later], p[team, later], p[later, team] = _test_signed_ranks(values[team], values[later])
        difference[later, team] = -difference[team, later]
    return PairwiseTest(difference, p)


def _test_signed_ranks(values: Floats, others: Floats) -> tuple[Floats, Floats, Floats]:
    """Test one team against other teams.

    Args:
        values: Values of the team, shape (cases,).
        others: Values of the other teams, shape (teams, cases).

    Returns:
        The rank-biserial correlations, the p of the team over every other team, and the p of every other team over it.
    """
    from scipy.special import ndtr

    counted = ~(np.isnan(values) | np.isnan(others)) & (values != others)
    gaps = np.round(np.subtract(values, others, out=np.zeros(others.shape), where=counted), DECIMALS)
    order = np.argsort(np.abs(gaps), axis=1, kind="stable")
    gaps = np.take_along_axis(gaps, order, axis=1)
    groups = _group_ties(np.abs(gaps))
    # The cases that do not count have a gap of 0 and come first.
    n = np.count_nonzero(gaps, axis=1)
    ranks = np.where(gaps != 0, (groups.first + groups.last) / 2 + 1.0 - (others.shape[1] - n)[:, None], 0.0)
    in_favour = np.where(gaps > 0, ranks, 0.0).sum(axis=1)
    total = n * (n + 1) / 2
    ties = np.where(gaps != 0, (groups.last - groups.first + 1.0) ** 2 - 1.0, 0.0).sum(axis=1)
    variance = n * (n + 1) * (2 * n + 1) / 24 - ties / 48
    z = np.divide(in_favour - total / 2, np.sqrt(variance), out=np.zeros(len(others)), where=n > 0)
    difference = np.divide(2 * in_favour - total, total, out=np.zeros(len(others)), where=n > 0)
    p = np.where(n > 0, np.maximum(ndtr([-z, z]), MIN_P), 1.0)
    for team in np.flatnonzero((n > 0) & (n <= _MAX_EXACT_PAIRS)):
        differs = gaps[team] != 0
        p[0, team] = _compute_exact_p(ranks[team, differs], gaps[team, differs] > 0)
        p[1, team] = _compute_exact_p(ranks[team, differs], gaps[team, differs] < 0)
    return difference, p[0], p[1]


def make_signed_rank_statistic(values_a: Floats, values_b: Floats) -> WeightedMetric:
    """Return Wilcoxon's statistic of team a over team b as a function of case weights, whole numbers that count cases.

    The statistic is standardised, so the standard normal distribution gives an approximate p. It is 0 if no pair
    differs. Pairs and ties are treated as in `compare_signed_ranks`.

    Args:
        values_a: Values of the cases, higher = better, shape (cases,).
        values_b: The same of team b.
    """
    counted = np.flatnonzero(~(np.isnan(values_a) | np.isnan(values_b)) & (values_a != values_b))
    gap = np.round(values_a[counted] - values_b[counted], DECIMALS)
    order = np.flatnonzero(gap)
    order = order[np.argsort(np.abs(gap[order]), kind="stable")]
    cases, signs = counted[order], np.sign(gap[order])
    if cases.size == 0:
        return lambda weights: np.zeros(len(weights))
    sizes = np.abs(gap[order])
    is_last = np.concatenate([sizes[1:] != sizes[:-1], [True]])
    group_ends = np.flatnonzero(is_last)
    group_of_case = np.cumsum(is_last) - is_last
    rows_in_cache = max(1, _NUMBERS_IN_CACHE // cases.size)

    def statistic(weights: Floats) -> Floats:
        starts = range(0, len(weights), rows_in_cache)
        parts = [compute_part(weights[start : start + rows_in_cache, cases]) for start in starts]
        return np.concatenate(parts) if parts else np.zeros(0)

    def compute_part(counts: Floats) -> Floats:
        up_to, ties = np.cumsum(counts, axis=1), counts
        if group_ends.size < cases.size:
            up_to = up_to[:, group_ends]
            ties = np.diff(up_to, axis=1, prepend=0.0)
        ranks = up_to - (ties - 1) / 2
        signed_sum = (counts * (ranks[:, group_of_case] if group_ends.size < cases.size else ranks)) @ signs
        n = up_to[:, -1]
        variance = n * (n + 1) * (2 * n + 1) / 24 - (np.einsum("rg,rg,rg->r", ties, ties, ties) - n) / 48
        z: Floats = np.divide(signed_sum / 2, np.sqrt(variance), out=np.zeros(len(n)), where=n > 0)
        return z

    return statistic


def _compute_exact_p(ranks: Floats, in_favour: Booleans) -> float:
    """Compute the fraction of all assignments of signs to ranks that give at least this sum of ranks in favour."""
    # Ranks of ties may end in a half, so twice the ranks are whole numbers.
    steps = np.rint(2 * ranks).astype(int)
    chances = np.zeros(steps.sum() + 1)
    chances[0] = 1.0
    for step in steps:
        chances += np.concatenate([np.zeros(step), chances[:-step]])
        chances /= 2
    return float(chances[steps[in_favour].sum() :].sum())


def kendall_tau(rankings: Floats, reference: Floats) -> Floats:
    """Compute Kendall's tau-b of each ranking with one reference; NaN if either ties all teams.

    Args:
        rankings: Ranks of shape (replicates, teams).
        reference: Ranks of shape (teams,).

    Returns:
        Tau of each replicate, shape (replicates,).
    """
    first, second = np.triu_indices(reference.size, k=1)
    # Ranks and their sums are exact in single precision, which takes half the time.
    ranks_of_teams = np.ascontiguousarray(rankings.T, dtype=np.float32)
    orders = np.sign(ranks_of_teams[first] - ranks_of_teams[second])
    reference_order = np.sign(reference[first] - reference[second]).astype(np.float32)
    untied = np.sqrt(np.count_nonzero(orders, axis=0) * np.count_nonzero(reference_order))
    undefined: Floats = np.full(len(rankings), np.nan)
    taus: Floats = np.divide(reference_order @ orders, untied, out=undefined, where=untied > 0)
    return taus


# Pairs of patients times teams in memory at the same time: some MB.
_MAX_SCORES_IN_MEMORY: Final = 1_000_000


@dataclass(frozen=True)
class TeamRisks:
    """Risks of several teams for the same patients.

    Attributes:
        times: Follow-up, shape (patients,).
        events: True for a recurrence, shape (patients,).
        risks: Higher for earlier recurrence, NaN where missing, shape (teams, patients).
        missing_score: Score of a pair for a team that has no risk for one of its patients.
    """

    times: Floats
    events: Booleans
    risks: Floats
    missing_score: float


def kang(patients: TeamRisks) -> PairwiseTest:
    """Test for each pair of teams whether the first has the higher C-index (Kang et al. 2015, Stat Med 34:685-703).

    Let c_ij = 1 if patient i recurred and patient j was free of recurrence for longer, else 0. Let g_ij be c_ij times
    the difference of the two teams' scores of this pair. The kernels q_ij = c_ij + c_ji and d_ij = g_ij + g_ji are
    symmetric. A dot stands for the sum over an index. The difference of the two C-indices is D = d.. / q.., a ratio of
    U-statistics of degree two. To first order, D has the same error as the U-statistic with the kernel
    w_ij = (d_ij - D q_ij) / (q.. / N), where N = n (n - 1). The mean of w_ij over all pairs is 0.

    For symmetric kernels, the mean product over pairs that share no patient is an unbiased estimate of the product of
    expectations. The sum of these products is

        sum over disjoint pairs of w_ij w_kl = (w..)^2 - 4 sum_i (w_i.)^2 + 2 sum_ij w_ij^2

    since two pairs can share one patient in 4 positions, and pairs that share both patients are counted twice among
    them. The variance is the square of the mean minus this estimate. Because w.. = 0, it is

        var D = (4 sum_i (w_i.)^2 - 2 sum_ij w_ij^2) / (n (n - 1) (n - 2) (n - 3)).

    At least one of c_ij and c_ji is 0, and D c.. equals g.., so the sum of squares is
    2 (sum g_ij^2 - D^2 c..) / (q.. / N)^2. It needs only sums over rows, columns and all of c and g, which are added up
    block by block of rows. In the code `q_rows` is q_i., `d_rows` is d_i., `g_squares` is sum g_ij^2, and `row_squares`
    is sum (d_i. - D q_i.)^2.

    D / sqrt(var D) is compared with the standard normal distribution. p is 1 for fewer than 4 patients, if no pair is
    comparable, and if the estimate is not positive (for example because the predictions are equal).
    """
    from scipy.special import ndtr

    n, n_teams = patients.times.size, len(patients.risks)
    sums = _sum_pairs(patients)
    test = PairwiseTest(np.zeros((n_teams, n_teams)), np.ones((n_teams, n_teams)))
    c_sum = float(sums.q_rows.sum()) / 2
    if c_sum == 0:
        return test
    scale = n * (n - 1) / (2 * c_sum)  # N / q..
    own_products = np.diag(sums.products)
    for team in range(n_teams):
        # One row for the comparison with each team.
        d_rows = sums.score_rows[team] - sums.score_rows
        difference = d_rows.sum(axis=1) / 2 / c_sum
        test.difference[team] = difference
        if n < 4:
            continue
        g_squares = own_products[team] + own_products - 2 * sums.products[team]
        row_squares = ((d_rows - difference[:, None] * sums.q_rows) ** 2).sum(axis=1)
        numerator = scale**2 * (4 * row_squares - 4 * (g_squares - difference**2 * c_sum))
        variance = numerator / (n * (n - 1) * (n - 2) * (n - 3))
        # Rounding leaves about 1e-32 where the estimate is 0.
        has_variance = variance > 1e-24
        z = np.divide(difference, np.sqrt(np.where(has_variance, variance, 1.0)))
        test.p[team] = np.where(has_variance, np.maximum(ndtr(-z), MIN_P), 1.0)
    return test


@dataclass(frozen=True)
class _ConcordanceSums:
    """Sums over comparable pairs.

    Attributes:
        q_rows: Number of pairs of each patient, q_i. in `kang`, shape (patients,).
        score_rows: Sum of a team's scores over the pairs of each patient, shape (teams, patients). The rows of two
            teams differ by d_i. in `kang`.
        products: Sum over pairs of the product of two teams' scores, shape (teams, teams).
    """

    q_rows: Floats
    score_rows: Floats
    products: Floats


def _sum_pairs(patients: TeamRisks) -> _ConcordanceSums:
    n_teams, n = patients.risks.shape
    sums = _ConcordanceSums(np.zeros(n), np.zeros((n_teams, n)), np.zeros((n_teams, n_teams)))
    follow_up = find_follow_up(patients.times, patients.events)
    for block in follow_up.split_pairs(_MAX_SCORES_IN_MEMORY // n_teams):
        scores = block.score(patients.risks, patients.missing_score)
        for rows, values in ((sums.q_rows, block.is_comparable), (sums.score_rows, scores)):
            rows[..., block.recurrences] += values.sum(axis=-1, dtype=np.float64)
            rows[..., block.patients] += values.sum(axis=-2, dtype=np.float64)
        # Products of scores are quarters, whose sums over a block are exact in single precision.
        flat = scores.reshape(n_teams, -1)
        sums.products[...] += flat @ flat.T
    return sums
