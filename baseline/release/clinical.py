"""Read clinical variables and outcomes from the rows of a release's table; each impossible value is an error."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from contract.editions import Algorithm, AnswerSpec, Edition
from contract.editions.clinical import ImpossibleValueError
from contract.release.tables import ERROR, WARNING, ReleaseTable, Row

MOST_DAYS: Final = 50 * 366
_EVENT: Final = {"0": False, "1": True, "no": False, "yes": True, "false": False, "true": True}
# A stage such as T4a, cN2b, 2.0 or MX: clinical (c), pathological (p) or after treatment (y), and with a sub-stage.
_STAGE: Final = re.compile(r"[cpy]*([tnm])?\s*([0-4]|x)(?:\.0*)?\s*(?:[a-d][1-3]?)?", re.IGNORECASE)
_WHOLE_NUMBER: Final = re.compile(r"(\d+)\.0*")

Values = dict[str, Any]
CellReader = Callable[[str], Any]


class NotCountedError(Exception):
    """A known value that is no class of the answer, such as T0, and the classes."""

    def __init__(self, value: str, expected: str) -> None:
        super().__init__(value, expected)
        self.value, self.expected = value, expected


def read_values(table: ReleaseTable, edition: Edition) -> dict[str, Values]:
    """The parsed cells of each patient by canonical column, without missing and impossible ones.

    Events become booleans, times numbers of days, stages and classes the edition's values, clinical variables those
    of their declaration. Impossible values, and values that are no class, such as T0, are problems of the table.
    """
    readers = _readers(edition)
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
                found = f"{column} {problem.value}: the patient counts for all other answers"
                table.report(WARNING, "not-counted", patient, found, problem.expected)
                continue
            if value is not None:
                values[patient][column] = value
        for algorithm in edition.algorithms:
            _check_follow_up(row, values[patient], patient, table, algorithm)
    return values


def _check_follow_up(row: Row, values: Values, patient: str, table: ReleaseTable, algorithm: Algorithm) -> None:
    """Report a time without event or an event without time: if the algorithm has other answers, it counts as missing.

    Otherwise the patient's row has no use, and this is an error.
    """
    for answer in (answer for answer in algorithm.head_specs if answer.kind == "risk"):
        time, event = answer.columns["time"], answer.columns["event"]
        if (time in row) == (event in row):
            continue
        given, missing = (time, event) if time in row else (event, time)
        if missing not in table.columns:  # which is named once for the whole table
            values.pop(given, None)
            continue
        kind = "days-without-event" if given == time else "event-without-days"
        others = len(algorithm.answers) > 1
        severity = WARNING if others else ERROR
        found = f"{given} {row[given]} without {missing}" + (", counted as missing" if others else "")
        table.report(severity, kind, patient, found, "both or neither")
        if others:
            values.pop(given, None)


def _readers(edition: Edition) -> dict[str, CellReader]:
    """A reader for each column of the edition's tables."""
    readers: dict[str, CellReader] = {}
    for variable in edition.clinical:
        readers[variable.key] = _clinical_stage(variable.read) if variable.type == "stage" else variable.read
    for answer in (answer for algorithm in edition.algorithms for answer in algorithm.head_specs):
        if answer.kind == "risk":
            readers[answer.columns["time"]] = _days
            readers[answer.columns["event"]] = _one_of(_EVENT, "0 or 1")
        else:
            readers[answer.columns["class"]] = _class(answer)
    return readers


def _clinical_stage(read: CellReader) -> CellReader:
    """Read a stage in any spelling, an unknown one (MX) as missing."""

    def read_stage(cell: str) -> Any:
        match = _STAGE.fullmatch(cell)
        if match is None:
            return read(cell)
        return None if match[2] in "xX" else read(f"{match[1] or ''}{match[2]}")

    return read_stage


def _class(answer: AnswerSpec) -> CellReader:
    """Read a class by its value or a declared word; a stage also in other spellings, an undeclared TX as missing."""
    words = {str(value).lower(): value for value in answer.classes} | dict(answer.words)
    expected = "0 or 1" if answer.classes == (False, True) else " or ".join(map(str, answer.classes))
    read = _one_of(words, expected)
    has_stages = all(_STAGE.fullmatch(str(value)) for value in answer.classes)

    def read_class(cell: str) -> Any:
        match = _STAGE.fullmatch(cell) if has_stages else None
        text = cell if match is None else f"{match[1] or str(answer.classes[0])[0]}{match[2]}".upper()
        if text.upper() in answer.not_counted:
            raise NotCountedError(text.upper(), expected)
        return None if match is not None and text.endswith("X") else read(text)

    return read_class


def _one_of(words: Mapping[str, Any], expected: str) -> CellReader:
    def read(cell: str) -> Any:
        number = _WHOLE_NUMBER.fullmatch(cell)
        word = number[1] if number else cell.lower()
        if word not in words:
            raise ImpossibleValueError(expected)
        return words[word]

    return read


def _days(cell: str) -> float:
    expected = f"0 to {MOST_DAYS} days"
    try:
        days = float(cell)
    except ValueError:
        raise ImpossibleValueError(expected) from None
    if not (math.isfinite(days) and 0 <= days <= MOST_DAYS):
        raise ImpossibleValueError(expected)
    return days
