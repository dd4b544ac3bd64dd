"""DSC and HD95 as box plots by team, DSC by case, and the cases that nearly all teams fail."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from evaluation.metrics.overlap import MM3_PER_ML, Floats
from evaluation.metrics.surface import LOST
from reporting.analyses.analysis import Analysis
from reporting.analyses.tables import BOX_CHART, BOX_HEADS, AnswerRows, box_summary, rounded

LABELS: Final = {"gtvp": "GTVp", "gtvn": "GTVn"}
FAILED_BELOW: Final = 0.5
NEARLY_ALL: Final = 0.9
# A median over the teams that mark a structure which the reference lacks says nothing about the others.
_WITHOUT_STRUCTURE: Final = {"dsc_median": None, "dsc_best": None, "best_team": None}
_MEASURES: Final = {"dsc": "DSC", "hd95": "HD95"}
_UNITS: Final = {
    "dsc": "",
    "hd95": " HD95 in mm; it is infinite where a team misses the structure, and infinite parts are not drawn.",
}
_ABOUT_BOXES: Final = (
    "Boxes reach from quartile to quartile with a line at the median and a ring at the mean, whiskers to the outermost "
    "values within 1.5 interquartile ranges; points are the values beyond them."
)


def boxes_by_team(table: AnswerRows) -> list[Analysis]:
    """Each team's values over the cases: one analysis for the DSC, one for the HD95 where it is measured."""
    analyses = []
    for measure, title in _MEASURES.items():
        rows = [
            {"label": LABELS[label], "team": team, **box_summary(of_team), **_extremes(measure, of_team)}
            for label, values in _values(table, measure).items()
            for team, of_team in zip(table.names, values, strict=True)
        ]
        analyses.append(
            Analysis(
                name=table.name(f"{measure}-by-team"),
                title=table.title(f"{title} by team"),
                caption=f"{title} of all cases; the teams are in ranking order. {_ABOUT_BOXES}{_UNITS[measure]}",
                columns={"label": "Structure", "team": "Team", **_heads(measure)},
                rows=[row for row in rows if row["values"]],
                chart={**BOX_CHART, "category": "team", "facet": "label", **_domain(measure)},
                source="HECKTOR 2021 overview, Fig. 2",
            )
        )
    return [analysis for analysis in analyses if analysis.rows]


def boxes_by_case(table: AnswerRows) -> list[Analysis]:
    """The DSC of all teams in each case that has the structure, the hardest case first, by structure."""
    return [
        _boxes_by_case(table, label, values)
        for label, values in _values(table, "dsc").items()
        if (table.reference(f"{label}_reference_voxels") > 0).any()
    ]


def _boxes_by_case(table: AnswerRows, label: str, dsc: Floats) -> Analysis:
    volume = table.reference(f"{label}_reference_mm3") / MM3_PER_ML
    rows: list[dict[str, Any]] = [
        {**table.keys_of(case), "volume_ml": rounded(volume[place]), **box_summary(dsc[:, place])}
        | _extremes("dsc", dsc[:, place])
        for place, case in enumerate(table.cases)
        if volume[place] > 0
    ]
    return Analysis(
        name=table.name(f"{label}-dsc-by-case"),
        title=table.title(f"DSC of the {LABELS[label]} by case"),
        caption=(
            f"DSC of all teams in each case with a {LABELS[label]}, from the hardest case to the easiest by the median "
            f"over teams. {_ABOUT_BOXES}"
        ),
        columns={**table.case_heads, "volume_ml": "Reference volume (ml)", **_heads("dsc")},
        rows=sorted((row for row in rows if row["values"]), key=lambda row: (row["median"], row["case"])),
        chart={**BOX_CHART, "category": "case", "orientation": "vertical", **_domain("dsc")},
        source="HECKTOR 2021 overview, Fig. 3",
    )


def find_failed_cases(table: AnswerRows) -> list[Analysis]:
    """Cases in which nearly all teams have a DSC below 0.5, by structure."""
    rows: list[dict[str, Any]] = []
    values_of = _values(table, "dsc")
    for label, values in values_of.items():
        volume = table.reference(f"{label}_reference_mm3") / MM3_PER_ML
        answered = np.array([[row is not None for row in of_team] for of_team in table.rows], dtype=np.bool_)
        for place, case in enumerate(table.cases):
            failed, teams = int((values[:, place] < FAILED_BELOW).sum()), int(answered[:, place].sum())
            if failed and failed >= math.ceil(NEARLY_ALL * teams):
                shared = {**table.keys_of(case), "label": LABELS[label], "volume_ml": rounded(volume[place])}
                best = _middle_and_best(table, values[:, place]) if volume[place] > 0 else _WITHOUT_STRUCTURE
                rows.append({**shared, "failed": failed, "teams": teams, **best})
    analysis = Analysis(
        name=table.name("failed-cases"),
        title=table.title("Cases that nearly all teams fail"),
        caption=(
            f"Cases in which at least {NEARLY_ALL:.0%} of the teams have a DSC below {FAILED_BELOW}: an IoU below 1/3, "
            "or masks that share less than half of their mean volume. Where the reference lacks the structure, a team "
            "that marks one fails, and the other teams have no DSC."
        ),
        columns={
            **table.case_heads,
            "label": "Structure",
            "volume_ml": "Reference volume (ml)",
            "failed": "Teams that fail",
            "teams": "Teams",
            "dsc_median": "Median DSC",
            "dsc_best": "Best DSC",
            "best_team": "Team with the best DSC",
        },
        rows=sorted(rows, key=lambda row: (-row["failed"] / row["teams"], row["dsc_median"] or 0.0, row["case"])),
        source="HECKTOR 2021 overview, text to Fig. 3, which names them",
    )
    return [analysis] if rows else []


def _middle_and_best(table: AnswerRows, dsc: Floats) -> dict[str, Any]:
    best = int(np.nanargmax(dsc))
    figures = {"dsc_median": rounded(float(np.nanmedian(dsc))), "dsc_best": rounded(float(dsc[best]))}
    return {**figures, "best_team": table.names[best] if dsc[best] > 0 else None}


def _values(table: AnswerRows, measure: str) -> dict[str, Floats]:
    """DSC or HD95 in mm of each structure that has any, shape (teams, cases); a lost HD95 is infinite."""
    values = {}
    for label in LABELS:
        of_label = table.numbers(f"{label}_dsc") if measure == "dsc" else _hd95(table, label)
        if not np.isnan(of_label).all():
            values[label] = of_label
    return values


def _hd95(table: AnswerRows, label: str) -> Floats:
    distances = table.numbers(f"{label}_hd95_mm")
    lost = [[row is not None and row.get(f"{label}_surface") in LOST for row in of_team] for of_team in table.rows]
    distances[np.array(lost, dtype=np.bool_).reshape(distances.shape)] = np.inf
    return distances


def _extremes(measure: str, values: Floats) -> dict[str, int]:
    """Number of values that are the worst possible."""
    if measure == "hd95":
        return {"infinite": int(np.isinf(values).sum())}
    return {"zeros": int((values == 0).sum())}


def _heads(measure: str) -> dict[str, str]:
    if measure == "dsc":
        return {**BOX_HEADS, "zeros": "Values of 0"}
    in_mm = {name: f"{head} (mm)" if name != "values" else head for name, head in BOX_HEADS.items()}
    return {**in_mm, "infinite": "Infinite values"}


def _domain(measure: str) -> dict[str, Any]:
    return {"domain": [0, 1]} if measure == "dsc" else {}
