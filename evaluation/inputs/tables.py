"""CSV tables (comma, semicolon or tab) and JSON lists of records, and the numbers, flags and classes in them.

What cannot be used raises the class `error`; of a predicted table, a line with too few or too many fields does not.
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
from contract.io.files import parse_json, read_csv_text, read_text
from contract.io.tables import MAX_TABLE_BYTES, cell_meaning, check_table_size
from contract.platform import compose

ID_COLUMN: Final = "PatientID"
CENTRE_COLUMN: Final = "CenterID"
CENTRE_COLUMNS: Final = (CENTRE_COLUMN,)
TABLE_SUFFIXES: Final = (".csv", ".tsv", ".json")

_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WHOLE: Final = re.compile(r"([0-9]+)\.0*")
_DIGITS: Final = re.compile(r"[+-]?[0-9]+")
# 1,095 or 1.095.000: a decimal separator with three places, or thousands.
_PERHAPS_THOUSANDS: Final = re.compile(r"[+-]?[1-9][0-9]{0,2}([.,][0-9]{3})+")


@dataclass(frozen=True)
class Table:
    """A table: `rows` are texts by column, `lines` the line of the file on which each row ends, or a record's number.

    `header` names all columns of the file, `rows` hold the columns that were asked for. `faults` holds the faults of a
    submitted table's lines by row; a fault fails only its own case. `comma_decimals` says whether its numbers may have
    a decimal comma: only where semicolons or tabs separate the columns.
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


def read_table(path: Path, error: type[HecktorError], columns: Collection[str] | None = None) -> Table:
    """Read a CSV file with a header, or a JSON list of records; blank lines are left out.

    The rows hold the cells of `columns`, whose case, blanks, `-` and `_` are ignored; None keeps every column that has
    a name. Other columns are not kept and may appear twice.
    """
    keys = None if columns is None else {normalise_key(column) for column in columns}
    if path.suffix.lower() == ".json":
        text = read_text(path, "a JSON file", error=error, max_bytes=MAX_TABLE_BYTES)
        return _records(text, path.name, keys, error)
    text = read_csv_text(path, error=error, max_bytes=MAX_TABLE_BYTES)
    with _fields_of_any_length():
        return _parsed(text, path.name, keys, error)


def _is_kept(column: str, keys: Collection[str] | None) -> bool:
    return bool(column.strip()) and (keys is None or normalise_key(column) in keys)


def _records(text: str, name: str, keys: Collection[str] | None, error: type[HecktorError]) -> Table:
    """Read a JSON list of objects, such as `[{"PatientID": "A-1", "Prediction": 0.7}]`; null is missing."""
    # Before they are parsed: an empty object takes 2 bytes of the file and 64 of memory.
    check_table_size(name, error, rows=max(text.count("{"), text.count("[")), cells=text.count(":"))
    content = parse_json(text, name, error=error, accept_nan=True)
    records = content if isinstance(content, list) else [content]
    if not records or not all(isinstance(record, dict) for record in records):
        raise error(
            name, "no list of JSON objects", f'objects such as {{"{ID_COLUMN}": "CHUM-001", "Prediction": 0.7}}'
        )
    header = tuple(dict.fromkeys(column for record in records for column in record))
    kept = [column for column in header if _is_kept(column, keys)]
    check_table_size(name, error, columns=len(header), cells=len(kept) * len(records))
    rows = [{column: _text(record.get(column)) for column in kept} for record in records]
    return Table(name, header, rows, range(1, len(rows) + 1), {})


def _text(value: object) -> str:
    if value is None or isinstance(value, str):
        return compose(value or "")
    return json.dumps(value)


@contextmanager
def _fields_of_any_length() -> Iterator[None]:
    """Lift the parser's limit of 131,072 characters: a long field costs its own case, not the table."""
    limit = csv.field_size_limit(MAX_TABLE_BYTES)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _parsed(text: str, name: str, keys: Collection[str] | None, error: type[HecktorError]) -> Table:
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)
    rows: list[Mapping[str, str]] = []
    lines: list[int] = []
    faults: dict[int, str] = {}
    try:
        header = tuple(column.strip() for column in next(reader, []))
        places_of: dict[str, list[int]] = {}
        for place, column in enumerate(header):
            if _is_kept(column, keys):
                places_of.setdefault(column, []).append(place)
        check_table_size(name, error, columns=len(header))
        for fields in reader:
            if not any(field.strip() for field in fields):
                continue
            check_table_size(name, error, rows=len(rows) + 1, cells=(len(rows) + 1) * len(places_of))
            if len(fields) != len(header):
                fault = f"{len(fields)} fields, expected one for each of {len(header)} columns"
                if not issubclass(error, PredictionError):
                    raise error(f"{name}, line {reader.line_num}", f"{fault}")
                faults[len(rows)] = fault
            texts_of = {
                column: [fields[place] if place < len(fields) else "" for place in places]
                for column, places in places_of.items()
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


def _is_same(column: str, first: str, second: str, meaning: Callable[[str], object] = cell_meaning) -> bool:
    """Return whether two cells of columns with one meaning say the same; IDs are compared as texts."""
    if column == ID_COLUMN:
        return first.strip() == second.strip()
    return meaning(first) == meaning(second)


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


def read_table_with(
    path: Path,
    columns: Mapping[str, Sequence[str]],
    error: type[HecktorError],
    *,
    aliases: Mapping[str, Sequence[str]] | None = None,
    meaning: Callable[[str], object] = cell_meaning,
) -> Table:
    """Read the column `PatientID` and the `columns` of a table under the names of this project.

    Case, blanks, `-` and `_` of the file's names are ignored. Two columns of one meaning must have equal values.

    Args:
        path: the table.
        columns: other spellings of each name.
        error: the class of errors.
        aliases: spellings that count where the table has no column of the name itself.
        meaning: function of a cell; two columns agree where its values are equal.
    """
    spellings = {ID_COLUMN: (), **columns}
    groups = [*spellings.items(), *(aliases or {}).items()]
    names = {spelling for name, more in groups for spelling in (name, *more)}
    table = _rename_columns(read_table(path, error, names), spellings, error, meaning)
    missing = {name: more for name, more in (aliases or {}).items() if name not in table.header}
    return _rename_columns(table, missing, error, meaning)


def _rename_columns(
    table: Table, spellings: Mapping[str, Sequence[str]], error: type[HecktorError], meaning: Callable[[str], object]
) -> Table:
    name_of = {normalise_key(spelling): name for name, others in spellings.items() for spelling in (name, *others)}
    names = {column: name_of.get(normalise_key(column), column) for column in table.header}
    for name in spellings:
        same = [column for column in names if names[column] == name]
        for index, row in enumerate(table.rows if len(same) > 1 else ()):
            if index not in table.faults and any(
                not _is_same(name, row[same[0]], row[column], meaning) for column in same[1:]
            ):
                conflict = f"columns {' and '.join(same)[:200]} mean the same and differ"
                raise error(table.where(index), conflict, "one of them, or equal values")
    rows = [{names[column]: text for column, text in row.items()} for row in table.rows]
    return replace(table, header=tuple(names[column] for column in table.header), rows=rows)


def parse_number(text: str, where: str, expected: str, error: type[HecktorError]) -> float | None:
    """A finite number with a decimal point; None if the field is missing."""
    if is_missing(text):
        return None
    plain = text.strip()
    # float() alone would also accept 1_0 and digits of other scripts.
    value = float(plain) if _NUMBER.fullmatch(plain) else math.nan
    if not math.isfinite(value):
        raise error(f"{where}{_shown(text, error)}, expected {expected}")
    return value


def parse_flag(text: str, where: str, error: type[HecktorError]) -> bool | None:
    """0, 1, true or false; None if the field is missing."""
    word = text.strip().lower()
    if word in {"true", "false"}:
        return word == "true"
    value = parse_number(text, where, "0 or 1", error)
    if value is not None and value not in {0.0, 1.0}:
        raise error(f"{where}{_shown(text, error)}, expected 0 or 1")
    return None if value is None else value == 1.0


def parse_class(text: str, answer: AnswerSpec, where: str, error: type[HecktorError]) -> ClassValue | None:
    """One of the answer's classes, by its value or a declared spelling; None if the field is missing."""
    word = text.strip().lower()
    whole = _WHOLE.fullmatch(word)  # a table with gaps writes 1 as 1.0
    spellings = {str(value).lower(): value for value in answer.classes} | dict(answer.words)
    value = spellings.get(whole[1] if whole else word)
    if value is None and not is_missing(text):
        expected = " or ".join(str(one).lower() if isinstance(one, bool) else str(one) for one in answer.classes)
        raise error(f"{where}{_shown(text, error)}, expected {expected}")
    return value


def interpret_class(text: str, answer: AnswerSpec) -> object:
    """Return the class that a cell names or, where it names none, what else it says."""
    with suppress(HecktorError):
        value = parse_class(text, answer, "", HecktorError)
        return "" if value is None else value
    return cell_meaning(text)


def _shown(text: str, error: type[HecktorError]) -> str:
    # Submitters read these messages, which must not reveal the reference.
    return " is not usable" if issubclass(error, GroundTruthError) else f" {text[:40]!r}"
