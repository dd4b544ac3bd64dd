"""Read clinical variables and targets from the rows of a release's table; each impossible value is an error."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from baseline.release.problems import ERROR, WARNING
from baseline.release.tables import ReleaseTable, Row
from contract.editions import Algorithm, Answer, Edition
from contract.editions.clinical import ImpossibleValueError, normalised_key

MOST_DAYS: Final = 50 * 366
LEAST_WEIGHT_KG, MOST_WEIGHT_KG = 20, 300
_EVENT: Final = {"0": False, "1": True, "no": False, "yes": True, "false": False, "true": True}
# A stage may have the prefix c (clinical), p (pathological) or y (after treatment), and a sub-stage.
_STAGE: Final = re.compile(r"[cpy]*([tnm])?\s*([0-4])(?:\.0*)?\s*([a-d][1-3]?)?", re.IGNORECASE)
_UNKNOWN_STAGE: Final = re.compile(r"[cpy]*[tnm]?x", re.IGNORECASE)
_WHOLE_NUMBER: Final = re.compile(r"(\d+)\.0*")
_HIGHEST_STAGE: Final = {"T-stage": 4, "N-stage": 3, "M-stage": 1}

Values = dict[str, Any]
CellReader = Callable[[str], Any]


class NotCountedError(Exception):
    """A known value that is no class of the answer, such as T0, and the classes."""

    def __init__(self, value: str, expected: str) -> None:
        super().__init__(value, expected)
        self.value, self.expected = value, expected


def read_values(table: ReleaseTable, edition: Edition) -> dict[str, Values]:
    """The parsed cells of each patient by canonical column, without missing and impossible ones.

    Stages become "T4", "N2", "M0"; events booleans, times numbers of days, classes the edition's values; clinical
    variables what their declaration says. Problems go to the table: impossible values, and values that are no class
    such as T0, one by one, other spellings once for each column.
    """
    readers = _readers(edition)
    free_text = {variable.key for variable in edition.clinical if variable.type == "centre"}
    spellings: dict[str, list[tuple[str, Any]]] = {}
    values: dict[str, Values] = {}
    for patient, row in table.rows.items():
        values[patient] = {}
        for column, cell in row.items():
            try:
                value = readers[column](cell)
            except ImpossibleValueError as problem:
                table.report(ERROR, "impossible-value", patient, f"{column} {cell[:40]!r}", str(problem))
                continue
            except NotCountedError as problem:
                found = f"{column} {problem.value}: the patient counts for all other answers"
                table.report(WARNING, "not-counted", patient, found, problem.expected)
                continue
            if value is not None:
                values[patient][column] = value
            if column not in free_text and _is_other_spelling(column, cell):
                spellings.setdefault(column, []).append((cell[:40], "missing" if value is None else value))
        for algorithm in edition.algorithms:
            _check_follow_up(row, values[patient], patient, table, algorithm)
    for column, cells in spellings.items():
        text = f"{column} in another spelling in {len(cells)} cells, first {cells[0][0]!r}, read as {cells[0][1]}"
        table.dialect(text, "the release's codes")
    return values


def _is_other_spelling(column: str, cell: str) -> bool:
    if column in _HIGHEST_STAGE:
        return re.fullmatch(r"[TNM]?\d(\.0)?", cell) is None
    return re.fullmatch(r"[+-]?\d+(\.\d*)?", cell) is None


def _check_follow_up(row: Row, values: Values, patient: str, table: ReleaseTable, algorithm: Algorithm) -> None:
    """Report a time without event or an event without time: if the algorithm has other answers, it counts as missing.

    Otherwise the patient's row has no use, and this is an error.
    """
    for answer in (answer for answer in algorithm.heads if answer.kind == "risk"):
        time, event = answer.columns["time"], answer.columns["event"]
        if (time in row) == (event in row):
            continue
        given, missing = (time, event) if time in row else (event, time)
        kind = "days-without-event" if given == time else "event-without-days"
        others = len(algorithm.answers) > 1
        severity = WARNING if others else ERROR
        found = f"{given} {row[given]} without {missing}" + (", counted as missing" if others else "")
        table.report(severity, kind, patient, found, "both or neither")
        if others:
            values.pop(given, None)


def _readers(edition: Edition) -> dict[str, CellReader]:
    """How to read each column of the edition's tables."""
    readers: dict[str, CellReader] = {variable.key: variable.read for variable in edition.clinical}
    stages = {column: _stage(column[0], highest) for column, highest in _HIGHEST_STAGE.items()}
    readers |= {column: _or_missing(read) for column, read in stages.items()}
    readers["Weight"] = _between(LEAST_WEIGHT_KG, MOST_WEIGHT_KG, "kg")
    for algorithm in edition.algorithms:
        for answer in algorithm.heads:
            if answer.kind == "risk":
                readers[answer.columns["time"]] = _between(0, MOST_DAYS, "days")
                readers[answer.columns["event"]] = _one_of(_EVENT, "0 or 1")
            else:
                column = answer.columns["class"]
                readers[column] = _class(answer, stages.get(column))
    return readers


def _class(answer: Answer, stage: CellReader | None) -> CellReader:
    """Read a class by its words or its value; a stage also in the spellings of stages."""
    known = {str(value).lower(): value for value in answer.classes} | dict(answer.words)
    expected = "0 or 1" if answer.classes == (False, True) else " or ".join(map(str, answer.classes))
    read = _one_of(known, expected)

    def read_class(cell: str) -> Any:
        text = cell if stage is None else stage(cell)
        if text.upper() in answer.not_counted:
            raise NotCountedError(text.upper(), expected)
        return None if stage is not None and text.endswith("X") else read(text)

    return read_class


def _one_of(words: Mapping[str, Any], expected: str) -> CellReader:
    def read(cell: str) -> Any:
        number = _WHOLE_NUMBER.fullmatch(cell)
        word = number[1] if number else cell.lower()
        if word not in words:
            raise ImpossibleValueError(expected)
        return words[word]

    return read


def _stage(letter: str, highest: int) -> CellReader:
    """Read a stage; an unknown one is "TX"."""

    def read(cell: str) -> str:
        if _UNKNOWN_STAGE.fullmatch(cell):
            return f"{letter}X"
        if letter == "T" and normalised_key(cell) == "tis":
            return "Tis"
        match = _STAGE.fullmatch(cell)
        if match is None or (match[1] or letter).upper() != letter or int(match[2]) > highest:
            raise ImpossibleValueError(f"{letter}0 to {letter}{highest}")
        return f"{letter}{match[2]}"

    return read


def _or_missing(stage: CellReader) -> CellReader:
    return lambda cell: None if (text := stage(cell)).endswith("X") else text


def _between(low: float, high: float, unit: str) -> CellReader:
    expected = f"{low:g} to {high:g} {unit}"

    def read(cell: str) -> float:
        try:
            number = float(cell)
        except ValueError:
            raise ImpossibleValueError(expected) from None
        if not (math.isfinite(number) and low <= number <= high):
            raise ImpossibleValueError(expected)
        return number

    return read
