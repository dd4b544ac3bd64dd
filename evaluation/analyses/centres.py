"""Every metric by centre: the first team, entries out of competition and the mean of all teams side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from evaluation.analyses.analysis import Analysis
from evaluation.analyses.sources import TaskResults, team_names
from evaluation.analyses.tables import rounded
from evaluation.analyses.titles import metric_titles
from evaluation.results.metrics_json import TeamMetrics

ALL_CENTRES: Final = "all"
MEAN: Final = "mean of all teams"
NO_P: Final = (
    "No p: the HECKTOR 2021 overview prints none. Patients of different centres differ in tumour volume, follow-up and "
    "scanner, and a test would not separate these from the centre."
)
_IN_MM: Final = "_mm"
# One patient is no centre to compare.
_FEWEST_CASES: Final = 2


def by_centre(results: TaskResults) -> list[Analysis]:
    """Metrics by centre, fractions apart from distances; none without a centre of at least two cases."""
    centres = _cases_of_centres(results.teams)
    if not centres or not results.board["teams"]:
        return []
    titles = metric_titles(results)
    analyses = []
    for name, title, is_distance in (("centres", "Metrics", False), ("centres-distances", "Distances", True)):
        metrics = {key: of for key, of in titles.items() if key.endswith(_IN_MM) == is_distance}
        analyses.append(_side_by_side(results, centres, name, f"{title} by centre", metrics))
    return [analysis for analysis in analyses if analysis.rows]


def _cases_of_centres(teams: Sequence[TeamMetrics]) -> dict[str, int]:
    cases = {str(centre): int(block["cases"]) for team in teams for centre, block in team.centres.items()}
    return {centre: count for centre, count in sorted(cases.items()) if count >= _FEWEST_CASES}


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
