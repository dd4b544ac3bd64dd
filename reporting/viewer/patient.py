"""The patient of a case as texts: clinical variables, and the answers of the reference and of each team."""

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
from contract.release.tables import Row, read_table
from evaluation.inputs.tables import parse_class, parse_flag
from evaluation.results.task import TaskResults
from reporting.analyses.scans import list_tables

# Name of the reference's row among those of the teams.
REFERENCE_ROW: Final = ""

# Texts by team and by column, where a column is a task and its answer.
Column = tuple[str, str]
Cells = dict[str, dict[Column, str]]


def read_record(cohort: Path, case: str, edition: Edition, notes: list[str]) -> PatientRecord | None:
    """The patient's record beside the scans; None if it is absent, as in a release, or cannot be read.

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
    """The cells of the cohort's tables by patient and column, and a note for each table with unusable rows.

    The tables are `list_tables` the cohort.
    """
    rows: dict[str, Row] = {}
    notes = []
    for path in list_tables(cohort, edition):
        table = read_table(path, path.name, edition)
        for patient, row in table.rows.items():
            rows[patient] = {**row, **rows.get(patient, {})}
        if not table.readable:
            notes.append(f"{path.name} is not shown: {table.problems[-1].found}")
        elif faults := [f"{one.patient_id}: {one.found}" for one in table.problems if one.is_error]:
            notes.append(f"{path.name} has rows that are not shown: {format_names(faults)}")
    return rows, notes


def clinical_texts(edition: Edition, record: PatientRecord | None, row: Row) -> list[tuple[str, str]]:
    """Key and value of each clinical variable but the centre, from the record or else from the tables."""
    of_record = {} if record is None else record.patient.values
    known = {name: value for name, value in of_record.items() if value is not None}
    values = {**parse_ehr(row, "", edition.clinical).patient.values, **known}
    return [(one.key, _clinical_text(one, values.get(one.name))) for one in edition.clinical if one.name != CENTRE]


def _clinical_text(variable: ClinicalVariable, value: ClinicalValue) -> str:
    if value is None:
        return "missing"
    if isinstance(value, str):
        return value
    if variable.type == "code":
        return _word(variable.words, value) or f"{value:g}"
    unit = f" {variable.unit}" if variable.type == "number" else " years"
    return f"{value:g}{unit}"


def _word(words: Mapping[str, Any], value: Any) -> str:
    """The first spelling of a value with more than one letter; empty if there is none."""
    return next((word for word, meaning in words.items() if meaning == value and len(word) > 1), "")


class AnswerTables:
    """The answers of each case: the reference's, from the results or else the cohort's tables, and each team's."""

    def __init__(self, edition: Edition, results: Sequence[TaskResults], rows: Mapping[str, Row]) -> None:
        tasks = {f"task{task.number}": task for task in edition.algorithms} | {one.key: one.task for one in results}
        self._columns: dict[Column, AnswerSpec] = {
            (key, answer.name): answer for key, task in tasks.items() for answer in task.head_specs
        }
        self._rows = rows
        self._scored: dict[str, Cells] = {}
        for one in results:
            for answer in one.task.head_specs:
                self._add(one, answer)

    def _add(self, results: TaskResults, answer: AnswerSpec) -> None:
        column = results.key, answer.name
        for team in results.teams:
            for row in results.rows_of(team, answer.name):
                cells = self._scored.setdefault(row["case"], {})
                cells.setdefault(REFERENCE_ROW, {})[column] = _scored_reference(answer, row)
                cells.setdefault(team, {})[column] = _predicted(answer, row)

    def of(self, case: str, values: Mapping[str, Mapping[str, Any]], teams: Sequence[str]) -> dict[str, Any]:
        """The titles of the columns, and the texts of each row: the reference first, then each team with answers.

        `values` are the case's values of masks by title and team; their columns come last.
        """
        cells = self._scored.get(case, {})
        reference = {key: _of_table(answer, self._rows.get(case, {})) for key, answer in self._columns.items()}
        cells = {**cells, REFERENCE_ROW: {**reference, **cells.get(REFERENCE_ROW, {})}}
        columns = [key for key in self._columns if any(of.get(key) for of in cells.values())]
        titles = Counter(self._columns[key].title for key in columns)
        heads = [(self._columns[key].title, key[0]) for key in columns]
        rows = []
        for name in (REFERENCE_ROW, *teams):
            texts = [cells.get(name, {}).get(key, "") for key in columns]
            texts += [_figure(of_team.get(name)) for of_team in values.values()]
            if any(texts):
                rows.append({"name": name or "reference", "texts": texts})
        return {
            "columns": [*(title if titles[title] == 1 else f"{title} ({task})" for title, task in heads), *values],
            "rows": rows,
        }


def _scored_reference(answer: AnswerSpec, row: Mapping[str, Any]) -> str:
    if answer.kind == "risk":
        return _follow_up(f"{row['rfs_days']:g}", bool(row["relapse"]))
    return _class_text(answer, row[answer.row_key])


def _predicted(answer: AnswerSpec, row: Mapping[str, Any]) -> str:
    if answer.kind == "risk":
        unit = " days" if answer.direction == "time" else ""
        return "none" if row["risk"] is None else f"{row['risk']:z.4g}{unit}"
    predicted, probability = row[f"predicted_{answer.row_key}"], row.get("predicted_probability")
    text = "none" if predicted is None else _class_text(answer, predicted)
    return text if probability is None else f"{text} ({probability:z.2f})"


def _of_table(answer: AnswerSpec, row: Row) -> str:
    """The reference from the cohort's tables, verbatim if it cannot be read; empty if it is absent."""
    text = row.get(answer.columns.get("class", ""), "")
    days, event = (row.get(answer.columns.get(role, ""), "") for role in ("time", "event"))
    try:
        value = (
            parse_class(text, answer, "", InputError) if answer.kind == "class" else parse_flag(event, "", InputError)
        )
    except InputError:
        return text or f"{days} days, {event}"
    if value is None:
        return ""
    return _class_text(answer, value) if answer.kind == "class" else _follow_up(days, bool(value)) if days else ""


def _follow_up(days: str, relapse: bool) -> str:
    return f"{days} days, {'relapse' if relapse else 'no relapse'}"


def _class_text(answer: AnswerSpec, value: Any) -> str:
    return (_word(answer.words, value) if isinstance(value, bool) else "") or str(value)


def _figure(value: Any) -> str:
    return f"{value:z.2f}" if isinstance(value, int | float) else ""
