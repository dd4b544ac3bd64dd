"""The leaderboard of one task as plain data, from teams' results that may be compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from contract.errors import HecktorError
from contract.tasks import Task
from evaluation.edition import TaskProfile, load_edition
from evaluation.metrics_json import TeamMetrics
from evaluation.ranking import Leaderboard, Standing, TeamsTable, rank_teams

_MUST_AGREE: Final = ("task", "edition", "options", "case_set_sha256")


def leaderboard(task: Task, teams: Sequence[TeamMetrics], edition_file: str | None = None) -> dict[str, Any]:
    """The leaderboard of one task as plain data; the first team is the winner.

    Args:
        task: which task.
        teams: their results, of one edition, one set of options and one set of cases.
        edition_file: the profile, where the edition is none of those that come with the package.

    Raises:
        HecktorError: results that cannot be compared, naming what differs; or no team with every ranked metric.
    """
    _check_comparable(task, teams)
    edition = load_edition(edition_file or str(teams[0].provenance["edition"]))
    profile = edition.profile(task)
    ranked = [team for team in teams if not _absent_metrics(team, profile)]
    if not ranked:
        raise HecktorError("rank: no team has a value for every ranked metric")
    values = {name: np.array([team.estimates[name].value for team in ranked], dtype=float) for name in profile.metrics}
    table = TeamsTable(tuple(team.team for team in ranked), values, profile.metrics)
    found = rank_teams(table, profile.ranking)
    return {
        "task": task.name,
        "edition": edition.name,
        "official": profile.ranking.official,
        "ties": profile.ranking.ties,
        "metrics": {name: metric.title for name, metric in profile.metrics.items()},
        "teams": [_entry(ranked[index], index, found, profile) for index in found.order],
        "unranked": [
            {"team": team.team, "without": absent} for team in teams if (absent := _absent_metrics(team, profile))
        ],
        "provenance": {key: teams[0].provenance.get(key) for key in ("version", *_MUST_AGREE)},
    }


def _entry(team: TeamMetrics, index: int, found: Leaderboard, profile: TaskProfile) -> dict[str, Any]:
    official = found.standings[profile.ranking.official]
    return {
        "rank": _plain(official.ranks[index]),
        "team": team.team,
        "metrics": {
            name: {
                "value": team.estimates[name].value,
                "ci95_low": team.estimates[name].ci95_low,
                "ci95_high": team.estimates[name].ci95_high,
                "rank": _plain(found.metric_ranks[name][index]),
            }
            for name in profile.metrics
        },
        "rankings": {name: _standing_entry(standing, index) for name, standing in found.standings.items()},
    }


def _standing_entry(standing: Standing, index: int) -> dict[str, float | int]:
    entry = {"rank": _plain(standing.ranks[index])}
    if standing.rank_sum is not None and standing.points is not None:
        entry["rank_sum"] = _plain(standing.rank_sum[index])
        entry["points"] = _plain(standing.points[index])
    return entry


def _plain(number: float) -> float | int:
    """A whole number as an integer, since ranks by the average of ties need not be whole."""
    return int(number) if float(number).is_integer() else float(number)


def _absent_metrics(team: TeamMetrics, profile: TaskProfile) -> list[str]:
    return [name for name in profile.metrics if name not in team.estimates or team.estimates[name].value is None]


def _check_comparable(task: Task, teams: Sequence[TeamMetrics]) -> None:
    first = teams[0]
    if first.provenance.get("task") != task.name:
        raise HecktorError(f"{first.team}: metrics of task {first.provenance.get('task')!r}, expected {task.name!r}")
    for team in teams[1:]:
        for key in _MUST_AGREE:
            mine, theirs = first.provenance.get(key), team.provenance.get(key)
            if mine != theirs:
                raise HecktorError(
                    f"{first.team} and {team.team}: {key} differ ({mine} and {theirs}), expected one for all teams"
                )
