"""Analyses of one leaderboard: metrics with intervals, stability of the ranks, pairwise tests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from evaluation.editions.document import list_row_schemes
from evaluation.metrics.rules import KANG, SIGNED_RANK
from evaluation.ranking.comparisons import BOOTSTRAP, RECALLS
from evaluation.results.board import KendallTau, MetricTests, RankStability, TeamPair
from evaluation.results.documents import MetricFigures
from evaluation.results.task import TaskResults
from reporting.analyses.analysis import Analysis
from reporting.analyses.tables import collect_metric_titles, get_metric_title, get_scheme_title, is_in_mm, round_figure

_INTERVAL: Final = {"value": "Value", "ci95_low": "95% interval from", "ci95_high": "to"}


def analyse_ranked_metrics(results: TaskResults) -> list[Analysis]:
    """Show ranked metrics with their intervals for each team; distances are shown separately."""
    titles = collect_metric_titles(results)
    ranked = {name: title for name, title in titles.items() if name in results.board.metrics}
    heads = {"metrics": "Metrics with 95% intervals", "distances": "Distances with 95% intervals"}
    return _separate_distances(
        results, ranked, heads, "HECKTOR 2021 overview, Tables 2 and 5; HECKTOR 2025 overview, Tables 2 to 4"
    )


def analyse_unranked_metrics(results: TaskResults) -> list[Analysis]:
    """Show the metrics that do not rank, with their intervals."""
    titles = collect_metric_titles(results)
    unranked = {name: title for name, title in titles.items() if name not in results.board.metrics}
    heads = {"other-metrics": "Metrics that do not rank", "other-distances": "Distances that do not rank"}
    return _separate_distances(
        results, unranked, heads, "HECKTOR 2020 overview, Table 4, with precision and recall beside the DSC"
    )


def _separate_distances(
    results: TaskResults, titles: Mapping[str, str], heads: Mapping[str, str], source: str
) -> list[Analysis]:
    """Show fractions and distances in separate analyses.

    `heads` holds the names and titles of both. An analysis without a value is left out.
    """
    in_mm = {name: title for name, title in titles.items() if is_in_mm(name, results)}
    fractions = {name: title for name, title in titles.items() if name not in in_mm}
    parts = zip(heads.items(), (fractions, in_mm), strict=True)
    analyses = [_show_intervals(results, name, heading, metrics, source) for (name, heading), metrics in parts]
    return [analysis for analysis in analyses if analysis.rows]


def _show_intervals(results: TaskResults, name: str, title: str, titles: Mapping[str, str], source: str) -> Analysis:
    entries = _list_entries(results)
    rows: list[dict[str, Any]] = []
    infinite: list[str] = []
    for metric, metric_title in titles.items():
        for team, figures_of in entries:
            if metric not in figures_of:
                continue
            figures = figures_of[metric]
            cells = {key: round_figure(getattr(figures, key)) for key in _INTERVAL}
            rows.append({"metric": metric_title, "team": team, **cells})
            if math.isinf(figures.figure() or 0.0):
                infinite.append(f"{team}: {metric_title} is infinite.")
    values = [row[key] for row in rows for key in _INTERVAL if row[key] is not None]
    are_fractions = all(0 <= value <= 1 for value in values) and not name.endswith("distances")
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
    teams: list[tuple[str, Mapping[str, MetricFigures]]]
    teams = [(team, metrics.aggregates) for team, metrics in results.teams.items()]
    unranked = sorted(results.board.out_of_competition, key=lambda entry: entry.place)
    for inserted, entry in enumerate(unranked):
        teams.insert(entry.place + inserted, (entry.team, entry.metrics))
    return teams


TESTS: Final = {
    SIGNED_RANK: "Wilcoxon's signed-rank test",
    BOOTSTRAP: "Student's t of the difference over its bootstrap deviation",
    RECALLS: "Student's t of the difference over its standard error within classes",
    KANG: "Kang's test",
}
# Follows the caption of the frequencies of ranks.
_TAU_CAPTION: Final = " Tau is Kendall's correlation of the bootstrap rankings with the ranking of all patients."


def analyse_stability(results: TaskResults) -> list[Analysis]:
    """Show the frequency of each rank of each team in bootstrap rankings, and Kendall's tau of each ranking.

    Without bootstrap rankings or with a single team there is no analysis.
    """
    stable = results.board.stability
    if stable is None or len(results.board.teams) < 2:
        return []
    analyses = [_show_rank_frequencies(results, stable)]
    if _shows_tau(results):
        analyses.append(_show_taus(results, stable))
    return [analysis for analysis in analyses if analysis.rows]


def _shows_tau(results: TaskResults) -> bool:
    """Return whether Kendall's tau is shown; between two teams it only repeats how often the first team is first."""
    return len(results.board.teams) > 2


def _show_rank_frequencies(results: TaskResults, stable: RankStability) -> Analysis:
    """Show the official ranking and, if there are several metrics, the ranking by each metric."""
    board = results.board
    panels = [("Official ranking", stable.rankings[board.official])]
    if len(board.metrics) > 1:
        panels += [(title, stable.metrics[name]) for name, title in _select_other_metrics(results, stable).items()]
    rows = []
    for title, standing in panels:
        for team in board.order:
            ranks = standing.teams[team]
            ends = {"ci95_low": ranks.ci95_low, "ci95_high": ranks.ci95_high}
            tau = _format_tau(standing.kendall_tau) if _shows_tau(results) else ""
            shared = {"ranking": f"{title}{tau}", "team": team}
            rows += [
                {**shared, "rank": float(rank), "fraction": round_figure(times / stable.bootstraps), **ends}
                for rank, times in ranks.times_at_rank.items()
            ]
    return Analysis(
        name="rank-stability",
        title="Stability of the ranks",
        caption=(
            f"How often each team took each rank in {stable.bootstraps} bootstrap rankings (area), and the 95% "
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


def _show_taus(results: TaskResults, stable: RankStability) -> Analysis:
    """Show Kendall's tau of every ranking scheme and of the ranking by each metric."""
    board = results.board
    schemes = {name: get_scheme_title(name, board) for name in stable.rankings}
    rankings = {
        f"{schemes[name]}{' (official)' * (name == board.official)}": ranking
        for name, ranking in stable.rankings.items()
    }
    for name, title in _select_other_metrics(results, stable).items():
        rankings[f"{title} alone"] = stable.metrics[name]
    for name, ranking in stable.metrics.items():
        if name not in board.metrics:
            rankings[f"{get_metric_title(name, results)} alone"] = ranking
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
            f"Mean of Kendall's tau-b between each of {stable.bootstraps} bootstrap rankings and the ranking of all "
            "patients, with its 95% interval."
        ),
        columns={"ranking": "Ranking", "mean": "Tau", "ci95_low": "95% interval from", "ci95_high": "to"},
        rows=[row for row in rows if row["mean"] is not None],
        chart={"kind": "intervals", "y": "ranking", "x": "mean", "low": "ci95_low", "high": "ci95_high"},
        source="HECKTOR 2021 overview, ranking robustness (0.819 for the official ranking)",
    )


def _select_other_metrics(results: TaskResults, stable: RankStability) -> dict[str, str]:
    """Select the ranked metrics whose ranking differs from every ranking scheme, with their titles."""
    deciding = results.deciding
    official = results.profile.ranking.schemes.get(results.board.official)
    needs_rows = official is not None and bool(list_row_schemes(official))
    schemes = {*stable.rankings, *(deciding if len(deciding) == 1 and not needs_rows else ())}
    return {name: title for name, title in results.board.metrics.items() if name not in schemes}


def analyse_significance(results: TaskResults) -> list[Analysis]:
    """Show for each metric whether the row's team is significantly better than the column's team.

    Teams are in the official order. Without tests or with a single team there is no analysis.
    """
    board = results.board
    if not board.comparisons or len(board.teams) < 2:
        return []
    comparisons = {title: board.comparisons[name] for name, title in board.metrics.items()}
    place = {team: number for number, team in enumerate(board.order)}
    rows = [
        {"metric": title, "team": pair.team, "than": pair.than, **_describe_pair(pair), **second_p}
        for title, tests in comparisons.items()
        for pair, second_p in sorted(
            zip(tests.pairs, _list_second_p(tests), strict=True),
            key=lambda item: (place[item[0].team], place[item[0].than]),
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
    """Return the cell with the p of the second test for each pair; no cell if there is one test."""
    second = {
        (pair.team, pair.than): round_figure(pair.p_holm) for pairs in tests.other_tests.values() for pair in pairs
    }
    return [{"p_second": second.get((pair.team, pair.than))} if second else {} for pair in tests.pairs]


def _describe_pair(pair: TeamPair) -> dict[str, float | None]:
    return {key: round_figure(getattr(pair, key)) for key in ("difference", "ci95_low", "ci95_high", "p", "p_holm")}


def _describe_tests(comparisons: Mapping[str, MetricTests]) -> list[str]:
    """Describe which test compares which metrics, and which pairs of teams have no p."""
    by_test: dict[str, list[str]] = {}
    for title, tests in comparisons.items():
        first, *second = [TESTS.get(test, test) for test in (tests.test, *tests.other_tests)]
        suffix = f", with {' and '.join(second)} beside it" if second else ""
        by_test.setdefault(first + suffix, []).append(title)
    notes = [f"{', '.join(titles)}: {names}." for names, titles in by_test.items()]
    without = {title: sum(bool(pair.without_p) for pair in tests.pairs) for title, tests in comparisons.items()}
    untested = [
        f"{title} in {count // 2} of {len(comparisons[title].pairs) // 2} pairs of teams"
        for title, count in without.items()
        if count
    ]
    if untested:
        notes.append(
            f"Too few patients differ to test {'; '.join(untested)}: a class has only one patient, or the bootstrap "
            "deviation has fewer than five degrees of freedom."
        )
    return notes
