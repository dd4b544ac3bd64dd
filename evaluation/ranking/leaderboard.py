"""The leaderboard of one task as plain data, with the stability of its ranks under resampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from evaluation.editions.document import MetricProfile, Scheme
from evaluation.editions.profile import TaskProfile, known_metrics
from evaluation.metrics.overlap import Floats
from evaluation.ranking import DEFAULT_RANKINGS
from evaluation.ranking.comparisons import Draws, comparisons
from evaluation.ranking.out_of_competition import EntryOutOfCompetition, mean_entry, placed_entries
from evaluation.ranking.rank import TeamRanks, TeamsTable, rank_teams, scheme_ranks, table_of
from evaluation.results.metrics_json import TeamMetrics, aggregates
from evaluation.results.teams import MUST_AGREE, OWN_EDITION, ComparableTeams, absent_metrics
from evaluation.rows.scorer import whole_cohort
from evaluation.statistics.bootstrap import replicates
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


def leaderboard(
    teams: ComparableTeams,
    bootstraps: int = DEFAULT_RANKINGS,
    seed: int | None = None,
    *,
    out_of_competition: Sequence[EntryOutOfCompetition] = (),
    mean: bool = False,
) -> dict[str, Any]:
    """The leaderboard of one task as plain data; the first team is the winner.

    `bootstraps` is the number of bootstrap rankings, 0 for none; a `seed` of None takes the one of the first team's
    evaluation, and so the draws of its intervals. Entries `out_of_competition` and the `mean` of all ranked teams are
    shown without a change to the ranking. Raises HecktorError: no team with every ranked metric.
    """
    profile = teams.profile
    table = table_of(teams.require_ranked_teams())
    board = rank_teams(table, profile.ranking)
    resampling = _resampling(teams, bootstraps, seed)
    mean_of_teams = [mean_entry(table, resampling.draws)] if mean else []
    return {
        "task": profile.algorithm.name,
        "edition": profile.edition,
        "official": profile.ranking.official,
        "ties": profile.ranking.ties,
        "metrics": {name: metric.title for name, metric in profile.metrics.items()},
        "teams": [_entry(teams.ranked[index], index, board, profile) for index in board.order],
        "out_of_competition": placed_entries([*out_of_competition, *mean_of_teams], teams),
        "incomplete": [{"team": team.team, "without": absent_metrics(team, profile)} for team in teams.incomplete],
        **_uncertainty(table, resampling),
        "provenance": {
            **{key: teams.teams[0].provenance.get(key) for key in ("version", *MUST_AGREE, "case_set_sha256")},
            **({} if profile.own_edition is None else {OWN_EDITION: profile.own_edition}),
        },
    }


@dataclass(frozen=True)
class _Resampling:
    """The ranked teams with their metrics in each replicate, or no draws and the reason `why`."""

    teams: ComparableTeams
    draws: Draws | None = None
    why: str = ""
    bootstraps: int = 0
    seed: int = 0
    redraws: int = 0


def _resampling(teams: ComparableTeams, bootstraps: int, seed: int | None) -> _Resampling:
    ranked = replace(teams, teams=teams.ranked)
    lacking = [team.team for team in ranked.teams if not team.rows]
    if lacking or bootstraps == 0:
        why = "no bootstrap rankings were asked for"
        if lacking:
            names = ", ".join(sorted(lacking))
            why = f"no per-case rows (written with --no-rows): {names}; rank stability and comparisons need all"
        return _Resampling(ranked, why=why)
    seed = int(ranked.teams[0].provenance.get("seed", 0) if seed is None else seed)
    draws, redraws = _draw(ranked, tuple(ranked.profile.metrics), bootstraps, seed)
    return _Resampling(ranked, draws, "", bootstraps, seed, redraws)


def _uncertainty(table: TeamsTable, resampling: _Resampling) -> dict[str, Any]:
    """Rank stability and pairwise comparisons, or the reason why there are none."""
    teams, draws = resampling.teams, resampling.draws
    if draws is None:
        return {"stability": None, "comparisons": None, "without_stability_because": resampling.why}
    counts = {"bootstraps": resampling.bootstraps, "seed": resampling.seed, "redraws": resampling.redraws}
    stable = stability(table, draws, teams.profile)
    stable["metrics"] |= _of_further_metrics(teams, resampling.bootstraps, resampling.seed)
    return {
        "stability": {**counts, **stable},
        "comparisons": comparisons(teams, table, draws),
    }


def _of_further_metrics(teams: ComparableTeams, bootstraps: int, seed: int) -> dict[str, Any]:
    """The same for the metrics that do not rank but have a tau, if all teams have a value.

    The draws are those of the ranked metrics; a replicate in which a metric is undefined for a team is drawn again for
    this metric alone.
    """
    profile, names = teams.profile, tuple(team.team for team in teams.teams)
    further = {}
    for name, (answer, metric) in known_metrics(profile.answers, "rank").items():
        functions = [of[name] for of in teams.metrics.values() if metric.has_tau and name in of]
        values = np.array([whole_cohort(function, len(teams.cases)) for function in functions])
        if name not in profile.metrics and len(functions) == len(names) and not np.isnan(values).any():
            draws, _ = _draw(teams, (name,), bootstraps, seed)
            of_metric = MetricProfile(metric.title, metric.higher_is_better, answer, metric)
            table = TeamsTable(names, {name: values}, {name: of_metric})
            further[name] = _of_scheme(table, _replicates(table, draws), name, profile.ranking.ties)
    return further


def _draw(
    teams: ComparableTeams, names: Sequence[str], bootstraps: int, seed: int
) -> tuple[dict[tuple[str, str], Floats], int]:
    """Each team's metrics of these names in each replicate, by (team, metric), from common draws; and the redraws.

    With the seed of the evaluation the draws equal those of its intervals.
    """
    metrics = {(team, name): of[name] for team, of in teams.metrics.items() for name in names}
    return replicates(metrics, len(teams.cases), bootstraps, np.random.default_rng(seed))


def _entry(team: TeamMetrics, index: int, board: TeamRanks, profile: TaskProfile) -> dict[str, Any]:
    figures = aggregates({name: team.estimates[name] for name in profile.metrics})
    rankings = {
        name: {part: _plain(values[index]) for part, values in {"rank": scheme.ranks, **scheme.figures}.items()}
        for name, scheme in board.scheme_ranks.items()
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
