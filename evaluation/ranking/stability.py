"""Stability of ranks under resampling: how often each team takes each rank, and Kendall's tau."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from contract.errors import HecktorError
from evaluation.editions.metrics import MetricProfile, require_rankable
from evaluation.editions.schemes import Scheme
from evaluation.editions.task import TaskProfile, known_metrics
from evaluation.metrics.overlap import Floats
from evaluation.ranking.comparisons import Draws
from evaluation.ranking.rank import TeamsTable, scheme_ranks
from evaluation.statistics.intervals import interval
from evaluation.statistics.tests import kendall_tau

_TAILS: Final = (2.5, 97.5)


def stability(table: TeamsTable, draws: Draws, profile: TaskProfile) -> dict[str, Any]:
    """Counts of each team's ranks and Kendall's tau, for every ranking scheme and every metric alone.

    `draws` holds the metrics in each replicate, `table` those in the whole cohort. The bounds of a rank's interval are
    ranks that occurred. Tau compares each replicate's ranking with the ranking of the whole cohort, and is null with
    fewer than two teams or if all of them tie.
    """
    replicates = _replicates(table, draws)
    ranking, ties = profile.ranking, profile.ranking.ties
    return {
        "rankings": {name: _of_scheme(table, replicates, scheme, ties) for name, scheme in ranking.schemes.items()},
        "metrics": {name: _of_scheme(table, replicates, name, ties) for name in profile.metrics},
    }


def tau_of_metric(table: TeamsTable, draws: Draws, metric: str, ties: str) -> dict[str, Any]:
    """Kendall's tau between the ranking by one metric in each replicate and in the whole cohort."""
    tau: dict[str, Any] = _of_scheme(table, _replicates(table, draws), metric, ties)["kendall_tau"]
    return tau


def measured_metric(profile: TaskProfile, name: str, where: str) -> MetricProfile:
    """The profile of any metric that the rules measure, ranked or not.

    Raises:
        HecktorError: no such metric, or one that cannot rank teams.
    """
    if name in profile.metrics:
        return profile.metrics[name]
    known = known_metrics(profile.answers, where)
    if name not in known:
        raise HecktorError(where, f"unknown metric {name!r}", f"one of {', '.join({**profile.metrics, **known})}")
    answer, metric = known[name]
    require_rankable(metric, where)
    return MetricProfile(name, metric.higher_is_better, answer, metric)


def _replicates(table: TeamsTable, draws: Draws) -> TeamsTable:
    """The tables of all replicates, shape (replicates, teams)."""
    values = {name: np.stack([draws[team, name] for team in table.teams], axis=-1) for name in table.values}
    return TeamsTable(table.teams, values, table.profiles)


def _of_scheme(table: TeamsTable, replicates: TeamsTable, scheme: Scheme, ties: str) -> dict[str, Any]:
    whole = scheme_ranks(table, scheme, ties).ranks
    ranks = scheme_ranks(replicates, scheme, ties).ranks
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
