"""Correlation of the DSC with properties of the case."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from scipy.stats import pearsonr, rankdata

from evaluation.analyses.analysis import Analysis
from evaluation.analyses.masks.cases import LABELS
from evaluation.analyses.masks.factors import Influence
from evaluation.analyses.tables import AnswerRows, rounded
from evaluation.metrics.bins import spearman
from evaluation.metrics.overlap import Floats

HOW_P: Final = (
    "p is that of a case's rank by volume against the mean rank of its DSC over teams: masks of one case are not "
    "independent, so cases are counted, not masks."
)
WHY_NO_P: Final = (
    "No p for other properties and for single teams: the HECKTOR 2021 overview prints one for the volume alone, over "
    "all teams."
)
NO_SCANS: Final = (
    "SUVmax and field of view are missing: write them with hecktor study baselines --cohort COHORT --output RESULTS."
)


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
        for team, mine, of_team in zip(table.names, known, dsc, strict=True):
            own = rounded(spearman(influence.values[mine], of_team[mine])) if mine.any() else None
            rows.append({**shared, "team": team, "masks": int(mine.sum()), "spearman": own, "p": None})
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
    mine = rankdata(values[counted])
    theirs = np.nanmean(ranks[:, counted], axis=0)
    if counted.sum() < 3 or np.ptp(mine) == 0 or np.ptp(theirs) == 0:
        return None
    return float(pearsonr(mine, theirs).pvalue)
