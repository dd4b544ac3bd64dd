"""Every metric, ranked or not: with its interval by team, and by centre."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from evaluation.analyses.analysis import Analysis
from evaluation.analyses.sources import TaskResults, team_names
from evaluation.analyses.tables import metric_titles, rounded
from evaluation.results.metrics_json import TeamMetrics
from evaluation.rows.classes import RECALL_PREFIX

_INTERVAL: Final = {"value": "Value", "ci95_low": "95% interval from", "ci95_high": "to"}
_IN_MM: Final = "_mm"
# Of two classes; shown as the recalls of both.
_RECALLS: Final = ("sensitivity", "specificity")


def ranked_metrics(results: TaskResults) -> list[Analysis]:
    """Ranked metrics with their intervals for each team: fractions, and distances apart."""
    titles = metric_titles(results)
    ranked = {name: title for name, title in titles.items() if name in results.board["metrics"]}
    heads = {"metrics": "Metrics with 95% intervals", "distances": "Distances with 95% intervals"}
    return _apart(results, ranked, heads, "HECKTOR 2021 overview, Tables 2 and 5; HECKTOR 2025 overview, Tables 2 to 4")


def other_metrics(results: TaskResults) -> list[Analysis]:
    """The same for metrics that do not rank; recalls of classes have a figure of their own."""
    shown_elsewhere = {*results.board["metrics"], *_RECALLS}
    others = {
        name: title
        for name, title in metric_titles(results).items()
        if name not in shown_elsewhere and RECALL_PREFIX not in name
    }
    heads = {"other-metrics": "Metrics that do not rank", "other-distances": "Distances that do not rank"}
    return _apart(results, others, heads, "HECKTOR 2020 overview, Table 4, with precision and recall beside the DSC")


def _apart(results: TaskResults, titles: Mapping[str, str], heads: Mapping[str, str], source: str) -> list[Analysis]:
    """Fractions, and distances apart, each under its name and heading; none of those without a value."""
    in_mm = {name: title for name, title in titles.items() if name.endswith(_IN_MM)}
    others = {name: title for name, title in titles.items() if name not in in_mm}
    parts = zip(heads.items(), (others, in_mm), strict=True)
    analyses = [_intervals(results, name, heading, metrics, source) for (name, heading), metrics in parts]
    return [one for one in analyses if one.rows]


def _intervals(results: TaskResults, name: str, title: str, titles: Mapping[str, str], source: str) -> Analysis:
    entries = _entries(results)
    rows: list[dict[str, Any]] = []
    infinite: list[str] = []
    for key, of_metric in titles.items():
        for team, figures in entries:
            if key in figures:
                shown = {part: rounded(figures[key].get(part)) for part in _INTERVAL}
                rows.append({"metric": of_metric, "team": team, **shown})
            # Leaderboards list infinite figures, since JSON has no infinity.
            of_team = figures.get(key, {})
            if math.isinf(of_team.get("value") or 0.0) or "value" in of_team.get("infinite", ()):
                infinite.append(f"{team}: {of_metric} is infinite.")
    ends = [row[part] for row in rows for part in _INTERVAL if row[part] is not None]
    fractions = all(0 <= end <= 1 for end in ends) and not name.endswith("distances")
    return Analysis(
        name=name,
        title=title,
        caption="Values with 95% intervals: Wilson's for recalls and their means, else from resampled patients.",
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


def _entries(results: TaskResults) -> list[tuple[str, Mapping[str, Mapping[str, Any]]]]:
    """Each team's figures in the leaderboard's order, rows out of competition at their places among them."""
    teams: list[tuple[str, Mapping[str, Mapping[str, Any]]]] = [
        (team.team, {name: vars(estimate) for name, estimate in team.estimates.items()}) for team in results.teams
    ]
    beside = sorted(results.board.get("unranked_entries", ()), key=lambda entry: int(entry["place"]))
    for inserted, entry in enumerate(beside):
        teams.insert(int(entry["place"]) + inserted, (str(entry["team"]), entry["metrics"]))
    return teams


ALL_CENTRES: Final = "all"
MEAN: Final = "mean of all teams"
NO_P: Final = (
    "No p: the HECKTOR 2021 overview prints none. Patients of different centres differ in tumour volume, follow-up and "
    "scanner, and a test would not separate these from the centre."
)
# One patient is no centre to compare.
_FEWEST_CASES: Final = 2


def by_centre(results: TaskResults) -> list[Analysis]:
    """Metrics by centre, fractions apart from distances; none without a centre of at least two cases."""
    sizes = {str(centre): int(block["cases"]) for team in results.teams for centre, block in team.centres.items()}
    centres = {centre: count for centre, count in sorted(sizes.items()) if count >= _FEWEST_CASES}
    if not centres or not results.board["teams"]:
        return []
    titles = metric_titles(results)
    analyses = []
    for name, title, is_distance in (("centres", "Metrics", False), ("centres-distances", "Distances", True)):
        metrics = {key: of for key, of in titles.items() if key.endswith(_IN_MM) == is_distance}
        analyses.append(_side_by_side(results, centres, name, f"{title} by centre", metrics))
    return [analysis for analysis in analyses if analysis.rows]


def _side_by_side(
    results: TaskResults, centres: Mapping[str, int], name: str, title: str, metrics: Mapping[str, str]
) -> Analysis:
    by_name = {team.team: team for team in results.teams}
    ranked = [by_name[str(entry["team"])] for entry in results.board["teams"]]
    first = ranked[0]
    shown = {
        f"{first.team} (first)": [first],
        **{team.team: [team] for team in results.unranked_entries if team.centres},
    }
    shown[MEAN] = ranked
    rows: list[dict[str, Any]] = []
    for key, metric in metrics.items():
        for centre, cases in {**centres, ALL_CENTRES: int(first.cases.get("used", 0))}.items():
            for who, teams in shown.items():
                values = [value for team in teams if (value := _value(team, centre, key)) is not None]
                mean = rounded(sum(values) / len(values)) if values else None
                shared = {"metric": metric, "centre": centre, "cases": cases}
                rows.append({**shared, "of": who, "value": mean, "teams": len(values)})
    # Other metrics keep a row for each centre, so that all panels show the same.
    known = {row["metric"] for row in rows if row["value"] is not None}
    return Analysis(
        name=name,
        title=title,
        caption=(
            "Each metric of the cases of one centre: the first team, entries out of competition and the mean of all "
            "ranked teams. Infinite and undefined values have no bar and do not enter the mean. Centres of a single "
            "case are left out."
        ),
        columns={
            "metric": "Metric",
            "centre": "Centre",
            "cases": "Cases",
            "of": "Of",
            "value": "Value",
            "teams": "Teams with a value",
        },
        rows=[row for row in rows if row["metric"] in known],
        chart={"kind": "bars", "y": "centre", "x": "value", "series": "of", "facet": "metric"},
        notes=(NO_P, *_without_centres(results)),
        source="HECKTOR 2021 overview, Table 4",
    )


def _value(team: TeamMetrics, centre: str, metric: str) -> float | None:
    """A metric of one centre's cases, or of all cases; None if it is undefined, infinite or absent."""
    if centre == ALL_CENTRES:
        estimate = team.estimates.get(metric)
        value = None if estimate is None else estimate.value
    else:
        value = team.centres.get(centre, {}).get("aggregates", {}).get(metric, {}).get("value")
    return value if value is not None and math.isfinite(value) else None


def _without_centres(results: TaskResults) -> list[str]:
    known = {team.team for team in (*results.teams, *results.unranked_entries) if team.centres}
    unranked = [str(one["team"]) for one in results.board.get("unranked_entries", ())]
    lacking = [name for name in (*team_names([results]), *unranked) if name not in {*known, MEAN}]
    line = f"Without values by centre, since no metrics.json with centres is at hand: {', '.join(lacking)}."
    return [line] if lacking else []
