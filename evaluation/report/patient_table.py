"""Each case's reference, and each team's answers to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from contract.editions import Answer
from evaluation.analyses.masks.cases import LABELS
from evaluation.analyses.sources import TaskResults, team_names
from evaluation.analyses.titles import answer_title

_MM3_A_ML: Final = 1000.0
Row = Mapping[str, Any]
Value = float | str | None
Reader = Callable[[Row], Value]


@dataclass(frozen=True)
class AnswerColumn:
    """One figure of every team's answer to every case.

    Attributes:
        title: heading of the column.
        values: by case and team, in the order of `CaseTable`.
        summary: heading of the figure's summary over the teams; empty without one.
        absent: places of cases whose reference lacks the structure; there a value is 1 for a team that rightly marks
            nothing, and 0 for one that marks something.
    """

    title: str
    values: tuple[tuple[Value, ...], ...]
    summary: str = ""
    absent: frozenset[int] = frozenset()


@dataclass(frozen=True)
class CaseTable:
    """All cases with the reference's figures, and the answers of all teams.

    `facts` holds the reference by heading and case, `columns` the answers that any team has.
    """

    cases: tuple[str, ...]
    teams: tuple[str, ...]
    facts: Mapping[str, tuple[Value, ...]]
    columns: tuple[AnswerColumn, ...]


def case_table(results: Sequence[TaskResults]) -> CaseTable:
    """The cases of all tasks; teams without rows have no values.

    Headings begin with the task's number where two tasks have one name, such as the two survival tasks of 2021.
    """
    teams = tuple(team_names(results))
    parts = [(result.task, answer, _rows(result, answer)) for result in results for answer in result.task.answers]
    cases = tuple(sorted({case for *_, rows in parts for of_team in rows.values() for case in of_team}))
    facts: dict[str, tuple[Value, ...]] = {}
    columns: list[AnswerColumn] = []
    names = [result.task.name for result in results]
    for task, answer, rows in parts:
        prefix = f"Task {task.number}: " if names.count(task.name) > 1 else ""
        reference = [next((of[case] for of in rows.values() if case in of), None) for case in cases]
        for title, read in _facts(answer).items():
            facts[f"{prefix}{title}"] = tuple(None if row is None else read(row) for row in reference)
        for title, summary, read in _answers(answer):
            values = tuple(tuple(_read(read, rows.get(team, {}).get(case)) for team in teams) for case in cases)
            if any(value is not None for of_case in values for value in of_case):
                absent = _absent(reference, title)
                columns.append(AnswerColumn(f"{prefix}{title}", values, summary and f"{prefix}{summary}", absent))
    return CaseTable(cases, teams, facts, tuple(columns))


def _absent(reference: Sequence[Row | None], title: str) -> frozenset[int]:
    """Places of the cases without the structure of a column of DSCs; none for other columns."""
    label = {f"{name} DSC": label for label, name in LABELS.items()}.get(title)
    rows = enumerate(reference) if label is not None else ()
    return frozenset(place for place, row in rows if row is not None and row[f"{label}_reference_voxels"] == 0)


def _rows(result: TaskResults, answer: Answer) -> dict[str, dict[str, Row]]:
    by_team = {team.team: result.rows_of(team, answer.name) for team in result.teams}
    return {team: {str(row["case"]): row for row in rows} for team, rows in by_team.items()}


def _read(read: Reader, row: Row | None) -> Value:
    return None if row is None else read(row)


def _facts(answer: Answer) -> dict[str, Reader]:
    """What the reference says, by heading."""
    if answer.kind == "mask":
        return {
            "GTVp (ml)": partial(_volume_ml, key="gtvp_reference_mm3"),
            "GTVn (ml)": partial(_volume_ml, key="gtvn_reference_mm3"),
            "GTVn lesions": lambda row: row["gtvn_lesions_tp"] + row["gtvn_lesions_fn"],
        }
    if answer.kind == "risk":
        return {
            "Recurrence": lambda row: "yes" if row["relapse"] else "no",
            "Follow-up (days)": lambda row: round(row["rfs_days"]),
        }
    return {answer_title(answer): lambda row: _class_name(row[answer.row_key])}


def _answers(answer: Answer) -> list[tuple[str, str, Reader]]:
    """Heading, heading of the summary and value of each figure of an answer."""
    title = answer_title(answer)
    if answer.kind == "mask":
        return [
            *(
                (f"{name} DSC", f"{name} DSC, median of teams", partial(_dsc, label=key))
                for key, name in LABELS.items()
            ),
            ("GTVp (ml)", "", partial(_volume_ml, key="gtvp_predicted_mm3")),
            ("GTVn (ml)", "", partial(_volume_ml, key="gtvn_predicted_mm3")),
            ("GTVn detected / false / missed", "", _lesions),
        ]
    if answer.kind == "risk":
        digits = 4 if answer.direction == "time" else 3  # thousands of days in full
        return [(f"{title} ({answer.direction})", "", partial(_risk, digits=digits))]
    key = answer.row_key
    return [
        (title, "", lambda row: _class_name(row[f"predicted_{key}"])),
        (f"{title} correct", f"{title}, fraction of teams correct", partial(_is_correct, key=key)),
    ]


def _volume_ml(row: Row, key: str) -> float:
    return round(float(row[key]) / _MM3_A_ML, 1)


def _dsc(row: Row, label: str) -> float | None:
    """The DSC. Without the structure in the reference: 1 for an empty mask, 0 for another one, None for none."""
    if row[f"{label}_reference_voxels"] > 0:
        return None if row.get(f"{label}_dsc") is None else float(row[f"{label}_dsc"])
    return None if row["error"] is not None else float(row[f"{label}_predicted_voxels"] == 0)


def _lesions(row: Row) -> str:
    return f"{row['gtvn_lesions_tp']} / {row['gtvn_lesions_fp']} / {row['gtvn_lesions_fn']}"


def _risk(row: Row, digits: int) -> float | None:
    return None if row["risk"] is None else float(f"{row['risk']:.{digits}g}")


def _is_correct(row: Row, key: str) -> int | None:
    predicted = row[f"predicted_{key}"]
    return None if predicted is None else int(predicted == row[key])


def _class_name(value: object) -> str | None:
    if value is None:
        return None
    return {True: "positive", False: "negative"}[value] if isinstance(value, bool) else str(value)
