"""Cases and ground truth of a release, handed over as the platform would; a ground truth compared with the cases.

The cases are NIfTI images, and rows of the release's tables as `ehr.json`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from contract.editions import Algorithm, Edition, Socket
from contract.editions.clinical import ImpossibleValueError
from contract.editions.inputs import EHR
from contract.errors import GroundTruthError, InputError
from contract.images.volumes import list_images
from contract.io.files import list_folder
from contract.io.tables import write_csv
from contract.patient import describe_id_difference, format_names
from contract.platform import ONE_FILE_SUFFIXES, compose, is_system_name
from contract.predictions import parse_case
from contract.release.layout import (
    MASK_ROLE,
    ReleaseFolder,
    fill_template,
    find_patient_files,
    find_role,
    find_table_name,
    find_task_folder,
    is_release,
    list_csv_files,
)
from contract.release.tables import (
    ID_COLUMN,
    ReleaseTable,
    Row,
    has_factors,
    list_columns_read,
    read_suv_factors,
    read_table,
)
from rehearsal.jobs.cases import Cohort, CohortCase, place
from rehearsal.jobs.execute import Rehearsal


def has_release_layout(cohort: Path, edition: Edition) -> bool:
    """True if a folder is a release and no cohort in the platform's layout."""
    is_cohort = any((folder / "input").exists() for folder in list_folder(cohort) if folder.is_dir())
    return not is_cohort and is_release(cohort, edition)


def read_release_cohort(root: Path, edition: Edition, task: Algorithm, only: Sequence[str] = ()) -> Cohort:
    """The patients of a task in a release, sorted by ID; with `only` these IDs alone.

    Images stay where they are until a job is staged. `ehr.json` holds the clinical variables that the edition
    declares and the table has, null where a value is missing, and the SUV factor where the release has one; it never
    holds an outcome of the task.

    Raises:
        InputError: no patient, an ID of `only` without a folder, a patient without a required image, or a table that
            cannot be used.
    """
    folder = find_task_folder(root, edition, task)
    folders = [path for path in folder.path.iterdir() if path.is_dir() and not is_system_name(path.name)]
    folder_of = {compose(path.name): path for path in folders}
    names, only = sorted(folder_of), [compose(name) for name in only]
    if unknown := sorted(set(only) - set(names)):
        raise InputError(root.name, f"no case {', '.join(unknown)}", "one of its folders")
    chosen = [name for name in names if not only or name in only]
    if not chosen:
        scan = fill_template(task.scan.release or "", "<ID>")
        raise InputError(root.name, f"no patient folder in {folder.name}", f"<ID>/{scan}")
    table = _table(folder, edition)
    factors, warnings = _factors(folder, edition, chosen)
    if table is None and folder.needs_table:
        expected = find_table_name(folder, edition)
        warnings.append(f"{folder.name}: no CSV file such as {expected}, so ehr.json of each case is empty")
    elif table is not None and (rowless := [name for name in chosen if name not in table.rows]):
        warnings.append(f"{table.file}: no usable row of {format_names(rowless)}, whose ehr.json has no value")
    cases, masks = [], {}
    for name in chosen:
        files = find_patient_files(folder_of[name], folder.files)
        ehr, unread = _ehr(name, table, edition, folder.outcomes)
        warnings += unread
        if edition.suv_factor and name in factors:
            ehr[edition.suv_factor[0]] = factors[name]
        values = ((task.inputs[EHR], ehr),) if EHR in task.inputs else ()
        cases.append(CohortCase(name, f"{name}.nii.gz", _images(name, files, task), values))
        if task.mask_spec is not None and MASK_ROLE in files:
            masks[name] = files[MASK_ROLE]
    return Cohort(tuple(cases), tuple(warnings), masks, table)


def _images(name: str, files: Mapping[str, Path], task: Algorithm) -> tuple[tuple[Socket, Path], ...]:
    """The images of a patient by socket."""
    for one in (one for one in task.inputs if one != EHR and find_role(one) not in files):
        raise InputError(name, f"no {find_role(one)} in its folder", f"it for task {task.name}")
    sockets = {**task.inputs, **task.optional_inputs}
    return tuple((socket, files[find_role(one)]) for one, socket in sockets.items() if find_role(one) in files)


def _table(folder: ReleaseFolder, edition: Edition) -> ReleaseTable | None:
    """The folder's table, None without one. Raises InputError for several, and for one that cannot be read."""
    others = [path for path in folder.tables if not has_factors(path)] or folder.tables
    if len(others) > 1:
        names = ", ".join(path.name for path in others)
        raise InputError(folder.name, f"found {len(others)} CSV files ({names})", "one table")
    if not others:
        return None
    table = read_table(others[0], others[0].name, edition)
    if not table.is_readable:
        fault = next(problem for problem in table.problems if problem.is_error)
        raise InputError(table.file, fault.found, fault.expected)
    return table


def _factors(folder: ReleaseFolder, edition: Edition, cases: Collection[str]) -> tuple[dict[str, float], list[str]]:
    """The SUV factors of the cases from a table in the folder, and warnings about rows that cannot be used."""
    tables = [path for path in list_csv_files(folder.path) if has_factors(path)] if edition.suv_factor else []
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
            warnings.append(f"{table.file}: {case}: {variable.key} {cell!r}{problem.suffix}, expected {problem}")
        ehr[variable.key] = int(value) if isinstance(value, float) and value.is_integer() else value
    return ehr, warnings


def with_ground_truth(rehearsal: Rehearsal, cohort: Cohort, folder: Path) -> tuple[Rehearsal, tuple[str, ...]]:
    """The rehearsal with a ground truth of its release in `folder` if it is scored and none is given.

    If the release lacks what the task is scored by, nothing is scored, and a warning says so.
    """
    if rehearsal.evaluation is None or rehearsal.ground_truth_dir is not None:
        return rehearsal, ()
    if lack := _missing_reference(cohort, rehearsal.task):
        return rehearsal, (f"{rehearsal.cohort.name}: {lack}, so nothing is scored",)
    folder.mkdir(parents=True)
    for case, path in cohort.masks.items():
        place(path, folder / f"{case}.nii.gz")
    if (table := cohort.table) is not None:
        columns = [column for column in list_columns_read(rehearsal.edition) if column in table.columns]
        cases = [case.case_id for case in cohort.cases if case.case_id in table.rows]
        write_csv(folder / table.file, columns, [{**table.rows[case], ID_COLUMN: case} for case in cases])
    unscored = [case.case_id for case in cohort.cases if rehearsal.task.mask_spec and case.case_id not in cohort.masks]
    warning = f"no reference mask of {len(unscored)} cases ({format_names(unscored)}), which are not scored"
    return replace(rehearsal, ground_truth_dir=folder), (warning,) if unscored else ()


def _missing_reference(cohort: Cohort, task: Algorithm) -> str | None:
    """The files that a cohort lacks to score a task; None if it lacks none."""
    if task.mask_spec is not None and not cohort.masks:
        return "no reference mask <ID>/<ID>.nii.gz"
    columns = [column for answer in task.head_specs for column in answer.columns.values()]
    absent = [column for column in columns if cohort.table is None or column not in cohort.table.columns]
    return f"no column {', '.join(absent)} in its table" if absent else None


def compare_ids(cases: Sequence[CohortCase], rehearsal: Rehearsal) -> tuple[str, ...]:
    """Warnings about cases without a reference and references without a case, in the ground truth that is given.

    The IDs of a reference are the names of the masks, and the rows of the tables with an outcome of the task. A folder
    with neither, or with a table that is not read here, gives a warning: another evaluation may read it.

    Raises:
        GroundTruthError: no such folder, or it has masks or rows, and none belongs to a case.
    """
    folder, task, edition = rehearsal.ground_truth_dir, rehearsal.task, rehearsal.edition
    if folder is None:
        return ()
    if not folder.is_dir():
        raise GroundTruthError(folder.name, "no such folder", "the ground truth")
    names = sorted(parse_case(case.image_name) for case in cases)
    masks = (
        {parse_case(path.name) for path in list_images(folder, ONE_FILE_SUFFIXES)}
        if task.mask_spec is not None
        else set()
    )
    tables = [read_table(path, path.name, edition) for path in list_csv_files(folder)] if task.head_specs else []
    outcomes = {column for answer in task.head_specs for column in answer.columns.values()}
    rows = {case for table in tables if outcomes.intersection(table.columns) for case in table.rows}
    warnings: list[str] = []
    for kind, known, is_needed in (("masks", masks, task.mask_spec is not None), ("rows", rows, bool(task.head_specs))):
        if is_needed:
            warnings += _compared(folder.name, kind, known, names)
    return tuple(warnings)


def _compared(folder: str, kind: str, known: Collection[str], names: Sequence[str]) -> list[str]:
    if not known:
        return [f"{folder}: found no {kind} by case, so the IDs of the cases are not compared with it"]
    common = set(known).intersection(names)
    if not common:
        difference = describe_id_difference(names, sorted(known))
        expected = f"{kind} of the {len(names)} cases {format_names(names)}{difference}"
        raise GroundTruthError(folder, f"found {kind} of {format_names(sorted(known))}", expected)
    warnings = []
    if unscored := [name for name in names if name not in known]:
        warnings.append(
            f"{folder}: no {kind} of {len(unscored)} cases ({format_names(unscored)}), which are not scored"
        )
    if unanswered := sorted(set(known) - common):
        count = f"{len(unanswered)} of {len(known)}"
        warnings.append(
            f"{folder}: {kind} of {count} belong to no case ({format_names(unanswered)}) and count as missing"
        )
    return warnings
