"""The leaderboard of one task, with the stability of its ranks under resampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from contract.errors import HecktorError
from evaluation.editions.document import MetricProfile, Scheme
from evaluation.editions.profile import TaskProfile, find_metrics
from evaluation.metrics.overlap import Floats
from evaluation.ranking import DEFAULT_RANKINGS
from evaluation.ranking.comparisons import Draws, comparisons
from evaluation.ranking.out_of_competition import UnrankedEntry, mean_entry, place_entries
from evaluation.ranking.rank import TeamRanks, Values, rank_teams, scheme_ranks, values_of
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


def stability(
    teams: Sequence[str], values: Values, draws: Draws, profile: TaskProfile
) -> tuple[dict[str, SchemeStability], dict[str, SchemeStability]]:
    """Counts of each team's ranks and Kendall's tau, for every ranking scheme, and for every metric alone.

    `draws` holds the metrics in each replicate, `values` those in the whole cohort. The bounds of a rank's interval are
    ranks that occurred. Tau compares each replicate's ranking with the ranking of the whole cohort, and is null with
    fewer than two teams or if all of them tie.
    """
    drawn, ranking, metrics = _replicates(teams, values, draws), profile.ranking, profile.metrics
    of_schemes, of_metrics = (
        {name: _of_scheme(teams, values, drawn, metrics, scheme, ranking.ties) for name, scheme in schemes.items()}
        for schemes in (ranking.schemes, dict(zip(metrics, metrics, strict=True)))
    )
    return of_schemes, of_metrics


def _replicates(teams: Sequence[str], values: Values, draws: Draws) -> dict[str, Floats]:
    """Return the values of all replicates, shape (replicates, teams)."""
    return {name: np.stack([draws[team, name] for team in teams], axis=-1) for name in values}


def _of_scheme(
    teams: Sequence[str],
    values: Values,
    drawn: Values,
    metrics: Mapping[str, MetricProfile],
    scheme: Scheme,
    ties: str,
) -> SchemeStability:
    whole = scheme_ranks(values, metrics, scheme, ties).ranks
    ranks = scheme_ranks(drawn, metrics, scheme, ties).ranks
    counts = {team: _of_team(ranks[:, index]) for index, team in enumerate(teams)}
    return SchemeStability(teams=counts, kendall_tau=_of_tau(ranks, whole))


def _of_team(ranks: Floats) -> RankCounts:
    taken, counts = np.unique(ranks, return_counts=True)
    low, high = np.percentile(ranks, _TAILS, method="inverted_cdf")
    return RankCounts(
        times_at_rank={f"{rank:g}": int(count) for rank, count in zip(taken, counts, strict=True)},
        mean=float(ranks.mean()),
        ci95_low=float(low),
        ci95_high=float(high),
    )


def _of_tau(ranks: Floats, whole: Floats) -> KendallTau:
    taus = kendall_tau(ranks, whole)
    taus = taus[~np.isnan(taus)]
    if taus.size == 0:
        return KendallTau(mean=None, ci95_low=None, ci95_high=None, replicates=0)
    low, high = percentile_interval(taus)
    return KendallTau(mean=float(taus.mean()), ci95_low=low, ci95_high=high, replicates=int(taus.size))


def leaderboard(
    results: TaskResults,
    bootstraps: int = DEFAULT_RANKINGS,
    seed: int | None = None,
    *,
    out_of_competition: Sequence[UnrankedEntry] = (),
    mean: bool = False,
) -> Leaderboard:
    """Return the leaderboard of one task; the first team is the winner.

    `bootstraps` is the number of bootstrap rankings, 0 for none; a `seed` of None takes the one of the first team's
    evaluation, and so the draws of its intervals. Entries `out_of_competition` and the `mean` of all ranked teams are
    shown without a change to the ranking. Raises HecktorError: no team with every ranked metric.
    """
    if not results.ranked:
        raise HecktorError("rank", "no team has a value for every ranked metric")
    profile, ranked = results.profile, results.select(results.ranked)
    values = values_of(ranked)
    ranks = rank_teams(list(ranked.teams), values, profile.metrics, profile.ranking)
    resampling = _resampling(ranked, bootstraps, seed)
    mean_of_teams = [mean_entry(list(ranked.teams), values, resampling.draws)] if mean else []
    stated = next(iter(results.teams.values())).provenance
    about = {key: getattr(stated, key) or None for key in ("version", *MUST_AGREE, "case_set_sha256")}
    return Leaderboard(
        task=profile.algorithm.name,
        edition=profile.edition,
        official=profile.ranking.official,
        ties=profile.ranking.ties,
        metrics={name: metric.title for name, metric in profile.metrics.items()},
        teams=[_entry(ranked, index, ranks) for index in ranks.order],
        out_of_competition=place_entries([*out_of_competition, *mean_of_teams], results),
        incomplete=[IncompleteTeam(team=team, without=results.absent_metrics(team)) for team in results.incomplete],
        **_uncertainty(ranked, values, resampling),
        provenance={**about, **({} if profile.own_edition is None else {OWN_EDITION: profile.own_edition})},
        runs={},
        files={},
        methods={},
        identical_answers=[],
    )


@dataclass(frozen=True)
class _Resampling:
    """The ranked teams' metrics in each replicate, or no draws and the reason `why`."""

    draws: Draws | None = None
    why: str = ""
    bootstraps: int = 0
    seed: int = 0
    redraws: int = 0


def _resampling(ranked: TaskResults, bootstraps: int, seed: int | None) -> _Resampling:
    lacking = sorted(ranked.teams.keys() - ranked.answers.keys())
    if lacking:
        names = ", ".join(lacking)
        why = f"no per-case rows (written with --no-rows): {names}; rank stability and comparisons need all"
        return _Resampling(why=why)
    if bootstraps == 0:
        return _Resampling(why="no bootstrap rankings were requested")
    seed = next(iter(ranked.teams.values())).provenance.seed if seed is None else seed
    draws, redraws = _draw(ranked, tuple(ranked.profile.metrics), bootstraps, seed)
    return _Resampling(draws, "", bootstraps, seed, redraws)


def _uncertainty(ranked: TaskResults, values: Values, resampling: _Resampling) -> dict[str, Any]:
    """Compute rank stability and pairwise comparisons, or return the reason why they are missing."""
    draws = resampling.draws
    if draws is None:
        return {"stability": None, "comparisons": None, "without_stability_because": resampling.why}
    rankings, metrics = stability(list(ranked.teams), values, draws, ranked.profile)
    stable = RankStability(
        bootstraps=resampling.bootstraps,
        seed=resampling.seed,
        redraws=resampling.redraws,
        rankings=rankings,
        metrics={**metrics, **_of_further_metrics(ranked, resampling.bootstraps, resampling.seed)},
    )
    return {"stability": stable, "comparisons": comparisons(ranked, values, draws)}


def _of_further_metrics(ranked: TaskResults, bootstraps: int, seed: int) -> dict[str, SchemeStability]:
    """Compute the stability of metrics that do not rank but have a tau, if all teams have a value.

    The draws equal the draws of the ranked metrics. A replicate in which a metric is undefined for a team
    is drawn again, only for this metric.
    """
    profile, teams = ranked.profile, list(ranked.teams)
    further = {}
    for name, measured in find_metrics(profile.answers, "rank").items():
        metric = measured.metric
        functions = [of[name] for of in ranked.metrics.values() if metric.has_tau and name in of]
        column = np.array([compute_cohort_value(function, len(ranked.cases)) for function in functions])
        if name not in profile.metrics and len(functions) == len(teams) and not np.isnan(column).any():
            draws, _ = _draw(ranked, (name,), bootstraps, seed)
            metrics = {name: MetricProfile(metric.title, metric.higher_is_better, measured.answer, metric)}
            values = {name: column}
            drawn = _replicates(teams, values, draws)
            further[name] = _of_scheme(teams, values, drawn, metrics, name, profile.ranking.ties)
    return further


def _draw(
    results: TaskResults, names: Sequence[str], bootstraps: int, seed: int
) -> tuple[dict[tuple[str, str], Floats], int]:
    """Compute metrics in each replicate, by (team, metric), from common draws; also return the number of redraws.

    With the seed of the evaluation the draws equal the draws of its intervals.
    """
    metrics = {(team, name): of[name] for team, of in results.metrics.items() for name in names}
    return draw_replicates(metrics, len(results.cases), bootstraps, np.random.default_rng(seed))


def _entry(ranked: TaskResults, index: int, ranks: TeamRanks) -> RankedEntry:
    team, profile = list(ranked.teams)[index], ranked.profile
    figures = {name: ranked.teams[team].aggregates[name].figures for name in profile.metrics}
    rankings = {
        name: SchemeFigures(
            **{part: _plain(values[index]) for part, values in {"rank": scheme.ranks, **scheme.figures}.items()}
        )
        for name, scheme in ranks.scheme_ranks.items()
    }
    return RankedEntry(
        rank=rankings[profile.ranking.official].rank,
        team=team,
        **({} if team in ranked.answers else {"without_rows": True}),
        metrics={
            name: RankedFigures.of(*of, rank=_plain(ranks.metric_ranks[name][index])) for name, of in figures.items()
        },
        rankings=rankings,
    )


def _plain(number: float) -> float | int:
    """Return a whole number as an integer; ranks that average ties need not be whole."""
    return int(number) if float(number).is_integer() else float(number)
