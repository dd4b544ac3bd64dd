"""One patient's reference, and each team's answers to it, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from contract.editions import Answer
from evaluation.analyses.sources import TaskResults, team_names

_MM3_A_ML: Final = 1000.0
Row = Mapping[str, Any]


def facts_of(case: str, results: Sequence[TaskResults]) -> str:
    """The reference in one line: volumes, lesions, follow-up and classes, as far as the rows hold them."""
    facts = []
    for result in results:
        for answer in result.task.answers:
            row = _row_of(case, answer, result, result.teams[0].team) if result.teams else None
            facts += [] if row is None else _facts(answer, row)
    return " · ".join(facts)


def patient_table(case: str, results: Sequence[TaskResults]) -> tuple[list[str], dict[str, list[str]]]:
    """Every team's answers to one case: the column heads, and the cells of each team."""
    answers = [(result, answer, _heads(answer)) for result in results for answer in result.task.answers]
    rows: dict[str, list[str]] = {team: [] for team in team_names(results)}
    for team, cells in rows.items():
        for result, answer, heads in answers:
            row = _row_of(case, answer, result, team)
            cells.extend(["-"] * len(heads) if row is None else _cells(answer, row))
    return [head for _, _, heads in answers for head in heads], rows


def _row_of(case: str, answer: Answer, result: TaskResults, team: str) -> Row | None:
    rows = (row for one in result.teams if one.team == team for row in result.rows_of(one, answer.name))
    return next((row for row in rows if row.get("case") == case), None)


def _heads(answer: Answer) -> list[str]:
    if answer.kind == "mask":
        return ["GTVp DSC", "GTVn DSC", "GTVp ml", "GTVn ml", "GTVn detected / false / missed"]
    return [f"{answer.socket.title} ({answer.direction})" if answer.kind == "risk" else answer.socket.title]


def _facts(answer: Answer, row: Row) -> list[str]:
    if answer.kind == "mask":
        lesions = row["gtvn_lesions_tp"] + row["gtvn_lesions_fn"]
        gtvp, gtvn = _volumes_ml(row, "reference")
        return [f"GTVp {gtvp} ml", f"GTVn {gtvn} ml in {lesions} lesion{'' if lesions == 1 else 's'}"]
    if answer.kind == "risk":
        return [f"{'recurrence' if row['relapse'] else 'no recurrence'} at {row['rfs_days']:.0f} days"]
    return [f"{answer.socket.title} {_class_name(row[answer.row_key])}"]


def _cells(answer: Answer, row: Row) -> list[str]:
    if answer.kind == "mask":
        scores = ("-" if dsc is None else f"{dsc:.3f}" for dsc in (row["gtvp_dsc"], row.get("gtvn_dsc")))
        lesions = f"{row['gtvn_lesions_tp']} / {row['gtvn_lesions_fp']} / {row['gtvn_lesions_fn']}"
        return [*scores, *_volumes_ml(row, "predicted"), lesions]
    if answer.kind == "risk":
        digits = 4 if answer.direction == "time" else 3  # thousands of days in full
        return ["-" if row["risk"] is None else f"{row['risk']:.{digits}g}"]
    predicted = row[f"predicted_{answer.row_key}"]
    return ["-" if predicted is None else _class_name(predicted)]


def _volumes_ml(row: Row, side: str) -> list[str]:
    return [f"{row[f'{label}_{side}_mm3'] / _MM3_A_ML:.1f}" for label in ("gtvp", "gtvn")]


def _class_name(value: object) -> str:
    return {True: "positive", False: "negative"}[value] if isinstance(value, bool) else str(value)
