"""Read the cases and the ground truth of a release, and compare a ground truth with the cases.

The images of a case are NIfTI files, and its `ehr.json` is a row of the release's table.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from contract.editions import Algorithm, Edition, Socket
from contract.editions.clinical import ImpossibleValueError
from contract.editions.inputs import EHR
from contract.errors import GroundTruthError, InputError
from contract.images.volumes import list_images
from contract.io.files import list_folder, write_text
from contract.io.tables import write_csv
from contract.patient import describe_id_difference, format_names
from contract.platform import ONE_FILE_SUFFIXES, is_system_name, normalise_unicode
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
    has_suv_factors,
    list_columns_read,
    read_cells,
    read_columns,
    read_suv_factors,
    read_table,
)
from rehearsal.jobs.cases import Cohort, CohortCase, place_file
from rehearsal.jobs.execution import Rehearsal


def has_release_layout(cohort: Path, edition: Edition) -> bool:
    """Return whether a folder is a release and not a cohort in the platform's layout."""
    is_cohort = any((folder / "input").exists() for folder in list_folder(cohort) if folder.is_dir())
    return not is_cohort and is_release(cohort, edition)


def read_release_cohort(root: Path, edition: Edition, task: Algorithm, only: Sequence[str] = ()) -> Cohort:
    """Read the patients of a task in a release, sorted by ID; `only` restricts them to some IDs.

    Images stay in the release until a job is staged. `ehr.json` contains the clinical variables that both the edition
    and the table have, null for a missing value, and the SUV factor if the release has one. It never contains an
    outcome of the task.

    Raises:
        InputError: There is no patient, an ID of `only` has no folder, a patient has no required image, or the table
            is unusable.
    """
    folder = find_task_folder(root, edition, task)
    folders = [path for path in folder.path.iterdir() if path.is_dir() and not is_system_name(path.name)]
    folder_of = {normalise_unicode(path.name): path for path in folders}
    names = sorted(folder_of)
    only = [normalise_unicode(name) for name in only]
    unknown = sorted(set(only) - set(names))
    if unknown:
        raise InputError(root.name, f"no case {', '.join(unknown)}", "one of its folders")
    chosen = [name for name in names if not only or name in only]
    if not chosen:
        scan = fill_template(task.scan.release or "", "<ID>")
        raise InputError(root.name, f"no patient folder in {folder.name}", f"<ID>/{scan}")
    table = _read_table(folder, edition)
    factors, warnings = _read_factors(folder, edition, chosen)
    if table is None and folder.needs_table:
        expected = find_table_name(folder, edition)
        warnings.append(f"{folder.name}: no CSV file such as {expected}, so ehr.json of each case is empty")
    if table is not None:
        without_row = [name for name in chosen if name not in table.rows]
        if without_row:
            warnings.append(f"{table.file}: no usable row of {format_names(without_row)}, whose ehr.json has no value")
    cases: list[CohortCase] = []
    masks: dict[str, Path] = {}
    for name in chosen:
        files = find_patient_files(folder_of[name], folder.files)
        ehr, ehr_warnings = _make_ehr(name, table, edition, folder.outcomes)
        warnings += ehr_warnings
        if edition.suv_factor and name in factors:
            ehr[edition.suv_factor[0]] = factors[name]
        values = ((task.inputs[EHR], ehr),) if EHR in task.inputs else ()
        cases.append(CohortCase(name, f"{name}.nii.gz", _find_images(name, files, task), values))
        if task.mask_spec is not None and MASK_ROLE in files:
            masks[name] = files[MASK_ROLE]
    return Cohort(tuple(cases), tuple(warnings), masks, table)


def _find_images(name: str, files: Mapping[str, Path], task: Algorithm) -> tuple[tuple[Socket, Path], ...]:
    """Find the images of a patient by socket; raise `InputError` if a required image does not exist."""
    for key in task.inputs:
        if key != EHR and find_role(key) not in files:
            raise InputError(name, f"no {find_role(key)} in its folder", f"it for task {task.name}")
    sockets = {**task.inputs, **task.optional_inputs}
    return tuple((socket, files[find_role(key)]) for key, socket in sockets.items() if find_role(key) in files)


def _read_table(folder: ReleaseFolder, edition: Edition) -> ReleaseTable | None:
    """Read the folder's table, None if it has no table; raise `InputError` if it has several or an unreadable one."""
    paths = [path for path in folder.tables if not has_suv_factors(path)] or folder.tables
    if len(paths) > 1:
        names = ", ".join(path.name for path in paths)
        raise InputError(folder.name, f"found {len(paths)} CSV files ({names})", "one table")
    if not paths:
        return None
    table = read_table(paths[0], paths[0].name, edition)
    if not table.is_readable:
        error = next(problem for problem in table.problems if problem.is_error)
        raise InputError(table.file, error.found, error.expected)
    return table


def _read_factors(
    folder: ReleaseFolder, edition: Edition, cases: Collection[str]
) -> tuple[dict[str, float], list[str]]:
    """Read the SUV factors of the cases from a table in the folder; return with them warnings about unusable rows."""
    tables = [path for path in list_csv_files(folder.path) if has_suv_factors(path)] if edition.suv_factor else []
    factors: dict[str, float] = {}
    warnings: list[str] = []
    for path in tables:
        table = ReleaseTable(path.name)
        try:
            factors |= read_suv_factors(path, table, cases)
        except InputError as error:
            # This is a warning only, since all cases of a rehearsal may have a PET in SUV already.
            warnings.append(f"{error.message}; no factor is used")
        problems = [problem for problem in table.problems if problem.patient_id in cases]
        warnings += [f"{path.name}: {problem.patient_id}: {problem.found}" for problem in problems]
    return factors, warnings


def _make_ehr(
    case: str, table: ReleaseTable | None, edition: Edition, outcomes: Collection[str]
) -> tuple[dict[str, Any], list[str]]:
    """Read the clinical variables of a case by key; a value that cannot be read stays unchanged, with a warning."""
    if table is None:
        return {}, []
    row: Row = table.rows.get(case, {})
    ehr: dict[str, Any] = {}
    warnings = []
    for variable in edition.clinical:
        if variable.key not in table.columns or variable.key in outcomes:
            continue
        cell = row.get(variable.key)
        try:
            value = variable.read(cell)
        except ImpossibleValueError as problem:
            value = cell
            warnings.append(f"{table.file}: {case}: {variable.key} {cell!r}{problem.suffix}, expected {problem}")
        ehr[variable.key] = int(value) if isinstance(value, float) and value.is_integer() else value
    return ehr, warnings


def write_ground_truth(rehearsal: Rehearsal, cohort: Cohort, folder: Path) -> tuple[Rehearsal, tuple[str, ...]]:
    """Write the ground truth of a release into `folder`, or copy the part of `--ground-truth` for selected cases.

    A ground truth without selected cases is used where it is.

    Returns:
        The rehearsal with the ground truth, and warnings. If the release has no reference for the task, nothing is
        written or scored, and a warning names the missing files or columns.
    """
    if rehearsal.evaluation is None:
        return rehearsal, ()
    if rehearsal.ground_truth_dir is not None:
        if not rehearsal.only:
            return rehearsal, ()
        names = {parse_case(case.image_name) for case in cohort.cases}
        _copy_ground_truth(rehearsal.ground_truth_dir, folder, names, rehearsal.edition)
        return replace(rehearsal, ground_truth_dir=folder), ()
    missing = _find_missing_reference(cohort, rehearsal.task)
    if missing is not None:
        return rehearsal, (f"{rehearsal.cohort.name}: {missing}, so nothing is scored",)
    folder.mkdir(parents=True)
    for case, path in cohort.masks.items():
        place_file(path, folder / f"{case}.nii.gz")
    table = cohort.table
    if table is not None:
        columns = [column for column in list_columns_read(rehearsal.edition) if column in table.columns]
        cases = [case.case_id for case in cohort.cases if case.case_id in table.rows]
        write_csv(folder / table.file, columns, [{**table.rows[case], ID_COLUMN: case} for case in cases])
    unscored = [case.case_id for case in cohort.cases if rehearsal.task.mask_spec and case.case_id not in cohort.masks]
    warning = f"no reference mask of {len(unscored)} cases ({format_names(unscored)}), which are not scored"
    return replace(rehearsal, ground_truth_dir=folder), (warning,) if unscored else ()


def _copy_ground_truth(source: Path, target: Path, names: Collection[str], edition: Edition) -> None:
    """Copy a ground truth without the masks and rows of other cases.

    All other files are copied, since a custom evaluation may read them.

    Args:
        source: Folder of the ground truth.
        target: New folder.
        names: IDs of the cases to keep.
        edition: Edition that declares the spellings of columns.
    """
    target.mkdir(parents=True)
    masks, tables = set(list_images(source, ONE_FILE_SUFFIXES)), set(list_csv_files(source))
    for path in sorted(source.rglob("*")):
        if not path.is_file() or (path in masks and parse_case(path.name) not in names):
            continue
        place_file(path, target / path.relative_to(source))
        if path in tables:
            _remove_rows_of_other_cases(target / path.name, names, edition)


def _remove_rows_of_other_cases(table: Path, names: Collection[str], edition: Edition) -> None:
    """Remove the rows of a CSV file whose patient is not in `names`; a file without a column of IDs stays as it is."""
    columns = read_columns(table, edition)
    if ID_COLUMN not in columns:
        return
    cells = read_cells(table)
    index = columns.index(ID_COLUMN)
    text = io.StringIO()
    writer = csv.writer(text, delimiter=cells.delimiter, lineterminator="\n")
    writer.writerow(cells.columns)
    writer.writerows(row for _, row in cells.rows if index < len(row) and row[index] in names)
    write_text(table, text.getvalue())


def _find_missing_reference(cohort: Cohort, task: Algorithm) -> str | None:
    """Describe the files or columns without which a cohort cannot be scored; None if none is missing."""
    if task.mask_spec is not None and not cohort.masks:
        return "no reference mask <ID>/<ID>.nii.gz"
    columns = [column for answer in task.head_specs for column in answer.columns.values()]
    absent = [column for column in columns if cohort.table is None or column not in cohort.table.columns]
    return f"no column {', '.join(absent)} in its table" if absent else None


def compare_ids(cases: Sequence[CohortCase], rehearsal: Rehearsal) -> tuple[str, ...]:
    """Compare the IDs of the cases with the IDs of the ground truth, if the rehearsal has one.

    The IDs of a reference are the names of the masks, and the rows of tables with an outcome of the task. If there are
    no such IDs, the result is a warning, since a custom evaluation may read other files.

    Returns:
        Warnings about cases without a reference, and about references without a case.

    Raises:
        GroundTruthError: The folder does not exist, or none of its masks or rows belongs to a case.
    """
    folder = rehearsal.ground_truth_dir
    task = rehearsal.task
    if folder is None:
        return ()
    if not folder.is_dir():
        raise GroundTruthError(folder.name, "no such folder", "the ground truth")
    names = sorted(parse_case(case.image_name) for case in cases)
    warnings: list[str] = []
    if task.mask_spec is not None:
        masks = {parse_case(path.name) for path in list_images(folder, ONE_FILE_SUFFIXES)}
        warnings += _compare_with_reference(folder.name, "masks", masks, names, rehearsal.only)
    if task.head_specs:
        tables = [read_table(path, path.name, rehearsal.edition) for path in list_csv_files(folder)]
        outcomes = {column for answer in task.head_specs for column in answer.columns.values()}
        rows = {case for table in tables if outcomes.intersection(table.columns) for case in table.rows}
        warnings += _compare_with_reference(folder.name, "rows", rows, names, rehearsal.only)
    return tuple(warnings)


def _compare_with_reference(
    folder: str, kind: str, known: Collection[str], names: Sequence[str], only: Sequence[str]
) -> list[str]:
    """Compare the names of the cases with the `known` IDs of the reference.

    `kind` is "masks" or "rows". If the cases are restricted to `only`, references of other cases give no warning.
    """
    if not known:
        return [f"{folder}: found no {kind} by case, so the IDs of the cases are not compared with it"]
    common = set(known).intersection(names)
    if not common:
        difference = describe_id_difference(names, sorted(known))
        expected = f"{kind} of the {len(names)} cases {format_names(names)}{difference}"
        raise GroundTruthError(folder, f"found {kind} of {format_names(sorted(known))}", expected)
    warnings = []
    unscored = [name for name in names if name not in known]
    if unscored:
        warnings.append(
            f"{folder}: no {kind} of {len(unscored)} cases ({format_names(unscored)}), which are not scored"
        )
    unanswered = sorted(set(known) - common)
    if unanswered and not only:
        count = f"{len(unanswered)} of {len(known)}"
        warnings.append(
            f"{folder}: {kind} of {count} belong to no case ({format_names(unanswered)}) and count as missing"
        )
    return warnings
