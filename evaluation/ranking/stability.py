"""Stability of a ranking under resampling: the teams are ranked again in every bootstrap replicate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from evaluation.editions.schemes import Scheme
from evaluation.editions.task import TaskProfile
from evaluation.metrics.overlap import Floats
from evaluation.ranking.rank import TeamsTable, standing
from evaluation.results.stored import StoredCohort
from evaluation.statistics.bootstrap import interval, replicates
from evaluation.statistics.tests import kendall_tau

Draws = Mapping[tuple[str, str], Floats]
_TAILS: Final = (2.5, 97.5)


def draw(cohort: StoredCohort, bootstraps: int, seed: int) -> tuple[dict[tuple[str, str], Floats], int]:
    """Each team's metrics in each replicate, by (team, metric), from common draws of cases; and the redraws.

    With the seed of the evaluation the draws equal those of its intervals.
    """
    metrics = {(team.team, name): metric for team in cohort.teams for name, metric in team.metrics.items()}
    return replicates(metrics, len(cohort.cases), bootstraps, np.random.default_rng(seed))


def stability(table: TeamsTable, draws: Draws, profile: TaskProfile) -> dict[str, Any]:
    """Counts of each team's ranks and Kendall's tau, for every ranking scheme and every metric alone.

    Args:
        table: the teams' values in the whole cohort.
        draws: as from `draw`.
        profile: the metrics and ranking schemes.

    The bounds of a rank's interval are ranks that occurred. Tau compares each replicate's ranking with the ranking of
    the whole cohort, and is null with fewer than two teams or if all of them tie.
    """
    schemes: dict[str, Scheme] = dict(profile.ranking.schemes)
    tables = _replicate_tables(table, draws, profile)
    ties = profile.ranking.ties
    return {
        "rankings": {name: _of_scheme(table, tables, scheme, ties) for name, scheme in schemes.items()},
        "metrics": {name: _of_scheme(table, tables, name, ties) for name in profile.metrics},
    }


def _replicate_tables(table: TeamsTable, draws: Draws, profile: TaskProfile) -> list[TeamsTable]:
    columns = {name: np.stack([draws[team, name] for team in table.teams], axis=1) for name in profile.metrics}
    count = len(next(iter(columns.values())))
    return [
        TeamsTable(table.teams, {name: column[number] for name, column in columns.items()}, table.profiles)
        for number in range(count)
    ]


def _of_scheme(table: TeamsTable, tables: list[TeamsTable], scheme: Scheme, ties: str) -> dict[str, Any]:
    whole = standing(table, scheme, ties).ranks
    ranks = np.stack([standing(one, scheme, ties).ranks for one in tables])
    return {
        "teams": {team: _of_team(ranks[:, index]) for index, team in enumerate(table.teams)},
        "kendall_tau": _of_tau(ranks, whole),
    }


def _of_team(ranks: Floats) -> dict[str, Any]:
    taken, counts = np.unique(ranks, return_counts=True)
    low, high = np.percentile(ranks, _TAILS, method="inverted_cdf")
    return {
        "times_at_rank": {f"{rank:g}": int(count) for rank, count in zip(taken, counts, strict=True)},
        "mean": float(ranks.mean()),
        "ci95_low": float(low),
        "ci95_high": float(high),
    }


def _of_tau(ranks: Floats, whole: Floats) -> dict[str, Any]:
    taus = kendall_tau(ranks, whole)
    taus = taus[~np.isnan(taus)]
    if taus.size == 0:
        return {"mean": None, "ci95_low": None, "ci95_high": None, "replicates": 0}
    low, high = interval(taus)
    return {"mean": float(taus.mean()), "ci95_low": low, "ci95_high": high, "replicates": int(taus.size)}
