"""Kang's test: whether one C-index is higher than another for the same patients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.stats import norm

from evaluation.metrics.concordance import comparable_pairs
from evaluation.metrics.overlap import Booleans, Floats, Integers
from evaluation.statistics.tests import Test

# Pairs in memory at once: some tens of MB, independent of the number of patients.
_PAIRS_AT_ONCE: Final = 1_000_000


@dataclass(frozen=True)
class PairedRisks:
    """Risks of two teams for the same patients, higher for earlier recurrence, NaN where missing.

    All have shape (patients,); `events` is True for a recurrence. A pair in which a team lacks a risk counts
    `missing_score` for that team.
    """

    times: Floats
    events: Booleans
    risks_a: Floats
    risks_b: Floats
    missing_score: float


def kang(patients: PairedRisks) -> Test:
    """Whether team a has the higher C-index (Kang et al. 2015, Stat Med 34:685-703).

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
    n = patients.times.size
    compared, gained, squares = np.zeros(n), np.zeros(n), 0.0
    for rows in _blocks(patients.events):
        pairs = comparable_pairs(patients.times, patients.events, rows)
        gains = pairs * (
            concordance_scores(patients.risks_a, patients.missing_score, rows)
            - concordance_scores(patients.risks_b, patients.missing_score, rows)
        )
        compared[rows] += pairs.sum(axis=1)
        compared += pairs.sum(axis=0)
        gained[rows] += gains.sum(axis=1)
        gained += gains.sum(axis=0)
        squares += float((gains**2).sum())
    total = float(compared.sum()) / 2
    if total == 0:
        return Test(0.0, 1.0)
    difference = float(gained.sum()) / 2 / total
    if n < 4:
        return Test(difference, 1.0)
    scale = n * (n - 1) / (2 * total)
    sums = float(((gained - difference * compared) ** 2).sum())
    spread = scale**2 * (4 * sums - 4 * (squares - difference**2 * total))
    variance = spread / (n * (n - 1) * (n - 2) * (n - 3))
    # Rounding leaves about 1e-32 where the estimate is 0.
    if variance <= 1e-24:
        return Test(difference, 1.0)
    return Test(difference, float(norm.sf(difference / np.sqrt(variance))))


def _blocks(events: Booleans) -> Iterator[Integers]:
    """The patients who recurred, in blocks; no other patient is the earlier one of a comparable pair."""
    recurred = np.flatnonzero(events)
    step = max(1, _PAIRS_AT_ONCE // max(1, events.size))
    for start in range(0, recurred.size, step):
        yield recurred[start : start + step]


def concordance_scores(risks: Floats, missing_score: float, rows: Integers) -> Floats:
    """(rows, patients), 1 where the row's risk is higher, 0.5 where equal, `missing_score` where one is NaN."""
    mine, theirs = risks[rows, None], risks[None, :]
    score = (mine > theirs) + 0.5 * (mine == theirs)
    scores: Floats = np.where(np.isnan(mine) | np.isnan(theirs), missing_score, score)
    return scores
