"""Analyses of one leaderboard: metrics with intervals, stability of the ranks, pairwise tests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from evaluation.metrics.rules import KANG, SIGNED_RANK
from evaluation.ranking.comparisons import BOOTSTRAP, RECALLS
from evaluation.results.board import KendallTau, MetricTests, RankStability, TeamPair
from evaluation.results.documents import MetricFigures
from evaluation.results.task import TaskResults
from reporting.analyses.analysis import Analysis
from reporting.analyses.tables import collect_metric_titles, get_metric_title, get_scheme_title, is_in_mm, round_figure

_INTERVAL: Final = {"value": "Value", "ci95_low": "95% interval from", "ci95_high": "to"}


def analyse_ranked_metrics(results: TaskResults) -> list[Analysis]:
    """Ranked metrics with their intervals for each team: fractions, and distances apart."""
    titles = collect_metric_titles(results)
    ranked = {name: title for name, title in titles.items() if name in results.board.metrics}
    heads = {"metrics": "Metrics with 95% intervals", "distances": "Distances with 95% intervals"}
    return _apart(results, ranked, heads, "HECKTOR 2021 overview, Tables 2 and 5; HECKTOR 2025 overview, Tables 2 to 4")


def analyse_unranked_metrics(results: TaskResults) -> list[Analysis]:
    """The same for metrics that do not rank."""
    others = {
        name: title for name, title in collect_metric_titles(results).items() if name not in results.board.metrics
    }
    heads = {"other-metrics": "Metrics that do not rank", "other-distances": "Distances that do not rank"}
    return _apart(results, others, heads, "HECKTOR 2020 overview, Table 4, with precision and recall beside the DSC")


def _apart(results: TaskResults, titles: Mapping[str, str], heads: Mapping[str, str], source: str) -> list[Analysis]:
    """Fractions, and distances apart, each under its name and heading; none of those without a value."""
    in_mm = {name: title for name, title in titles.items() if is_in_mm(name, results)}
    others = {name: title for name, title in titles.items() if name not in in_mm}
    parts = zip(heads.items(), (others, in_mm), strict=True)
    analyses = [_intervals(results, name, heading, metrics, source) for (name, heading), metrics in parts]
    return [one for one in analyses if one.rows]


def _intervals(results: TaskResults, name: str, title: str, titles: Mapping[str, str], source: str) -> Analysis:
    entries = _entries(results)
    rows: list[dict[str, Any]] = []
    infinite: list[str] = []
    for key, of_metric in titles.items():
        for team, figures in ((team, of_team[key]) for team, of_team in entries if key in of_team):
            shown = {part: round_figure(getattr(figures, part)) for part in _INTERVAL}
            rows.append({"metric": of_metric, "team": team, **shown})
            if math.isinf(figures.figure() or 0.0):
                infinite.append(f"{team}: {of_metric} is infinite.")
    ends = [row[part] for row in rows for part in _INTERVAL if row[part] is not None]
    fractions = all(0 <= end <= 1 for end in ends) and not name.endswith("distances")
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
            **({"domain": [0, 1]} if fractions else {}),
        },
        notes=tuple(infinite),
        source=source,
    )


def _entries(results: TaskResults) -> list[tuple[str, Mapping[str, MetricFigures]]]:
    """Each team's figures in the leaderboard's order, rows out of competition at their places among them."""
    teams: list[tuple[str, Mapping[str, MetricFigures]]]
    teams = [(team, metrics.aggregates) for team, metrics in results.teams.items()]
    beside = sorted(results.board.out_of_competition, key=lambda entry: entry.place)
    for inserted, entry in enumerate(beside):
        teams.insert(entry.place + inserted, (entry.team, entry.metrics))
    return teams


TESTS: Final = {
    SIGNED_RANK: "Wilcoxon's signed-rank test",
    BOOTSTRAP: "Student's t of the difference over its bootstrap deviation",
    RECALLS: "Student's t of the difference over its standard error within classes",
    KANG: "Kang's test",
}


def analyse_stability(results: TaskResults) -> list[Analysis]:
    """Frequency of each rank of each team in bootstrap rankings, and Kendall's tau of each ranking.

    None without bootstrap rankings or with a single team.
    """
    stable = results.board.stability
    if stable is None or len(results.board.teams) < 2:
        return []
    return [one for one in (_blobs(results, stable), _taus(results, stable)) if one.rows]


def _blobs(results: TaskResults, stable: RankStability) -> Analysis:
    """The official ranking; of several metrics also each other metric alone."""
    board = results.board
    panels = [("Official ranking", stable.rankings[board.official])]
    if len(board.metrics) > 1:
        panels += [(title, stable.metrics[name]) for name, title in _other_metrics(results, stable).items()]
    rows = []
    for title, standing in panels:
        for team in board.order:
            ranks = standing.teams[team]
            ends = {"ci95_low": ranks.ci95_low, "ci95_high": ranks.ci95_high}
            shared = {"ranking": f"{title}{_tau_text(standing.kendall_tau)}", "team": team}
            rows += [
                {**shared, "rank": float(rank), "fraction": round_figure(times / stable.bootstraps), **ends}
                for rank, times in ranks.times_at_rank.items()
            ]
    return Analysis(
        name="rank-stability",
        title="Stability of the ranks",
        caption=(
            f"How often each team took each rank in {stable.bootstraps} bootstrap rankings (area), and the 95% "
            "interval of its rank; a tie counts for each tied team. Tau is Kendall's correlation of the bootstrap "
            "rankings with the ranking of all patients."
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


def _tau_text(tau: KendallTau) -> str:
    return "" if tau.mean is None else f", tau {tau.mean:z.3f} ({tau.ci95_low:z.3f} to {tau.ci95_high:z.3f})"


def _taus(results: TaskResults, stable: RankStability) -> Analysis:
    """Kendall's tau by every scheme and by each metric alone."""
    board = results.board
    schemes = {name: get_scheme_title(name, board) for name in stable.rankings}
    named = {f"{schemes[name]}{' (official)' * (name == board.official)}": of for name, of in stable.rankings.items()}
    named |= {f"{title} alone": stable.metrics[name] for name, title in _other_metrics(results, stable).items()}
    others = {name: of for name, of in stable.metrics.items() if name not in board.metrics}
    named |= {f"{get_metric_title(name, results)} alone": of for name, of in others.items()}
    rows = [
        {
            "ranking": name,
            **{part: round_figure(getattr(of.kendall_tau, part)) for part in ("mean", "ci95_low", "ci95_high")},
        }
        for name, of in named.items()
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


def _other_metrics(results: TaskResults, stable: RankStability) -> dict[str, str]:
    """Ranked metrics with their titles, without one that decides the official ranking alone or is a ranking itself."""
    deciding = results.deciding
    own = {*stable.rankings, *(deciding if len(deciding) == 1 else ())}
    return {name: title for name, title in results.board.metrics.items() if name not in own}


def analyse_significance(results: TaskResults) -> list[Analysis]:
    """Tests of the row's team being better than the column's, for each metric; none without tests or rivals.

    Teams are in the official order.
    """
    board = results.board
    if not board.comparisons or len(board.teams) < 2:
        return []
    comparisons = {title: board.comparisons[name] for name, title in board.metrics.items()}
    place = {team: number for number, team in enumerate(board.order)}
    rows = [
        {"metric": title, "team": pair.team, "than": pair.than, **_figures(pair), **other}
        for title, of in comparisons.items()
        for pair, other in sorted(
            zip(of.pairs, _other_p(of), strict=True), key=lambda both: (place[both[0].team], place[both[0].than])
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
            notes=tuple(_test_notes(comparisons)),
            source="HECKTOR 2021 overview, text to Table 2; HECKTOR 2025 rules, comparison of teams",
        )
    ]


def _other_p(tests: MetricTests) -> list[dict[str, float | None]]:
    """For each pair the p of the test beside the deciding one."""
    second = {
        (pair.team, pair.than): round_figure(pair.p_holm) for pairs in tests.other_tests.values() for pair in pairs
    }
    return [{"p_second": second.get((pair.team, pair.than))} if second else {} for pair in tests.pairs]


def _figures(pair: TeamPair) -> dict[str, float | None]:
    return {key: round_figure(getattr(pair, key)) for key in ("difference", "ci95_low", "ci95_high", "p", "p_holm")}


def _test_notes(comparisons: Mapping[str, MetricTests]) -> list[str]:
    """The tests and the metrics that each compares, and the pairs of teams without a p."""
    by_test: dict[str, list[str]] = {}
    for title, of in comparisons.items():
        tests = [TESTS.get(test, test) for test in (of.test, *of.other_tests)]
        beside = f", with {' and '.join(tests[1:])} beside it" if tests[1:] else ""
        by_test.setdefault(tests[0] + beside, []).append(title)
    notes = [f"{', '.join(titles)}: {tests}." for tests, titles in by_test.items()]
    without = {title: sum(bool(pair.without_p) for pair in of.pairs) for title, of in comparisons.items()}
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
