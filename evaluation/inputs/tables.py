"""CSV tables (comma, semicolon or tab) and JSON lists of records, and the numbers, flags and classes in them.

The functions raise `error` for a table or cell that cannot be used. In a predicted table, a line with too few or too
many fields is not an error of the table: it fails only its own case.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from contract.editions import AnswerSpec
from contract.editions.answers import ClassValue
from contract.editions.clinical import is_missing, normalise_key
from contract.errors import GroundTruthError, HecktorError, PredictionError
from contract.io.files import parse_json, read_text
from contract.io.tables import read_csv_text
from contract.platform import normalise_unicode
from contract.release.tables import MAX_TABLE_BYTES, check_table_size, normalise_cell

ID_COLUMN: Final = "PatientID"
CENTRE_COLUMN: Final = "CenterID"
CENTRE_COLUMNS: Final = (CENTRE_COLUMN,)
TABLE_SUFFIXES: Final = (".csv", ".tsv", ".json")

_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WHOLE_NUMBER: Final = re.compile(r"([0-9]+)\.0*")
_DIGITS: Final = re.compile(r"[+-]?[0-9]+")
# 1,095 or 1.095.000: a decimal separator with three places, or thousands.
_PERHAPS_THOUSANDS: Final = re.compile(r"[+-]?[1-9][0-9]{0,2}([.,][0-9]{3})+")


@dataclass(frozen=True)
class Table:
    """Cells of a table as strings.

    Attributes:
        name: Name of the file.
        header: All columns of the file.
        rows: Cells of each row by column, with only the columns that were requested.
        lines: Line of the file where each row ends, or the number of each JSON record.
        faults: Errors in the lines of a submitted table, by row; each one fails only its own case.
        comma_decimals: Whether numbers may have a decimal comma: semicolons or tabs separate the columns.
    """

    name: str
    header: tuple[str, ...]
    rows: Sequence[Mapping[str, str]]
    lines: Sequence[int]
    faults: Mapping[int, str]
    comma_decimals: bool = False

    def locate(self, index: int) -> str:
        """Return the file and line of a row, for messages."""
        return f"{self.name}, line {self.lines[index]}"


def read_table(path: Path, error: type[HecktorError], columns: Collection[str] | None = None) -> Table:
    """Read a CSV file with a header, or a JSON list of records; blank lines are left out.

    Args:
        path: Table.
        error: Class of the exceptions raised.
        columns: Columns to read, in any spelling that differs only by case, blanks, `-` and `_`; None reads all
            columns with a name. Columns that are not read may appear twice.
    """
    keys = None if columns is None else {normalise_key(column) for column in columns}
    if path.suffix.lower() == ".json":
        text = read_text(path, "a JSON file", error=error, max_bytes=MAX_TABLE_BYTES)
        return _parse_records(text, path.name, keys, error)
    text = read_csv_text(path, error=error, max_bytes=MAX_TABLE_BYTES)
    with _allow_long_fields():
        return _parse_csv(text, path.name, keys, error)


def _is_selected(column: str, keys: Collection[str] | None) -> bool:
    return bool(column.strip()) and (keys is None or normalise_key(column) in keys)


def _parse_records(text: str, name: str, keys: Collection[str] | None, error: type[HecktorError]) -> Table:
    """Parse a JSON list of objects, such as `[{"PatientID": "A-1", "Prediction": 0.7}]`; null is missing."""
    # The size is checked before parsing: an empty object takes 2 bytes of the file and 64 bytes of memory.
    check_table_size(name, error, rows=max(text.count("{"), text.count("[")), cells=text.count(":"))
    content = parse_json(text, name, error=error, accept_nan=True)
    records = content if isinstance(content, list) else [content]
    if not records or not all(isinstance(record, dict) for record in records):
        raise error(
            name, "no list of JSON objects", f'objects such as {{"{ID_COLUMN}": "CHUM-001", "Prediction": 0.7}}'
        )
    header = tuple(dict.fromkeys(column for record in records for column in record))
    selected = [column for column in header if _is_selected(column, keys)]
    check_table_size(name, error, columns=len(header), cells=len(selected) * len(records))
    rows = [{column: _format_cell(record.get(column)) for column in selected} for record in records]
    return Table(name, header, rows, range(1, len(rows) + 1), {})


def _format_cell(value: object) -> str:
    if value is None or isinstance(value, str):
        return normalise_unicode(value or "")
    return json.dumps(value)


@contextmanager
def _allow_long_fields() -> Iterator[None]:
    """Lift the parser's limit of 131,072 characters: a long field fails only its own case, not the table."""
    limit = csv.field_size_limit(MAX_TABLE_BYTES)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _parse_csv(text: str, name: str, keys: Collection[str] | None, error: type[HecktorError]) -> Table:
    """Parse the selected columns of a CSV file.

    A column may appear twice if both have equal values. A row with another number of fields than the header is a fault
    of this row in a predicted table, and an error in any other table.
    """
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)
    rows: list[Mapping[str, str]] = []
    lines: list[int] = []
    faults: dict[int, str] = {}
    try:
        header = tuple(column.strip() for column in next(reader, []))
        indices_of: dict[str, list[int]] = {}
        for index, column in enumerate(header):
            if _is_selected(column, keys):
                indices_of.setdefault(column, []).append(index)
        check_table_size(name, error, columns=len(header))
        for fields in reader:
            if not any(field.strip() for field in fields):
                continue
            check_table_size(name, error, rows=len(rows) + 1, cells=(len(rows) + 1) * len(indices_of))
            if len(fields) != len(header):
                fault = f"{len(fields)} fields, expected one for each of {len(header)} columns"
                if not issubclass(error, PredictionError):
                    raise error(f"{name}, line {reader.line_num}", fault)
                faults[len(rows)] = fault
            texts_of = {
                column: [fields[index] if index < len(fields) else "" for index in indices]
                for column, indices in indices_of.items()
            }
            if len(fields) == len(header):
                _check_agreement(f"{name}, line {reader.line_num}", texts_of, error)
            rows.append({column: texts[0] for column, texts in texts_of.items()})
            lines.append(reader.line_num)
    except csv.Error as problem:
        raise error(f"{name}, line {reader.line_num}", f"{problem}", "a CSV file") from None
    return Table(name, header, rows, lines, faults, comma_decimals=delimiter != ",")


def _check_agreement(where: str, texts_of: Mapping[str, Sequence[str]], error: type[HecktorError]) -> None:
    """Raise `error` if two columns of one name have different values in a row."""
    for column, texts in texts_of.items():
        if any(not _is_same(column, texts[0], text) for text in texts[1:]):
            raise error(where, f"{column} appears twice with different values", "each column once")


def _is_same(column: str, first: str, second: str, meaning: Callable[[str], object] = normalise_cell) -> bool:
    """Return whether the cells of two columns that mean the same are equal; IDs are compared as strings."""
    if column == ID_COLUMN:
        return first.strip() == second.strip()
    return meaning(first) == meaning(second)


def with_decimal_points(table: Table, columns: Collection[str], error: type[HecktorError]) -> Table:
    """Replace decimal commas in these columns by points, if semicolons or tabs separate the table's columns.

    Raises:
        HecktorError: A column mixes commas and points, or some of its numbers may have separated thousands (`1.698` in
            the same column as `808`). The class is `error`.
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
        index = max(with_comma[0], with_point[0])
        raise _make_separator_error(table, column, index, "numbers with a comma and with a point", error)
    separated = with_comma or with_point
    has_whole = any(_DIGITS.fullmatch(text) for text in numbers.values())
    if separated and has_whole and all(_PERHAPS_THOUSANDS.fullmatch(numbers[index]) for index in separated):
        problem = "whole numbers and numbers with separated thousands or three decimals"
        raise _make_separator_error(table, column, separated[0], problem, error)


def _make_separator_error(
    table: Table, column: str, index: int, problem: str, error: type[HecktorError]
) -> HecktorError:
    cell = _quote_cell(table.rows[index][column], error)
    expected = "one decimal separator in the column, and no separator of thousands"
    return error(f"{table.locate(index)}: {column}{cell}; found {problem}, expected {expected}")


def read_table_with(
    path: Path,
    columns: Mapping[str, Sequence[str]],
    error: type[HecktorError],
    *,
    aliases: Mapping[str, Sequence[str]] | None = None,
    meaning: Callable[[str], object] = normalise_cell,
) -> Table:
    """Read the column `PatientID` and the `columns` of a table under the names of this project.

    Case, blanks, `-` and `_` in the file's column names are ignored. Two columns that mean the same must have equal
    values.

    Args:
        path: Table.
        columns: Other spellings of each name.
        error: Class of the exceptions raised.
        aliases: Spellings that count only if the table has no column with the name itself.
        meaning: Function that interprets a cell; two columns agree if the interpretations of their cells are equal.
    """
    spellings = {ID_COLUMN: (), **columns}
    groups = [*spellings.items(), *(aliases or {}).items()]
    names = {name for group_name, aliases_of_name in groups for name in (group_name, *aliases_of_name)}
    table = _rename_columns(read_table(path, error, names), spellings, error, meaning)
    missing = {name: spellings for name, spellings in (aliases or {}).items() if name not in table.header}
    return _rename_columns(table, missing, error, meaning)


def _rename_columns(
    table: Table, spellings: Mapping[str, Sequence[str]], error: type[HecktorError], meaning: Callable[[str], object]
) -> Table:
    name_of = {normalise_key(spelling): name for name, more in spellings.items() for spelling in (name, *more)}
    names = {column: name_of.get(normalise_key(column), column) for column in table.header}
    for name in spellings:
        same = [column for column in names if names[column] == name]
        for index, row in enumerate(table.rows if len(same) > 1 else ()):
            if index not in table.faults and any(
                not _is_same(name, row[same[0]], row[column], meaning) for column in same[1:]
            ):
                conflict = f"columns {' and '.join(same)[:200]} mean the same and differ"
                raise error(table.locate(index), conflict, "one of them, or equal values")
    rows = [{names[column]: text for column, text in row.items()} for row in table.rows]
    return replace(table, header=tuple(names[column] for column in table.header), rows=rows)


def parse_number(text: str, where: str, expected: str, error: type[HecktorError]) -> float | None:
    """Parse a finite number with a decimal point; return None if the cell is missing."""
    if is_missing(text):
        return None
    plain = text.strip()
    # float() also accepts 1_0 and digits of other scripts.
    value = float(plain) if _NUMBER.fullmatch(plain) else math.nan
    if not math.isfinite(value):
        raise error(f"{where}{_quote_cell(text, error)}, expected {expected}")
    return value


def parse_flag(text: str, where: str, error: type[HecktorError]) -> bool | None:
    """Parse 0, 1, true or false; return None if the cell is missing."""
    word = text.strip().lower()
    if word in {"true", "false"}:
        return word == "true"
    value = parse_number(text, where, "0 or 1", error)
    if value is not None and value not in {0.0, 1.0}:
        raise error(f"{where}{_quote_cell(text, error)}, expected 0 or 1")
    return None if value is None else value == 1.0


def parse_class(text: str, answer: AnswerSpec, where: str, error: type[HecktorError]) -> ClassValue | None:
    """Parse one of the answer's classes, by its value or a declared spelling; return None if the cell is missing."""
    cell = text.strip().lower()
    whole_number = _WHOLE_NUMBER.fullmatch(cell)  # a table with gaps writes 1 as 1.0
    class_of_spelling = {str(value).lower(): value for value in answer.classes} | dict(answer.words)
    value = class_of_spelling.get(whole_number[1] if whole_number else cell)
    if value is None and not is_missing(text):
        classes = (str(value).lower() if isinstance(value, bool) else str(value) for value in answer.classes)
        raise error(f"{where}{_quote_cell(text, error)}, expected {' or '.join(classes)}")
    return value


def interpret_class(text: str, answer: AnswerSpec) -> object:
    """Return the class in a cell, "" for a missing class, or the normalised cell if it contains no class."""
    with suppress(HecktorError):
        value = parse_class(text, answer, "", HecktorError)
        return "" if value is None else value
    return normalise_cell(text)


def _quote_cell(text: str, error: type[HecktorError]) -> str:
    # Submitters read these messages, so they must not show cells of the reference.
    return " is not usable" if issubclass(error, GroundTruthError) else f" {text[:40]!r}"
