"""CSV tables (comma, semicolon or tab) and JSON lists of records, and the numbers, flags and classes in them.

What cannot be used raises the class `error`; of a predicted table, a line with too few or too many fields does not.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Final

from contract.editions import Answer
from contract.editions.answers import ClassValue
from contract.editions.clinical import is_missing, normalised_key
from contract.errors import GroundTruthError, HecktorError, PredictionError
from contract.files import parse_json, read_text

ID_COLUMN: Final = "PatientID"
CENTRE_COLUMN: Final = "CenterID"
CENTRE_COLUMNS: Final = (CENTRE_COLUMN,)
MAX_TABLE_BYTES: Final = 16 * 1024 * 1024

TABLE_SUFFIXES: Final = (".csv", ".tsv", ".json")

_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WHOLE: Final = re.compile(r"([0-9]+)\.0*")
_DIGITS: Final = re.compile(r"[+-]?[0-9]+")
# 1,095 or 1.095.000: a decimal separator with three places, or thousands.
_PERHAPS_THOUSANDS: Final = re.compile(r"[+-]?[1-9][0-9]{0,2}([.,][0-9]{3})+")


@dataclass(frozen=True)
class Table:
    """A table: `rows` are texts by column, `lines` the line of the file on which each row ends, or a record's number.

    `faults` holds the faults of a submitted table's lines by row; a fault costs its own case only. `comma_decimals`
    says whether its numbers may have a decimal comma: only where semicolons or tabs separate the columns.
    """

    name: str
    header: tuple[str, ...]
    rows: Sequence[Mapping[str, str]]
    lines: Sequence[int]
    faults: Mapping[int, str]
    comma_decimals: bool = False

    def where(self, index: int) -> str:
        """A row's place, for messages."""
        return f"{self.name}, line {self.lines[index]}"


def read_table(path: Path, error: type[HecktorError]) -> Table:
    """Read a CSV file with a header, or a JSON list of records; blank lines are left out."""
    text = read_text(path, "a CSV file", error=error, max_bytes=MAX_TABLE_BYTES)
    if path.suffix.lower() == ".json":
        return _records(text, path.name, error)
    with _fields_of_any_length():
        return _parsed(text, path.name, error)


def _records(text: str, name: str, error: type[HecktorError]) -> Table:
    """The table of a JSON list of objects, such as `[{"PatientID": "A-1", "Prediction": 0.7}]`; null is missing."""
    content = parse_json(text, name, error=error, accept_nan=True)
    records = content if isinstance(content, list) else [content]
    if not records or not all(isinstance(record, dict) for record in records):
        raise error(
            name, "no list of JSON objects", f'objects such as {{"{ID_COLUMN}": "CHUM-001", "Prediction": 0.7}}'
        )
    header = tuple(dict.fromkeys(column for record in records for column in record))
    rows = [{column: _text(record.get(column)) for column in header} for record in records]
    return Table(name, header, rows, range(1, len(rows) + 1), {})


def _text(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value)


@contextmanager
def _fields_of_any_length() -> Iterator[None]:
    """Lift the parser's limit of 131,072 characters: a long field costs its own case, not the table."""
    limit = csv.field_size_limit(MAX_TABLE_BYTES)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _parsed(text: str, name: str, error: type[HecktorError]) -> Table:
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)
    rows: list[Mapping[str, str]] = []
    lines: list[int] = []
    faults: dict[int, str] = {}
    try:
        header = tuple(column.strip() for column in next(reader, []))
        if len(set(header)) < len(header):
            raise error(name, "a column appears twice", "each column once")
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
    return Table(name, header, rows, lines, faults, comma_decimals=delimiter != ",")


def with_decimal_points(table: Table, columns: Collection[str], error: type[HecktorError]) -> Table:
    """The table with points for the decimal commas in these columns, where semicolons or tabs separate columns.

    Raises `error` for a column in which some numbers have a comma and others a point, or in which some could have
    separated thousands (`1.698` beside `808`).
    """
    if not table.comma_decimals:
        return table
    for column in columns:
        _check_one_separator(table, column, error)
    rows = [
        {name: text.replace(",", ".") if name in columns else text for name, text in row.items()} for row in table.rows
    ]
    return replace(table, rows=rows)


def _check_one_separator(table: Table, column: str, error: type[HecktorError]) -> None:
    texts = {index: row.get(column, "").strip() for index, row in enumerate(table.rows)}
    numbers = {index: text for index, text in texts.items() if _NUMBER.fullmatch(text.replace(",", "."))}
    with_comma = [index for index, text in numbers.items() if "," in text]
    with_point = [index for index, text in numbers.items() if "." in text]
    if with_comma and with_point:
        first = max(with_comma[0], with_point[0])
        raise _mixed(table, column, first, "numbers with a comma and with a point", error)
    separated = with_comma or with_point
    whole = any(_DIGITS.fullmatch(text) for text in numbers.values())
    if separated and whole and all(_PERHAPS_THOUSANDS.fullmatch(numbers[index]) for index in separated):
        raise _mixed(table, column, separated[0], "thousands separated, or three decimals, beside whole numbers", error)


def _mixed(table: Table, column: str, index: int, found: str, error: type[HecktorError]) -> HecktorError:
    shown = _shown(table.rows[index][column], error)
    expected = "one decimal separator in the column and none of thousands"
    return error(f"{table.where(index)}: {column}{shown}; found {found}, expected {expected}")


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
    """A finite number with a decimal point; None if the field is missing."""
    if is_missing(text):
        return None
    plain = text.strip()
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
