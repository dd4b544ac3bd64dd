"""The leaderboard of one task as plain data, from teams' results that may be compared."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from contract.errors import HecktorError
from contract.tasks import Task
from evaluation.editions.profile import TaskProfile, load_edition, with_ranking
from evaluation.ranking.comparisons import comparisons
from evaluation.ranking.rank import Leaderboard, Standing, TeamsTable, rank_teams
from evaluation.ranking.stability import draw, stability
from evaluation.results.metrics_json import TeamMetrics, aggregates
from evaluation.results.stored import stored_cohort, without_rows
from evaluation.statistics.bootstrap import Estimates

_MUST_AGREE: Final = ("task", "edition", "options", "case_set_sha256")


DEFAULT_RANKINGS: Final = 1000
NO_ROWS: Final = "no per-case rows (written with --public): {teams}; rank stability and comparisons need those of all"
NOT_ASKED: Final = "no bootstrap rankings were asked for"


@dataclass(frozen=True)
class RankOptions:
    """How to rank: the profile's file where the edition is none of the package's own, and the bootstrap rankings.

    `official` puts another ranking of the profile in force, `ties` another rule for equal teams. `seed` None takes
    the seed of the first team's evaluation, so that the draws are those of its intervals.
    """

    edition_file: str | None = None
    bootstraps: int = DEFAULT_RANKINGS
    seed: int | None = None
    official: str | None = None
    ties: str | None = None


@dataclass(frozen=True)
class Contest:
    """Teams that may be compared, the metrics of those with a value for each, and the rules that rank them."""

    profile: TaskProfile
    edition: str
    ranked: tuple[TeamMetrics, ...]
    unranked: tuple[TeamMetrics, ...]
    table: TeamsTable = field(init=False)

    def __post_init__(self) -> None:
        values = {
            name: np.array([team.estimates[name].value for team in self.ranked], dtype=float)
            for name in self.profile.metrics
        }
        table = TeamsTable(tuple(team.team for team in self.ranked), values, self.profile.metrics)
        object.__setattr__(self, "table", table)

    def with_somebody(self) -> Contest:
        """Itself. Raises HecktorError where no team has a value for every ranked metric."""
        if not self.ranked:
            raise HecktorError("rank", "no team has a value for every ranked metric")
        return self


def contest(task: Task, teams: Sequence[TeamMetrics], options: RankOptions) -> Contest:
    """Check that the results may be compared.

    Raises:
        HecktorError: they may not, naming what differs.
    """
    _check_comparable(task, teams)
    edition = load_edition(options.edition_file or str(teams[0].provenance["edition"]))
    profile = with_ranking(edition.profile(task), options.official, options.ties, "rank")
    ranked = tuple(team for team in teams if not _absent_metrics(team, profile))
    return Contest(profile, edition.name, ranked, tuple(team for team in teams if team not in ranked))


def leaderboard(task: Task, teams: Sequence[TeamMetrics], options: RankOptions | None = None) -> dict[str, Any]:
    """The leaderboard of one task as plain data; the first team is the winner.

    Args:
        task: which task.
        teams: their results, of one edition, one set of options and one set of cases.
        options: the profile's file and the bootstrap rankings.

    Raises:
        HecktorError: results that cannot be compared, naming what differs; or no team with every ranked metric.
    """
    options = options or RankOptions()
    found = contest(task, teams, options).with_somebody()
    profile, board = found.profile, rank_teams(found.table, found.profile.ranking)
    return {
        "task": task.name,
        "edition": found.edition,
        "official": profile.ranking.official,
        "ties": profile.ranking.ties,
        "metrics": {name: metric.title for name, metric in profile.metrics.items()},
        "teams": [_entry(found.ranked[index], index, board, profile) for index in board.order],
        "unranked": [{"team": team.team, "without": _absent_metrics(team, profile)} for team in found.unranked],
        **_uncertainty(found, options),
        "provenance": {key: teams[0].provenance.get(key) for key in ("version", *_MUST_AGREE)},
    }


def _uncertainty(found: Contest, options: RankOptions) -> dict[str, Any]:
    """Rank stability and pairwise comparisons, or why there are none."""
    lacking = without_rows(found.ranked)
    if lacking or options.bootstraps == 0:
        why = NO_ROWS.format(teams=", ".join(sorted(lacking))) if lacking else NOT_ASKED
        return {"stability": None, "comparisons": None, "without_stability_because": why}
    cohort = stored_cohort(found.ranked, found.profile)
    seed = found.ranked[0].provenance.get("seed", 0) if options.seed is None else options.seed
    draws, redraws = draw(cohort, options.bootstraps, int(seed))
    return {
        "stability": {
            "bootstraps": options.bootstraps,
            "seed": int(seed),
            "redraws": redraws,
            **stability(found.table, draws, found.profile),
        },
        "comparisons": comparisons(cohort, found.table, draws, found.profile),
    }


def as_csv(board: Mapping[str, Any]) -> str:
    """One line a team: official rank, each metric with its interval and rank, each ranking, the rank's interval."""
    official = board["official"]
    stable = (board["stability"] or {}).get("rankings", {}).get(official, {}).get("teams", {})
    lines = []
    for entry in board["teams"]:
        line: dict[str, Any] = {"rank": entry["rank"], "team": entry["team"]}
        for name, figures in entry["metrics"].items():
            parts = ("value", "ci95_low", "ci95_high", "rank")
            infinite = figures.get("infinite", ())
            line |= {f"{name}_{part}": "inf" if part in infinite else figures[part] for part in parts}
        for name, figures in entry["rankings"].items():
            line |= {f"{name}_{part}": value for part, value in figures.items()}
        if entry["team"] in stable:
            line |= {f"rank_{part}": stable[entry["team"]][part] for part in ("ci95_low", "ci95_high")}
        lines.append(line)
    lines += [{"team": entry["team"]} for entry in board["unranked"]]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _entry(team: TeamMetrics, index: int, found: Leaderboard, profile: TaskProfile) -> dict[str, Any]:
    official = found.standings[profile.ranking.official]
    figures = aggregates(Estimates({name: team.estimates[name] for name in profile.metrics}, 0))
    return {
        "rank": _plain(official.ranks[index]),
        "team": team.team,
        "metrics": {
            name: {**shown, "rank": _plain(found.metric_ranks[name][index])} for name, shown in figures.items()
        },
        "rankings": {name: _standing_entry(standing, index) for name, standing in found.standings.items()},
    }


def _standing_entry(standing: Standing, index: int) -> dict[str, float | int]:
    figures = {name: _plain(values[index]) for name, values in standing.figures().items()}
    return {"rank": _plain(standing.ranks[index]), **figures}


def _plain(number: float) -> float | int:
    """A whole number as an integer, since ranks by the average of ties need not be whole."""
    return int(number) if float(number).is_integer() else float(number)


def _absent_metrics(team: TeamMetrics, profile: TaskProfile) -> list[str]:
    return [name for name in profile.metrics if name not in team.estimates or team.estimates[name].value is None]


def _check_comparable(task: Task, teams: Sequence[TeamMetrics]) -> None:
    first = teams[0]
    if first.provenance.get("task") != task.name:
        raise HecktorError(f"{first.team}", f"metrics of task {first.provenance.get('task')!r}", f"{task.name!r}")
    for team in teams[1:]:
        for key in _MUST_AGREE:
            mine, theirs = first.provenance.get(key), team.provenance.get(key)
            if mine != theirs:
                mine, theirs = _only_what_differs(mine, theirs)
                raise HecktorError(
                    f"{first.team} and {team.team}", f"{key} differ ({mine} and {theirs})", "one for all teams"
                )


def _only_what_differs(mine: object, theirs: object) -> tuple[object, object]:
    if not (isinstance(mine, dict) and isinstance(theirs, dict)):
        return mine, theirs
    names = [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
    return {name: mine.get(name) for name in names}, {name: theirs.get(name) for name in names}
