"""Kang's test: whether one C-index is higher than another for the same patients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import ndtr

from evaluation.metrics.concordance import comparable_pairs
from evaluation.metrics.overlap import Booleans, Floats, Integers
from evaluation.statistics.tests import SMALLEST_P, PairwiseTest

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
    """Whether a team has the higher C-index (Kang et al. 2015, Stat Med 34:685-703), for each pair of teams.

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
        test.p[team] = np.where(has_error, np.maximum(ndtr(-z), SMALLEST_P), 1.0)
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
    mine, theirs = risks[rows, None], risks[None, :]
    score = (mine > theirs) + 0.5 * (mine == theirs)
    scores: Floats = np.where(np.isnan(mine) | np.isnan(theirs), missing_score, score)
    return scores
