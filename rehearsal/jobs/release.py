"""Cases of a release: NIfTI images, and rows of its tables as `ehr.json`, handed over as the platform would."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from contract.editions import Algorithm, Edition, Socket
from contract.editions.clinical import ImpossibleValueError
from contract.editions.inputs import EHR
from contract.errors import InputError
from contract.patient import listed
from contract.release.factors import has_factors, read_suv_factors
from contract.release.layout import (
    MASK,
    ReleaseFolder,
    csv_files,
    is_release,
    patient_file,
    patient_files,
    role_of,
    task_folder,
)
from contract.release.tables import ReleaseTable, Row, read_table
from rehearsal.jobs.cases import Cohort, CohortCase


def has_release_layout(cohort: Path, edition: Edition) -> bool:
    """Whether a folder is a release and no cohort in the platform's layout."""
    return not any(cohort.glob("*/input")) and is_release(cohort, edition)


def read_release_cohort(root: Path, edition: Edition, task: Algorithm, only: Sequence[str] = ()) -> Cohort:
    """The patients of a task in a release, sorted by ID; with `only` these IDs alone.

    Images stay where they are until a job is staged. `ehr.json` holds the clinical variables that the edition
    declares and the table has, null where a value is missing, and the SUV factor where the release has one; it never
    holds an outcome of the task.

    Raises:
        InputError: no patient, an ID of `only` without a folder, a patient without a required image, or a table that
            cannot be used.
    """
    folder = task_folder(root, edition, task)
    names = sorted(path.name for path in folder.path.iterdir() if path.is_dir() and path.name[0] != ".")
    if unknown := sorted(set(only) - set(names)):
        raise InputError(root.name, f"no case {', '.join(unknown)}", "one of its folders")
    chosen = [name for name in names if not only or name in only]
    if not chosen:
        scan = patient_file(task.scan.release or "", "<ID>")
        raise InputError(root.name, f"no patient folder in {folder.name}", f"<ID>/{scan}")
    table = _table(folder, edition)
    factors, warnings = _factors(folder, edition, chosen)
    if table is None and folder.needs_table:
        warnings.append(f"{folder.name}: no CSV file, so ehr.json of each case is empty")
    elif table is not None and (rowless := [name for name in chosen if name not in table.rows]):
        warnings.append(f"{table.file}: no usable row of {listed(rowless)}, whose ehr.json has no value")
    cases, masks = [], {}
    for name in chosen:
        files = patient_files(folder.path / name, folder.files)
        ehr, unread = _ehr(name, table, edition, folder.outcomes)
        warnings += unread
        if edition.suv_factor and name in factors:
            ehr[edition.suv_factor[0]] = factors[name]
        values = ((task.inputs[EHR], ehr),) if EHR in task.inputs else ()
        cases.append(CohortCase(name, f"{name}.nii.gz", _images(name, files, task), values))
        if task.mask is not None and MASK in files:
            masks[name] = files[MASK]
    return Cohort(tuple(cases), tuple(warnings), masks, table)


def _images(name: str, files: Mapping[str, Path], task: Algorithm) -> tuple[tuple[Socket, Path], ...]:
    """The images of a patient by socket."""
    for one in (one for one in task.inputs if one != EHR and role_of(one) not in files):
        raise InputError(name, f"no {role_of(one)} in its folder", f"it for task {task.name}")
    sockets = {**task.inputs, **task.optional_inputs}
    return tuple((socket, files[role_of(one)]) for one, socket in sockets.items() if role_of(one) in files)


def _table(folder: ReleaseFolder, edition: Edition) -> ReleaseTable | None:
    """The folder's table, None without one. Raises InputError for several, and for one that cannot be read."""
    others = [path for path in folder.tables if not has_factors(path)] or folder.tables
    if len(others) > 1:
        names = ", ".join(path.name for path in others)
        raise InputError(folder.name, f"found {len(others)} CSV files ({names})", "one table")
    if not others:
        return None
    table = read_table(others[0], others[0].name, edition)
    if not table.readable:
        fault = next(problem for problem in table.problems if problem.is_error)
        raise InputError(table.file, fault.found, fault.expected)
    return table


def _factors(folder: ReleaseFolder, edition: Edition, cases: Collection[str]) -> tuple[dict[str, float], list[str]]:
    """The SUV factors of the cases from a table in the folder, and warnings about rows that cannot be used."""
    tables = [path for path in csv_files(folder.path) if has_factors(path)] if edition.suv_factor else []
    factors: dict[str, float] = {}
    warnings = []
    for path in tables:
        table = ReleaseTable(path.name)
        try:
            factors |= read_suv_factors(path, table, cases)
        except InputError as problem:  # a few cases of a release may all have a PET in SUV
            warnings.append(f"{problem.message}; no factor is used")
        warnings += [f"{path.name}: {one.patient_id}: {one.found}" for one in table.problems if one.patient_id in cases]
    return factors, warnings


def _ehr(
    case: str, table: ReleaseTable | None, edition: Edition, outcomes: Collection[str]
) -> tuple[dict[str, Any], list[str]]:
    """The clinical variables of a case by key; a value that cannot be read stays as it is, with a warning."""
    if table is None:
        return {}, []
    row: Row = table.rows.get(case, {})
    ehr: dict[str, Any] = {}
    warnings = []
    for variable in (one for one in edition.clinical if one.key in table.columns and one.key not in outcomes):
        cell = row.get(variable.key)
        try:
            value = variable.read(cell)
        except ImpossibleValueError as problem:
            value = cell
            warnings.append(f"{table.file}: {case}: {variable.key} {cell!r}{problem.fault}, expected {problem}")
        ehr[variable.key] = int(value) if isinstance(value, float) and value.is_integer() else value
    return ehr, warnings
