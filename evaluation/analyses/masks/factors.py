"""The DSC against properties of the case: volume, SUVmax, field of view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from evaluation.analyses.analysis import Analysis
from evaluation.analyses.masks.cases import LABELS
from evaluation.analyses.tables import MM3_A_ML, AnswerRows, rounded
from evaluation.metrics.bins import VOLUME_BINS, equal_bins
from evaluation.metrics.overlap import Booleans, Floats

Scans: TypeAlias = Mapping[str, Mapping[str, float]]
_BINS: Final = "in five bins of rising values with equal numbers of cases, the first also with the remainder"


@dataclass(frozen=True)
class Influence:
    """The DSC of one structure against one property of the cases.

    `name` stands in names of analyses, `column` is the key of its column. `values` has shape (cases,), NaN where
    unknown. `dsc` has shape (teams, cases), NaN where the reference lacks the structure.
    """

    label: str
    name: str
    column: str
    title: str
    values: Floats
    dsc: Floats

    @property
    def known(self) -> Booleans:
        """The masks with a DSC and a value, shape (teams, cases)."""
        return np.asarray(~np.isnan(self.dsc) & ~np.isnan(self.values), dtype=np.bool_)


def influences(table: AnswerRows, scans: Scans) -> list[Influence]:
    """Every structure against every property that is known for enough of its cases; `scans` by case and name."""
    candidates = []
    for label, title in LABELS.items():
        volume_ml = table.reference(f"{label}_reference_mm3") / MM3_A_ML
        dsc = np.where(volume_ml > 0, table.numbers(f"{label}_dsc"), np.nan)
        suv_max, view_mm = (_of_scans(table, scans, name) for name in (f"{label}_suv_max", "field_of_view_mm"))
        candidates += [
            Influence(label, "volume", "volume_ml", f"{title} volume (ml)", volume_ml, dsc),
            Influence(label, "suv-max", "suv_max", f"{title} SUVmax", suv_max, dsc),
            Influence(label, "field-of-view", "field_of_view_mm", "Field of view (mm)", view_mm, dsc),
        ]
    return [one for one in candidates if (one.known.sum(axis=1) >= VOLUME_BINS).any()]


def _of_scans(table: AnswerRows, scans: Scans, name: str) -> Floats:
    return np.array([scans.get(case, {}).get(name, np.nan) for case in table.cases], dtype=np.float64)


def dsc_by_team(table: AnswerRows, against: list[Influence]) -> list[Analysis]:
    """Each team's mean DSC in five bins of each property."""
    return [_by_team(table, one) for one in against]


def _by_team(table: AnswerRows, influence: Influence) -> Analysis:
    known, label = influence.known, LABELS[influence.label]
    rows: list[dict[str, Any]] = []
    for place, team in enumerate(table.names):
        values, dsc = influence.values[known[place]], influence.dsc[place][known[place]]
        for part in equal_bins(values, VOLUME_BINS) if values.size >= VOLUME_BINS else ():
            figures = {influence.column: np.median(values[part]), "dsc_mean": dsc[part].mean()}
            rounded_figures = {name: rounded(float(figure)) for name, figure in figures.items()}
            rows.append({"team": team, "cases": part.size, **rounded_figures})
    return Analysis(
        name=table.name(f"{influence.label}-dsc-by-{influence.name}"),
        title=table.title(f"DSC of the {label} by {_lower(influence.title)}"),
        caption=f"Mean DSC of the cases with a {label}, {_BINS}.",
        columns={
            "team": "Team",
            influence.column: f"{influence.title}, median of the bin",
            "cases": "Cases",
            "dsc_mean": "Mean DSC",
        },
        rows=rows,
        chart={"kind": "lines", "x": influence.column, "y": "dsc_mean", "series": "team", "domain": [0, 1]},
        source="HECKTOR 2021 overview, Fig. 7",
    )


def _lower(title: str) -> str:
    """The property within a title, without its unit."""
    name = title.partition(" (")[0]
    return name if name[:2].isupper() else name[0].lower() + name[1:]


def dsc_by_case(table: AnswerRows, against: list[Influence]) -> list[Analysis]:
    """The median DSC over teams of each case against each property."""
    return [_by_case(table, one) for one in against]


def _by_case(table: AnswerRows, influence: Influence) -> Analysis:
    known, label = influence.known, LABELS[influence.label]
    rows = [
        {
            **table.keys_of(case),
            influence.column: rounded(float(influence.values[place])),
            "dsc_median": rounded(float(np.median(influence.dsc[known[:, place], place]))),
            "teams": int(known[:, place].sum()),
        }
        for place, case in enumerate(table.cases)
        if known[:, place].any()
    ]
    return Analysis(
        name=table.name(f"{influence.label}-dsc-and-{influence.name}"),
        title=table.title(f"DSC of the {label} of each case and its {_lower(influence.title)}"),
        caption=f"Median over the teams of the DSC of each case with a {label}.",
        columns={
            **table.case_heads,
            influence.column: influence.title,
            "dsc_median": "Median DSC over teams",
            "teams": "Teams",
        },
        rows=rows,
        chart={"kind": "points", "x": influence.column, "y": "dsc_median", "domain": [0, 1]},
        source="HECKTOR 2021 overview, Fig. 6",
    )
