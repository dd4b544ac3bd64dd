"""CSV tables, comma or semicolon, and the numbers, flags and classes in them.

What cannot be used raises the class `error`; of a predicted table, a line with too few or too many fields does not.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Final

from contract.editions import Answer
from contract.editions.clinical import is_missing, normalised_key
from contract.editions.declaration import ClassValue
from contract.errors import GroundTruthError, HecktorError, PredictionError
from contract.files import read_text

ID_COLUMN: Final = "PatientID"
CENTRE_COLUMN: Final = "CenterID"
CENTRE_COLUMNS: Final = (CENTRE_COLUMN,)
MAX_TABLE_BYTES: Final = 16 * 1024 * 1024

_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WHOLE: Final = re.compile(r"([0-9]+)[.,]0*")


@dataclass(frozen=True)
class Table:
    """A CSV file: `rows` are texts by column, `lines` the line of the file on which each row ends.

    `faults` holds the faults of a submitted table's lines by row; a fault costs its own case only.
    """

    name: str
    header: tuple[str, ...]
    rows: Sequence[Mapping[str, str]]
    lines: Sequence[int]
    faults: Mapping[int, str]

    def where(self, index: int) -> str:
        """A row's place, for messages."""
        return f"{self.name}, line {self.lines[index]}"


def read_table(path: Path, error: type[HecktorError]) -> Table:
    """Read a CSV file with a header; blank lines are left out."""
    text = read_text(path, "a CSV file", error=error, max_bytes=MAX_TABLE_BYTES)
    with _fields_of_any_length():
        return _parsed(text, path.name, error)


@contextmanager
def _fields_of_any_length() -> Iterator[None]:
    """Lift the parser's limit of 131,072 characters: a long field costs its own case, not the table."""
    limit = csv.field_size_limit(MAX_TABLE_BYTES)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _parsed(text: str, name: str, error: type[HecktorError]) -> Table:
    first = text.partition("\n")[0]
    delimiter = ";" if first.count(";") > first.count(",") else ","
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)
    rows: list[Mapping[str, str]] = []
    lines: list[int] = []
    faults: dict[int, str] = {}
    try:
        header = tuple(column.strip() for column in next(reader, []))
        if len(set(header)) < len(header):
            raise error(name, "a column stands twice", "each column once")
        for fields in reader:
            if not any(field.strip() for field in fields):
                continue
            if len(fields) != len(header):
                fault = f"{len(fields)} fields, expected one for each of {len(header)} columns"
                if not issubclass(error, PredictionError):
                    raise error(f"{name}, line {reader.line_num}", f"{fault}")
                faults[len(rows)] = fault
            rows.append(dict(zip_longest(header, fields[: len(header)], fillvalue="")))
            lines.append(reader.line_num)
    except csv.Error as problem:
        raise error(f"{name}, line {reader.line_num}", f"{problem}", "a CSV file") from None
    return Table(name, header, rows, lines, faults)


def read_table_with(path: Path, columns: Mapping[str, Sequence[str]], error: type[HecktorError]) -> Table:
    """Read a table and rename its columns, of which `columns` gives other spellings, to the names of this project.

    Case, blanks, `-` and `_` are ignored, also in `PatientID`.
    """
    return _renamed(read_table(path, error), {ID_COLUMN: (), **columns}, error)


def with_aliases(table: Table, aliases: Mapping[str, Sequence[str]], error: type[HecktorError]) -> Table:
    """The table with columns of other spellings, `aliases`, renamed; a column of the name itself stands before them."""
    return _renamed(table, {name: others for name, others in aliases.items() if name not in table.header}, error)


def _renamed(table: Table, spellings: Mapping[str, Sequence[str]], error: type[HecktorError]) -> Table:
    name_of = {normalised_key(spelling): name for name, others in spellings.items() for spelling in (name, *others)}
    names = {column: name_of.get(normalised_key(column), column) for column in table.header}
    for name in spellings:
        same = [column for column in table.header if names[column] == name]
        if len(same) > 1:
            shown = " and ".join(same)[:200]
            raise error(table.name, f"columns {shown} mean the same", "one of them")
    rows = [{names[column]: text for column, text in row.items()} for row in table.rows]
    return replace(table, header=tuple(names.values()), rows=rows)


def number(text: str, where: str, expected: str, error: type[HecktorError]) -> float | None:
    """A finite number, with a point or a comma; None if the field is missing."""
    if is_missing(text):
        return None
    plain = text.strip().replace(",", ".")
    # float() alone would also accept 1_0 and digits of other scripts.
    value = float(plain) if _NUMBER.fullmatch(plain) else math.nan
    if not math.isfinite(value):
        raise error(f"{where}{_shown(text, error)}, expected {expected}")
    return value


def flag(text: str, where: str, error: type[HecktorError]) -> bool | None:
    """0, 1, true or false; None if the field is missing."""
    word = text.strip().lower()
    if word in {"true", "false"}:
        return word == "true"
    value = number(text, where, "0 or 1", error)
    if value is not None and value not in {0.0, 1.0}:
        raise error(f"{where}{_shown(text, error)}, expected 0 or 1")
    return None if value is None else value == 1.0


def class_value(text: str, answer: Answer, where: str, error: type[HecktorError]) -> ClassValue | None:
    """One of the answer's classes, by its value or a declared spelling; None if the field is missing."""
    word = text.strip().lower()
    whole = _WHOLE.fullmatch(word)  # a table with gaps writes 1 as 1.0
    spellings = {str(value).lower(): value for value in answer.classes} | dict(answer.words)
    value = spellings.get(whole[1] if whole else word)
    if value is None and not is_missing(text):
        expected = " or ".join(str(one).lower() if isinstance(one, bool) else str(one) for one in answer.classes)
        raise error(f"{where}{_shown(text, error)}, expected {expected}")
    return value


def _shown(text: str, error: type[HecktorError]) -> str:
    # Submitters read these messages, which must not reveal the reference.
    return " is not usable" if issubclass(error, GroundTruthError) else f" {text[:40]!r}"
