"""Significant wins: the number of teams that each team is significantly better than, also in bootstrap replicates.

Source: Wiesenfarth et al. 2021, Sci Rep 11:2369 (challengeR); Antonelli et al. 2022, Nat Commun 13:4128.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from evaluation.metrics.overlap import Floats
from evaluation.ranking.comparisons import BOOTSTRAP
from evaluation.results.board import MetricTests, TeamPair
from evaluation.statistics.gains import gap
from evaluation.statistics.tests import MIN_P, holm

# A team wins against another team if the corrected p is below this level.
ALPHA: Final = 0.05


def count_wins(pairs: Sequence[TeamPair], teams: Sequence[str]) -> Floats:
    """Count the wins of each team in the whole cohort, shape (teams,)."""
    winners = [pair.team for pair in pairs if pair.p_holm is not None and pair.p_holm < ALPHA]
    return np.array([winners.count(team) for team in teams], dtype=np.float64)


def count_t_wins(tests: MetricTests, teams: Sequence[str], oriented: Floats, n_cases: int) -> Floats:
    """Count the wins of each team by Student's t in each replicate.

    The difference comes from the replicate, the standard error and the degrees of freedom from the whole cohort.

    Args:
        tests: The comparisons in the whole cohort. A pair without a p has no p in a replicate either.
        teams: Names of the teams.
        oriented: Values of the metric, negated if lower is better, shape (replicates, teams).
        n_cases: Number of cases, which limits p as in `compute_gains`.

    Returns:
        Wins, shape (replicates, teams).
    """
    from scipy.special import stdtr

    pairs = [pair for pair in tests.pairs if pair.p is not None]
    first = [teams.index(pair.team) for pair in pairs]
    second = [teams.index(pair.than) for pair in pairs]
    sd = np.array([pair.sd for pair in pairs], dtype=np.float64)
    df = np.array([pair.df for pair in pairs], dtype=np.float64)
    min_p = max(0.5**n_cases, MIN_P) if tests.test == BOOTSTRAP else MIN_P
    wins = np.zeros(oriented.shape)
    for replicate, values in enumerate(oriented):
        p = np.maximum(stdtr(df, -gap(values[first], values[second]) / sd), min_p)
        wins[replicate] = _count_significant(p, first, len(teams))
    return wins


def count_signed_rank_wins(
    pairs: Sequence[TeamPair], teams: Sequence[str], statistics: Mapping[tuple[str, str], Floats]
) -> Floats:
    """Count the wins of each team by Wilcoxon's test, in its normal approximation, in each replicate.

    Args:
        pairs: The comparisons in the whole cohort.
        teams: Names of the teams.
        statistics: The standardised statistic of each ordered pair of teams in the replicates, each of shape
            (replicates,).

    Returns:
        Wins, shape (replicates, teams).
    """
    from scipy.special import ndtr

    first = [teams.index(pair.team) for pair in pairs]
    z_of_pairs = np.stack([statistics[pair.team, pair.than] for pair in pairs], axis=-1)
    return np.stack([_count_significant(ndtr(-z), first, len(teams)) for z in z_of_pairs])


def _count_significant(p: Floats, first: Sequence[int], n_teams: int) -> Floats:
    """Count the pairs of each first team whose p is significant after Holm's correction, shape (teams,)."""
    significant = np.array(first, dtype=np.intp)[holm(p) < ALPHA]
    return np.bincount(significant, minlength=n_teams).astype(np.float64)
