"""The DSC against what may make a case easy or hard: volume of the tumour."""

from __future__ import annotations

from typing import Any

import numpy as np

from evaluation.analyses.analysis import Analysis
from evaluation.analyses.tables import MM3_A_ML, AnswerRows, rounded
from evaluation.rows.mask.metrics import VOLUME_BINS, equal_bins


def dsc_by_volume(table: AnswerRows) -> list[Analysis]:
    """Each team's mean DSC of the GTVp in five bins of rising volume."""
    dsc, volume = table.numbers("gtvp_dsc"), table.numbers("gtvp_reference_mm3") / MM3_A_ML
    rows: list[dict[str, Any]] = []
    for place, team in enumerate(table.names):
        counted = np.flatnonzero(~np.isnan(dsc[place]) & (volume[place] > 0))
        if counted.size < VOLUME_BINS:
            continue
        mine, theirs = volume[place][counted], dsc[place][counted]
        for part in equal_bins(mine, VOLUME_BINS):
            middle, mean = float(np.median(mine[part])), float(theirs[part].mean())
            rows.append({"team": team, "volume_ml": rounded(middle), "cases": part.size, "dsc_mean": rounded(mean)})
    analysis = Analysis(
        name=table.name("gtvp-dsc-by-volume"),
        title=table.title("DSC of the primary tumour by its volume"),
        caption=(
            "Mean DSC in five bins of rising GTVp volume with equal numbers of cases, the first also with the "
            "remainder, as the HECKTOR 2021 overview forms them; shown at the bin's median volume."
        ),
        columns={
            "team": "Team",
            "volume_ml": "Median GTVp volume of the bin (ml)",
            "cases": "Cases",
            "dsc_mean": "Mean DSC",
        },
        rows=rows,
        chart={"kind": "lines", "x": "volume_ml", "y": "dsc_mean", "series": "team", "domain": [0, 1]},
    )
    return [analysis] if rows else []
