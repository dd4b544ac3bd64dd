"""The DSC against properties of the case: volume, SUVmax, number of GTVn lesions, field of view."""

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
MOST_LESIONS: Final = 4
_BINS: Final = (
    "in five bins of rising values with equal numbers of cases, the first also with the remainder, as in the HECKTOR "
    "2021 overview"
)


@dataclass(frozen=True)
class Influence:
    """The DSC of one structure against one property of the cases.

    `name` stands in names of analyses, `column` is the key of its column. `values` has shape (cases,), NaN where
    unknown; a count has few distinct values. `dsc` has shape (teams, cases), NaN where the reference lacks the
    structure.
    """

    label: str
    name: str
    column: str
    title: str
    values: Floats
    dsc: Floats
    is_count: bool = False

    @property
    def known(self) -> Booleans:
        """The masks with a DSC and a value, shape (teams, cases)."""
        return np.asarray(~np.isnan(self.dsc) & ~np.isnan(self.values), dtype=np.bool_)


def influences(table: AnswerRows, scans: Scans) -> list[Influence]:
    """Every structure against every property that is known for enough of its cases; `scans` by case and name."""
    lesions = lesions_of_reference(table)
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
        if np.nansum(lesions) > 0:
            candidates.append(
                Influence(label, "lesions", "lesions", "Number of GTVn lesions", lesions, dsc, is_count=True)
            )
    return [one for one in candidates if (one.known.sum(axis=1) >= VOLUME_BINS).any()]


def lesions_of_reference(table: AnswerRows) -> Floats:
    """The number of GTVn lesions of each case's reference."""
    counts = np.full(len(table.cases), np.nan)
    for rows in table.rows:
        for place, row in enumerate(rows):
            if row is not None and np.isnan(counts[place]):
                sizes = row.get("gtvn_lesion_voxels")
                counts[place] = row["gtvn_lesions_tp"] + row["gtvn_lesions_fn"] if sizes is None else len(sizes)
    return counts


def _of_scans(table: AnswerRows, scans: Scans, name: str) -> Floats:
    return np.array([scans.get(case, {}).get(name, np.nan) for case in table.cases], dtype=np.float64)


def dsc_by_team(table: AnswerRows, against: list[Influence]) -> list[Analysis]:
    """Each team's mean DSC in five bins of each property, or for each count."""
    return [_by_team(table, one) for one in against]


def _by_team(table: AnswerRows, influence: Influence) -> Analysis:
    known, is_count = influence.known, influence.is_count
    rows: list[dict[str, Any]] = []
    for place, team in enumerate(table.names):
        values, dsc = influence.values[known[place]], influence.dsc[place][known[place]]
        for x, part in _groups(values, is_count=is_count):
            rows.append(
                {
                    "team": team,
                    influence.column: x,
                    "cases": int(part.size),
                    "dsc_mean": rounded(float(dsc[part].mean())),
                }
            )
    label = LABELS[influence.label]
    groups = f"for each number, {MOST_LESIONS} and more together" if is_count else _BINS
    return Analysis(
        name=table.name(f"{influence.label}-dsc-by-{influence.name}"),
        title=table.title(f"DSC of the {label} by {_lower(influence.title)}"),
        caption=f"Mean DSC of the cases with a {label}, {groups}.",
        columns={
            "team": "Team",
            influence.column: influence.title if is_count else f"{influence.title}, median of the bin",
            "cases": "Cases",
            "dsc_mean": "Mean DSC",
        },
        rows=rows,
        chart={
            "kind": "lines",
            "x": influence.column,
            "y": "dsc_mean",
            "series": "team",
            "domain": [0, 1],
            **({"x_is_category": True} if is_count else {}),
        },
    )


def _lower(title: str) -> str:
    """The property within a title, without its unit."""
    name = title.partition(" (")[0]
    return name if name[:2].isupper() else name[0].lower() + name[1:]


def _groups(values: Floats, *, is_count: bool) -> list[tuple[Any, Any]]:
    """The label of each group on the x axis, and the places of its values."""
    if not is_count:
        parts = equal_bins(values, VOLUME_BINS) if values.size >= VOLUME_BINS else []
        return [(rounded(float(np.median(values[part]))), part) for part in parts]
    capped = np.minimum(values, MOST_LESIONS)
    names = {count: f"{count:g}" if count < MOST_LESIONS else f"{MOST_LESIONS} or more" for count in np.unique(capped)}
    return [(name, np.flatnonzero(capped == count)) for count, name in names.items()]


def dsc_by_case(table: AnswerRows, against: list[Influence]) -> list[Analysis]:
    """The median DSC over teams of each case against each property that is no count."""
    return [_by_case(table, one) for one in against if not one.is_count]


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
    )
