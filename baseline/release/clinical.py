"""Clinical variables and outcomes in the rows of a release's table; each impossible value is an error."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from contract.editions import Algorithm, AnswerSpec, Edition
from contract.editions.clinical import ImpossibleValueError
from contract.release.tables import ERROR, WARNING, ReleaseTable, Row

MAX_DAYS: Final = 50 * 366
_EVENT: Final = {"0": False, "1": True, "no": False, "yes": True, "false": False, "true": True}
# A stage such as T4a, cN2b, 2.0 or MX: clinical (c), pathological (p) or after treatment (y), and with a sub-stage.
_STAGE: Final = re.compile(r"[cpy]*([tnm])?\s*([0-4]|x)(?:\.0*)?\s*(?:[a-d][1-3]?)?", re.IGNORECASE)
_WHOLE_NUMBER: Final = re.compile(r"(\d+)\.0*")

Values = dict[str, Any]
CellReader = Callable[[str], Any]


class NotCountedError(Exception):
    """A known value is not a class of the answer, such as T0; `expected` names the classes."""

    def __init__(self, value: str, expected: str) -> None:
        super().__init__(value, expected)
        self.value, self.expected = value, expected


def read_values(table: ReleaseTable, edition: Edition) -> dict[str, Values]:
    """Read the cells of each patient by canonical column; missing and impossible values are left out.

    Events become booleans, times become numbers of days, stages and classes become the edition's values, clinical
    variables become the values of their declaration. Impossible values, and values that are not a class, such as T0,
    are problems of the table.
    """
    readers = _make_readers(edition)
    values: dict[str, Values] = {}
    for patient, row in table.rows.items():
        values[patient] = {}
        for column, cell in row.items():
            try:
                value = readers[column](cell)
            except ImpossibleValueError as problem:
                actual = f"{column} {cell[:40]!r}{problem.suffix}"
                table.report(ERROR, "impossible-value", patient, actual, str(problem))
                continue
            except NotCountedError as problem:
                text = f"{column} {problem.value}: the patient counts for all other answers"
                table.report(WARNING, "not-counted", patient, text, problem.expected)
                continue
            if value is not None:
                values[patient][column] = value
        for algorithm in edition.algorithms:
            _check_follow_up(row, values[patient], patient, table, algorithm)
    return values


def _check_follow_up(row: Row, values: Values, patient: str, table: ReleaseTable, algorithm: Algorithm) -> None:
    """Report a time without event or an event without time.

    If the algorithm has other answers, the outcome counts as missing. Otherwise the patient's row has no use, which is
    an error.
    """
    for answer in (answer for answer in algorithm.head_specs if answer.kind == "risk"):
        time, event = answer.columns["time"], answer.columns["event"]
        if (time in row) == (event in row):
            continue
        present, missing = (time, event) if time in row else (event, time)
        if missing not in table.columns:  # a missing column is reported once for the whole table
            values.pop(present, None)
            continue
        kind = "days-without-event" if present == time else "event-without-days"
        has_other_answers = len(algorithm.answers) > 1
        severity = WARNING if has_other_answers else ERROR
        text = f"{present} {row[present]} without {missing}" + (", counted as missing" if has_other_answers else "")
        table.report(severity, kind, patient, text, "both or neither")
        if has_other_answers:
            values.pop(present, None)


def _make_readers(edition: Edition) -> dict[str, CellReader]:
    """Make a reader for each column of the edition's tables."""
    readers: dict[str, CellReader] = {}
    for variable in edition.clinical:
        readers[variable.key] = (
            _make_clinical_stage_reader(variable.read) if variable.type == "stage" else variable.read
        )
    for answer in (answer for algorithm in edition.algorithms for answer in algorithm.head_specs):
        if answer.kind == "risk":
            readers[answer.columns["time"]] = _read_days
            readers[answer.columns["event"]] = _make_word_reader(_EVENT, "0 or 1")
        else:
            readers[answer.columns["class"]] = _make_class_reader(answer)
    return readers


def _make_clinical_stage_reader(read: CellReader) -> CellReader:
    """Make a reader of a stage in any spelling; an unknown stage (MX) is missing."""

    def read_stage(cell: str) -> Any:
        match = _STAGE.fullmatch(cell)
        if match is None:
            return read(cell)
        return None if match[2] in "xX" else read(f"{match[1] or ''}{match[2]}")

    return read_stage


def _make_class_reader(answer: AnswerSpec) -> CellReader:
    """Make a reader of a class by its value or a declared word.

    A stage may have other spellings, and an undeclared TX is missing.
    """
    words = {str(value).lower(): value for value in answer.classes} | dict(answer.words)
    expected = "0 or 1" if answer.classes == (False, True) else " or ".join(map(str, answer.classes))
    read = _make_word_reader(words, expected)
    has_stages = all(_STAGE.fullmatch(str(value)) for value in answer.classes)

    def read_class(cell: str) -> Any:
        match = _STAGE.fullmatch(cell) if has_stages else None
        text = cell if match is None else f"{match[1] or str(answer.classes[0])[0]}{match[2]}".upper()
        if text.upper() in answer.not_counted:
            raise NotCountedError(text.upper(), expected)
        return None if match is not None and text.endswith("X") else read(text)

    return read_class


def _make_word_reader(words: Mapping[str, Any], expected: str) -> CellReader:
    def read(cell: str) -> Any:
        number = _WHOLE_NUMBER.fullmatch(cell)
        word = number[1] if number else cell.lower()
        if word not in words:
            raise ImpossibleValueError(expected)
        return words[word]

    return read


def _read_days(cell: str) -> float:
    expected = f"0 to {MAX_DAYS} days"
    try:
        days = float(cell)
    except ValueError:
        raise ImpossibleValueError(expected) from None
    if not (math.isfinite(days) and 0 <= days <= MAX_DAYS):
        raise ImpossibleValueError(expected)
    return days
