"""Format the patient of a case: clinical variables, the answers of the reference and the answers of each team."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from contract.editions import AnswerSpec, Edition
from contract.editions.clinical import CENTRE, ClinicalValue, ClinicalVariable
from contract.editions.inputs import EHR
from contract.errors import InputError
from contract.patient import PatientRecord, format_names, parse_ehr, read_ehr
from contract.release.tables import Row, normalise_cell, read_table
from evaluation.inputs.tables import parse_class, parse_flag
from evaluation.results.task import TaskResults
from reporting.analyses.scans import list_tables
from reporting.analyses.tables import get_scored_answer

# Key of the reference's row among the teams' rows.
REFERENCE_ROW: Final = ""

# The key of a task and the name of its answer. The cells of a case are texts by row and column.
AnswerColumn = tuple[str, str]
Cells = dict[str, dict[AnswerColumn, str]]


def read_record(cohort: Path, case: str, edition: Edition, notes: list[str]) -> PatientRecord | None:
    """Read the patient's record next to the scans, or return None if it is absent, as in a release, or unreadable.

    The reason why it cannot be read is added to `notes`.
    """
    path = edition.inputs[EHR].path_under(cohort / case / "input")
    try:
        return read_ehr(path, edition.clinical, edition.suv_factor)
    except InputError as problem:
        if path.exists():
            notes.append(f"{case}: {problem.message}")
        return None


def read_tables(cohort: Path, edition: Edition) -> tuple[dict[str, Row], list[str]]:
    """Read the tables of the cohort that `list_tables` finds. If two tables differ, the value of the first one counts.

    Returns:
        The cells by patient and column, and notes on unusable tables, unusable rows and values that differ.
    """
    rows: dict[str, Row] = {}
    notes = []
    for path in list_tables(cohort, edition):
        table = read_table(path, path.name, edition)
        differing = []
        for patient, row in table.rows.items():
            shown = rows.setdefault(patient, {})
            for column, cell in row.items():
                if normalise_cell(shown.setdefault(column, cell)) != normalise_cell(cell):
                    differing.append(f"{patient}: {column} {cell}")
        if differing:
            names = format_names(differing)
            notes.append(f"{path.name} has values that differ from another table and are not shown: {names}")
        errors = [f"{problem.patient_id}: {problem.found}" for problem in table.problems if problem.is_error]
        if not table.is_readable:
            notes.append(f"{path.name} is not shown: {table.problems[-1].found}")
        elif errors:
            notes.append(f"{path.name} has rows that are not shown: {format_names(errors)}")
    return rows, notes


def format_clinical_values(edition: Edition, record: PatientRecord | None, row: Row) -> list[tuple[str, str]]:
    """Return key and text of each clinical variable except the centre, from the record or else from the tables."""
    values = dict(parse_ehr(row, "", edition.clinical).patient.values)
    if record is not None:
        values |= {name: value for name, value in record.patient.values.items() if value is not None}
    return [
        (variable.key, _format_clinical_value(variable, values.get(variable.name)))
        for variable in edition.clinical
        if variable.name != CENTRE
    ]


def _format_clinical_value(variable: ClinicalVariable, value: ClinicalValue) -> str:
    if value is None:
        return "missing"
    if isinstance(value, str):
        return value
    if variable.type == "code":
        return _find_word(variable.words, value) or f"{value:g}"
    unit = f" {variable.unit}" if variable.type == "number" else " years"
    return f"{value:g}{unit}"


def _find_word(words: Mapping[str, Any], value: Any) -> str:
    """Return the first spelling of a value with more than one character, or "" if there is no such spelling."""
    return next((word for word, meaning in words.items() if meaning == value and len(word) > 1), "")


class AnswerTables:
    """Each case's reference answers, from the results or else from the cohort's tables, and each team's answers."""

    def __init__(self, edition: Edition, results: Sequence[TaskResults], rows: Mapping[str, Row]) -> None:
        tasks = {f"task{task.number}": task for task in edition.algorithms}
        tasks |= {task_results.key: task_results.task for task_results in results}
        self._columns: dict[AnswerColumn, AnswerSpec] = {
            (key, answer.name): answer for key, task in tasks.items() for answer in task.head_specs
        }
        self._rows = rows
        self._scored: dict[str, Cells] = {}
        for task_results in results:
            for answer in task_results.task.head_specs:
                self._add_answers(task_results, get_scored_answer(task_results, answer))

    def _add_answers(self, results: TaskResults, answer: AnswerSpec) -> None:
        column = (results.key, answer.name)
        for team in results.teams:
            for row in results.get_rows(team, answer.name):
                cells = self._scored.setdefault(row["case"], {})
                cells.setdefault(REFERENCE_ROW, {})[column] = _format_scored_reference(answer, row)
                cells.setdefault(team, {})[column] = _format_prediction(answer, row)

    def build_table(
        self, case: str, mask_values: Mapping[str, Mapping[str, Any]], teams: Sequence[str]
    ) -> dict[str, Any]:
        """Return the titles of the columns, and the texts of each row: the reference, then each team with answers.

        `mask_values` are the case's values of masks by title and team; their columns come last.
        """
        scored = self._scored.get(case, {})
        table_row = self._rows.get(case, {})
        reference = {column: _format_table_reference(answer, table_row) for column, answer in self._columns.items()}
        cells = {**scored, REFERENCE_ROW: {**reference, **scored.get(REFERENCE_ROW, {})}}
        columns = [column for column in self._columns if any(row_cells.get(column) for row_cells in cells.values())]
        rows = []
        for name in (REFERENCE_ROW, *teams):
            texts = [cells.get(name, {}).get(column, "") for column in columns]
            texts += [_format_number(team_values.get(name)) for team_values in mask_values.values()]
            if any(texts):
                rows.append({"name": name or "reference", "texts": texts})
        return {"columns": [*self._name_columns(columns), *mask_values], "rows": rows}

    def _name_columns(self, columns: Sequence[AnswerColumn]) -> list[str]:
        """Return the title of each column, with its task if the answers of two tasks have the same title."""
        titles = [self._columns[column].title for column in columns]
        count = Counter(titles)
        return [
            title if count[title] == 1 else f"{title} ({task})"
            for title, (task, _) in zip(titles, columns, strict=True)
        ]


def _format_scored_reference(answer: AnswerSpec, row: Mapping[str, Any]) -> str:
    """Format the reference stored in a row of metrics.json."""
    if answer.kind == "risk":
        return _format_follow_up(f"{row['rfs_days']:g}", bool(row["relapse"]))
    return _format_class(answer, row[answer.row_key])


def _format_prediction(answer: AnswerSpec, row: Mapping[str, Any]) -> str:
    """Format the prediction stored in a row of metrics.json."""
    if answer.kind == "risk":
        unit = " days" if answer.direction == "time" else ""
        return "none" if row["risk"] is None else f"{row['risk']:z.4g}{unit}"
    predicted = row[f"predicted_{answer.row_key}"]
    probability = row.get("predicted_probability")
    text = "none" if predicted is None else _format_class(answer, predicted)
    return text if probability is None else f"{text} ({probability:z.2f})"


def _format_table_reference(answer: AnswerSpec, row: Row) -> str:
    """Format the reference in the cohort's tables. It is verbatim if it cannot be read, and empty if it is absent."""
    if answer.kind == "class":
        text = row.get(answer.columns.get("class", ""), "")
        try:
            value = parse_class(text, answer, "", InputError)
        except InputError:
            return text
        return "" if value is None else _format_class(answer, value)
    days = row.get(answer.columns.get("time", ""), "")
    event = row.get(answer.columns.get("event", ""), "")
    try:
        relapse = parse_flag(event, "", InputError)
    except InputError:
        return f"{days} days, {event}"
    return _format_follow_up(days, bool(relapse)) if days and relapse is not None else ""


def _format_follow_up(days: str, relapse: bool) -> str:
    return f"{days} days, {'relapse' if relapse else 'no relapse'}"


def _format_class(answer: AnswerSpec, value: Any) -> str:
    return (_find_word(answer.words, value) if isinstance(value, bool) else "") or str(value)


def _format_number(value: Any) -> str:
    return f"{value:z.2f}" if isinstance(value, int | float) else ""
