"""Prepare the ground truth before the first job: lay it out from a release, and compare its case IDs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from contract.editions import Algorithm
from contract.errors import GroundTruthError
from contract.files import write_csv
from contract.images.volumes import list_images
from contract.patient import difference_of_ids, listed
from contract.platform import ONE_FILE_SUFFIXES
from contract.predictions import case_of
from contract.release.layout import csv_files
from contract.release.tables import ID, columns_of, read_table
from rehearsal.jobs.cases import Cohort, CohortCase, place
from rehearsal.jobs.execute import Rehearsal


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
        columns = [column for column in columns_of(rehearsal.edition) if column in table.columns]
        cases = [case.case_id for case in cohort.cases if case.case_id in table.rows]
        write_csv(folder / table.file, columns, [{**table.rows[case], ID: case} for case in cases])
    unscored = [case.case_id for case in cohort.cases if rehearsal.task.mask and case.case_id not in cohort.masks]
    warning = f"no reference mask of {len(unscored)} cases ({listed(unscored)}), which are not scored"
    return replace(rehearsal, ground_truth_dir=folder), (warning,) if unscored else ()


def _missing_reference(cohort: Cohort, task: Algorithm) -> str | None:
    """What a cohort lacks to score a task; None if it lacks nothing."""
    if task.mask is not None and not cohort.masks:
        return "no reference mask <ID>/<ID>.nii.gz"
    columns = [column for answer in task.heads for column in answer.columns.values()]
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
    names = sorted(case_of(case.image_name) for case in cases)
    masks = {case_of(path.name) for path in list_images(folder, ONE_FILE_SUFFIXES)} if task.mask is not None else set()
    tables = [read_table(path, path.name, edition) for path in csv_files(folder)] if task.heads else []
    outcomes = {column for answer in task.heads for column in answer.columns.values()}
    rows = {case for table in tables if outcomes.intersection(table.columns) for case in table.rows}
    warnings: list[str] = []
    for kind, known, is_needed in (("masks", masks, task.mask is not None), ("rows", rows, bool(task.heads))):
        if is_needed:
            warnings += _compared(folder.name, kind, known, names)
    return tuple(warnings)


def _compared(folder: str, kind: str, known: Collection[str], names: Sequence[str]) -> list[str]:
    if not known:
        return [f"{folder}: found no {kind} by case, so the IDs of the cases are not compared with it"]
    common = set(known).intersection(names)
    if not common:
        difference = difference_of_ids(names, sorted(known))
        expected = f"{kind} of the {len(names)} cases {listed(names)}{difference}"
        raise GroundTruthError(folder, f"found {kind} of {listed(sorted(known))}", expected)
    warnings = []
    if unscored := [name for name in names if name not in known]:
        warnings.append(f"{folder}: no {kind} of {len(unscored)} cases ({listed(unscored)}), which are not scored")
    if unanswered := sorted(set(known) - common):
        count = f"{len(unanswered)} of {len(known)}"
        warnings.append(f"{folder}: {kind} of {count} belong to no case ({listed(unanswered)}) and count as missing")
    return warnings
