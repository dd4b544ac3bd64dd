"""The values by which schemes rank teams: metrics, ranks within cases and significant wins, also in replicates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from contract.errors import HecktorError, MetricError
from evaluation.editions.document import MedianCaseRank, RowScheme, WinRank, list_row_schemes
from evaluation.metrics.overlap import Floats, WeightedMetric, mean_metric, median_metric
from evaluation.metrics.rules import SIGNED_RANK
from evaluation.ranking.comparisons import Draws, compare_teams, compute_case_values, orient
from evaluation.ranking.rank import collect_values
from evaluation.ranking.wins import count_signed_rank_wins, count_t_wins, count_wins
from evaluation.results.board import MetricTests, TeamPair
from evaluation.results.task import TaskResults
from evaluation.rows.scorer import compute_cohort_value
from evaluation.statistics.bootstrap import draw_replicates
from evaluation.statistics.tests import make_signed_rank_statistic, rank_within_cases


@dataclass(frozen=True)
class RankingValues:
    """The values by which the schemes of `select_schemes` rank the teams.

    Attributes:
        cohort: The teams' values in the whole cohort, each of shape (teams,). A metric has its name. The mean rank or
            the wins of a scheme that needs rows have the scheme's `column` as name.
        draws: The same in the bootstrap replicates, by (team, name), each of shape (replicates,); None without
            replicates.
        tests: The comparisons of all pairs of teams by each metric; None without replicates.
        reason: Why there are no replicates.
        seed: Seed of the replicates.
        redraws: Number of replicates that were drawn again.
    """

    cohort: Mapping[str, Floats]
    draws: Draws | None = None
    tests: Mapping[str, MetricTests] | None = None
    reason: str | None = None
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


def collect_ranking_values(results: TaskResults, bootstraps: int, seed: int | None) -> RankingValues:
    """Compute the values of all schemes, in the cohort and in bootstrap replicates, and compare the teams.

    Args:
        results: The ranked teams, with the schemes of `select_schemes`.
        bootstraps: Number of replicates, 0 for none.
        seed: Seed of the replicates; None takes the seed of the first team's evaluation.
    """
    row_schemes = {
        part.column: part for scheme in results.profile.ranking.schemes.values() for part in list_row_schemes(scheme)
    }
    win_schemes = {column: scheme for column, scheme in row_schemes.items() if isinstance(scheme, WinRank)}
    case_ranks = {
        column: _summarise_case_ranks(results, scheme)
        for column, scheme in row_schemes.items()
        if column not in win_schemes
    }
    cohort = _collect_cohort_values(results, case_ranks)
    reason = _explain_missing_replicates(results, bootstraps)
    if reason is not None:
        return RankingValues(cohort, reason=reason)

    replicated_metrics = _list_replicated_metrics(results, case_ranks, win_schemes)
    seed = next(iter(results.teams.values())).provenance.seed if seed is None else seed
    draws, redraws = draw_replicates(replicated_metrics, len(results.cases), bootstraps, seed)
    tests = compare_teams(results, cohort, draws)
    teams = list(results.teams)
    wins: dict[str, Floats] = {}
    drawn_wins: dict[tuple[str, ...], Floats] = {}
    for column, scheme in win_schemes.items():
        wins[column] = count_wins(_select_test_results(tests[scheme.metric], scheme), teams)
        replicates = _count_replicate_wins(results, scheme, tests[scheme.metric], draws)
        drawn_wins |= {(team, column): replicates[:, index] for index, team in enumerate(teams)}
    return RankingValues(
        cohort={**cohort, **wins}, draws={**draws, **drawn_wins}, tests=tests, seed=seed, redraws=redraws
    )


def _collect_cohort_values(
    results: TaskResults, case_ranks: Mapping[str, Mapping[str, WeightedMetric]]
) -> dict[str, Floats]:
    """Return the ranked metrics and the mean or median ranks within cases, each of shape (teams,)."""
    values = collect_values(results)
    for column, mean_ranks in case_ranks.items():
        values[column] = np.array([compute_cohort_value(rank, len(results.cases)) for rank in mean_ranks.values()])
    return values


def _explain_missing_replicates(results: TaskResults, bootstraps: int) -> str | None:
    """Return the reason why no replicates can be drawn; None if they can be drawn."""
    without_rows = sorted(results.teams.keys() - results.answers.keys())
    if without_rows:
        names = ", ".join(without_rows)
        return f"no per-case rows (written with --no-rows): {names}; rank stability and comparisons need all"
    return "no bootstrap rankings were requested" if bootstraps == 0 else None


def _list_replicated_metrics(
    results: TaskResults,
    case_ranks: Mapping[str, Mapping[str, WeightedMetric]],
    win_schemes: Mapping[str, WinRank],
) -> dict[tuple[str, ...], WeightedMetric]:
    """Return the functions of case weights that are computed in the replicates.

    These are the ranked metrics and the ranks within cases by (team, name), and the statistics of signed-rank tests by
    (column, team, team).
    """
    functions: dict[tuple[str, ...], WeightedMetric] = {
        (team, name): metrics[name] for team, metrics in results.metrics.items() for name in results.profile.metrics
    }
    for column, mean_ranks in case_ranks.items():
        functions |= {(team, column): mean_rank for team, mean_rank in mean_ranks.items()}
    for scheme in win_schemes.values():
        if _uses_signed_rank_test(results, scheme):
            functions |= _make_signed_rank_statistics(results, scheme)
    return functions


def rank_cases(results: TaskResults, metric: str, ties: str) -> Floats:
    """Rank the teams within each case by their values of one metric, shape (teams, cases).

    A case that does not count for a team gives the team no rank (NaN); the other teams are ranked without it. A case
    that counts for a team, but gives it no value, gives no team a rank. The reference of such a case is empty, and a
    rule such as `skip` leaves correct empty masks out of the mean. They cannot be compared with wrong masks.
    """
    profile = results.profile.metrics[metric]
    values = compute_case_values(results, metric)
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
    for team, ranks_of_team in zip(results.teams, ranks, strict=True):
        if np.isnan(ranks_of_team).all():
            raise MetricError(scheme.column, f"expected a case in which {team} can be ranked")
    return {team: summarise(ranks_of_team) for team, ranks_of_team in zip(results.teams, ranks, strict=True)}


def _select_test_results(tests: MetricTests, scheme: WinRank) -> list[TeamPair]:
    """Return the pairwise results of the test that the scheme uses.

    This is the metric's deciding test, or the test that the scheme names.
    """
    return tests.pairs if scheme.test in ("deciding", tests.test) else tests.other_tests[scheme.test]


def _uses_signed_rank_test(results: TaskResults, scheme: WinRank) -> bool:
    """Return whether the scheme counts wins by Wilcoxon's signed-rank test."""
    metric = results.profile.metrics[scheme.metric].metric
    return scheme.test == SIGNED_RANK or (metric is not None and metric.deciding_test == SIGNED_RANK)


def _make_signed_rank_statistics(results: TaskResults, scheme: WinRank) -> dict[tuple[str, ...], WeightedMetric]:
    """Return Wilcoxon's statistic of each pair of teams as a function of case weights, by (column, team, team)."""
    values = compute_case_values(results, scheme.metric)
    oriented = dict(zip(results.metrics, orient(results.profile.metrics[scheme.metric], values), strict=True))
    return {
        (scheme.column, first, second): make_signed_rank_statistic(oriented[first], oriented[second])
        for first, second in combinations(oriented, 2)
    }


def _count_replicate_wins(results: TaskResults, scheme: WinRank, tests: MetricTests, draws: Draws) -> Floats:
    """Count the wins of each team in each replicate, shape (replicates, teams)."""
    teams = list(results.teams)
    if len(teams) < 2:
        return np.zeros((len(draws[teams[0], scheme.metric]), 1))
    if _uses_signed_rank_test(results, scheme):
        statistics = {(first, second): draws[scheme.column, first, second] for first, second in combinations(teams, 2)}
        statistics |= {(second, first): -z for (first, second), z in statistics.items()}
        return count_signed_rank_wins(_select_test_results(tests, scheme), teams, statistics)
    values = np.stack([draws[team, scheme.metric] for team in teams], axis=-1)
    oriented = orient(results.profile.metrics[scheme.metric], values)
    return count_t_wins(tests, teams, oriented, len(results.cases))
