"""Read the release's CSV files; rows and columns that cannot be used are problems."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from contract.editions import Edition
from contract.editions.clinical import is_missing, normalise_key
from contract.errors import InputError
from contract.io.files import decode_csv
from contract.io.tables import MAX_TABLE_BYTES, check_table_size, normalise_cell

ID_COLUMN: Final = "PatientID"
ERROR: Final = "error"
WARNING: Final = "warning"
_SHORT_NAMES: Final = {"Tobacco": "Tobacco Consumption", "Alcohol": "Alcohol Consumption"}

Row = dict[str, str]


@dataclass(frozen=True)
class Problem:
    """One problem of the release.

    `severity` is "error" (the case cannot be used for training as it is) or "warning" (it can, but should be checked).
    `patient_id` is empty if the problem concerns no single patient. `file` is relative to the release's folder.
    """

    severity: str
    kind: str
    patient_id: str
    file: str
    found: str
    expected: str

    @property
    def is_error(self) -> bool:
        return self.severity == ERROR


@dataclass
class ReleaseTable:
    """One CSV file: the non-empty cells of each patient by canonical column.

    `columns` are the canonical names of the header. `refused` are the IDs of unusable rows; `readable` is False if the
    whole file is unusable.
    """

    file: str
    rows: dict[str, Row] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    readable: bool = True
    problems: list[Problem] = field(default_factory=list)
    columns: tuple[str, ...] = ()

    def report(self, severity: str, kind: str, patient_id: str, found: str, expected: str) -> None:
        self.problems.append(Problem(severity, kind, patient_id, self.file, found, expected))


@dataclass(frozen=True)
class CsvCells:
    """Texts of a CSV file without blanks around them: the header, and the rows with any text by their number.

    The header is row 1.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[int, list[str]], ...]


def list_columns_read(edition: Edition) -> tuple[str, ...]:
    """The columns that are read: the ID, and the clinical variables and outcomes of the edition."""
    answers = (answer for algorithm in edition.algorithms for answer in algorithm.head_specs)
    targets = [column for answer in answers for column in answer.columns.values()]
    return tuple(dict.fromkeys([ID_COLUMN, *(variable.key for variable in edition.clinical), *targets]))


def read_cells(path: Path) -> CsvCells:
    """Read a CSV file, of which each row has at most as many cells as the first, the header.

    Cells are separated by commas, semicolons or tabs, whichever the header has most of.

    Raises InputError for a file that cannot be read so.
    """
    expected = "a CSV file in UTF-8"
    rows: list[tuple[int, list[str]]] = []
    cells = 0
    try:
        if path.stat().st_size > MAX_TABLE_BYTES:
            raise InputError(path.name, f"{path.stat().st_size} bytes", f"at most {MAX_TABLE_BYTES}")
        text = decode_csv(path.read_bytes(), path.name, error=InputError)
        delimiter = max(",;\t", key=text.partition("\n")[0].count)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        header = [cell.strip() for cell in next(reader, [])]
        check_table_size(path.name, InputError, columns=len(header))
        for number, row in enumerate(reader, start=2):
            if len(row) > len(header) > 0:
                found = f"not a readable table (row {number} has {len(row)} cells, the header {len(header)})"
                raise InputError(path.name, found, expected)
            texts = [cell.strip() for cell in row]
            if any(texts):
                rows.append((number, texts))
                cells += len(texts)
                check_table_size(path.name, InputError, rows=len(rows), cells=cells)
    except (OSError, csv.Error) as problem:
        reason = " ".join(str(problem).split())
        raise InputError(path.name, f"not a readable table ({reason})", expected) from None
    if not header:
        raise InputError(path.name, "not a readable table (no header in row 1)", expected)
    return CsvCells(tuple(header), tuple(rows))


def find_differing_row(cells: CsvCells, places: Sequence[int], *, is_id: bool = False) -> int | None:
    """Return the first row in which columns at these places have different values, None if there is none."""
    for number, row in cells.rows:
        texts = [row[place] for place in places if place < len(row)]
        if len(set(texts) if is_id else {normalise_cell(text) for text in texts}) > 1:
            return number
    return None


def iterate_usable_rows(cells: CsvCells, place: int, table: ReleaseTable) -> Iterator[tuple[str, list[str]]]:
    """Yield the patient ID, which is in column `place`, and the cells of each usable row.

    A row with too few cells or without an ID, and a second row of a patient, are errors.
    """
    first_row: dict[str, int] = {}
    for number, row in cells.rows:
        patient = row[place] if place < len(row) else ""
        if len(row) < len(cells.columns):
            found, expected = f"row {number} has {len(row)} cells", f"{len(cells.columns)} as in the header"
            table.report(ERROR, "csv-row", patient or f"(row {number})", found, expected)
            table.refused.add(patient)
        elif not patient:
            table.report(ERROR, "csv-row", f"(row {number})", f"row {number} has no {ID_COLUMN}", "an ID in each row")
        elif first_row.setdefault(patient, number) != number:
            found = f"rows {first_row[patient]} and {number}"
            table.report(ERROR, "csv-doubled-row", patient, found, "one row for each patient")
        else:
            yield patient, row


def read_table(path: Path, file: str, edition: Edition) -> ReleaseTable:
    """Read a table of the release; its `problems` call the CSV `file`."""
    table = ReleaseTable(file)
    try:
        cells = read_cells(path)
    except InputError as problem:
        table.readable = False
        table.report(ERROR, "csv-unreadable", "", problem.found, problem.expected)
        return table
    table.columns = _canonical(cells.columns, edition)
    if not _columns_are_usable(cells, table, edition):
        table.readable = False
        return table
    read = set(list_columns_read(edition)) - {ID_COLUMN}
    for patient, row in iterate_usable_rows(cells, table.columns.index(ID_COLUMN), table):
        named = zip(table.columns, row, strict=True)
        table.rows[patient] = {column: cell for column, cell in named if column in read and not is_missing(cell)}
    return table


def read_columns(path: Path, edition: Edition) -> tuple[str, ...]:
    """The canonical names of a CSV file's columns; empty if it is no table."""
    try:
        return _canonical(read_cells(path).columns, edition)
    except InputError:
        return ()


def _canonical(header: Sequence[str], edition: Edition) -> tuple[str, ...]:
    """The columns' names as the edition spells them, such as `T-stage` for `T_stage`; unknown ones stay as they are."""
    spellings = {spelling: variable.key for variable in edition.clinical for spelling in variable.spellings}
    spellings |= {name: name for name in list_columns_read(edition)}
    spellings |= {short: name for short, name in _SHORT_NAMES.items() if name in spellings}
    known = {normalise_key(spelling): name for spelling, name in spellings.items()}
    columns = tuple(known.get(normalise_key(name), name) for name in header)
    # A table may hold RFS and PFS: then they are two outcomes.
    others = {
        normalise_key(spelling): name
        for algorithm in edition.algorithms
        for answer in algorithm.head_specs
        for name, aliases in answer.column_aliases.items()
        for spelling in aliases
        if name not in columns
    }
    return tuple(others.get(normalise_key(name), name) for name in columns)


def _columns_are_usable(cells: CsvCells, table: ReleaseTable, edition: Edition) -> bool:
    """Return whether there is a column of IDs and columns of one meaning agree; unread columns are a warning."""
    columns, read = table.columns, list_columns_read(edition)
    if ID_COLUMN not in columns:
        found = f"no column {ID_COLUMN} (found {', '.join(columns)[:200] or 'nothing'})"
        table.report(ERROR, "csv-unreadable", "", found, f"a CSV file with a column {ID_COLUMN}")
        return False
    filled = {place for _, row in cells.rows for place, cell in enumerate(row) if cell}
    unused = [name for place, name in enumerate(columns) if name not in read and (name or place in filled)]
    if unused:
        names = ", ".join(name or "one without a name" for name in unused)
        table.report(WARNING, "csv-column", "", f"unknown columns: {names}", ", ".join(read))
    for name in sorted({name for name in columns if columns.count(name) > 1 and name in read}):
        places = [place for place, column in enumerate(columns) if column == name]
        number = find_differing_row(cells, places, is_id=name == ID_COLUMN)
        if number is not None:
            found = f"column {name} appears twice, with different values in row {number}"
            table.report(ERROR, "csv-unreadable", "", found, "each column once")
            return False
    return True
