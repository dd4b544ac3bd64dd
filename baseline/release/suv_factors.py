"""Factors that turn a PET in Bq/ml into SUV, from a table on the user's disk.

SUV = activity concentration (Bq/ml) x body weight (g) / dose (Bq), so the factor is weight / dose.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from algorithm.case.uptake import LARGEST_PLAUSIBLE_SUV, suv_scale, tissue_uptake
from baseline.release.cases import Release
from baseline.release.clinical import LEAST_WEIGHT_KG, MOST_WEIGHT_KG
from baseline.release.problems import ERROR, WARNING
from baseline.release.tables import ReleaseTable, point_for_comma, read_rows
from contract.editions.clinical import is_missing, normalised_key
from contract.errors import Finding, InputError
from contract.images.volumes import Volume

FACTOR, WEIGHT, DOSE = "bqml_to_suvbw_factor", "patient_weight_kg", "dose_for_suv_bq"
_IDS: Final = ("patientid", "pid", "patient", "caseid", "case", "id")
# The estimate from muscle and fat is uncertain by up to 50%.
_MOST_RATIO: Final = 3.0


def with_suv_factors(release: Release, path: Path) -> Release:
    """The release with the table's factor in each case, and with the table's problems.

    Raises:
        InputError: no such file, or not a table with patient IDs and factors.
    """
    table = ReleaseTable(path.name)
    factors = read_suv_factors(path, table, {case.patient_id.upper() for case in release.cases})
    cases = tuple(replace(case, suv_factor=factors.get(case.patient_id.upper())) for case in release.cases)
    known = path.absolute()
    problems = [one for one in release.problems if one.kind != "unexpected-file" or release.root / one.file != known]
    return replace(release, cases=cases, problems=(*problems, *table.problems))


def read_suv_factors(path: Path, table: ReleaseTable, patients: Collection[str]) -> dict[str, float]:
    """Factors by patient ID in capitals; problems go to `table`. An impossible factor is named and left out.

    Without a factor, weight and dose give it. `patients` are the release's IDs in capitals.

    Raises:
        InputError: no such file, or not a table with patient IDs and factors.
    """
    if not path.is_file():
        raise InputError(path.name, "not found", "a table of SUV factors")
    header, rows = read_rows(path, table) or ([], [])
    names = [normalised_key(name) for name in header]
    place = {
        name: names.index(normalised_key(name)) for name in (FACTOR, WEIGHT, DOSE) if normalised_key(name) in names
    }
    ids = [names.index(name) for name in _IDS if name in names]
    if not ids or (FACTOR not in place and not {WEIGHT, DOSE} <= set(place)):
        found = f"columns {', '.join(header)[:200] or 'of no name'}"
        raise InputError(path.name, found, f"PatientID and {FACTOR}, or {WEIGHT} and {DOSE}")
    factors: dict[str, float] = {}
    first_row: dict[str, int] = {}
    for number, cells in rows:
        patient = cells[ids[0]].strip() if ids[0] < len(cells) else ""
        if len(cells) != len(header) or not patient:
            found = f"row {number} has {len(cells)} cells" if patient else f"row {number} has no patient ID"
            table.report(ERROR, "csv-row", patient or f"(row {number})", found, f"{len(header)} cells with an ID")
        elif first_row.setdefault(patient.upper(), number) != number:
            found = f"rows {first_row[patient.upper()]} and {number}"
            table.report(ERROR, "csv-doubled-row", patient, found, "one row for each patient")
        elif factor := _factor({name: cells[column].strip() for name, column in place.items()}, patient, table):
            factors[patient.upper()] = factor
    unknown = [patient for patient in first_row if patient not in patients]
    if unknown:
        found = f"{len(unknown)} patients who are not in the release: {', '.join(unknown)}"
        table.report(WARNING, "suv-factor", "", found, "patients of the release")
    return factors


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
        return float(point_for_comma(cell))
    except ValueError:
        return math.nan


def scaled_by_factor(pet: Volume, ct: Volume | None, factor: float | None, name: str) -> tuple[Volume, Finding | None]:
    """The PET in SUV if its values can only be Bq/ml and the factor is plausible; and what was done with the factor.

    The finding is None without a factor. `ct`, in HU, gives the scale that muscle and fat suggest.
    """
    if factor is None:
        return pet, None
    highest = float(pet.array.max())
    if highest <= LARGEST_PLAUSIBLE_SUV:
        return pet, Finding(
            name, f"highest value {highest:.6g}, already SUV", "Bq/ml", f"factor {factor:.4g} not applied"
        )
    fault = _fault(pet, ct, factor)
    if fault:
        expected = f"at most {_MOST_RATIO:g} times more or less"
        return pet, Finding(name, f"factor {factor:.4g} {fault}", expected, "not applied")
    found = f"highest value {highest:.6g}: an activity concentration (Bq/ml)"
    scaled = Volume(pet.array * np.float32(factor), pet.geometry)
    return scaled, Finding(name, found, "SUV", f"scaled by its factor {factor:.4g}")


def _fault(pet: Volume, ct: Volume | None, factor: float) -> str:
    """Why the factor cannot be right; empty if it can."""
    estimate = None if ct is None else suv_scale(tissue_uptake(ct, pet))
    if estimate and not 1 / _MOST_RATIO <= factor / estimate[0] <= _MOST_RATIO:
        return f"is {factor / estimate[0]:.3g} times the scale that muscle and fat suggest ({estimate[0]:.4g})"
    highest = float(pet.array.max()) * factor
    return f"gives a highest SUV of {highest:.4g}" if highest > LARGEST_PLAUSIBLE_SUV else ""
