"""The leaderboard of one task, with the stability of its ranks under resampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from contract.errors import HecktorError
from evaluation.editions.document import MetricProfile, Scheme, list_row_schemes
from evaluation.editions.profile import TaskProfile, find_metrics
from evaluation.metrics.overlap import Floats, WeightedMetric
from evaluation.ranking import DEFAULT_RANKINGS
from evaluation.ranking.comparisons import Draws
from evaluation.ranking.out_of_competition import UnrankedEntry, make_mean_entry, place_entries
from evaluation.ranking.rank import TeamRanks, Values, rank_by_scheme, rank_teams
from evaluation.ranking.scheme_values import RankingValues, collect_ranking_values, select_schemes
from evaluation.results.board import (
    IncompleteTeam,
    KendallTau,
    Leaderboard,
    RankCounts,
    RankedEntry,
    RankedFigures,
    RankStability,
    SchemeFigures,
    SchemeStability,
)
from evaluation.results.task import TaskResults
from evaluation.results.teams import MUST_AGREE, OWN_EDITION
from evaluation.rows.scorer import compute_cohort_value
from evaluation.statistics.bootstrap import draw_replicates
from evaluation.statistics.intervals import percentile_interval
from evaluation.statistics.tests import kendall_tau

_TAILS: Final = (2.5, 97.5)


def compute_stability(
    teams: Sequence[str], values: Values, draws: Draws, profile: TaskProfile
) -> tuple[dict[str, SchemeStability], dict[str, SchemeStability]]:
    """Count each team's ranks in the bootstrap rankings and compute Kendall's tau.

    The bounds of a rank's interval are ranks that occurred. Tau compares the ranking of every replicate with the
    ranking of the whole cohort. It is null with fewer than two teams or if all of them tie.

    Args:
        teams: Names in the order of the values.
        values: Each metric in the whole cohort.
        draws: Each metric in the replicates.
        profile: Metrics and ranking of the task.

    Returns:
        The stability under every ranking scheme, and the stability of the ranking by every single metric.
    """
    replicates = _stack_replicates(teams, values, draws)
    by_scheme = {
        name: _compute_scheme_stability(teams, values, replicates, scheme, profile)
        for name, scheme in profile.ranking.schemes.items()
    }
    by_metric = {name: _compute_scheme_stability(teams, values, replicates, name, profile) for name in profile.metrics}
    return by_scheme, by_metric


def _stack_replicates(teams: Sequence[str], values: Values, draws: Draws) -> dict[str, Floats]:
    """Return the metrics of `values` in all replicates, each of shape (replicates, teams)."""
    return {name: np.stack([draws[team, name] for team in teams], axis=-1) for name in values}


def _compute_scheme_stability(
    teams: Sequence[str], values: Values, replicates: Values, scheme: Scheme, profile: TaskProfile
) -> SchemeStability:
    """Compare the ranking of every replicate with the ranking of the whole cohort, both under one scheme."""
    ties = profile.ranking.ties
    ranks = rank_by_scheme(replicates, profile.metrics, scheme, ties).ranks
    whole = rank_by_scheme(values, profile.metrics, scheme, ties).ranks
    low, high = np.percentile(ranks, _TAILS, axis=0, method="inverted_cdf")
    counts = {
        team: _count_ranks(ranks[:, index], float(low[index]), float(high[index])) for index, team in enumerate(teams)
    }
    return SchemeStability(teams=counts, kendall_tau=_summarise_taus(ranks, whole))


def _count_ranks(ranks: Floats, low: float, high: float) -> RankCounts:
    """Count how often one team took each rank; `low` and `high` are the ends of its interval."""
    rank_values, counts = np.unique(ranks, return_counts=True)
    return RankCounts(
        times_at_rank={f"{rank:g}": int(count) for rank, count in zip(rank_values, counts, strict=True)},
        mean=float(ranks.mean()),
        ci95_low=low,
        ci95_high=high,
    )


def _summarise_taus(ranks: Floats, whole: Floats) -> KendallTau:
    taus = kendall_tau(ranks, whole)
    taus = taus[~np.isnan(taus)]
    if taus.size == 0:
        return KendallTau(mean=None, ci95_low=None, ci95_high=None, replicates=0)
    low, high = percentile_interval(taus)
    return KendallTau(mean=float(taus.mean()), ci95_low=low, ci95_high=high, replicates=int(taus.size))


def build_leaderboard(
    results: TaskResults,
    bootstraps: int = DEFAULT_RANKINGS,
    seed: int | None = None,
    *,
    out_of_competition: Sequence[UnrankedEntry] = (),
    mean: bool = False,
) -> Leaderboard:
    """Return the leaderboard of one task; the first team is the winner.

    Args:
        results: The teams, also incomplete ones.
        bootstraps: Number of bootstrap rankings, 0 for none.
        seed: Seed of the draws. None takes the seed of the first team's evaluation, and so the draws of its intervals.
        out_of_competition: Entries that are shown without a change to the ranking.
        mean: Whether the mean of all ranked teams is shown as such an entry.

    Raises:
        HecktorError: No team has every ranked metric.
    """
    if not results.ranked:
        raise HecktorError("rank", "no team has a value for every ranked metric")
    ranked = select_schemes(results.select(results.ranked), bootstraps)
    profile = ranked.profile
    values = collect_ranking_values(ranked, bootstraps, seed)
    ranks = rank_teams(list(ranked.teams), values.cohort, profile.metrics, profile.ranking)
    mean_of_teams = [make_mean_entry(ranked, values)] if mean else []
    stated = next(iter(results.teams.values())).provenance
    about = {key: getattr(stated, key) or None for key in ("version", *MUST_AGREE, "case_set_sha256")}
    return Leaderboard(
        task=profile.algorithm.name,
        edition=profile.edition,
        official=profile.ranking.official,
        ties=profile.ranking.ties,
        metrics={name: metric.title for name, metric in profile.metrics.items()},
        teams=[_make_entry(ranked, index, ranks) for index in ranks.order],
        out_of_competition=place_entries([*out_of_competition, *mean_of_teams], ranked, bootstraps, seed),
        incomplete=[
            IncompleteTeam(team=team, without=results.list_absent_metrics(team)) for team in results.incomplete
        ],
        **_compute_uncertainty(ranked, values, bootstraps),
        provenance={**about, **({} if profile.own_edition is None else {OWN_EDITION: profile.own_edition})},
        runs={},
        files={},
        methods={},
        identical_answers=[],
    )


def order_teams(ranked: TaskResults, bootstraps: int, seed: int | None) -> list[str]:
    """Return the names of complete teams in the order of the official ranking.

    Bootstrap replicates are drawn only if the official ranking needs the rows of the teams.

    Raises:
        HecktorError: The official ranking cannot be computed from the results.
    """
    profile = ranked.profile.select_official()
    official = select_schemes(replace(ranked, profile=profile), bootstraps)
    needs_rows = bool(list_row_schemes(profile.ranking.schemes[profile.ranking.official]))
    values = collect_ranking_values(official, bootstraps if needs_rows else 0, seed)
    teams = list(ranked.teams)
    return [teams[index] for index in rank_teams(teams, values.cohort, profile.metrics, profile.ranking).order]


def _compute_uncertainty(ranked: TaskResults, values: RankingValues, bootstraps: int) -> dict[str, Any]:
    """Compute rank stability and return it with the pairwise comparisons, or return why they are missing."""
    if values.draws is None:
        return {"stability": None, "comparisons": None, "without_stability_because": values.reason}
    rankings, metrics = compute_stability(list(ranked.teams), values.cohort, values.draws, ranked.profile)
    stable = RankStability(
        bootstraps=bootstraps,
        seed=values.seed,
        redraws=values.redraws,
        rankings=rankings,
        metrics={**metrics, **_compute_unranked_stability(ranked, bootstraps, values.seed)},
    )
    return {"stability": stable, "comparisons": values.tests}


def _compute_unranked_stability(ranked: TaskResults, bootstraps: int, seed: int) -> dict[str, SchemeStability]:
    """Compute the stability of metrics that do not rank but have a tau, if all teams have a value.

    The draws equal the draws of the ranked metrics. A replicate that leaves a metric undefined for a team is drawn
    again, only for this metric.
    """
    profile, teams = ranked.profile, list(ranked.teams)
    stability = {}
    for name, measured in find_metrics(profile.answers, "rank").items():
        metric = measured.metric
        if name in profile.metrics or not metric.has_tau:
            continue
        functions = [of_team[name] for of_team in ranked.metrics.values() if name in of_team]
        column = np.array([compute_cohort_value(function, len(ranked.cases)) for function in functions])
        if len(functions) < len(teams) or np.isnan(column).any():
            continue
        by_team: dict[tuple[str, ...], WeightedMetric] = {
            (team, name): function for team, function in zip(teams, functions, strict=True)
        }
        draws, _ = draw_replicates(by_team, len(ranked.cases), bootstraps, seed)
        unranked = {name: MetricProfile(metric.title, metric.higher_is_better, measured.answer, metric)}
        values = {name: column}
        replicates = _stack_replicates(teams, values, draws)
        stability[name] = _compute_scheme_stability(teams, values, replicates, name, replace(profile, metrics=unranked))
    return stability


def _make_entry(ranked: TaskResults, index: int, ranks: TeamRanks) -> RankedEntry:
    """Make the entry of the team with this index in `ranked`."""
    team = list(ranked.teams)[index]
    aggregates = ranked.teams[team].aggregates
    metrics = {
        name: RankedFigures.from_values(*aggregates[name].figures, rank=_to_number(ranks.metric_ranks[name][index]))
        for name in ranked.profile.metrics
    }
    rankings = {
        name: SchemeFigures(
            rank=_to_number(scheme.ranks[index]),
            **{figure: _to_number(values[index]) for figure, values in scheme.figures.items()},
        )
        for name, scheme in ranks.scheme_ranks.items()
    }
    return RankedEntry(
        rank=rankings[ranked.profile.ranking.official].rank,
        team=team,
        **({} if team in ranked.answers else {"without_rows": True}),
        metrics=metrics,
        rankings=rankings,
    )


def _to_number(number: float) -> float | int:
    """Return a whole number as an integer; ranks that average ties need not be whole."""
    return int(number) if float(number).is_integer() else float(number)
