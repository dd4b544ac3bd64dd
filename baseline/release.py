"""The challenge's release layout, read into one frozen record a patient.

Task folders hold `<ID>/<ID>__CT.nii.gz`, `<ID>/<ID>__PT.nii.gz` and, in Task 1, the mask `<ID>/<ID>.nii.gz`; a CSV
a task holds the clinical variables and the target.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from contract.errors import InputError
from contract.patient import Patient, parse_ehr

TASK_FOLDERS = ("Task 1", "Task 2", "Task 3")
_TARGETS = ("Relapse", "RFS", "HPV Status")


@dataclass(frozen=True)
class ReleaseCase:
    """One training patient; a target that is not released for this patient is None.

    `relapse` is True for an event, `rfs_days` the time to it or to censoring, `hpv` True for positive.
    """

    patient_id: str
    centre: str
    ct: Path
    pet: Path
    mask: Path
    patient: Patient
    relapse: bool | None
    rfs_days: float | None
    hpv: bool | None


def read_release(root: Path) -> tuple[ReleaseCase, ...]:
    """Read every patient of Task 1, with targets from the other tasks' CSV files, sorted by ID.

    Raises:
        InputError: a folder, file or column is missing; the message names it.
    """
    tables = {task: _read_table(root / task) for task in TASK_FOLDERS}
    first = root / TASK_FOLDERS[0]
    folders = sorted(path for path in first.iterdir() if path.is_dir())
    if not folders:
        raise InputError(f"{first.name}: no patient folder in {root.name}, expected <ID>/<ID>__CT.nii.gz")
    return tuple(_read_case(folder, tables) for folder in folders)


def _read_case(folder: Path, tables: dict[str, pd.DataFrame]) -> ReleaseCase:
    patient_id = folder.name
    paths = [folder / f"{patient_id}{suffix}.nii.gz" for suffix in ("__CT", "__PT", "")]
    for path in paths:
        if not path.is_file():
            raise InputError(f"{path.name}: not found in {folder.name}, expected CT, PT and mask of each patient")
    row: dict[str, Any] = {}
    for table in tables.values():
        if patient_id in table.index:
            found = table.loc[patient_id].to_dict()
            row.update({str(key): value for key, value in found.items() if not _is_nan(value)})
    if not row:
        raise InputError(f"{patient_id}: in no CSV file of the release, expected a row with its clinical variables")
    clinical = {key: value for key, value in row.items() if key not in _TARGETS}
    patient = parse_ehr(clinical, patient_id).patient
    return ReleaseCase(
        patient_id,
        patient.centre or patient_id.split("-")[0],
        paths[0],
        paths[1],
        paths[2],
        patient,
        _flag(row, "Relapse", patient_id),
        _days(row, "RFS", patient_id),
        _flag(row, "HPV Status", patient_id),
    )


def _number(row: dict[str, Any], column: str, patient_id: str, expected: str) -> float | None:
    if row.get(column) is None:
        return None
    try:
        return float(row[column])
    except (TypeError, ValueError):
        raise InputError(f"{patient_id}: {column} {row[column]!r}, expected {expected}") from None


def _flag(row: dict[str, Any], column: str, patient_id: str) -> bool | None:
    number = _number(row, column, patient_id, "0 or 1")
    if number not in (None, 0.0, 1.0):
        raise InputError(f"{patient_id}: {column} {number:g}, expected 0 or 1")
    return None if number is None else bool(number)


def _days(row: dict[str, Any], column: str, patient_id: str) -> float | None:
    number = _number(row, column, patient_id, "a number of days")
    if number is not None and not 0 <= number < math.inf:
        raise InputError(f"{patient_id}: {column} {number:g}, expected a number of days")
    return number


def _read_table(folder: Path) -> pd.DataFrame:
    files = sorted(folder.glob("*.csv")) if folder.is_dir() else []
    if len(files) != 1:
        raise InputError(f"{folder.name}: found {len(files)} CSV files, expected one")
    try:
        table = pd.read_csv(files[0], sep=None, engine="python", encoding="utf-8-sig", dtype={"PatientID": str})
    except (ValueError, csv.Error) as problem:  # pandas' own errors are ValueErrors
        raise InputError(f"{files[0].name}: not a readable table ({problem}), expected a CSV file") from None
    if "PatientID" not in table.columns:
        raise InputError(f"{files[0].name}: no column PatientID (found {', '.join(map(str, table.columns))})")
    if table["PatientID"].duplicated().any():
        twice = table.loc[table["PatientID"].duplicated(), "PatientID"].iloc[0]
        raise InputError(f"{files[0].name}: {twice} stands twice, expected each patient once")
    return table.set_index("PatientID")


def _is_nan(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
