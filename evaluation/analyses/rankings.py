"""The stability of a ranking under resampling, and pairwise tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from evaluation.analyses.analysis import Analysis
from evaluation.analyses.sources import DECIDING, TaskResults
from evaluation.analyses.tables import rounded, scheme_title, title_of
from evaluation.metrics.rules import KANG, SIGNED_RANK
from evaluation.ranking.comparisons import BOOTSTRAP

TESTS: Final = {
    SIGNED_RANK: "Wilcoxon's signed-rank test",
    BOOTSTRAP: "Student's t of the difference over its bootstrap deviation",
    KANG: "Kang's test",
}


def rank_stability(results: TaskResults) -> list[Analysis]:
    """How often each team took each rank in bootstrap rankings, and Kendall's tau of each ranking.

    None without bootstrap rankings or with a single team.
    """
    board = results.board
    if not board.get("stability") or len(board["teams"]) < 2:
        return []
    return [one for one in (_blobs(board), _taus(results)) if one.rows]


def _blobs(board: Mapping[str, Any]) -> Analysis:
    """The official ranking; of several metrics also each other metric alone."""
    stable, metrics = board["stability"], board["metrics"]
    panels = [("Official ranking", stable["rankings"][board["official"]])]
    if len(metrics) > 1:
        panels += [(title, stable["metrics"][name]) for name, title in _other_metrics(board).items()]
    rows = []
    for title, standing in panels:
        for entry in board["teams"]:
            ranks = standing["teams"][entry["team"]]
            ends = {"ci95_low": ranks["ci95_low"], "ci95_high": ranks["ci95_high"]}
            shared = {"ranking": f"{title}{_tau_text(standing['kendall_tau'])}", "team": entry["team"]}
            rows += [
                {**shared, "rank": float(rank), "fraction": rounded(times / stable["bootstraps"]), **ends}
                for rank, times in ranks["times_at_rank"].items()
            ]
    return Analysis(
        name="rank-stability",
        title="Stability of the ranks",
        caption=(
            f"How often each team took each rank in {stable['bootstraps']} bootstrap rankings (area), and the 95% "
            "interval of its rank; a tie counts for each team. Tau is Kendall's correlation of the bootstrap "
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


def _tau_text(tau: Mapping[str, Any]) -> str:
    if tau["mean"] is None:
        return ""
    return f", tau {tau['mean']:.3f} ({tau['ci95_low']:.3f} to {tau['ci95_high']:.3f})"


def _taus(results: TaskResults) -> Analysis:
    """Kendall's tau by every scheme and by each metric alone."""
    board, stable = results.board, results.board["stability"]
    official = board["official"]
    schemes = {name: scheme_title(name, board) for name in stable["rankings"]}
    named = {f"{schemes[name]}{' (official)' * (name == official)}": of for name, of in stable["rankings"].items()}
    named |= {f"{title} alone": stable["metrics"][name] for name, title in _other_metrics(board).items()}
    taus = {name: of["kendall_tau"] for name, of in named.items()}
    others = {name: of["kendall_tau"] for name, of in stable["metrics"].items() if name not in board["metrics"]}
    taus |= {f"{title_of(name, results)} alone": tau for name, tau in others.items()}
    rows = [
        {"ranking": name, **{part: rounded(tau[part]) for part in ("mean", "ci95_low", "ci95_high")}}
        for name, tau in taus.items()
    ]
    return Analysis(
        name="rank-correlation",
        title="Kendall's tau of bootstrap rankings",
        caption=(
            f"Mean of Kendall's tau-b between each of {stable['bootstraps']} bootstrap rankings and the ranking of all "
            "patients, with its 95% interval."
        ),
        columns={"ranking": "Ranking", "mean": "Tau", "ci95_low": "95% interval from", "ci95_high": "to"},
        rows=[row for row in rows if row["mean"] is not None],
        chart={"kind": "intervals", "y": "ranking", "x": "mean", "low": "ci95_low", "high": "ci95_high"},
        source="HECKTOR 2021 overview, ranking robustness (0.819 for the official ranking)",
    )


def _other_metrics(board: Mapping[str, Any]) -> dict[str, str]:
    """Ranked metrics with their titles, without one that decides the official ranking alone or is a ranking itself."""
    own = {*board["stability"]["rankings"], *(board.get(DECIDING, ()) if len(board.get(DECIDING, ())) == 1 else ())}
    return {str(name): str(title) for name, title in board["metrics"].items() if name not in own}


def significance(results: TaskResults) -> list[Analysis]:
    """Whether the row's team is better than the column's, for each metric; none without tests or rivals.

    Teams are in the official order.
    """
    board = results.board
    if not board.get("comparisons") or len(board["teams"]) < 2:
        return []
    comparisons = {str(title): board["comparisons"][name] for name, title in board["metrics"].items()}
    place = {str(entry["team"]): number for number, entry in enumerate(board["teams"])}
    rows = [
        {"metric": title, "team": pair["team"], "than": pair["than"], **_figures(pair), **other}
        for title, of in comparisons.items()
        for pair, other in sorted(
            zip(of["pairs"], _other_p(of), strict=True),
            key=lambda both: (place[both[0]["team"]], place[both[0]["than"]]),
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


def _other_p(comparison: Mapping[str, Any]) -> list[dict[str, float | None]]:
    """For each pair the p of the test beside the deciding one."""
    second = {
        (pair["team"], pair["than"]): rounded(pair["p_holm"])
        for pairs in comparison.get("other_tests", {}).values()
        for pair in pairs
    }
    return [{"p_second": second.get((pair["team"], pair["than"]))} if second else {} for pair in comparison["pairs"]]


def _figures(pair: Mapping[str, Any]) -> dict[str, float | None]:
    return {key: rounded(pair.get(key)) for key in ("difference", "ci95_low", "ci95_high", "p", "p_holm")}


def _test_notes(comparisons: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The tests and the metrics that each compares, and the pairs of teams without a p."""
    by_test: dict[str, list[str]] = {}
    for title, of in comparisons.items():
        tests = [TESTS.get(test, test) for test in (of["test"], *of.get("other_tests", {}))]
        by_test.setdefault(", beside it ".join(tests), []).append(title)
    notes = [f"{', '.join(titles)}: {tests}." for tests, titles in by_test.items()]
    without = {title: sum("without_p" in pair for pair in of["pairs"]) for title, of in comparisons.items()}
    untested = [
        f"{title} in {count // 2} of {len(comparisons[title]['pairs']) // 2} pairs of teams"
        for title, count in without.items()
        if count
    ]
    if untested:
        notes.append(
            f"Too few patients differ to test {'; '.join(untested)}: the teams agree on all patients of a class, a "
            "class has fewer than four patients, or the deviation has fewer than five degrees of freedom."
        )
    return notes
