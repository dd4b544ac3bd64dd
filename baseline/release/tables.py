"""Read the release's CSV files in any dialect; each deviation is a warning."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from baseline.release.problems import ERROR, WARNING, Problem
from contract.editions import Edition
from contract.editions.clinical import is_missing, normalised_key

ID: Final = "PatientID"
# Columns of the releases that no edition declares.
_MORE_COLUMNS: Final = ("T-stage", "N-stage", "Weight")
_SHORT_NAMES: Final = {"Tobacco": "Tobacco Consumption", "Alcohol": "Alcohol Consumption"}
_SEPARATORS: Final = (",", ";", "\t", "|")
_BYTE_ORDER_MARKS: Final = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_DECIMAL_COMMA: Final = re.compile(r"[+-]?\d+,\d+")

Row = dict[str, str]
# Number in the file, patient ID, cells.
_NumberedRow = tuple[int, str, list[str]]


@dataclass
class ReleaseTable:
    """One CSV file: patient ID as written (without blanks) to the non-empty cells by canonical column.

    `columns` are the canonical names of the header. `refused` are the IDs, in capitals, of unusable rows; `readable` is
    False if the whole file is unusable.
    """

    file: str
    rows: dict[str, Row] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    readable: bool = True
    problems: list[Problem] = field(default_factory=list)
    columns: tuple[str, ...] = ()

    def report(self, severity: str, kind: str, patient_id: str, found: str, expected: str) -> None:
        self.problems.append(Problem(severity, kind, patient_id, self.file, found, expected))

    def dialect(self, found: str, expected: str) -> None:
        """Add a warning about an unusual spelling that could be read."""
        self.report(WARNING, "csv-dialect", "", found, expected)


def columns_of(edition: Edition) -> tuple[str, ...]:
    """The columns that are read: ID, clinical variables and targets of the edition, and three that are only checked."""
    answers = (answer for algorithm in edition.algorithms for answer in algorithm.heads)
    targets = [column for answer in answers for column in answer.columns.values()]
    return tuple(dict.fromkeys([ID, *(variable.key for variable in edition.clinical), *_MORE_COLUMNS, *targets]))


def read_table(path: Path, file: str, edition: Edition) -> ReleaseTable:
    """Read a table of the release; its `problems` hold every deviation and call the CSV `file`."""
    table = ReleaseTable(file)
    rows = read_rows(path, table)
    columns = None if rows is None else _columns(*rows, table, edition)
    if rows is None or columns is None:
        table.readable = False
        return table
    table.columns = tuple(columns)
    sound: list[_NumberedRow] = []
    place = columns.index(ID)
    for number, cells in rows[1]:
        if len(cells) != len(columns):
            patient = cells[place].strip() if place < len(cells) else ""
            found = f"row {number} has {len(cells)} cells"
            table.report(ERROR, "csv-row", patient or f"(row {number})", found, f"{len(columns)} as in the header")
            table.refused.add(patient.upper())
        elif not cells[place].strip():
            table.report(ERROR, "csv-row", f"(row {number})", f"row {number} has no {ID}", "an ID in each row")
        else:
            sound.append((number, cells[place].strip(), cells))
    _report_cell_dialects(sound, columns, table)
    _fill(sound, columns, table, columns_of(edition))
    return table


def read_rows(path: Path, table: ReleaseTable) -> tuple[list[str], list[tuple[int, list[str]]]] | None:
    """The header's cells, and every other non-blank row with its number; None if it is no table."""
    return _split(_text(path, table), table)


def point_for_comma(cell: str) -> str:
    """The cell with a decimal point in place of a decimal comma."""
    return cell.replace(",", ".") if _has_decimal_comma(cell) else cell


def read_columns(path: Path, edition: Edition) -> tuple[str, ...]:
    """The canonical names of a CSV file's columns; empty if it is no table."""
    rows = read_rows(path, ReleaseTable(path.name))
    known = _known_columns(edition)
    return () if rows is None else tuple(known.get(normalised_key(name), name.strip()) for name in rows[0])


def _known_columns(edition: Edition) -> dict[str, str]:
    """Canonical columns by the normalised form of each name that is read as it."""
    other_names = {normalised_key(old): new for old, new in _other_names(edition).items()}
    return {normalised_key(name): name for name in columns_of(edition)} | other_names


def _other_names(edition: Edition) -> dict[str, str]:
    read = columns_of(edition)
    aliases = {alias: variable.key for variable in edition.clinical for alias in variable.aliases}
    return aliases | {short: name for short, name in _SHORT_NAMES.items() if name in read}


def _text(path: Path, table: ReleaseTable) -> str:
    content = path.read_bytes()
    for mark, encoding in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            table.dialect(f"a byte order mark ({encoding.removesuffix('-sig').upper()})", "UTF-8 without one")
            return content.decode(encoding, errors="replace")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        table.dialect("text that is not UTF-8, read as Latin-1", "UTF-8")
        return content.decode("latin-1")


def _split(text: str, table: ReleaseTable) -> tuple[list[str], list[tuple[int, list[str]]]] | None:
    if "\r" in text.replace("\r\n", ""):
        table.dialect("lines that end with a carriage return", "a line feed")
    first = next((line for line in text.splitlines() if line.strip()), "")
    separator = max(_SEPARATORS, key=first.count)
    if first and separator != ",":
        table.dialect(f"cells separated by {separator!r}", "a comma")
    try:
        rows = list(csv.reader(io.StringIO(text.replace("\0", ""), newline=None), delimiter=separator))
    except csv.Error as problem:
        table.report(ERROR, "csv-unreadable", "", f"not a readable table ({problem})", "a CSV file")
        return None
    numbered = [(number, row) for number, row in enumerate(rows, start=1) if any(cell.strip() for cell in row)]
    return (numbered[0][1], numbered[1:]) if numbered else ([], [])


def _columns(
    header: Sequence[str], lines: Sequence[tuple[int, list[str]]], table: ReleaseTable, edition: Edition
) -> list[str] | None:
    """The canonical name of each column; None if the IDs or a column are ambiguous."""
    read, other_names, known = columns_of(edition), _other_names(edition), _known_columns(edition)
    columns = [known.get(normalised_key(name), name.strip()) for name in header]
    if ID not in columns:
        names = ", ".join(columns)[:200] or "nothing"
        table.report(ERROR, "csv-unreadable", "", f"no column {ID} (found {names})", f"a CSV file with a column {ID}")
        return None
    odd = [name for name, column in zip(header, columns, strict=True) if name not in {column, *other_names}]
    if odd:
        table.dialect(f"column names {', '.join(map(repr, odd))}", "the release's spelling, without further blanks")
    filled = {place for _, cells in lines for place, cell in enumerate(cells) if cell.strip()}
    unused = [name for place, name in enumerate(columns) if name not in read and (name or place in filled)]
    if unused:
        names = ", ".join(name or "one without a name" for name in unused)
        table.report(WARNING, "csv-column", "", f"unknown columns: {names}", ", ".join(read))
    twice = sorted({name for name in columns if columns.count(name) > 1 and name in read})
    if twice:
        table.report(ERROR, "csv-unreadable", "", f"column {twice[0]} appears twice", "each column once")
        return None
    return columns


def _report_cell_dialects(rows: Sequence[_NumberedRow], columns: Sequence[str], table: ReleaseTable) -> None:
    every = [
        (cell, f"row {number}, {column}")
        for number, _, cells in rows
        for column, cell in zip(columns, cells, strict=True)
    ]
    for what, expected, odd in (
        ("blanks around cells", "none", lambda cell: cell != cell.strip()),
        ("a decimal comma", "a decimal point", _has_decimal_comma),
    ):
        hits = [(cell, place) for cell, place in every if odd(cell)]
        if hits:
            table.dialect(f"{what} in {len(hits)} cells, first {hits[0][0]!r} ({hits[0][1]})", expected)


def _has_decimal_comma(cell: str) -> bool:
    return _DECIMAL_COMMA.fullmatch(cell.strip()) is not None


def _fill(rows: Sequence[_NumberedRow], columns: Sequence[str], table: ReleaseTable, read: Sequence[str]) -> None:
    first_row: dict[str, int] = {}
    for number, patient, cells in rows:
        first = first_row.setdefault(patient.upper(), number)
        if first != number:
            table.report(ERROR, "csv-doubled-row", patient, f"rows {first} and {number}", "one row for each patient")
            continue
        stripped = {column: cell.strip() for column, cell in zip(columns, cells, strict=True)}
        table.rows[patient] = {
            column: point_for_comma(cell)
            for column, cell in stripped.items()
            if column in read and column != ID and not is_missing(cell)
        }
