"""Search the folders of a release; missing and shared files, and rows and outcomes that do not fit, are problems."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from contract.editions import Edition
from contract.errors import InputError
from contract.patient import format_names
from contract.platform import compose, is_system_name
from contract.release.layout import (
    MASK_ROLE,
    TASK_FOLDERS,
    ReleaseFolder,
    fill_template,
    find_file,
    find_table_name,
    require_release,
)
from contract.release.tables import ERROR, WARNING, Problem, ReleaseTable, list_columns_read

# Folder names that look like a misspelled task folder.
_LIKE_A_TASK: Final = re.compile(r"task[\W_]*[123]\b", re.IGNORECASE)
# The organisers' cross-validation splits name patients who are not in the release.
_SPLIT_FILES: Final = "splits_final*.json"


@dataclass
class PatientFolders:
    """Files of one patient by folder (task) and role."""

    patient_id: str
    files: dict[str, dict[str, Path]] = field(default_factory=dict)

    def first(self, role: str) -> Path | None:
        """The role's file in the first folder that has one."""
        return next((files[role] for files in self.files.values() if role in files), None)


@dataclass
class ReleaseFiles:
    """All patients by ID, the CSV files by folder, and the problems of both."""

    root: Path
    folders: dict[str, ReleaseFolder] = field(default_factory=dict)
    patients: dict[str, PatientFolders] = field(default_factory=dict)
    tables: dict[str, Path] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def report(self, severity: str, kind: str, patient_id: str, path: Path, found: str, expected: str) -> None:
        self.problems.append(Problem(severity, kind, patient_id, self.name(path), found, expected))

    def name(self, path: Path) -> str:
        """A file's path below the root, as problems show it."""
        return path.relative_to(self.root).as_posix()


def read_layout(root: Path, edition: Edition) -> ReleaseFiles:
    """Search all folders of the release that exist."""
    root = root.absolute()
    folders = require_release(root, edition)
    layout = ReleaseFiles(_common_root(root, folders), {folder.name: folder for folder in folders})
    _report_other_folders(layout)
    for folder in folders:
        _search_folder(folder, layout, edition)
    if not layout.patients:
        scan = fill_template(edition.algorithms[0].scan.release or "", "<ID>")
        raise InputError(root.name, f"no patient folder in {', '.join(layout.folders)}", f"<ID>/{scan}")
    _report_shared_images(layout)
    return layout


def _common_root(root: Path, folders: Sequence[ReleaseFolder]) -> Path:
    """The given folder, or the one above it that holds the table."""
    parents = {table.parent for folder in folders for table in folder.tables}
    return min((root, *(path for path in parents if root.is_relative_to(path))), key=lambda p: len(p.parts))


def _report_other_folders(layout: ReleaseFiles) -> None:
    """Report folders that may be meant as a task's, and the organisers' splits."""
    places = {path for folder in layout.folders.values() for path in (folder.path, *folder.path.parents)}
    for place in sorted(path for path in places if path.is_relative_to(layout.root)):
        for path in sorted(path for path in place.glob(_SPLIT_FILES) if not is_system_name(path.name)):
            found = "the organisers' splits, which name patients who are not in the release; the file is ignored"
            layout.report(WARNING, "split-file", "", path, found, "the splits that prepare makes")
    if layout.folders.keys().isdisjoint(TASK_FOLDERS):
        return
    for path in sorted(layout.root.iterdir()):
        meant = path.is_dir() and not is_system_name(path.name) and _LIKE_A_TASK.search(path.name)
        if meant and path.name not in TASK_FOLDERS:
            layout.report(WARNING, "unexpected-file", "", path, "an unknown folder", ", ".join(TASK_FOLDERS))


def _search_folder(folder: ReleaseFolder, layout: ReleaseFiles, edition: Edition) -> None:
    if len(folder.tables) == 1:
        layout.tables[folder.name] = folder.tables[0]
    elif folder.needs_table:
        kind = "csv-doubled" if folder.tables else "csv-missing"
        names = f" ({', '.join(path.name for path in folder.tables)})" if folder.tables else ""
        expected = f"one, such as {find_table_name(folder, edition)}"
        layout.report(ERROR, kind, "", folder.path, f"{len(folder.tables)} CSV files{names}", expected)
    for path in sorted(folder.path.iterdir()):
        if path.is_dir() and not is_system_name(path.name):
            _read_patient(path, folder, layout)


def _read_patient(folder: Path, parent: ReleaseFolder, layout: ReleaseFiles) -> None:
    name = compose(folder.name)
    roles = {role: find_file(folder, fill_template(file, folder.name)) for role, file in parent.files.items()}
    files = {role: path for role, path in roles.items() if path.is_file()}
    layout.patients.setdefault(name, PatientFolders(name)).files[parent.name] = files
    known = [path.relative_to(folder).parts[0] for path in roles.values()]
    names = sorted(path.name for path in folder.iterdir() if not is_system_name(path.name))
    others = ", ".join(one for one in names if one not in known)
    for role, path in roles.items():
        if role in files:
            continue
        if path.is_symlink() or path.exists():
            text = "a broken link" if path.is_symlink() else "not a regular file"
            layout.report(ERROR, "unreadable", name, path, text, f"the {role}")
        elif role in parent.required_roles:
            layout.report(ERROR, "missing-file", name, path, f"not found ({others or 'no other file'})", f"the {role}")


def _report_shared_images(layout: ReleaseFiles) -> None:
    """Report images that two patients share: they could be in different folds."""
    scans = {role for folder in layout.folders.values() for role in folder.required_roles if role != MASK_ROLE}
    for role in sorted(scans):
        known: dict[bytes, Path] = {}
        for patient in layout.patients.values():
            path = patient.first(role)
            checksum = None if path is None else _gzip_checksum(path)
            if path is not None and checksum is not None and known.setdefault(checksum, path) != path:
                found = f"the same image as {layout.name(known[checksum])}"
                layout.report(ERROR, "doubled-image", patient.patient_id, path, found, "each patient's own")


def _gzip_checksum(path: Path) -> bytes | None:
    """CRC-32 and length of the content, the last bytes of a gzip stream; None if the file is no such stream."""
    with path.open("rb") as file:
        if file.read(2) != b"\x1f\x8b" or file.seek(0, 2) < 18:
            return None
        file.seek(-8, 2)
        return file.read()


def unmatched(layout: ReleaseFiles, tables: Mapping[str, ReleaseTable], centres: Mapping[str, str]) -> list[Problem]:
    """Rows without images and images without a row: an error if no other folder or table has them.

    `centres` are those of all patients of folders and tables, as far as known.
    """
    problems: list[Problem] = []
    anywhere = {patient for table in tables.values() for patient in table.rows}
    for task, table in tables.items():
        there = {patient for patient, folders in layout.patients.items() if task in folders.files}
        problems += _rows_without_images(layout, table, task, there, centres)
        for patient in sorted(there - set(table.rows) - table.refused_ids):
            severity = WARNING if patient in anywhere else ERROR
            found = f"a folder, no row in {table.file}"
            file = layout.name(layout.folders[task].path / patient)
            problems.append(Problem(severity, "images-without-row", patient, file, found, "a row"))
    return problems


def _rows_without_images(
    layout: ReleaseFiles, table: ReleaseTable, task: str, there: Collection[str], centres: Mapping[str, str]
) -> Iterator[Problem]:
    """Rows of a centre of which no patient has a folder give one warning: a release may lack a whole centre."""
    present = {"", *(centres.get(patient, "") for patient in layout.patients)}
    centre_of_row = {patient: centres.get(patient, "") for patient in sorted(set(table.rows) - set(there))}
    for centre, count in sorted(Counter(centre_of_row.values()).items()):
        if centre not in present:
            found = f"{count} rows of {centre}, no folder of this centre"
            yield Problem(WARNING, "centre-without-images", "", table.file, found, "its images, or no rows")
    for patient in (patient for patient, centre in centre_of_row.items() if centre in present):
        severity = WARNING if patient in layout.patients else ERROR
        found = f"a row of {patient}, no folder {task}/{patient}"
        yield Problem(severity, "row-without-images", patient, table.file, found, "its images")


def find_missing_outcomes(
    layout: ReleaseFiles, tables: Mapping[str, ReleaseTable], edition: Edition, allowed: Collection[str]
) -> Iterator[Problem]:
    """Answers whose outcome a table lacks: an error if no other table has it, unless the answer is `allowed`."""
    anywhere = {column for table in tables.values() for column in table.columns}
    filled = {column for table in tables.values() for row in table.rows.values() for column in row}
    for answer in (answer for algorithm in edition.algorithms for answer in algorithm.head_specs):
        columns = tuple(answer.columns.values())
        for task, table in tables.items():
            if not set(columns) <= set(layout.folders[task].outcomes):
                continue
            missing = [column for column in columns if column not in table.columns]
            if missing:
                is_error = not anywhere.issuperset(missing) and answer.name not in allowed
                found = f"no column {', '.join(missing)} for {answer.name}{_unread(table, edition)}"
                expected = f"one, or --allow-missing {answer.name}" if is_error else "one"
                yield Problem(ERROR if is_error else WARNING, "csv-column", "", table.file, found, expected)
            elif not filled.issuperset(columns):
                empty = ", ".join(column for column in columns if column not in filled)
                found = f"no value of {empty} in any row: nothing to train {answer.name} on"
                yield Problem(WARNING, "csv-column", "", table.file, found, "the outcome of some patients")


def _unread(table: ReleaseTable, edition: Edition) -> str:
    names = [name for name in table.columns if name and name not in list_columns_read(edition)]
    return f" (unknown columns: {format_names(names)})" if names else ""


def without_mask(layout: ReleaseFiles) -> list[Problem]:
    """Patients whose missing mask is no error: they are in no folder with masks, or masks are optional there."""
    with_masks = [folder for folder in layout.folders.values() if folder.has_masks]
    problems = []
    for patient in layout.patients.values():
        own = [folder for folder in with_masks if folder.name in patient.files]
        if not with_masks or patient.first(MASK_ROLE) or any(MASK_ROLE in folder.required_roles for folder in own):
            continue
        where = layout.name(layout.folders[next(iter(patient.files))].path / patient.patient_id)
        missing = f"no {patient.patient_id}.nii.gz" if own else f"no folder in {with_masks[0].name}"
        found = f"{missing}: without a reference mask only the heads can use it"
        problems.append(Problem(WARNING, "no-mask", patient.patient_id, where, found, "a reference mask"))
    return problems
