"""All metrics of each team with intervals, ranked or not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from evaluation.results.documents import MetricFigures
from evaluation.results.task import TaskResults
from reporting.analyses.analysis import Analysis
from reporting.analyses.tables import is_in_mm, metric_titles, rounded

_INTERVAL: Final = {"value": "Value", "ci95_low": "95% interval from", "ci95_high": "to"}


def ranked_metrics(results: TaskResults) -> list[Analysis]:
    """Ranked metrics with their intervals for each team: fractions, and distances apart."""
    titles = metric_titles(results)
    ranked = {name: title for name, title in titles.items() if name in results.board.metrics}
    heads = {"metrics": "Metrics with 95% intervals", "distances": "Distances with 95% intervals"}
    return _apart(results, ranked, heads, "HECKTOR 2021 overview, Tables 2 and 5; HECKTOR 2025 overview, Tables 2 to 4")


def other_metrics(results: TaskResults) -> list[Analysis]:
    """The same for metrics that do not rank."""
    others = {name: title for name, title in metric_titles(results).items() if name not in results.board.metrics}
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
            shown = {part: rounded(getattr(figures, part)) for part in _INTERVAL}
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
