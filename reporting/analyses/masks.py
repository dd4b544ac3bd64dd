"""The DSC and HD95 of masks by team and by case, and the DSC against properties of the case."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from scipy.special import stdtr

from evaluation.metrics.confidence import spearman
from evaluation.metrics.overlap import MM3_PER_ML, VOLUME_BINS, Booleans, Floats, split_into_equal_bins
from evaluation.metrics.surface import LOST
from evaluation.statistics.tests import rank_values
from reporting.analyses.analysis import Analysis
from reporting.analyses.tables import BOX_CHART, BOX_HEADINGS, AnswerRows, round_figure, summarise_box

LABELS: Final = {"gtvp": "GTVp", "gtvn": "GTVn"}
FAILED_BELOW: Final = 0.5
NEARLY_ALL: Final = 0.9
# If a structure is absent from the reference, only the teams that mark it have a DSC, so a summary would ignore the
# other teams.
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


def summarise_teams(table: AnswerRows) -> list[Analysis]:
    """Summarise each team's DSC over the cases and, in a second analysis, its HD95 if it was measured."""
    analyses = []
    for measure, title in _MEASURES.items():
        rows = [
            {"label": LABELS[label], "team": team, **summarise_box(values), **_count_extremes(measure, values)}
            for label, team_values in _select_values(table, measure).items()
            for team, values in zip(table.names, team_values, strict=True)
        ]
        analyses.append(
            Analysis(
                name=table.make_name(f"{measure}-by-team"),
                title=table.make_title(f"{title} by team"),
                caption=f"{title} of all cases; the teams are in ranking order. {_ABOUT_BOXES}{_UNITS[measure]}",
                columns={"label": "Structure", "team": "Team", **_get_headings(measure)},
                rows=[row for row in rows if row["values"]],
                chart={**BOX_CHART, "category": "team", "facet": "label", **_get_domain(measure)},
                source="HECKTOR 2021 overview, Fig. 2",
            )
        )
    return [analysis for analysis in analyses if analysis.rows]


def summarise_cases(table: AnswerRows) -> list[Analysis]:
    """Summarise the DSC of all teams in each case, the hardest case first, in one analysis for each structure."""
    return [
        _summarise_label(table, label, values)
        for label, values in _select_values(table, "dsc").items()
        if (table.get_reference(f"{label}_reference_voxels") > 0).any()
    ]


def _summarise_label(table: AnswerRows, label: str, dsc: Floats) -> Analysis:
    volumes_ml = table.get_reference(f"{label}_reference_mm3") / MM3_PER_ML
    rows: list[dict[str, Any]] = [
        {**table.make_case_cells(case), "volume_ml": round_figure(volume_ml), **summarise_box(case_dsc)}
        | _count_extremes("dsc", case_dsc)
        for case, volume_ml, case_dsc in zip(table.cases, volumes_ml, dsc.T, strict=True)
        if volume_ml > 0
    ]
    return Analysis(
        name=table.make_name(f"{label}-dsc-by-case"),
        title=table.make_title(f"DSC of the {LABELS[label]} by case"),
        caption=(
            f"DSC of all teams in each case with a {LABELS[label]}, from the hardest case to the easiest by the median "
            f"over teams. {_ABOUT_BOXES}"
        ),
        columns={**table.case_headings, "volume_ml": "Reference volume (ml)", **_get_headings("dsc")},
        rows=sorted((row for row in rows if row["values"]), key=lambda row: (row["median"], row["case"])),
        chart={**BOX_CHART, "category": "case", "orientation": "vertical", **_get_domain("dsc")},
        source="HECKTOR 2021 overview, Fig. 3",
    )


def find_failed_cases(table: AnswerRows) -> list[Analysis]:
    """Find the cases where nearly all teams have a DSC below 0.5, by structure."""
    rows: list[dict[str, Any]] = []
    # The number of teams with a row, by case.
    team_counts = [sum(row is not None for row in case_rows) for case_rows in zip(*table.rows, strict=True)]
    for label, dsc in _select_values(table, "dsc").items():
        volumes_ml = table.get_reference(f"{label}_reference_mm3") / MM3_PER_ML
        for case, volume_ml, case_dsc, teams in zip(table.cases, volumes_ml, dsc.T, team_counts, strict=True):
            failed = int((case_dsc < FAILED_BELOW).sum())
            if failed and failed >= math.ceil(NEARLY_ALL * teams):
                shared = {**table.make_case_cells(case), "label": LABELS[label], "volume_ml": round_figure(volume_ml)}
                best = _describe_dsc(table, case_dsc) if volume_ml > 0 else _WITHOUT_STRUCTURE
                rows.append({**shared, "failed": failed, "teams": teams, **best})
    analysis = Analysis(
        name=table.make_name("failed-cases"),
        title=table.make_title("Cases that nearly all teams fail"),
        caption=(
            f"Cases in which at least {NEARLY_ALL:.0%} of the teams have a DSC below {FAILED_BELOW}: an IoU below 1/3, "
            "or masks that share less than half of their mean volume. If the structure is absent from the reference, a "
            "team that marks it fails, and the other teams have no DSC."
        ),
        columns={
            **table.case_headings,
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


def _describe_dsc(table: AnswerRows, dsc: Floats) -> dict[str, Any]:
    """Return the median and the best DSC of one case, and the best team unless all teams have 0."""
    best = int(np.nanargmax(dsc))
    figures = {"dsc_median": round_figure(float(np.nanmedian(dsc))), "dsc_best": round_figure(float(dsc[best]))}
    return {**figures, "best_team": table.names[best] if dsc[best] > 0 else None}


def _select_values(table: AnswerRows, measure: str) -> dict[str, Floats]:
    """Select the DSC or the HD95 in mm of each structure that has values, shape (teams, cases).

    The HD95 is infinite where one mask is empty or there is no prediction.
    """
    values = {}
    for label in LABELS:
        label_values = table.get_numbers(f"{label}_dsc") if measure == "dsc" else _select_hd95(table, label)
        if not np.isnan(label_values).all():
            values[label] = label_values
    return values


def _select_hd95(table: AnswerRows, label: str) -> Floats:
    distances_mm = table.get_numbers(f"{label}_hd95_mm")
    is_lost = [
        [row is not None and row.get(f"{label}_surface") in LOST for row in team_rows] for team_rows in table.rows
    ]
    distances_mm[np.array(is_lost, dtype=np.bool_).reshape(distances_mm.shape)] = np.inf
    return distances_mm


def _count_extremes(measure: str, values: Floats) -> dict[str, int]:
    """Count the worst possible values: infinite distances, or DSCs of 0."""
    if measure == "hd95":
        return {"infinite": int(np.isinf(values).sum())}
    return {"zeros": int((values == 0).sum())}


def _get_headings(measure: str) -> dict[str, str]:
    if measure == "dsc":
        return {**BOX_HEADINGS, "zeros": "Values of 0"}
    in_mm = {name: f"{head} (mm)" if name != "values" else head for name, head in BOX_HEADINGS.items()}
    return {**in_mm, "infinite": "Infinite values"}


def _get_domain(measure: str) -> dict[str, Any]:
    return {"domain": [0, 1]} if measure == "dsc" else {}


Scans: TypeAlias = Mapping[str, Mapping[str, float]]
# The mean of fewer values says little.
MIN_IN_BIN: Final = 3
ABOUT_BINS: Final = (
    "in five bins of increasing values with equal numbers of cases; the first bin also contains the remainder"
)


@dataclass(frozen=True)
class Influence:
    """The DSC of one structure and one property of the cases, such as the volume.

    Attributes:
        label: The structure, `gtvp` or `gtvn`.
        name: Part of the names of analyses, such as `volume`.
        column: Key of the property's column.
        title: Title of the property, with its unit.
        values: The property, shape (cases,); NaN where it is unknown.
        dsc: Shape (teams, cases); NaN where the structure is absent from the reference.
    """

    label: str
    name: str
    column: str
    title: str
    values: Floats
    dsc: Floats

    @property
    def known(self) -> Booleans:
        """Whether a mask has a DSC and a value of the property, shape (teams, cases)."""
        return np.asarray(~np.isnan(self.dsc) & ~np.isnan(self.values), dtype=np.bool_)

    @property
    def has_enough_cases(self) -> bool:
        """Whether at least one team has three cases in each bin. Bins are of equal size, so only the total matters."""
        return bool((self.known.sum(axis=1) >= MIN_IN_BIN * VOLUME_BINS).any())


def find_influences(table: AnswerRows, scans: Scans) -> list[Influence]:
    """Find every structure and property for which a team has at least as many known cases as there are bins.

    `scans` contains the figures of each case by name.
    """
    candidates = []
    for label, title in LABELS.items():
        volume_ml = table.get_reference(f"{label}_reference_mm3") / MM3_PER_ML
        dsc = np.where(volume_ml > 0, table.get_numbers(f"{label}_dsc"), np.nan)
        suv_max = np.array([scans.get(case, {}).get(f"{label}_suv_max", np.nan) for case in table.cases])
        candidates += [
            Influence(label, "volume", "volume_ml", f"{title} volume (ml)", volume_ml, dsc),
            Influence(label, "suv-max", "suv_max", f"{title} SUVmax", suv_max, dsc),
        ]
    return [influence for influence in candidates if (influence.known.sum(axis=1) >= VOLUME_BINS).any()]


def compute_binned_dsc(table: AnswerRows, influence: Influence) -> Analysis:
    """Compute each team's mean DSC in five bins of a property."""
    label = LABELS[influence.label]
    rows: list[dict[str, Any]] = []
    for team, is_known, team_dsc in zip(table.names, influence.known, influence.dsc, strict=True):
        values = influence.values[is_known]
        dsc = team_dsc[is_known]
        if values.size < VOLUME_BINS:
            continue
        for cases in split_into_equal_bins(values, VOLUME_BINS):
            median = round_figure(float(np.median(values[cases])))
            mean = round_figure(float(dsc[cases].mean()))
            rows.append({"team": team, "cases": cases.size, influence.column: median, "dsc_mean": mean})
    return Analysis(
        name=table.make_name(f"{influence.label}-dsc-by-{influence.name}"),
        title=table.make_title(f"DSC of the {label} by {_lower_title(influence.title)}"),
        caption=f"Mean DSC of the cases with a {label}, {ABOUT_BINS}.",
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


def _lower_title(title: str) -> str:
    """Write the title of a property for the middle of a sentence, without its unit."""
    name = title.partition(" (")[0]
    return name if name[:2].isupper() else name[0].lower() + name[1:]


def compute_case_medians(table: AnswerRows, influence: Influence) -> Analysis:
    """List the median DSC over teams of each case next to a property of the case."""
    label = LABELS[influence.label]
    rows = [
        {
            **table.make_case_cells(case),
            influence.column: round_figure(float(value)),
            "dsc_median": round_figure(float(np.median(case_dsc[is_known]))),
            "teams": int(is_known.sum()),
        }
        for case, value, case_dsc, is_known in zip(
            table.cases, influence.values, influence.dsc.T, influence.known.T, strict=True
        )
        if is_known.any()
    ]
    return Analysis(
        name=table.make_name(f"{influence.label}-dsc-and-{influence.name}"),
        title=table.make_title(f"DSC of the {label} of each case and its {_lower_title(influence.title)}"),
        caption=f"Median of the teams' DSCs for each case with a {label}.",
        columns={
            **table.case_headings,
            influence.column: influence.title,
            "dsc_median": "Median DSC over teams",
            "teams": "Teams",
        },
        rows=rows,
        chart={"kind": "points", "x": influence.column, "y": "dsc_median", "domain": [0, 1]},
        source="HECKTOR 2021 overview, Fig. 6",
    )


HOW_P: Final = (
    "p tests the correlation between a case's rank by volume and the mean rank of its DSC over teams. It counts cases, "
    "not masks, because masks of one case are not independent."
)
WHY_NO_P: Final = (
    "There is no p for other properties or for single teams: the HECKTOR 2021 overview prints one only for volume, "
    "over all teams."
)


def correlate_dsc(table: AnswerRows, influences: list[Influence]) -> list[Analysis]:
    """Compute Spearman's correlation of the DSC with each property, over all masks of all teams and for each team."""
    rows: list[dict[str, Any]] = []
    for influence in influences:
        known = influence.known
        dsc = influence.dsc
        case_values = influence.values
        values = np.broadcast_to(case_values, dsc.shape)
        shared = {"label": LABELS[influence.label], "property": influence.title}
        p = compute_p_over_cases(case_values, dsc) if influence.name == "volume" else None
        pooled = round_figure(spearman(values[known], dsc[known]))
        rows.append({**shared, "team": None, "masks": int(known.sum()), "spearman": pooled, "p": round_figure(p)})
        for team, is_known, team_dsc in zip(table.names, known, dsc, strict=True):
            rho = round_figure(spearman(case_values[is_known], team_dsc[is_known])) if is_known.any() else None
            rows.append({**shared, "team": team, "masks": int(is_known.sum()), "spearman": rho, "p": None})
    analysis = Analysis(
        name=table.make_name("dsc-correlations"),
        title=table.make_title("Correlation of the DSC with properties of the case"),
        caption=(
            "Spearman's correlation over all masks of all teams (the line without a team), and over the masks of each "
            "team."
        ),
        columns={
            "label": "Structure",
            "property": "Property",
            "team": "Team",
            "masks": "Masks",
            "spearman": "Spearman's correlation",
            "p": "p",
        },
        rows=rows,
        notes=(HOW_P, WHY_NO_P),
        source="HECKTOR 2021 overview, influence of tumour size and SUV (0.494 for the volume, 0.428 for SUVmax)",
    )
    return [analysis] if rows else []


def compute_p_over_cases(values: Floats, dsc: Floats) -> float | None:
    """Compute the two-sided p of Pearson's correlation between a case's rank by value and the mean rank of its DSCs.

    Args:
        values: Shape (cases,).
        dsc: Shape (teams, cases); ranks are over all teams and cases.

    Returns:
        None with fewer than three cases or if one side is constant.
    """
    ranks = np.full(dsc.shape, np.nan)
    known = ~np.isnan(dsc) & ~np.isnan(values)
    ranks[known] = rank_values(dsc[known], "average")
    counted = known.any(axis=0)
    value_ranks = rank_values(values[counted], "average")
    dsc_ranks = np.nanmean(ranks[:, counted], axis=0)
    n_cases = int(counted.sum())
    if n_cases < 3 or np.ptp(value_ranks) == 0 or np.ptp(dsc_ranks) == 0:
        return None
    r = np.clip(np.corrcoef(value_ranks, dsc_ranks)[0, 1], -1, 1)
    df = n_cases - 2.0
    with np.errstate(divide="ignore"):
        t = np.abs(r) * np.sqrt(df / (1 - r**2))
    return float(2 * stdtr(df, -t))
