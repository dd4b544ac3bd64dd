"""The release's CSV files in whatever dialect they come: read, not refused, and said."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from baseline.release.problems import ERROR, WARNING, Problem

ID: Final = "PatientID"
COLUMNS: Final = (
    ID, "CenterID", "Age", "Gender", "Tobacco Consumption", "Alcohol Consumption", "Performance Status", "Treatment",
    "M-stage", "T-stage", "N-stage", "Weight", "Relapse", "RFS", "HPV Status",
)  # fmt: skip
_OTHER_NAMES: Final = {"Center": "CenterID", "Tobacco": "Tobacco Consumption", "Alcohol": "Alcohol Consumption"}
_SEPARATORS: Final = (",", ";", "\t", "|")
_BYTE_ORDER_MARKS: Final = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_MISSING: Final = frozenset({"", "nan", "na", "n/a", "none", "null", "unknown", "missing", "?", "-"})
_DECIMAL_COMMA: Final = re.compile(r"[+-]?\d+,\d+")

Row = dict[str, str]


@dataclass
class Table:
    """One CSV file: patient ID as written (without blanks) to the cells that hold something, by canonical column.

    `refused` are the IDs, in capitals, whose row could not be taken; `readable` is False where no row could.
    """

    file: str
    rows: dict[str, Row] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    readable: bool = True
    problems: list[Problem] = field(default_factory=list)

    def say(self, severity: str, kind: str, patient_id: str, found: str, expected: str) -> None:
        """Note a problem of this file."""
        self.problems.append(Problem(severity, kind, patient_id, self.file, found, expected))

    def dialect(self, found: str, expected: str) -> None:
        """Note a spelling that was read all the same."""
        self.say(WARNING, "csv-dialect", "", found, expected)


def read_table(path: Path, file: str) -> Table:
    """Read a table of the release; whatever is odd or wrong stands in its `problems`.

    Args:
        path: the CSV file.
        file: what problems call it.
    """
    table = Table(file)
    text = _text(path, table)
    rows = _split(text, table)
    columns = None if rows is None else _columns(*rows, table)
    if rows is None or columns is None:
        table.readable = False
        return table
    lines = rows[1]
    seen: list[tuple[int, str, list[str]]] = []
    place = columns.index(ID)
    for number, cells in lines:
        if len(cells) != len(columns):
            patient = cells[place].strip() if place < len(cells) else ""
            found = f"row {number} has {len(cells)} cells"
            table.say(ERROR, "csv-row", patient or f"(row {number})", found, f"{len(columns)} as in the header")
            table.refused.add(patient.upper())
        elif not cells[place].strip():
            table.say(ERROR, "csv-row", f"(row {number})", f"row {number} has no {ID}", "an ID in each row")
        else:
            seen.append((number, cells[place].strip(), cells))
    _say_cell_dialects(seen, columns, table)
    _fill(seen, columns, table)
    return table


def is_missing(cell: str) -> bool:
    """Whether a cell says nothing."""
    return cell.strip().lower() in _MISSING


def plain(name: str) -> str:
    """A name without case, blanks, `-` and `_`."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _text(path: Path, table: Table) -> str:
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


def _split(text: str, table: Table) -> tuple[list[str], list[tuple[int, list[str]]]] | None:
    """The header's cells, and each further row that is not blank with its number in the file; None, with an error
    said, where it is no table.
    """
    if "\r" in text.replace("\r\n", ""):
        table.dialect("lines that end with a carriage return", "a line feed")
    first = next((line for line in text.splitlines() if line.strip()), "")
    separator = max(_SEPARATORS, key=first.count)
    if first and separator != ",":
        table.dialect(f"cells separated by {separator!r}", "a comma")
    try:
        rows = list(csv.reader(io.StringIO(text.replace("\0", ""), newline=None), delimiter=separator))
    except csv.Error as problem:
        table.say(ERROR, "csv-unreadable", "", f"not a readable table ({problem})", "a CSV file")
        return None
    numbered = [(number, row) for number, row in enumerate(rows, start=1) if any(cell.strip() for cell in row)]
    return (numbered[0][1], numbered[1:]) if numbered else ([], [])


def _columns(header: Sequence[str], lines: Sequence[tuple[int, list[str]]], table: Table) -> list[str] | None:
    """The canonical name of each column; None, with an error said, where rows cannot be told apart."""
    known = {plain(name): name for name in COLUMNS} | {plain(old): new for old, new in _OTHER_NAMES.items()}
    columns = [known.get(plain(name), name.strip()) for name in header]
    if ID not in columns:
        names = ", ".join(columns)[:200] or "nothing"
        table.say(ERROR, "csv-unreadable", "", f"no column {ID} (found {names})", f"a CSV file with a column {ID}")
        return None
    odd = [name for name, column in zip(header, columns, strict=True) if name not in {column, *_OTHER_NAMES}]
    if odd:
        table.dialect(f"column names {', '.join(map(repr, odd))}", "the release's spelling, without further blanks")
    filled = {place for _, cells in lines for place, cell in enumerate(cells) if cell.strip()}
    unused = [
        name or "one without a name"
        for place, name in enumerate(columns)
        if name not in COLUMNS and (name or place in filled)
    ]
    if unused:
        table.say(WARNING, "csv-column", "", f"columns that nothing reads: {', '.join(unused)}", ", ".join(COLUMNS))
    twice = sorted({name for name in columns if columns.count(name) > 1 and name in COLUMNS})
    if twice:
        table.say(ERROR, "csv-unreadable", "", f"column {twice[0]} stands twice", "each column once")
        return None
    return columns


def _say_cell_dialects(seen: Sequence[tuple[int, str, list[str]]], columns: Sequence[str], table: Table) -> None:
    for what, expected, hits in (
        ("blanks around cells", "none", list(_cells(seen, columns, lambda cell: cell != cell.strip()))),
        ("a decimal comma", "a decimal point", list(_cells(seen, columns, _has_decimal_comma))),
    ):
        if hits:
            number, column, cell = hits[0]
            table.dialect(f"{what} in {len(hits)} cells, first {cell!r} (row {number}, {column})", expected)


def _cells(
    seen: Sequence[tuple[int, str, list[str]]], columns: Sequence[str], wanted: Callable[[str], bool]
) -> Iterator[tuple[int, str, str]]:
    for number, _, cells in seen:
        yield from ((number, column, cell) for column, cell in zip(columns, cells, strict=True) if wanted(cell))


def _has_decimal_comma(cell: str) -> bool:
    return _DECIMAL_COMMA.fullmatch(cell.strip()) is not None


def _fill(seen: Sequence[tuple[int, str, list[str]]], columns: Sequence[str], table: Table) -> None:
    first_row: dict[str, int] = {}
    for number, patient, cells in seen:
        key = patient.upper()
        if key in first_row:
            found = f"stands in rows {first_row[key]} and {number}"
            table.say(ERROR, "csv-doubled-row", patient, found, "each patient once")
            continue
        first_row[key] = number
        stripped = {column: cell.strip() for column, cell in zip(columns, cells, strict=True)}
        table.rows[patient] = {
            column: cell.replace(",", ".") if _has_decimal_comma(cell) else cell
            for column, cell in stripped.items()
            if column in COLUMNS and column != ID and not is_missing(cell)
        }
