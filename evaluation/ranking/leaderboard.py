"""The leaderboard of one task as plain data, from teams' results that may be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from contract.files import write_csv
from evaluation.editions.task import TaskProfile
from evaluation.ranking.comparisons import comparisons
from evaluation.ranking.contest import MUST_AGREE, Contest, absent_metrics, contest
from evaluation.ranking.rank import Leaderboard, rank_teams
from evaluation.ranking.stability import draw, stability
from evaluation.results.metrics_json import TeamMetrics, aggregates
from evaluation.results.stored import stored_cohort, without_rows
from evaluation.statistics.bootstrap import Estimates

DEFAULT_RANKINGS: Final = 1000


def leaderboard(
    profile: TaskProfile, teams: Sequence[TeamMetrics], bootstraps: int = DEFAULT_RANKINGS, seed: int | None = None
) -> dict[str, Any]:
    """The leaderboard of one task as plain data; the first team is the winner.

    Args:
        profile: the task's profile, with the ranking in force.
        teams: their results, of one edition, one set of options and one set of cases.
        bootstraps: bootstrap rankings, 0 for none.
        seed: seed of the bootstrap; None takes the seed of the first team's evaluation, and so the draws of its
            intervals.

    Raises:
        HecktorError: results that cannot be compared, naming what differs; or no team with every ranked metric.
    """
    entrants = contest(profile, teams).require_ranked_teams()
    board = rank_teams(entrants.table, profile.ranking)
    return {
        "task": profile.algorithm.name,
        "edition": profile.edition,
        "official": profile.ranking.official,
        "ties": profile.ranking.ties,
        "metrics": {name: metric.title for name, metric in profile.metrics.items()},
        "teams": [_entry(entrants.ranked[index], index, board, profile) for index in board.order],
        "unranked": [{"team": team.team, "without": absent_metrics(team, profile)} for team in entrants.unranked],
        **_uncertainty(entrants, bootstraps, seed),
        "provenance": {key: teams[0].provenance.get(key) for key in ("version", *MUST_AGREE)},
    }


def _uncertainty(entrants: Contest, bootstraps: int, seed: int | None) -> dict[str, Any]:
    """Rank stability and pairwise comparisons, or the reason why there are none."""
    lacking = without_rows(entrants.ranked)
    if lacking or bootstraps == 0:
        why = "no bootstrap rankings were asked for"
        if lacking:
            teams = ", ".join(sorted(lacking))
            why = f"no per-case rows (written with --public): {teams}; rank stability and comparisons need those of all"
        return {"stability": None, "comparisons": None, "without_stability_because": why}
    cohort = stored_cohort(entrants.ranked, entrants.profile)
    seed = int(entrants.ranked[0].provenance.get("seed", 0) if seed is None else seed)
    draws, redraws = draw(cohort, bootstraps, seed)
    return {
        "stability": {
            "bootstraps": bootstraps,
            "seed": seed,
            "redraws": redraws,
            **stability(entrants.table, draws, entrants.profile),
        },
        "comparisons": comparisons(cohort, entrants.table, draws),
    }


def write_table(target: Path, board: Mapping[str, Any]) -> None:
    """Write the leaderboard as CSV: one line for each team.

    Columns are the official rank, each metric with its interval and rank, each ranking, and the rank's interval.
    """
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
    write_csv(target, list(lines[0]), lines)


def _entry(team: TeamMetrics, index: int, board: Leaderboard, profile: TaskProfile) -> dict[str, Any]:
    figures = aggregates(Estimates({name: team.estimates[name] for name in profile.metrics}, 0))
    rankings = {
        name: {part: _plain(values[index]) for part, values in {"rank": standing.ranks, **standing.figures}.items()}
        for name, standing in board.standings.items()
    }
    return {
        "rank": rankings[profile.ranking.official]["rank"],
        "team": team.team,
        "metrics": {name: {**of, "rank": _plain(board.metric_ranks[name][index])} for name, of in figures.items()},
        "rankings": rankings,
    }


def _plain(number: float) -> float | int:
    """A whole number as an integer; ranks that average ties need not be whole."""
    return int(number) if float(number).is_integer() else float(number)
