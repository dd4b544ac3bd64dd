"""One patient's reference, and each team's answers to it, side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from contract.editions import Answer
from contract.editions.declaration import Kind
from evaluation.report.sources import TaskResults

_MM3_A_ML: Final = 1000.0
Row = Mapping[str, Any]


@dataclass(frozen=True)
class PatientTable:
    """Column heads, and the cells of each team."""

    heads: Sequence[str]
    rows: Mapping[str, Sequence[str]]


def facts_of(case: str, results: Sequence[TaskResults]) -> str:
    """The reference in one line: volumes, lesions, follow-up and classes, as far as the rows hold them."""
    facts = []
    for result in results:
        for answer in result.task.answers:
            row = _row_of(case, answer, result, result.teams[0].team) if result.teams else None
            facts += [] if row is None else _FACTS[answer.kind](answer, row)
    return " · ".join(facts)


def patient_table(case: str, results: Sequence[TaskResults]) -> PatientTable:
    """Every team's answers to one case."""
    answers = [(result, answer) for result in results for answer in result.task.answers]
    heads = [head for _, answer in answers for head in _heads(answer)]
    teams = dict.fromkeys(team.team for result in results for team in result.teams)
    rows = {}
    for team in teams:
        cells: list[str] = []
        for result, answer in answers:
            row = _row_of(case, answer, result, team)
            cells += ["-"] * len(_heads(answer)) if row is None else _CELLS[answer.kind](answer, row)
        rows[team] = cells
    return PatientTable(heads, rows)


def _row_of(case: str, answer: Answer, result: TaskResults, team: str) -> Row | None:
    rows = (row for one in result.teams if one.team == team for row in result.rows_of(one, answer.name))
    return next((row for row in rows if row.get("case") == case), None)


def _heads(answer: Answer) -> list[str]:
    if answer.kind == "mask":
        return ["GTVp DSC", "GTVp ml", "GTVn ml", "GTVn detected / false / missed"]
    return [f"{answer.socket.title} ({answer.direction})" if answer.kind == "risk" else answer.socket.title]


def _mask_facts(_: Answer, row: Row) -> list[str]:
    lesions = row["gtvn_lesions_tp"] + row["gtvn_lesions_fn"]
    gtvp, gtvn = (row[f"{label}_reference_mm3"] / _MM3_A_ML for label in ("gtvp", "gtvn"))
    return [f"GTVp {gtvp:.1f} ml", f"GTVn {gtvn:.1f} ml in {lesions} lesion{'' if lesions == 1 else 's'}"]


def _risk_facts(_: Answer, row: Row) -> list[str]:
    return [f"{'recurrence' if row['relapse'] else 'no recurrence'} at {row['rfs_days']:.0f} days"]


def _class_facts(answer: Answer, row: Row) -> list[str]:
    return [f"{answer.socket.title} {_class_name(row[answer.row_key])}"]


def _mask_cells(_: Answer, row: Row) -> list[str]:
    dsc = "-" if row["gtvp_dsc"] is None else f"{row['gtvp_dsc']:.3f}"
    volumes = [f"{row[f'{label}_predicted_mm3'] / _MM3_A_ML:.1f}" for label in ("gtvp", "gtvn")]
    return [dsc, *volumes, f"{row['gtvn_lesions_tp']} / {row['gtvn_lesions_fp']} / {row['gtvn_lesions_fn']}"]


def _risk_cells(_: Answer, row: Row) -> list[str]:
    return ["-" if row["risk"] is None else f"{row['risk']:.3g}"]


def _class_cells(answer: Answer, row: Row) -> list[str]:
    predicted = row[f"predicted_{answer.row_key}"]
    return ["-" if predicted is None else _class_name(predicted)]


def _class_name(value: object) -> str:
    return {True: "positive", False: "negative"}[value] if isinstance(value, bool) else str(value)


_FACTS: Final[dict[Kind, Callable[[Answer, Row], list[str]]]] = {
    "mask": _mask_facts,
    "risk": _risk_facts,
    "class": _class_facts,
}
_CELLS: Final[dict[Kind, Callable[[Answer, Row], list[str]]]] = {
    "mask": _mask_cells,
    "risk": _risk_cells,
    "class": _class_cells,
}
