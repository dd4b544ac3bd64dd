"""The DSC and HD95 of masks by team and by case, and the DSC against properties of the case."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from scipy.stats import pearsonr, rankdata

from evaluation.metrics.confidence import spearman
from evaluation.metrics.overlap import MM3_PER_ML, VOLUME_BINS, Booleans, Floats, split_into_equal_bins
from evaluation.metrics.surface import LOST
from reporting.analyses.analysis import Analysis
from reporting.analyses.tables import BOX_CHART, BOX_HEADS, AnswerRows, round_figure, summarise_box

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


def summarise_teams(table: AnswerRows) -> list[Analysis]:
    """Each team's values over the cases: one analysis for the DSC, one for the HD95 where it is measured."""
    analyses = []
    for measure, title in _MEASURES.items():
        rows = [
            {"label": LABELS[label], "team": team, **summarise_box(of_team), **_extremes(measure, of_team)}
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


def summarise_cases(table: AnswerRows) -> list[Analysis]:
    """The DSC of all teams in each case that has the structure, the hardest case first, by structure."""
    return [
        _boxes_by_case(table, label, values)
        for label, values in _values(table, "dsc").items()
        if (table.reference(f"{label}_reference_voxels") > 0).any()
    ]


def _boxes_by_case(table: AnswerRows, label: str, dsc: Floats) -> Analysis:
    volume = table.reference(f"{label}_reference_mm3") / MM3_PER_ML
    rows: list[dict[str, Any]] = [
        {**table.keys_of(case), "volume_ml": round_figure(volume[place]), **summarise_box(dsc[:, place])}
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
                shared = {**table.keys_of(case), "label": LABELS[label], "volume_ml": round_figure(volume[place])}
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
    figures = {"dsc_median": round_figure(float(np.nanmedian(dsc))), "dsc_best": round_figure(float(dsc[best]))}
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


Scans: TypeAlias = Mapping[str, Mapping[str, float]]
MIN_IN_BIN: Final = 3
ABOUT_BINS: Final = (
    "in five bins of increasing values with equal numbers of cases; the first bin also holds the remainder"
)


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

    @property
    def fills_bins(self) -> bool:
        """True if any team has at least three cases in each bin, the minimum for a meaningful mean."""
        return bool((self.known.sum(axis=1) >= MIN_IN_BIN * VOLUME_BINS).any())


def find_influences(table: AnswerRows, scans: Scans) -> list[Influence]:
    """Every structure against every property that is known for enough of its cases; `scans` by case and name."""
    candidates = []
    for label, title in LABELS.items():
        volume_ml = table.reference(f"{label}_reference_mm3") / MM3_PER_ML
        dsc = np.where(volume_ml > 0, table.numbers(f"{label}_dsc"), np.nan)
        suv_max = np.array([scans.get(case, {}).get(f"{label}_suv_max", np.nan) for case in table.cases])
        candidates += [
            Influence(label, "volume", "volume_ml", f"{title} volume (ml)", volume_ml, dsc),
            Influence(label, "suv-max", "suv_max", f"{title} SUVmax", suv_max, dsc),
        ]
    return [one for one in candidates if (one.known.sum(axis=1) >= VOLUME_BINS).any()]


def compute_binned_dsc(table: AnswerRows, influence: Influence) -> Analysis:
    """Each team's mean DSC in five bins of a property."""
    known, label = influence.known, LABELS[influence.label]
    rows: list[dict[str, Any]] = []
    for place, team in enumerate(table.names):
        values, dsc = influence.values[known[place]], influence.dsc[place][known[place]]
        for part in split_into_equal_bins(values, VOLUME_BINS) if values.size >= VOLUME_BINS else ():
            figures = {influence.column: np.median(values[part]), "dsc_mean": dsc[part].mean()}
            rounded_figures = {name: round_figure(float(figure)) for name, figure in figures.items()}
            rows.append({"team": team, "cases": part.size, **rounded_figures})
    return Analysis(
        name=table.name(f"{influence.label}-dsc-by-{influence.name}"),
        title=table.title(f"DSC of the {label} by {_lower(influence.title)}"),
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


def _lower(title: str) -> str:
    """The property within a title, without its unit."""
    name = title.partition(" (")[0]
    return name if name[:2].isupper() else name[0].lower() + name[1:]


def compute_case_medians(table: AnswerRows, influence: Influence) -> Analysis:
    """The median DSC over teams of each case against a property."""
    known, label = influence.known, LABELS[influence.label]
    rows = [
        {
            **table.keys_of(case),
            influence.column: round_figure(float(influence.values[place])),
            "dsc_median": round_figure(float(np.median(influence.dsc[known[:, place], place]))),
            "teams": int(known[:, place].sum()),
        }
        for place, case in enumerate(table.cases)
        if known[:, place].any()
    ]
    return Analysis(
        name=table.name(f"{influence.label}-dsc-and-{influence.name}"),
        title=table.title(f"DSC of the {label} of each case and its {_lower(influence.title)}"),
        caption=f"Median of the teams' DSCs for each case with a {label}.",
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


HOW_P: Final = (
    "p tests the correlation between a case's rank by volume and the mean rank of its DSC over teams. It counts cases, "
    "not masks, because masks of one case are not independent."
)
WHY_NO_P: Final = (
    "There is no p for other properties or for single teams: the HECKTOR 2021 overview prints one only for volume, "
    "over all teams."
)
NO_SCANS: Final = "SUVmax is missing; to add it, run hecktor study baselines --cohort COHORT --output RESULTS."


def correlate_dsc(table: AnswerRows, against: list[Influence], *, with_scans: bool) -> list[Analysis]:
    """Spearman's correlation over all masks of all teams, and of each team; none without a property."""
    rows: list[dict[str, Any]] = []
    for influence in against:
        known, dsc = influence.known, influence.dsc
        values = np.broadcast_to(influence.values, dsc.shape)
        shared = {"label": LABELS[influence.label], "property": influence.title}
        p = compute_p_over_cases(influence.values, dsc) if influence.name == "volume" else None
        pooled = round_figure(spearman(values[known], dsc[known]))
        rows.append({**shared, "team": None, "masks": int(known.sum()), "spearman": pooled, "p": round_figure(p)})
        for team, masked, of_team in zip(table.names, known, dsc, strict=True):
            own = round_figure(spearman(influence.values[masked], of_team[masked])) if masked.any() else None
            rows.append({**shared, "team": team, "masks": int(masked.sum()), "spearman": own, "p": None})
    analysis = Analysis(
        name=table.name("dsc-correlations"),
        title=table.title("Correlation of the DSC with properties of the case"),
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
        notes=(HOW_P, WHY_NO_P, *(() if with_scans else (NO_SCANS,))),
        source="HECKTOR 2021 overview, influence of tumour size and SUV (0.494 for the volume, 0.428 for SUVmax)",
    )
    return [analysis] if rows else []


def compute_p_over_cases(values: Floats, dsc: Floats) -> float | None:
    """Two-sided p of Pearson's correlation between the rank of a case's value and the mean rank of its DSCs.

    `values` has shape (cases,), `dsc` (teams, cases), ranked over all teams and cases. None with fewer than three cases
    or if one side is constant.
    """
    ranks = np.full(dsc.shape, np.nan)
    known = ~np.isnan(dsc) & ~np.isnan(values)
    ranks[known] = rankdata(dsc[known])
    counted = known.any(axis=0)
    factor_ranks = rankdata(values[counted])
    dsc_ranks = np.nanmean(ranks[:, counted], axis=0)
    if counted.sum() < 3 or np.ptp(factor_ranks) == 0 or np.ptp(dsc_ranks) == 0:
        return None
    return float(pearsonr(factor_ranks, dsc_ranks).pvalue)
