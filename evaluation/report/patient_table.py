"""What the rows of every task say of one patient, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from evaluation.report.sources import TaskResults

_MM3_A_ML: Final = 1000.0


@dataclass(frozen=True)
class PatientTable:
    """Column heads, and the cells of each team."""

    heads: Sequence[str]
    rows: Mapping[str, Sequence[str]]


def facts_of(case: str, results: Sequence[TaskResults]) -> str:
    """The reference in one line: volumes, lesions, follow-up, HPV status, as far as any task's rows hold them."""
    row: dict[str, Any] = {}
    for result in results:
        for team in result.teams[:1]:
            row.update(_row_of(case, team.rows) or {})
    facts = []
    if "gtvp_reference_mm3" in row:
        lesions = row["gtvn_lesions_tp"] + row["gtvn_lesions_fn"]
        facts.append(f"GTVp {row['gtvp_reference_mm3'] / _MM3_A_ML:.1f} ml")
        facts.append(
            f"GTVn {row['gtvn_reference_mm3'] / _MM3_A_ML:.1f} ml in {lesions} lesion{'' if lesions == 1 else 's'}"
        )
    if "rfs_days" in row:
        facts.append(f"{'recurrence' if row['relapse'] else 'no recurrence'} at {row['rfs_days']:.0f} days")
    if "hpv_positive" in row:
        facts.append(f"HPV {_sign(row['hpv_positive'])}")
    return " · ".join(facts)


def patient_table(case: str, results: Sequence[TaskResults]) -> PatientTable:
    """Every team's answers to one case."""
    heads = ["GTVp DSC", "GTVp ml", "GTVn ml", "GTVn found / invented / missed", "Risk", "HPV"]
    teams: dict[str, dict[str, Any]] = {}
    for result in results:
        for team in result.teams:
            teams.setdefault(team.team, {}).update(_row_of(case, team.rows) or {})
    return PatientTable(heads, {team: _cells(row) for team, row in teams.items()})


def _cells(row: Mapping[str, Any]) -> list[str]:
    cells = ["-"] * 6
    if row.get("gtvp_dsc") is not None:
        cells[0] = f"{row['gtvp_dsc']:.3f}"
    if "gtvp_predicted_mm3" in row:
        cells[1] = f"{row['gtvp_predicted_mm3'] / _MM3_A_ML:.1f}"
        cells[2] = f"{row['gtvn_predicted_mm3'] / _MM3_A_ML:.1f}"
        cells[3] = f"{row['gtvn_lesions_tp']} / {row['gtvn_lesions_fp']} / {row['gtvn_lesions_fn']}"
    if row.get("risk") is not None:
        cells[4] = f"{row['risk']:.3g}"
    if row.get("predicted_hpv_positive") is not None:
        cells[5] = _sign(row["predicted_hpv_positive"])
    return cells


def _row_of(case: str, rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    return next((row for row in rows if row.get("case") == case), None)


def _sign(positive: bool) -> str:
    return "positive" if positive else "negative"
