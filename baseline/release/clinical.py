"""Clinical variables and targets of a table's rows, each value checked; what cannot be true is an error by name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from baseline.release.problems import ERROR
from baseline.release.tables import Row, Table, plain
from contract.editions import load_edition
from contract.editions.clinical import ImpossibleValueError

MOST_RFS_DAYS: Final = 50 * 366
LEAST_WEIGHT_KG, MOST_WEIGHT_KG = 20, 300
_CLINICAL: Final = {variable.key: variable for variable in load_edition().clinical}
_RELAPSE: Final = {"0": False, "1": True, "no": False, "yes": True, "false": False, "true": True}
_HPV: Final = _RELAPSE | {"negative": False, "positive": True, "n": False, "p": True, "neg": False, "pos": True}
# A stage may carry c (clinical), p (pathological), y (after treatment) before it and a sub-stage behind it.
_STAGE: Final = re.compile(r"[cpy]*([tnm])?\s*([0-4])(?:\.0)?\s*([a-d][1-3]?)?", re.IGNORECASE)
_UNKNOWN_STAGE: Final = re.compile(r"[cpy]*[tnm]?x", re.IGNORECASE)
_HIGHEST_STAGE: Final = {"T-stage": 4, "N-stage": 3, "M-stage": 1}

Values = dict[str, Any]


def read_values(table: Table) -> dict[str, Values]:
    """The parsed cells of each patient by canonical column; a missing or impossible cell is left out.

    Stages become "T4", "N2", "M0"; targets `Relapse` and `HPV Status` booleans, `RFS` a number of days; the other
    columns what `contract.patient` makes of them. Problems go to the table: impossible values one by one,
    spellings once a column with their number.
    """
    spellings: dict[str, list[tuple[str, Any]]] = {}
    values = {}
    for patient, row in table.rows.items():
        values[patient] = _read_row(row, patient, table, spellings)
        _check_survival(row, patient, table)
    for column, found in spellings.items():
        text = f"{column} spelled in another way in {len(found)} cells, first {found[0][0]!r}, read as {found[0][1]}"
        table.dialect(text, "the release's codes")
    return values


def _read_row(row: Row, patient: str, table: Table, spellings: dict[str, list[tuple[str, Any]]]) -> Values:
    values: Values = {}
    for column, cell in row.items():
        try:
            value = _READERS[column](column, cell)
        except ImpossibleValueError as problem:
            table.say(ERROR, "impossible-value", patient, f"{column} {cell[:40]!r}", str(problem))
            continue
        if value is not None:
            values[column] = value
        if _is_other_spelling(column, cell):
            spellings.setdefault(column, []).append((cell[:40], "missing" if value is None else value))
    return values


def _is_other_spelling(column: str, cell: str) -> bool:
    if column == "CenterID":
        return False
    if column in _HIGHEST_STAGE:
        return re.fullmatch(r"[TNM]?\d(\.0)?", cell) is None
    return re.fullmatch(r"[+-]?\d+(\.\d*)?", cell) is None


def _check_survival(row: Mapping[str, str], patient: str, table: Table) -> None:
    if "RFS" in row and "Relapse" not in row:
        table.say(ERROR, "days-without-event", patient, f"RFS {row['RFS']} without Relapse", "both or neither")
    if "Relapse" in row and "RFS" not in row:
        table.say(ERROR, "event-without-days", patient, f"Relapse {row['Relapse']} without RFS", "both or neither")


def _clinical(column: str, cell: str) -> Any:
    return _CLINICAL[column].read(cell)


def _stage(column: str, cell: str) -> str | None:
    letter, highest = column[0], _HIGHEST_STAGE[column]
    if _UNKNOWN_STAGE.fullmatch(cell):
        return None
    if letter == "T" and plain(cell) == "tis":
        return "Tis"
    match = _STAGE.fullmatch(cell)
    if match is None or (match[1] or letter).upper() != letter or int(match[2]) > highest:
        raise ImpossibleValueError(f"{letter}0 to {letter}{highest}")
    return f"{letter}{match[2]}"


def _yes_or_no(words: Mapping[str, bool]) -> Callable[[str, str], bool]:
    def read(_column: str, cell: str) -> bool:
        word = cell.lower().removesuffix(".0")
        if word not in words:
            raise ImpossibleValueError("0 or 1")
        return words[word]

    return read


def _between(low: float, high: float, unit: str) -> Callable[[str, str], float]:
    expected = f"{low:g} to {high:g} {unit}"

    def read(_column: str, cell: str) -> float:
        try:
            number = float(cell)
        except ValueError:
            raise ImpossibleValueError(expected) from None
        if not (math.isfinite(number) and low <= number <= high):
            raise ImpossibleValueError(expected)
        return number

    return read


_READERS: Final[dict[str, Callable[[str, str], Any]]] = {
    **dict.fromkeys(_CLINICAL, _clinical),
    **dict.fromkeys(_HIGHEST_STAGE, _stage),
    "Weight": _between(LEAST_WEIGHT_KG, MOST_WEIGHT_KG, "kg"),
    "Relapse": _yes_or_no(_RELAPSE),
    "RFS": _between(0, MOST_RFS_DAYS, "days"),
    "HPV Status": _yes_or_no(_HPV),
}
