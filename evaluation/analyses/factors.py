"""The DSC against properties of the case: volume, SUVmax, number of GTVn lesions, field of view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy.stats import pearsonr, rankdata

from evaluation.analyses.analysis import Analysis
from evaluation.analyses.cases import LABELS
from evaluation.analyses.tables import MM3_A_ML, AnswerRows, rounded
from evaluation.metrics.overlap import Floats
from evaluation.rows.mask.metrics import VOLUME_BINS, equal_bins, spearman

MOST_LESIONS: Final = 4
HOW_P: Final = (
    "p is that of a case's rank by volume against the mean rank of its DSC over teams: masks of one case are not "
    "independent, so cases are counted, not masks."
)
WHY_NO_P: Final = (
    "No p for other properties and for single teams: the HECKTOR 2021 overview prints one for the volume alone, over "
    "all teams."
)
NO_SCANS: Final = (
    "SUVmax and field of view are not in the rows. `hecktor study baselines --cohort COHORT --output RESULTS` writes "
    "baselines.csv beside the results, and they are shown."
)


@dataclass(frozen=True)
class Factor:
    """A property of the cases: `values` has shape (cases,), NaN where unknown; a count has few distinct values."""

    name: str
    title: str
    values: Floats
    is_count: bool = False


@dataclass(frozen=True)
class _Plane:
    """The DSC of one structure, shape (teams, cases), against one factor; cases without a reference are NaN."""

    label: str
    factor: Factor
    dsc: Floats


def dsc_by_factors(table: AnswerRows, scans: Mapping[str, Mapping[str, float]]) -> list[Analysis]:
    """For each structure and factor the mean DSC by team and the median DSC by case, and all correlations.

    `scans` holds the figures of the scans by case and name, if measured.
    """
    planes = [_Plane(label, one, _dsc(table, label)) for label in LABELS for one in _factors(table, label, scans)]
    planes = [plane for plane in planes if (_known(plane).sum(axis=1) >= VOLUME_BINS).any()]
    if not planes:
        return []
    by_case = [_by_case(table, plane) for plane in planes if not plane.factor.is_count]
    by_team = [_by_team(table, plane) for plane in planes]
    return [*by_team, *by_case, _correlations(table, planes, scans)]


def _factors(table: AnswerRows, label: str, scans: Mapping[str, Mapping[str, float]]) -> list[Factor]:
    title = LABELS[label]
    factors = [
        Factor("volume", f"{title} volume (ml)", table.reference(f"{label}_reference_mm3") / MM3_A_ML),
        Factor("suv-max", f"{title} SUVmax", _of_scans(table, scans, f"{label}_suv_max")),
        Factor("lesions", "GTVn lesions", lesions_of_reference(table), is_count=True),
        Factor("field-of-view", "Field of view, head to feet (mm)", _of_scans(table, scans, "field_of_view_mm")),
    ]
    with_lesions = np.nansum(factors[2].values) > 0
    return [one for one in factors if not np.isnan(one.values).all() and (with_lesions or not one.is_count)]


def lesions_of_reference(table: AnswerRows) -> Floats:
    """The number of GTVn lesions of each case's reference."""
    counts = np.full(len(table.cases), np.nan)
    for rows in table.rows:
        for place, row in enumerate(rows):
            if row is not None and np.isnan(counts[place]):
                sizes = row.get("gtvn_lesion_voxels")
                counts[place] = row["gtvn_lesions_tp"] + row["gtvn_lesions_fn"] if sizes is None else len(sizes)
    return counts


def _of_scans(table: AnswerRows, scans: Mapping[str, Mapping[str, float]], name: str) -> Floats:
    return np.array([scans.get(case, {}).get(name, np.nan) for case in table.cases], dtype=np.float64)


def _dsc(table: AnswerRows, label: str) -> Floats:
    with_reference = table.reference(f"{label}_reference_voxels") > 0
    return np.where(with_reference, table.numbers(f"{label}_dsc"), np.nan)


def _known(plane: _Plane) -> Any:
    return ~np.isnan(plane.dsc) & ~np.isnan(plane.factor.values)


def _by_team(table: AnswerRows, plane: _Plane) -> Analysis:
    """Each team's mean DSC in five bins of the factor, or for each count."""
    factor, known = plane.factor, _known(plane)
    rows: list[dict[str, Any]] = []
    for place, team in enumerate(table.names):
        values, dsc = factor.values[known[place]], plane.dsc[place][known[place]]
        for x, part in _groups(values, is_count=factor.is_count):
            rows.append({"team": team, "x": x, "cases": int(part.size), "dsc_mean": rounded(float(dsc[part].mean()))})
    bins = "for each number, the last with all greater ones" if factor.is_count else _BINS
    return Analysis(
        name=table.name(f"{plane.label}-dsc-by-{factor.name}"),
        title=table.title(f"DSC of the {LABELS[plane.label]} by {_lower(factor.title)}"),
        caption=f"Mean DSC of the cases with a {LABELS[plane.label]}, {bins}.",
        columns={
            "team": "Team",
            "x": factor.title if factor.is_count else f"{factor.title}, median of the bin",
            "cases": "Cases",
            "dsc_mean": "Mean DSC",
        },
        rows=rows,
        chart={
            "kind": "lines",
            "x": "x",
            "y": "dsc_mean",
            "series": "team",
            "domain": [0, 1],
            **({"x_is_category": True} if factor.is_count else {}),
        },
    )


_BINS: Final = (
    "in five bins of rising values with equal numbers of cases, the first also with the remainder, as in the HECKTOR "
    "2021 overview"
)


def _lower(title: str) -> str:
    return title if title[:2].isupper() else title[0].lower() + title[1:]


def _groups(values: Floats, *, is_count: bool) -> list[tuple[Any, Any]]:
    """The label of each group on the x axis, and the places of its values."""
    if not is_count:
        parts = equal_bins(values, VOLUME_BINS) if values.size >= VOLUME_BINS else []
        return [(rounded(float(np.median(values[part]))), part) for part in parts]
    capped = np.minimum(values, MOST_LESIONS)
    names = {count: f"{count:g}" if count < MOST_LESIONS else f"{MOST_LESIONS} or more" for count in np.unique(capped)}
    return [(name, np.flatnonzero(capped == count)) for count, name in names.items()]


def _by_case(table: AnswerRows, plane: _Plane) -> Analysis:
    """The median DSC over teams of each case against the factor."""
    known = _known(plane)
    rows = [
        {
            "case": case,
            "x": rounded(float(plane.factor.values[place])),
            "dsc_median": rounded(float(np.median(plane.dsc[known[:, place], place]))),
            "teams": int(known[:, place].sum()),
        }
        for place, case in enumerate(table.cases)
        if known[:, place].any()
    ]
    return Analysis(
        name=table.name(f"{plane.label}-dsc-and-{plane.factor.name}"),
        title=table.title(f"DSC of each case and its {_lower(plane.factor.title)}"),
        caption=f"Median over teams of the {LABELS[plane.label]}'s DSC of each case.",
        columns={"case": "Case", "x": plane.factor.title, "dsc_median": "Median DSC over teams", "teams": "Teams"},
        rows=rows,
        chart={"kind": "points", "x": "x", "y": "dsc_median", "domain": [0, 1]},
    )


def _correlations(table: AnswerRows, planes: list[_Plane], scans: Mapping[str, Mapping[str, float]]) -> Analysis:
    """Spearman's correlation over all masks of all teams, and of each team."""
    rows: list[dict[str, Any]] = []
    for plane in planes:
        known = _known(plane)
        values = np.broadcast_to(plane.factor.values, plane.dsc.shape)
        shared = {"label": LABELS[plane.label], "factor": plane.factor.title}
        p = p_over_cases(plane.factor.values, plane.dsc) if plane.factor.name == "volume" else None
        pooled = spearman(values[known], plane.dsc[known])
        rows.append({**shared, "team": None, "masks": int(known.sum()), "spearman": rounded(pooled), "p": rounded(p)})
        for place, team in enumerate(table.names):
            mine = known[place]
            of_team = spearman(values[place][mine], plane.dsc[place][mine]) if mine.sum() > 1 else None
            rows.append({**shared, "team": team, "masks": int(mine.sum()), "spearman": rounded(of_team), "p": None})
    return Analysis(
        name=table.name("dsc-correlations"),
        title=table.title("Correlation of the DSC with properties of the case"),
        caption=(
            "Spearman's correlation over all masks of all teams (the line without a team), as in the HECKTOR 2021 "
            "overview, and over the masks of each team."
        ),
        columns={
            "label": "Structure",
            "factor": "Property",
            "team": "Team",
            "masks": "Masks",
            "spearman": "Spearman's correlation",
            "p": "p",
        },
        rows=rows,
        notes=(HOW_P, WHY_NO_P, *(() if scans else (NO_SCANS,))),
    )


def p_over_cases(values: Floats, dsc: Floats) -> float | None:
    """Two-sided p of Pearson's correlation between the rank of a case's value and the mean rank of its DSCs.

    `values` has shape (cases,), `dsc` (teams, cases), ranked over all teams and cases. None with fewer than three cases
    or if one side is constant.
    """
    ranks = np.full(dsc.shape, np.nan)
    known = ~np.isnan(dsc) & ~np.isnan(values)
    ranks[known] = rankdata(dsc[known])
    counted = known.any(axis=0)
    mine = rankdata(values[counted])
    theirs = np.nanmean(ranks[:, counted], axis=0)
    if counted.sum() < 3 or np.ptp(mine) == 0 or np.ptp(theirs) == 0:
        return None
    return float(pearsonr(mine, theirs).pvalue)
