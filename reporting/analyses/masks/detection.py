"""Detection of the primary tumour, and counts of GTVn lesions."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from evaluation.metrics.overlap import Floats
from evaluation.statistics.intervals import wilson_interval
from reporting.analyses.analysis import Analysis
from reporting.analyses.tables import AnswerRows, rounded

_OUTCOMES: Final = {"tp": "detected", "fn": "missed", "fp": "false"}
_LESION_DSC: Final = (
    " The lesion-wise DSC is the mean over all these lesions, 0 for a missed and for a false one, as in BraTS-METS "
    "2024 but without dilation."
)


def primary_found(table: AnswerRows) -> list[Analysis]:
    """In how many cases a team's GTVp overlaps the reference's at all."""
    reference, predicted, shared = (
        table.numbers(f"gtvp_{part}_voxels") for part in ("reference", "predicted", "intersection")
    )
    rows: list[dict[str, Any]] = []
    for of, counted in (("cases with a GTVp", reference > 0), ("cases in which the team marks a GTVp", predicted > 0)):
        for place, team in enumerate(table.names):
            cases, found = int(counted[place].sum()), int((shared[place] > 0).sum())
            if cases:
                low, high = wilson_interval(found, cases)
                ends = {"fraction": found / cases, "low": low, "high": high}
                figures = {name: rounded(end) for name, end in ends.items()}
                rows.append({"of": of, "team": team, "found": found, "cases": cases, **figures})
    analysis = Analysis(
        name=table.name("primary-found"),
        title=table.title("Primary tumour found"),
        caption=(
            "Cases in which the team's GTVp and the reference's share at least one voxel: of all cases with a primary "
            "tumour, and of those in which the team marks one, with Wilson's 95% interval."
        ),
        columns={
            "of": "Of",
            "team": "Team",
            "found": "Found",
            "cases": "Cases",
            "fraction": "Fraction",
            "low": "95% interval from",
            "high": "to",
        },
        rows=rows,
        chart={
            "kind": "intervals",
            "y": "team",
            "x": "fraction",
            "low": "low",
            "high": "high",
            "facet": "of",
            "domain": [0, 1],
        },
        source="HECKTOR 2020 overview, criteria 2 and 3 for success: detect all primary tumours, and only these",
    )
    return [analysis] if rows else []


def lesion_counts(table: AnswerRows) -> list[Analysis]:
    """Detected, missed and false GTVn lesions of each team, summed over the cases."""
    counts = {outcome: np.nansum(table.numbers(f"gtvn_lesions_{outcome}"), axis=1) for outcome in _OUTCOMES}
    if not any(of.any() for of in counts.values()):
        return []
    sums = lesion_wise_dsc_sums(table)
    rows: list[dict[str, Any]] = []
    for place, team in enumerate(table.names):
        total = sum(of[place] for of in counts.values())
        dsc = rounded(float(sums[place] / total)) if total else None
        for outcome, word in _OUTCOMES.items():
            rows.append({"team": team, "outcome": word, "lesions": int(counts[outcome][place]), "lesion_dsc": dsc})
    return [
        Analysis(
            name=table.name("gtvn-lesions"),
            title=table.title("GTVn lesions detected, missed and false"),
            caption=(
                "Lesions of all cases, matched by the edition's rule. Detected and missed lesions are the reference's, "
                f"false lesions the team's.{_LESION_DSC}"
            ),
            columns={
                "team": "Team",
                "outcome": "Lesions",
                "lesions": "Number",
                "lesion_dsc": "Lesion-wise DSC of the team",
            },
            rows=rows,
            chart={"kind": "bars", "y": "team", "x": "lesions", "series": "outcome"},
            source="HECKTOR 2025 rules, aggregated F1; the HNTS-MRG 2024 overview asks for the lesion-wise DSC",
        )
    ]


def lesion_wise_dsc_sums(table: AnswerRows) -> Floats:
    """The sum of each team's DSCs of matched lesions."""
    known = [[row for row in rows if row is not None] for rows in table.rows]
    sums = [sum(dsc or 0.0 for row in rows for dsc in row["gtvn_lesions_dsc"]) for rows in known]
    return np.array(sums, dtype=np.float64)
