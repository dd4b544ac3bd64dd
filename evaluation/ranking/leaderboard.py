"""The leaderboard of one task as plain data, and the stability of its ranks under resampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from contract.files import write_csv
from evaluation.editions.schemes import Scheme
from evaluation.editions.task import TaskProfile
from evaluation.metrics.overlap import Floats
from evaluation.ranking.comparisons import Draws, comparisons
from evaluation.ranking.contest import MUST_AGREE, Contest, absent_metrics, contest
from evaluation.ranking.rank import Leaderboard, TeamsTable, rank_teams, standing
from evaluation.results.metrics_json import TeamMetrics, aggregates
from evaluation.results.stored import StoredCohort, without_rows
from evaluation.statistics.bootstrap import Estimates, interval, replicates
from evaluation.statistics.tests import kendall_tau

DEFAULT_RANKINGS: Final = 1000
_TAILS: Final = (2.5, 97.5)


def leaderboard(
    profile: TaskProfile, teams: Sequence[TeamMetrics], bootstraps: int = DEFAULT_RANKINGS, seed: int | None = None
) -> dict[str, Any]:
    """The leaderboard of one task as plain data; the first team is the winner.

    The results are of one edition, one set of options and one set of cases. `bootstraps` is the number of bootstrap
    rankings, 0 for none; a `seed` of None takes the one of the first team's evaluation, and so the draws of its
    intervals.

    Raises:
        HecktorError: results that cannot be compared, naming the difference; or no team with every ranked metric.
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
    cohort = entrants.cohort
    seed = int(entrants.ranked[0].provenance.get("seed", 0) if seed is None else seed)
    draws, redraws = _draw(cohort, bootstraps, seed)
    counts = {"bootstraps": bootstraps, "seed": seed, "redraws": redraws}
    return {
        "stability": {**counts, **_stability(entrants.table, draws, entrants.profile)},
        "comparisons": comparisons(cohort, entrants.table, draws),
    }


def _draw(cohort: StoredCohort, bootstraps: int, seed: int) -> tuple[dict[tuple[str, str], Floats], int]:
    """Each team's metrics in each replicate, by (team, metric), from common draws of cases; and the redraws.

    With the seed of the evaluation the draws equal those of its intervals.
    """
    metrics = {(team.team, name): metric for team in cohort.teams for name, metric in team.metrics.items()}
    return replicates(metrics, len(cohort.cases), bootstraps, np.random.default_rng(seed))


def _stability(table: TeamsTable, draws: Draws, profile: TaskProfile) -> dict[str, Any]:
    """Counts of each team's ranks and Kendall's tau, for every ranking scheme and every metric alone.

    `draws` are as from `_draw`, `table` holds the values in the whole cohort. The bounds of a rank's interval are ranks
    that occurred. Tau compares each replicate's ranking with the ranking of the whole cohort, and is null with fewer
    than two teams or if all of them tie.
    """
    columns = {name: np.stack([draws[team, name] for team in table.teams], axis=1) for name in profile.metrics}
    tables = [
        TeamsTable(table.teams, dict(zip(columns, values, strict=True)), table.profiles)
        for values in zip(*columns.values(), strict=True)
    ]
    ties = profile.ranking.ties
    return {
        "rankings": {name: _of_scheme(table, tables, scheme, ties) for name, scheme in profile.ranking.schemes.items()},
        "metrics": {name: _of_scheme(table, tables, name, ties) for name in profile.metrics},
    }


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


def _entry(team: TeamMetrics, index: int, board: Leaderboard, profile: TaskProfile) -> dict[str, Any]:
    figures = aggregates(Estimates({name: team.estimates[name] for name in profile.metrics}, 0))
    rankings = {
        name: {part: _plain(values[index]) for part, values in {"rank": standing.ranks, **standing.figures}.items()}
        for name, standing in board.standings.items()
    }
    return {
        "rank": rankings[profile.ranking.official]["rank"],
        "team": team.team,
        **({} if team.rows else {"without_rows": True}),
        "metrics": {name: {**of, "rank": _plain(board.metric_ranks[name][index])} for name, of in figures.items()},
        "rankings": rankings,
    }


def _plain(number: float) -> float | int:
    """A whole number as an integer; ranks that average ties need not be whole."""
    return int(number) if float(number).is_integer() else float(number)


def write_table(target: Path, board: Mapping[str, Any]) -> None:
    """Write the leaderboard as CSV: one line for each team.

    Columns are the official rank, each metric with its interval and rank, each ranking, and the rank's interval; and
    `without_rows` if a team has none, so that its values could not be checked.
    """
    unchecked = any(entry.get("without_rows") for entry in board["teams"])
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
        if unchecked:
            line["without_rows"] = "yes" if entry.get("without_rows") else "no"
        lines.append(line)
    lines += [{"team": entry["team"]} for entry in board["unranked"]]
    write_csv(target, list(lines[0]), lines)
