"""The DSC against properties of the case: volume and SUVmax; and its correlation with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from scipy.stats import pearsonr, rankdata

from evaluation.metrics.overlap import MM3_PER_ML, VOLUME_BINS, Booleans, Floats, spearman, split_into_equal_bins
from reporting.analyses.analysis import Analysis
from reporting.analyses.masks.cases import LABELS
from reporting.analyses.tables import AnswerRows, rounded

Scans: TypeAlias = Mapping[str, Mapping[str, float]]
_FEWEST_IN_BIN: Final = 3
_BINS: Final = "in five bins of increasing values with equal numbers of cases; the first bin also holds the remainder"


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
        return bool((self.known.sum(axis=1) >= _FEWEST_IN_BIN * VOLUME_BINS).any())


def influences(table: AnswerRows, scans: Scans) -> list[Influence]:
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


def dsc_by_team(table: AnswerRows, influence: Influence) -> Analysis:
    """Each team's mean DSC in five bins of a property."""
    known, label = influence.known, LABELS[influence.label]
    rows: list[dict[str, Any]] = []
    for place, team in enumerate(table.names):
        values, dsc = influence.values[known[place]], influence.dsc[place][known[place]]
        for part in split_into_equal_bins(values, VOLUME_BINS) if values.size >= VOLUME_BINS else ():
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


def dsc_by_case(table: AnswerRows, influence: Influence) -> Analysis:
    """The median DSC over teams of each case against a property."""
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


def dsc_correlations(table: AnswerRows, against: list[Influence], *, with_scans: bool) -> list[Analysis]:
    """Spearman's correlation over all masks of all teams, and of each team; none without a property."""
    rows: list[dict[str, Any]] = []
    for influence in against:
        known, dsc = influence.known, influence.dsc
        values = np.broadcast_to(influence.values, dsc.shape)
        shared = {"label": LABELS[influence.label], "property": influence.title}
        p = p_over_cases(influence.values, dsc) if influence.name == "volume" else None
        pooled = rounded(spearman(values[known], dsc[known]))
        rows.append({**shared, "team": None, "masks": int(known.sum()), "spearman": pooled, "p": rounded(p)})
        for team, masked, of_team in zip(table.names, known, dsc, strict=True):
            own = rounded(spearman(influence.values[masked], of_team[masked])) if masked.any() else None
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


def p_over_cases(values: Floats, dsc: Floats) -> float | None:
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
