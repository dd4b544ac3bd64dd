"""The figures by which schemes rank teams: their metrics, ranks within cases and significant wins, with replicates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from contract.errors import HecktorError, MetricError
from evaluation.editions.document import MedianCaseRank, RowScheme, WinRank, list_row_schemes
from evaluation.metrics.overlap import Floats, WeightedMetric, mean_metric, median_metric
from evaluation.metrics.rules import SIGNED_RANK
from evaluation.ranking.comparisons import Draws, compare_teams, orient
from evaluation.ranking.rank import collect_values
from evaluation.ranking.wins import count_signed_rank_wins, count_t_wins, count_wins
from evaluation.results.board import MetricTests, TeamPair
from evaluation.results.task import TaskResults
from evaluation.rows.scorer import compute_cohort_value
from evaluation.statistics.bootstrap import draw_replicates
from evaluation.statistics.tests import rank_within_cases, signed_rank_statistic


@dataclass(frozen=True)
class RankingFigures:
    """The figures of the ranked teams.

    Attributes:
        values: Each ranked metric, and the figures of each scheme that needs rows under its `column`, in the whole
            cohort; shape (teams,).
        draws: The same in the bootstrap replicates, by (team, name), each of shape (replicates,); None without
            replicates.
        tests: The comparisons of all pairs of teams by each metric; None without replicates.
        reason: Why there are no replicates.
        seed: Seed of the replicates.
        redraws: Number of replicates that were drawn again.
    """

    values: dict[str, Floats]
    draws: Draws | None = None
    tests: dict[str, MetricTests] | None = None
    reason: str = ""
    seed: int = 0
    redraws: int = 0


def select_schemes(results: TaskResults, bootstraps: int) -> TaskResults:
    """Return the results without the schemes that cannot be computed from them.

    Ranks within cases need the rows of all teams. Significant wins also need bootstrap replicates, from which the tests
    take their standard errors.

    Raises:
        HecktorError: The official scheme cannot be computed.
    """
    ranking = results.profile.ranking
    has_rows = all(team in results.answers for team in results.teams)
    schemes = {}
    for name, scheme in ranking.schemes.items():
        row_schemes = list_row_schemes(scheme)
        lacks_rows = bool(row_schemes) and not has_rows
        lacks_tests = bootstraps == 0 and any(isinstance(part, WinRank) for part in row_schemes)
        if not (lacks_rows or lacks_tests):
            schemes[name] = scheme
        elif name == ranking.official and lacks_rows:
            raise HecktorError(f"ranking {name}", "results without per-case rows", "rows of all teams, or --official")
        elif name == ranking.official:
            raise HecktorError(f"ranking {name}", "no bootstrap rankings", "--bootstraps above 0, for its tests")
    selected = ranking.model_copy(update={"schemes": schemes})
    return replace(results, profile=replace(results.profile, ranking=selected))


def collect_figures(results: TaskResults, bootstraps: int, seed: int | None) -> RankingFigures:
    """Compute all figures that the schemes of `select_schemes` need, the replicates and the comparisons.

    Args:
        results: The ranked teams.
        bootstraps: Number of replicates, 0 for none.
        seed: Seed of the replicates; None takes the seed of the first team's evaluation.
    """
    schemes = {
        part.column: part for scheme in results.profile.ranking.schemes.values() for part in list_row_schemes(scheme)
    }
    wins = {column: scheme for column, scheme in schemes.items() if isinstance(scheme, WinRank)}
    case_ranks = {column: _summarise_case_ranks(results, schemes[column]) for column in schemes if column not in wins}
    values = collect_values(results)
    for column, summaries in case_ranks.items():
        values[column] = np.array([compute_cohort_value(summary, len(results.cases)) for summary in summaries.values()])
    without_rows = sorted(results.teams.keys() - results.answers.keys())
    if without_rows:
        names = ", ".join(without_rows)
        reason = f"no per-case rows (written with --no-rows): {names}; rank stability and comparisons need all"
        return RankingFigures(values, reason=reason)
    if bootstraps == 0:
        return RankingFigures(values, reason="no bootstrap rankings were requested")

    functions: dict[tuple[str, ...], WeightedMetric] = {
        (team, name): of_team[name] for team, of_team in results.metrics.items() for name in results.profile.metrics
    }
    for column, summaries in case_ranks.items():
        functions |= {(team, column): summary for team, summary in summaries.items()}
    for scheme in wins.values():
        if _is_signed_rank(scheme, results):
            functions |= _compare_signed_ranks(results, scheme)
    seed = next(iter(results.teams.values())).provenance.seed if seed is None else seed
    draws, redraws = draw_replicates(functions, len(results.cases), bootstraps, seed)
    tests = compare_teams(results, values, draws)
    for column, scheme in wins.items():
        values[column] = count_wins(_select_pairs(tests[scheme.metric], scheme), list(results.teams))
        replicates = _count_replicate_wins(results, scheme, tests[scheme.metric], draws)
        draws |= {(team, column): replicates[:, place] for place, team in enumerate(results.teams)}
    return RankingFigures(values, draws, tests, "", seed, redraws)


def rank_cases(results: TaskResults, metric: str, ties: str) -> Floats:
    """Rank the teams within each case by their values of one metric, shape (teams, cases).

    A case that does not count for a team gives the team no rank (NaN); the other teams are ranked without it. A case
    that counts for a team, but gives it no value, gives no team a rank: its reference is empty, and a rule such as
    `skip` leaves right answers out of the mean, so that they cannot be compared with wrong ones.
    """
    profile = results.profile.metrics[metric]
    single_cases = np.eye(len(results.cases))
    values = np.stack([of_team[metric](single_cases) for of_team in results.metrics.values()])
    counted_cases = [set(answers[profile.answer].counted.cases) for answers in results.answers.values()]
    is_counted = np.array([[case in cases for case in results.cases] for cases in counted_cases])
    values[:, (np.isnan(values) & is_counted).any(axis=0)] = np.nan
    return rank_within_cases(orient(profile, values), ties)


def _summarise_case_ranks(results: TaskResults, scheme: RowScheme) -> dict[str, WeightedMetric]:
    """Return the mean or median of each team's ranks within the cases as a function of case weights.

    Raises:
        MetricError: A team has no rank in any case.
    """
    summarise = median_metric if isinstance(scheme, MedianCaseRank) else mean_metric
    ranks = rank_cases(results, scheme.metric, results.profile.ranking.ties)
    for team, of_team in zip(results.teams, ranks, strict=True):
        if np.isnan(of_team).all():
            raise MetricError(scheme.column, f"expected a case in which {team} can be ranked")
    return {team: summarise(of_team) for team, of_team in zip(results.teams, ranks, strict=True)}


def _is_signed_rank(scheme: WinRank, results: TaskResults) -> bool:
    """Return whether the scheme counts wins by Wilcoxon's signed-rank test."""
    metric = results.profile.metrics[scheme.metric].metric
    return scheme.test == SIGNED_RANK or (metric is not None and metric.deciding_test == SIGNED_RANK)


def _compare_signed_ranks(results: TaskResults, scheme: WinRank) -> dict[tuple[str, ...], WeightedMetric]:
    """Return Wilcoxon's statistic of each pair of teams as a function of case weights, by (column, team, team)."""
    single_cases = np.eye(len(results.cases))
    metric = results.profile.metrics[scheme.metric]
    goodness = {team: orient(metric, of_team[scheme.metric](single_cases)) for team, of_team in results.metrics.items()}
    return {
        (scheme.column, team, than): signed_rank_statistic(goodness[team], goodness[than])
        for team, than in combinations(goodness, 2)
    }


def _select_pairs(tests: MetricTests, scheme: WinRank) -> list[TeamPair]:
    """Return the entries of the scheme's test."""
    return tests.pairs if scheme.test in ("deciding", tests.test) else tests.other_tests[scheme.test]


def _count_replicate_wins(
    results: TaskResults, scheme: WinRank, tests: MetricTests, draws: Mapping[tuple[str, ...], Floats]
) -> Floats:
    """Count the wins of each team in each replicate, shape (replicates, teams)."""
    teams = list(results.teams)
    if len(teams) < 2:
        return np.zeros((len(draws[teams[0], scheme.metric]), 1))
    if _is_signed_rank(scheme, results):
        statistics = {(team, than): draws[scheme.column, team, than] for team, than in combinations(teams, 2)}
        statistics |= {(than, team): -z for (team, than), z in statistics.items()}
        return count_signed_rank_wins(_select_pairs(tests, scheme), teams, statistics)
    values = np.stack([draws[team, scheme.metric] for team in teams], axis=-1)
    goodness = orient(results.profile.metrics[scheme.metric], values)
    return count_t_wins(tests, teams, goodness, len(results.cases))
