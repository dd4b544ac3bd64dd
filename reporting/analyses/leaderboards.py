"""Analyses of one leaderboard: metrics with intervals, stability of the ranks, pairwise tests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from evaluation.editions.document import list_row_schemes
from evaluation.metrics.rules import KANG, SIGNED_RANK
from evaluation.ranking.comparisons import BOOTSTRAP, RECALLS, TOO_FEW
from evaluation.results.board import KendallTau, MetricTests, RankStability, TeamPair
from evaluation.results.documents import MetricFigures
from evaluation.results.task import TaskResults
from reporting.analyses.analysis import Analysis
from reporting.analyses.tables import collect_metric_titles, get_metric_title, get_scheme_title, is_in_mm, round_figure

_INTERVAL: Final = {"value": "Value", "ci95_low": "95% interval from", "ci95_high": "to"}


def analyse_ranked_metrics(results: TaskResults) -> list[Analysis]:
    """List the ranked metrics of each team with their intervals, with distances in a separate analysis."""
    titles = collect_metric_titles(results)
    ranked = {name: title for name, title in titles.items() if name in results.board.metrics}
    headings = {"metrics": "Metrics with 95% intervals", "distances": "Distances with 95% intervals"}
    return _separate_distances(
        results, ranked, headings, "HECKTOR 2021 overview, Tables 2 and 5; HECKTOR 2025 overview, Tables 2 to 4"
    )


def analyse_unranked_metrics(results: TaskResults) -> list[Analysis]:
    """List the metrics that do not rank with their intervals, with distances in a separate analysis."""
    titles = collect_metric_titles(results)
    unranked = {name: title for name, title in titles.items() if name not in results.board.metrics}
    headings = {"other-metrics": "Metrics that do not rank", "other-distances": "Distances that do not rank"}
    return _separate_distances(
        results, unranked, headings, "HECKTOR 2020 overview, Table 4, with precision and recall next to the DSC"
    )


def _separate_distances(
    results: TaskResults, metric_titles: Mapping[str, str], headings: Mapping[str, str], source: str
) -> list[Analysis]:
    """Make one analysis of the distances and one of the other metrics, with their intervals.

    An analysis without a value is left out.

    Args:
        results: The results of the task.
        metric_titles: The titles of the metrics by name.
        headings: The titles by name of the analyses of the other metrics and of the distances, in this order.
        source: The source of both analyses.
    """
    distances = {name: title for name, title in metric_titles.items() if is_in_mm(name, results)}
    others = {name: title for name, title in metric_titles.items() if name not in distances}
    analyses = [
        _make_interval_analysis(results, name, heading, titles, source)
        for (name, heading), titles in zip(headings.items(), (others, distances), strict=True)
    ]
    return [analysis for analysis in analyses if analysis.rows]


def _make_interval_analysis(
    results: TaskResults, name: str, title: str, metric_titles: Mapping[str, str], source: str
) -> Analysis:
    """List the value and the interval of each metric for each team and for each entry out of competition."""
    entries = _list_entries(results)
    rows: list[dict[str, Any]] = []
    infinite: list[str] = []
    for metric, metric_title in metric_titles.items():
        for team, figures_by_metric in entries:
            if metric not in figures_by_metric:
                continue
            figures = figures_by_metric[metric]
            cells = {key: round_figure(getattr(figures, key)) for key in _INTERVAL}
            rows.append({"metric": metric_title, "team": team, **cells})
            if math.isinf(figures.figure() or 0.0):
                infinite.append(f"{team}: {metric_title} is infinite.")
    values = [row[key] for row in rows for key in _INTERVAL if row[key] is not None]
    has_distances = any(is_in_mm(metric, results) for metric in metric_titles)
    are_fractions = not has_distances and all(0 <= value <= 1 for value in values)
    return Analysis(
        name=name,
        title=title,
        caption="Values with 95% intervals: Wilson's for recalls and their means, bootstrap over patients for others.",
        columns={"metric": "Metric", "team": "Team", **_INTERVAL},
        rows=[row for row in rows if row["value"] is not None],
        chart={
            "kind": "intervals",
            "y": "team",
            "x": "value",
            "low": "ci95_low",
            "high": "ci95_high",
            "facet": "metric",
            **({"domain": [0, 1]} if are_fractions else {}),
        },
        notes=tuple(infinite),
        source=source,
    )


def _list_entries(results: TaskResults) -> list[tuple[str, Mapping[str, MetricFigures]]]:
    """List the figures of teams and of entries out of competition in the leaderboard's order."""
    entries: list[tuple[str, Mapping[str, MetricFigures]]]
    entries = [(team, metrics.aggregates) for team, metrics in results.teams.items()]
    unranked = sorted(results.board.out_of_competition, key=lambda entry: entry.place)
    for inserted, entry in enumerate(unranked):
        # A place counts only the ranked teams before the entry.
        entries.insert(entry.place + inserted, (entry.team, entry.metrics))
    return entries


TESTS: Final = {
    SIGNED_RANK: "Wilcoxon's signed-rank test",
    BOOTSTRAP: "Student's t of the difference over its bootstrap standard error",
    RECALLS: "Student's t of the difference over its standard error within classes",
    KANG: "Kang's test",
}
# Follows the caption of the frequencies of ranks.
_TAU_CAPTION: Final = " Tau is Kendall's correlation of the bootstrap rankings with the ranking that is shown."


def analyse_stability(results: TaskResults) -> list[Analysis]:
    """Count how often each team has each rank in bootstrap rankings, and list Kendall's tau of each ranking.

    Without bootstrap rankings or with a single team there is no analysis.
    """
    stability = results.board.stability
    if stability is None or len(results.board.teams) < 2:
        return []
    analyses = [_analyse_rank_frequencies(results, stability)]
    if _shows_tau(results):
        analyses.append(_list_taus(results, stability))
    return [analysis for analysis in analyses if analysis.rows]


def _shows_tau(results: TaskResults) -> bool:
    """Return whether Kendall's tau is shown; between two teams it only repeats how often the first team is first."""
    return len(results.board.teams) > 2


def _analyse_rank_frequencies(results: TaskResults, stability: RankStability) -> Analysis:
    """Count the ranks in the official ranking and, if there are several metrics, in the ranking by each metric."""
    board = results.board
    rankings = [("Official ranking", stability.rankings[board.official])]
    if len(board.metrics) > 1:
        titles = _select_other_metrics(results, stability)
        rankings += [(title, stability.metrics[name]) for name, title in titles.items()]
    rows = []
    for title, ranking in rankings:
        tau = _format_tau(ranking.kendall_tau) if _shows_tau(results) else ""
        for team in board.order:
            ranks = ranking.teams[team]
            interval = {"ci95_low": ranks.ci95_low, "ci95_high": ranks.ci95_high}
            shared = {"ranking": f"{title}{tau}", "team": team}
            rows += [
                {**shared, "rank": float(rank), "fraction": round_figure(times / stability.bootstraps), **interval}
                for rank, times in ranks.times_at_rank.items()
            ]
    return Analysis(
        name="rank-stability",
        title="Stability of the ranks",
        caption=(
            f"How often each team took each rank in {stability.bootstraps} bootstrap rankings (area), and the 95% "
            "interval of its rank; a tie counts for each tied team." + (_TAU_CAPTION if _shows_tau(results) else "")
        ),
        columns={
            "ranking": "Ranking",
            "team": "Team",
            "rank": "Rank",
            "fraction": "Fraction of bootstrap rankings",
            "ci95_low": "95% interval of the rank from",
            "ci95_high": "to",
        },
        rows=rows,
        chart={
            "kind": "blobs",
            "y": "team",
            "x": "rank",
            "size": "fraction",
            "low": "ci95_low",
            "high": "ci95_high",
            "facet": "ranking",
            "pick": True,
        },
        source="HECKTOR 2021 overview, Figs. 4 and 8, after Wiesenfarth et al. 2021",
    )


def _format_tau(tau: KendallTau) -> str:
    return "" if tau.mean is None else f", tau {tau.mean:z.3f} ({tau.ci95_low:z.3f} to {tau.ci95_high:z.3f})"


def _list_taus(results: TaskResults, stability: RankStability) -> Analysis:
    """List Kendall's tau of every ranking scheme and of the ranking by each metric."""
    board = results.board
    rankings = {
        f"{get_scheme_title(name, board)}{' (official)' * (name == board.official)}": ranking
        for name, ranking in stability.rankings.items()
    }
    for name, title in _select_other_metrics(results, stability).items():
        rankings[f"{title} only"] = stability.metrics[name]
    for name, ranking in stability.metrics.items():
        if name not in board.metrics:
            rankings[f"{get_metric_title(name, results)} only"] = ranking
    rows = [
        {
            "ranking": name,
            **{key: round_figure(getattr(ranking.kendall_tau, key)) for key in ("mean", "ci95_low", "ci95_high")},
        }
        for name, ranking in rankings.items()
    ]
    return Analysis(
        name="rank-correlation",
        title="Kendall's tau of bootstrap rankings",
        caption=(
            f"Mean of Kendall's tau-b between each of {stability.bootstraps} bootstrap rankings and the ranking of all "
            "patients, with its 95% interval."
        ),
        columns={"ranking": "Ranking", "mean": "Tau", "ci95_low": "95% interval from", "ci95_high": "to"},
        rows=[row for row in rows if row["mean"] is not None],
        chart={"kind": "intervals", "y": "ranking", "x": "mean", "low": "ci95_low", "high": "ci95_high"},
        source="HECKTOR 2021 overview, ranking robustness (0.819 for the official ranking)",
    )


def _select_other_metrics(results: TaskResults, stability: RankStability) -> dict[str, str]:
    """Select the ranked metrics whose ranking differs from every ranking scheme, with their titles."""
    deciding = results.deciding_metrics
    official = results.profile.ranking.schemes.get(results.board.official)
    needs_rows = official is not None and bool(list_row_schemes(official))
    schemes = {*stability.rankings, *(deciding if len(deciding) == 1 and not needs_rows else ())}
    return {name: title for name, title in results.board.metrics.items() if name not in schemes}


def analyse_significance(results: TaskResults) -> list[Analysis]:
    """List the tests of each metric: whether the row's team is better than the column's team.

    Teams are in the official order. Without tests or with a single team there is no analysis.
    """
    board = results.board
    if not board.comparisons or len(board.teams) < 2:
        return []
    comparisons = {title: board.comparisons[name] for name, title in board.metrics.items()}
    position = {team: index for index, team in enumerate(board.order)}
    rows = [
        {"metric": title, "team": pair.team, "than": pair.than, **_describe_pair(pair), **second_p}
        for title, tests in comparisons.items()
        for pair, second_p in sorted(
            zip(tests.pairs, _list_second_p(tests), strict=True),
            key=lambda item: (position[item[0].team], position[item[0].than]),
        )
    ]
    has_second = any("p_second" in row for row in rows)
    return [
        Analysis(
            name="significance",
            title="Pairwise tests",
            caption=(
                "One-sided p of the row's team being better than the column's, after Holm's correction over all "
                "ordered pairs of the metric; below 0.05 the difference counts as significant."
            ),
            columns={
                "metric": "Metric",
                "team": "Team",
                "than": "better than",
                "difference": "Difference",
                "ci95_low": "95% interval from",
                "ci95_high": "to",
                "p": "p",
                "p_holm": "p after Holm",
                **({"p_second": "p of the second test after Holm"} if has_second else {}),
            },
            rows=rows,
            chart={
                "kind": "matrix",
                "x": "than",
                "y": "team",
                "value": "p_holm",
                "facet": "metric",
                "pick": True,
                "scale": "significance",
            },
            notes=tuple(_describe_tests(comparisons)),
            source="HECKTOR 2021 overview, text to Table 2; HECKTOR 2025 rules, comparison of teams",
        )
    ]


def _list_second_p(tests: MetricTests) -> list[dict[str, float | None]]:
    """List the cell with the p of the second test for each pair. If there is only one test, there are no cells."""
    second_p = {
        (pair.team, pair.than): round_figure(pair.p_holm) for pairs in tests.other_tests.values() for pair in pairs
    }
    return [{"p_second": second_p.get((pair.team, pair.than))} if second_p else {} for pair in tests.pairs]


def _describe_pair(pair: TeamPair) -> dict[str, float | None]:
    return {key: round_figure(getattr(pair, key)) for key in ("difference", "ci95_low", "ci95_high", "p", "p_holm")}


def _describe_tests(comparisons: Mapping[str, MetricTests]) -> list[str]:
    """Describe which test compares which metrics, and which pairs of teams have no p."""
    by_test: dict[str, list[str]] = {}
    for title, tests in comparisons.items():
        first, *second = [TESTS.get(test, test) for test in (tests.test, *tests.other_tests)]
        suffix = f", with {' and '.join(second)} as a second test" if second else ""
        by_test.setdefault(first + suffix, []).append(title)
    notes = [f"{', '.join(titles)}: {names}." for names, titles in by_test.items()]
    without = {title: sum(bool(pair.without_p) for pair in tests.pairs) for title, tests in comparisons.items()}
    untested = [
        f"{title} in {count // 2} of {len(comparisons[title].pairs) // 2} pairs"
        for title, count in without.items()
        if count
    ]
    if untested:
        notes.append(f"Too few patients differ to test {'; '.join(untested)}: {_explain_untested(comparisons)}.")
    return notes


def _explain_untested(comparisons: Mapping[str, MetricTests]) -> str:
    """Return why pairs of teams have no p: a class of one patient, the bootstrap's standard error, or both."""
    reasons = {pair.without_p for tests in comparisons.values() for pair in tests.pairs if pair.without_p}
    texts = []
    if TOO_FEW in reasons:
        texts.append("a class has only one patient")
    if reasons - {TOO_FEW}:
        texts.append("the bootstrap standard error has fewer than five degrees of freedom")
    return ", or ".join(texts)
