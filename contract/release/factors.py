"""Factors that turn a PET in Bq/ml into SUV, from a table of a release.

SUV = activity concentration (Bq/ml) x body weight (g) / dose (Bq), so the factor is weight / dose.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from contract.editions.clinical import is_missing, normalise_key
from contract.errors import InputError
from contract.patient import describe_id_difference, format_names
from contract.release.tables import WARNING, CsvCells, ReleaseTable, find_differing_row, iterate_usable_rows, read_cells

LEAST_WEIGHT_KG, MOST_WEIGHT_KG = 20, 300
FACTOR, WEIGHT, DOSE = "bqml_to_suvbw_factor", "patient_weight_kg", "dose_for_suv_bq"
_IDS: Final = ("patientid", "pid", "patient", "caseid", "case", "id")


def has_factors(path: Path) -> bool:
    """True if a CSV file has the columns of a table of factors."""
    try:
        return _columns(read_cells(path)) is not None
    except InputError:
        return False


def read_suv_factors(path: Path, table: ReleaseTable, patients: Collection[str]) -> dict[str, float]:
    """Factors by patient ID; problems go to `table`. An impossible factor is named and left out.

    Without a factor, weight and dose give it. `patients` are the release's IDs.
    Raises InputError for a file that is no such table, or that has no row of any patient.
    """
    if not path.is_file():
        raise InputError(path.name, "not found", "a table of SUV factors")
    cells = read_cells(path)
    columns = _columns(cells)
    if columns is None:
        found = f"columns {', '.join(cells.columns)[:200] or 'of no name'}"
        raise InputError(path.name, found, f"PatientID and {FACTOR}, or {WEIGHT} and {DOSE}")
    id_column, place = columns
    for name, column in (("PatientID", id_column), *place.items()):
        key = normalise_key(cells.columns[column])
        same = [other for other, title in enumerate(cells.columns) if normalise_key(title) == key]
        number = find_differing_row(cells, same, is_id=column == id_column)
        if number is not None:
            raise InputError(path.name, f"column {name} appears twice, with different values in row {number}", "one")
    factors: dict[str, float] = {}
    unknown, matching = [], 0
    for patient, row in iterate_usable_rows(cells, id_column, table):
        if patient not in patients:
            unknown.append(patient)
            continue
        matching += 1
        if factor := _factor({name: row[column] for name, column in place.items()}, patient, table):
            factors[patient] = factor
    if not matching:
        found = f"found rows of {format_names(unknown)}" if unknown else "found no row"
        difference = describe_id_difference(unknown, sorted(patients))
        expected = f"patients of the release, {format_names(sorted(patients))}" + difference
        raise InputError(path.name, found, expected)
    if unknown:
        found = f"{len(unknown)} patients who are not in the release: {', '.join(unknown)}"
        table.report(WARNING, "suv-factor", "", found, "patients of the release")
    return factors


def _columns(cells: CsvCells) -> tuple[int, dict[str, int]] | None:
    """The column of the IDs, and those of the factor, weight and dose as far as present; None without enough."""
    names = [normalise_key(name) for name in cells.columns]
    ids = [names.index(name) for name in _IDS if name in names]
    wanted = {name: normalise_key(name) for name in (FACTOR, WEIGHT, DOSE)}
    place = {name: names.index(key) for name, key in wanted.items() if key in names}
    return (ids[0], place) if ids and (FACTOR in place or {WEIGHT, DOSE} <= set(place)) else None


def _factor(cells: Mapping[str, str], patient: str, table: ReleaseTable) -> float | None:
    """The factor of a row; None if it is missing or, which is reported, impossible."""
    given = {name: cell for name, cell in cells.items() if not is_missing(cell)}
    if FACTOR not in given and not {WEIGHT, DOSE} <= set(given):
        return None
    used = (FACTOR,) if FACTOR in given else (WEIGHT, DOSE)
    numbers = {name: _number(given[name]) for name in used}
    low, high = LEAST_WEIGHT_KG, MOST_WEIGHT_KG
    for name, number in numbers.items():
        if not (0 < number < math.inf) or (name == WEIGHT and not low <= number <= high):
            expected = f"{low} to {high} kg" if name == WEIGHT else "a number above 0"
            table.report(WARNING, "suv-factor", patient, f"{name} {given[name][:40]!r}, which is not used", expected)
            return None
    return numbers[FACTOR] if FACTOR in numbers else numbers[WEIGHT] * 1000 / numbers[DOSE]


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan
