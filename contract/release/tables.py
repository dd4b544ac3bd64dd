"""Read CSV tables of a release: clinical variables, outcomes and SUV factors.

Rows and columns that cannot be used are reported as problems of the release.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from contract.editions import Edition
from contract.editions.clinical import is_missing, normalise_key
from contract.errors import HecktorError, InputError
from contract.io.tables import decode_csv
from contract.patient import describe_id_difference, format_names

MAX_TABLE_BYTES: Final = 16 * 1024 * 1024
MAX_TABLE_COLUMNS: Final = 10_000
MAX_TABLE_ROWS: Final = 100_000
# Each cell takes up to 60 bytes of memory in addition to its text.
MAX_TABLE_CELLS: Final = 4_000_000
_TRUTH_VALUES: Final = {"true": 1.0, "false": 0.0}

ID_COLUMN: Final = "PatientID"
ERROR: Final = "error"
WARNING: Final = "warning"
_SHORT_NAMES: Final = {"Tobacco": "Tobacco Consumption", "Alcohol": "Alcohol Consumption"}

MIN_WEIGHT_KG: Final = 20
MAX_WEIGHT_KG: Final = 300
FACTOR_COLUMN: Final = "bqml_to_suvbw_factor"
WEIGHT_COLUMN: Final = "patient_weight_kg"
DOSE_COLUMN: Final = "dose_for_suv_bq"
# Normalised names of the column of patient IDs in a table of SUV factors.
_FACTOR_ID_COLUMNS: Final = ("patientid", "pid", "patient", "caseid", "case", "id")

Row = dict[str, str]


def check_table_size(name: str, error: type[HecktorError], *, columns: int = 0, rows: int = 0, cells: int = 0) -> None:
    """Raise `error` if a table has too many columns, rows or cells."""
    limits = (
        ("columns", columns, MAX_TABLE_COLUMNS),
        ("rows", rows, MAX_TABLE_ROWS),
        ("cells", cells, MAX_TABLE_CELLS),
    )
    for kind, count, limit in limits:
        if count > limit:
            raise error(name, f"more than {limit} {kind}", f"at most {limit}")


def normalise_cell(text: str) -> float | str:
    """Return the value of a cell, equal for all spellings: `1`, `1.0` and `true`, or an empty cell and `NA`."""
    word = text.strip().lower()
    if is_missing(text):
        return ""
    if word in _TRUTH_VALUES:
        return _TRUTH_VALUES[word]
    try:
        return float(word.replace(",", "."))
    except ValueError:
        return word


@dataclass(frozen=True)
class Problem:
    """One problem of the release.

    Attributes:
        severity: "error" if the case cannot be used for training as it is, "warning" if it can but should be checked.
        kind: Kind of the problem.
        patient_id: Empty if the problem does not concern a single patient.
        file: Path relative to the release's folder.
        found: The problem in words.
        expected: The expectation.
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
    """The content of one CSV file of a release.

    Attributes:
        file: Path of the file in problems.
        rows: The non-empty cells of each patient, by patient ID and canonical column name.
        refused_ids: IDs of unusable rows.
        is_readable: False if the whole file is unusable.
        problems: Problems of the file.
        columns: Canonical names of the columns.
    """

    file: str
    rows: dict[str, Row] = field(default_factory=dict)
    refused_ids: set[str] = field(default_factory=set)
    is_readable: bool = True
    problems: list[Problem] = field(default_factory=list)
    columns: tuple[str, ...] = ()

    def report(self, severity: str, kind: str, patient_id: str, problem: str, expected: str) -> None:
        self.problems.append(Problem(severity, kind, patient_id, self.file, problem, expected))


@dataclass(frozen=True)
class CsvCells:
    """Cells of a CSV file as strings without surrounding blanks.

    Attributes:
        columns: The header, which is row 1.
        rows: Number and cells of each row that is not empty.
        delimiter: Separator of the cells.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[int, list[str]], ...]
    delimiter: str


def list_columns_read(edition: Edition) -> tuple[str, ...]:
    """List the columns of a table that are read: the ID, and the clinical variables and outcomes of the edition."""
    answers = (answer for algorithm in edition.algorithms for answer in algorithm.head_specs)
    outcomes = [column for answer in answers for column in answer.columns.values()]
    return tuple(dict.fromkeys([ID_COLUMN, *(variable.key for variable in edition.clinical), *outcomes]))


def read_cells(path: Path) -> CsvCells:
    """Read a CSV file whose first row is a header.

    Cells are separated by commas, semicolons or tabs, whichever is most frequent in the header.

    Raises:
        InputError: The file cannot be read, has no header, is too large, or has a row with more cells than the header.
    """
    expected = "a CSV file in UTF-8"
    rows: list[tuple[int, list[str]]] = []
    cells = 0
    try:
        size = path.stat().st_size
        if size > MAX_TABLE_BYTES:
            raise InputError(path.name, f"{size} bytes", f"at most {MAX_TABLE_BYTES}")
        text = decode_csv(path.read_bytes(), path.name, error=InputError)
        delimiter = max(",;\t", key=text.partition("\n")[0].count)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        header = [cell.strip() for cell in next(reader, [])]
        check_table_size(path.name, InputError, columns=len(header))
        for number, row in enumerate(reader, start=2):
            if len(row) > len(header) > 0:
                problem = f"not a readable table (row {number} has {len(row)} cells, the header {len(header)})"
                raise InputError(path.name, problem, expected)
            texts = [cell.strip() for cell in row]
            if any(texts):
                rows.append((number, texts))
                cells += len(texts)
                check_table_size(path.name, InputError, rows=len(rows), cells=cells)
    except (OSError, csv.Error) as fault:
        reason = " ".join(str(fault).split())
        raise InputError(path.name, f"not a readable table ({reason})", expected) from None
    if not header:
        raise InputError(path.name, "not a readable table (no header in row 1)", expected)
    return CsvCells(tuple(header), tuple(rows), delimiter)


def find_differing_row(cells: CsvCells, places: Sequence[int], *, is_id: bool = False) -> int | None:
    """Find the first row whose cells in these columns have different values.

    Args:
        cells: The table.
        places: Indices of the columns.
        is_id: Whether the columns contain IDs, which must be identical strings.

    Returns:
        The number of the row; None if the columns agree.
    """
    for number, row in cells.rows:
        texts = [row[place] for place in places if place < len(row)]
        if len(set(texts) if is_id else {normalise_cell(text) for text in texts}) > 1:
            return number
    return None


def iterate_usable_rows(cells: CsvCells, id_place: int, table: ReleaseTable) -> Iterator[tuple[str, list[str]]]:
    """Yield patient ID and cells of every usable row; `id_place` is the index of the column of IDs.

    A row with too few cells or without an ID, and a second row of a patient, are reported to `table` as errors.
    """
    first_row: dict[str, int] = {}
    for number, row in cells.rows:
        patient_id = row[id_place] if id_place < len(row) else ""
        if len(row) < len(cells.columns):
            problem, expected = f"row {number} has {len(row)} cells", f"{len(cells.columns)} as in the header"
            table.report(ERROR, "csv-row", patient_id or f"(row {number})", problem, expected)
            table.refused_ids.add(patient_id)
        elif not patient_id:
            problem = f"row {number} has no {ID_COLUMN}"
            table.report(ERROR, "csv-row", f"(row {number})", problem, "an ID in each row")
        elif patient_id in first_row:
            problem = f"rows {first_row[patient_id]} and {number}"
            table.report(ERROR, "csv-doubled-row", patient_id, problem, "one row for each patient")
        else:
            first_row[patient_id] = number
            yield patient_id, row


def read_table(path: Path, file: str, edition: Edition) -> ReleaseTable:
    """Read clinical variables and outcomes from a table of a release; `file` is its name in problems."""
    table = ReleaseTable(file)
    try:
        cells = read_cells(path)
    except InputError as problem:
        table.is_readable = False
        table.report(ERROR, "csv-unreadable", "", problem.found, problem.expected)
        return table
    table.columns = _canonicalise(cells.columns, edition)
    table.is_readable = _check_columns(cells, table, edition)
    if not table.is_readable:
        return table
    columns_read = set(list_columns_read(edition)) - {ID_COLUMN}
    for patient_id, row in iterate_usable_rows(cells, table.columns.index(ID_COLUMN), table):
        table.rows[patient_id] = {
            column: cell
            for column, cell in zip(table.columns, row, strict=True)
            if column in columns_read and not is_missing(cell)
        }
    return table


def read_columns(path: Path, edition: Edition) -> tuple[str, ...]:
    """Read the canonical names of a CSV file's columns; empty if the file is not a table."""
    try:
        return _canonicalise(read_cells(path).columns, edition)
    except InputError:
        return ()


def _canonicalise(header: Sequence[str], edition: Edition) -> tuple[str, ...]:
    """Spell the names of columns as the edition does, such as `T-stage` for `T_stage`; keep unknown names."""
    spellings = {spelling: variable.key for variable in edition.clinical for spelling in variable.spellings}
    spellings |= {name: name for name in list_columns_read(edition)}
    spellings |= {short: name for short, name in _SHORT_NAMES.items() if name in spellings}
    known = {normalise_key(spelling): name for spelling, name in spellings.items()}
    columns = tuple(known.get(normalise_key(name), name) for name in header)
    # An alias counts only if the declared column is absent: a table may contain RFS and PFS, which are two outcomes.
    aliases: dict[str, str] = {}
    for algorithm in edition.algorithms:
        for answer in algorithm.head_specs:
            for name, texts in answer.column_aliases.items():
                if name not in columns:
                    aliases |= {normalise_key(text): name for text in texts}
    return tuple(aliases.get(normalise_key(name), name) for name in columns)


def _check_columns(cells: CsvCells, table: ReleaseTable, edition: Edition) -> bool:
    """Return whether the columns of a table are usable, and report their problems.

    There must be a column of IDs, and columns of the same name must agree. Columns that are not read are a warning.
    """
    columns = table.columns
    columns_read = list_columns_read(edition)
    if ID_COLUMN not in columns:
        problem = f"no column {ID_COLUMN} (found {', '.join(columns)[:200] or 'nothing'})"
        table.report(ERROR, "csv-unreadable", "", problem, f"a CSV file with a column {ID_COLUMN}")
        return False
    filled = {place for _, row in cells.rows for place, cell in enumerate(row) if cell}
    unknown = [name for place, name in enumerate(columns) if name not in columns_read and (name or place in filled)]
    if unknown:
        names = ", ".join(name or "one without a name" for name in unknown)
        table.report(WARNING, "csv-column", "", f"unknown columns: {names}", ", ".join(columns_read))
    for name in sorted({name for name in columns if columns.count(name) > 1 and name in columns_read}):
        places = [place for place, column in enumerate(columns) if column == name]
        number = find_differing_row(cells, places, is_id=name == ID_COLUMN)
        if number is not None:
            problem = f"column {name} appears twice, with different values in row {number}"
            table.report(ERROR, "csv-unreadable", "", problem, "each column once")
            return False
    return True


@dataclass(frozen=True)
class _SuvFactorColumns:
    """Indices of the columns of a table of SUV factors.

    Attributes:
        patient_id: Index of the column of IDs.
        values: Indices of the columns of factor, weight and dose that the table has, by name.
    """

    patient_id: int
    values: Mapping[str, int]


def has_suv_factors(path: Path) -> bool:
    """Return whether a CSV file has the columns of a table of SUV factors."""
    try:
        return _find_suv_factor_columns(read_cells(path)) is not None
    except InputError:
        return False


def read_suv_factors(path: Path, table: ReleaseTable, patient_ids: Collection[str]) -> dict[str, float]:
    """Read factors that convert a PET from Bq/ml to SUV.

    SUV = activity concentration (Bq/ml) x body weight (g) / dose (Bq). If a row has no factor, it is computed from
    weight and dose. An impossible factor is reported and left out.

    Args:
        path: The CSV file.
        table: Gets the problems of the file.
        patient_ids: IDs of the release.

    Returns:
        Factors by patient ID.

    Raises:
        InputError: The file is not a table of factors, or has no row of a patient of the release.
    """
    if not path.is_file():
        raise InputError(path.name, "not found", "a table of SUV factors")
    cells = read_cells(path)
    columns = _find_suv_factor_columns(cells)
    if columns is None:
        problem = f"columns {', '.join(cells.columns)[:200] or 'without names'}"
        expected = f"PatientID and {FACTOR_COLUMN}, or {WEIGHT_COLUMN} and {DOSE_COLUMN}"
        raise InputError(path.name, problem, expected)
    _check_repeated_columns(path.name, cells, columns)
    factors: dict[str, float] = {}
    unknown: list[str] = []
    has_match = False
    for patient_id, row in iterate_usable_rows(cells, columns.patient_id, table):
        if patient_id not in patient_ids:
            unknown.append(patient_id)
            continue
        has_match = True
        values = {name: row[index] for name, index in columns.values.items()}
        factor = _compute_suv_factor(values, patient_id, table)
        if factor:
            factors[patient_id] = factor
    if not has_match:
        problem = f"found rows of {format_names(unknown)}" if unknown else "found no row"
        known = sorted(patient_ids)
        expected = f"patients of the release, {format_names(known)}{describe_id_difference(unknown, known)}"
        raise InputError(path.name, problem, expected)
    if unknown:
        problem = f"{len(unknown)} patients who are not in the release: {', '.join(unknown)}"
        table.report(WARNING, "suv-factor", "", problem, "patients of the release")
    return factors


def _find_suv_factor_columns(cells: CsvCells) -> _SuvFactorColumns | None:
    """Find the columns of a table of SUV factors; None without IDs, or without factors or weights and doses."""
    names = [normalise_key(name) for name in cells.columns]
    id_indices = [names.index(name) for name in _FACTOR_ID_COLUMNS if name in names]
    keys = {name: normalise_key(name) for name in (FACTOR_COLUMN, WEIGHT_COLUMN, DOSE_COLUMN)}
    index_of = {name: names.index(key) for name, key in keys.items() if key in names}
    if id_indices and (FACTOR_COLUMN in index_of or {WEIGHT_COLUMN, DOSE_COLUMN} <= set(index_of)):
        return _SuvFactorColumns(id_indices[0], index_of)
    return None


def _check_repeated_columns(name: str, cells: CsvCells, columns: _SuvFactorColumns) -> None:
    """Check that columns of the same name agree; raise `InputError` otherwise."""
    for title, index in ((ID_COLUMN, columns.patient_id), *columns.values.items()):
        key = normalise_key(cells.columns[index])
        same = [place for place, column in enumerate(cells.columns) if normalise_key(column) == key]
        number = find_differing_row(cells, same, is_id=index == columns.patient_id)
        if number is not None:
            raise InputError(name, f"column {title} appears twice, with different values in row {number}", "one")


def _compute_suv_factor(cells: Mapping[str, str], patient_id: str, table: ReleaseTable) -> float | None:
    """Read the SUV factor of a row, or compute it from weight (kg) and dose (Bq).

    Returns:
        The factor; None if it is missing, or if it is impossible, which is reported.
    """
    texts = {name: cell for name, cell in cells.items() if not is_missing(cell)}
    used = (FACTOR_COLUMN,) if FACTOR_COLUMN in texts else (WEIGHT_COLUMN, DOSE_COLUMN)
    if not set(used) <= set(texts):
        return None
    numbers = {name: _parse_number(texts[name]) for name in used}
    for name, number in numbers.items():
        is_weight = name == WEIGHT_COLUMN
        if not 0 < number < math.inf or (is_weight and not MIN_WEIGHT_KG <= number <= MAX_WEIGHT_KG):
            problem = f"{name} {texts[name][:40]!r}, which is not used"
            expected = f"{MIN_WEIGHT_KG} to {MAX_WEIGHT_KG} kg" if is_weight else "a number above 0"
            table.report(WARNING, "suv-factor", patient_id, problem, expected)
            return None
    if FACTOR_COLUMN in numbers:
        return numbers[FACTOR_COLUMN]
    return numbers[WEIGHT_COLUMN] * 1000 / numbers[DOSE_COLUMN]


def _parse_number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan
