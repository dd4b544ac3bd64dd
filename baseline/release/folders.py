"""Folders of a release, and their problems: missing or shared files, rows without images, missing outcomes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from contract.editions import Edition
from contract.errors import Finding, HecktorError, InputError
from contract.patient import format_names
from contract.platform import is_system_name, normalise_unicode
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


@dataclass(frozen=True)
class ProblemReporter:
    """Creates the problems of one file of one patient; `file` is relative to the release's folder."""

    patient_id: str
    file: str

    def error(self, kind: str, actual: str, expected: str) -> Problem:
        return Problem(ERROR, kind, self.patient_id, self.file, actual, expected)

    def warning(self, kind: str, actual: str, expected: str) -> Problem:
        return Problem(WARNING, kind, self.patient_id, self.file, actual, expected)

    def finding(self, kind: str, finding: Finding) -> Problem:
        actual = f"{finding.found}; {finding.action}" if finding.action else finding.found
        return self.warning(kind, actual, finding.expected)

    def unreadable(self, problem: HecktorError) -> Problem:
        return self.error("unreadable", problem.found or problem.what, problem.expected or "a sound file")


@dataclass
class PatientFolders:
    """Files of one patient by folder (task) and role."""

    patient_id: str
    files: dict[str, dict[str, Path]] = field(default_factory=dict)

    def first(self, role: str) -> Path | None:
        """Return the role's file in the first folder with such a file."""
        return next((files[role] for files in self.files.values() if role in files), None)


@dataclass
class ReleaseFiles:
    """All patients by ID, the CSV files by folder, and the problems of both."""

    root: Path
    folders: dict[str, ReleaseFolder] = field(default_factory=dict)
    patients: dict[str, PatientFolders] = field(default_factory=dict)
    tables: dict[str, Path] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def make_reporter(self, path: Path, patient_id: str = "") -> ProblemReporter:
        """Make the reporter of problems of one file or folder."""
        return ProblemReporter(patient_id, self.name(path))

    def name(self, path: Path) -> str:
        """Return a file's path below the root, as problems show it."""
        return path.relative_to(self.root).as_posix()


def read_layout(root: Path, edition: Edition) -> ReleaseFiles:
    """Search all folders of the release that exist."""
    root = root.absolute()
    folders = require_release(root, edition)
    layout = ReleaseFiles(_find_common_root(root, folders), {folder.name: folder for folder in folders})
    _report_other_folders(layout)
    for folder in folders:
        _search_folder(folder, layout, edition)
    if not layout.patients:
        scan = fill_template(edition.algorithms[0].scan.release or "", "<ID>")
        raise InputError(root.name, f"no patient folder in {', '.join(layout.folders)}", f"<ID>/{scan}")
    _report_shared_images(layout)
    return layout


def _find_common_root(root: Path, folders: Sequence[ReleaseFolder]) -> Path:
    """Return the folder of the release, or the folder above it that contains the table."""
    parents = {table.parent for folder in folders for table in folder.tables}
    return min((root, *(path for path in parents if root.is_relative_to(path))), key=lambda p: len(p.parts))


def _report_other_folders(layout: ReleaseFiles) -> None:
    """Report folders that look like a task's folder, and the organisers' splits."""
    places = {path for folder in layout.folders.values() for path in (folder.path, *folder.path.parents)}
    for place in sorted(path for path in places if path.is_relative_to(layout.root)):
        for path in sorted(path for path in place.glob(_SPLIT_FILES) if not is_system_name(path.name)):
            problem = "the organisers' splits, which name patients who are not in the release; the file is ignored"
            reporter = layout.make_reporter(path)
            layout.problems.append(reporter.warning("split-file", problem, "the splits that prepare makes"))
    if layout.folders.keys().isdisjoint(TASK_FOLDERS):
        return
    for path in sorted(layout.root.iterdir()):
        is_similar = path.is_dir() and not is_system_name(path.name) and _LIKE_A_TASK.search(path.name)
        if is_similar and path.name not in TASK_FOLDERS:
            reporter = layout.make_reporter(path)
            layout.problems.append(reporter.warning("unexpected-file", "an unknown folder", ", ".join(TASK_FOLDERS)))


def _search_folder(folder: ReleaseFolder, layout: ReleaseFiles, edition: Edition) -> None:
    if len(folder.tables) == 1:
        layout.tables[folder.name] = folder.tables[0]
    elif folder.needs_table:
        kind = "csv-doubled" if folder.tables else "csv-missing"
        names = f" ({', '.join(path.name for path in folder.tables)})" if folder.tables else ""
        expected = f"one, such as {find_table_name(folder, edition)}"
        reporter = layout.make_reporter(folder.path)
        layout.problems.append(reporter.error(kind, f"{len(folder.tables)} CSV files{names}", expected))
    for path in sorted(folder.path.iterdir()):
        if path.is_dir() and not is_system_name(path.name):
            _read_patient(path, folder, layout)


def _read_patient(folder: Path, parent: ReleaseFolder, layout: ReleaseFiles) -> None:
    name = normalise_unicode(folder.name)
    roles = {role: find_file(folder, fill_template(file, folder.name)) for role, file in parent.files.items()}
    files = {role: path for role, path in roles.items() if path.is_file()}
    layout.patients.setdefault(name, PatientFolders(name)).files[parent.name] = files
    expected = [path.relative_to(folder).parts[0] for path in roles.values()]
    present = sorted(path.name for path in folder.iterdir() if not is_system_name(path.name))
    unexpected = ", ".join(name for name in present if name not in expected) or "no other file"
    for role, path in roles.items():
        if role in files:
            continue
        reporter = layout.make_reporter(path, name)
        if path.is_symlink() or path.exists():
            text = "a broken link" if path.is_symlink() else "not a regular file"
            layout.problems.append(reporter.error("unreadable", text, f"the {role}"))
        elif role in parent.required_roles:
            layout.problems.append(reporter.error("missing-file", f"not found ({unexpected})", f"the {role}"))


def _report_shared_images(layout: ReleaseFiles) -> None:
    """Report images that two patients share: they could be in different folds."""
    scans = {role for folder in layout.folders.values() for role in folder.required_roles if role != MASK_ROLE}
    for role in sorted(scans):
        known: dict[bytes, Path] = {}
        for patient in layout.patients.values():
            path = patient.first(role)
            checksum = None if path is None else _gzip_checksum(path)
            if path is not None and checksum is not None and known.setdefault(checksum, path) != path:
                problem = f"the same image as {layout.name(known[checksum])}"
                reporter = layout.make_reporter(path, patient.patient_id)
                layout.problems.append(reporter.error("doubled-image", problem, "each patient's own"))


def _gzip_checksum(path: Path) -> bytes | None:
    """Read CRC-32 and length of the content from the end of a gzip stream; None if the file is not a gzip stream."""
    with path.open("rb") as file:
        if file.read(2) != b"\x1f\x8b" or file.seek(0, 2) < 18:
            return None
        file.seek(-8, 2)
        return file.read()


def find_unmatched_patients(
    layout: ReleaseFiles, tables: Mapping[str, ReleaseTable], centres: Mapping[str, str]
) -> list[Problem]:
    """Find rows without images and images without a row, which are errors if no other folder or table has them.

    `centres` has the known centre of each patient of folders and tables.
    """
    problems: list[Problem] = []
    anywhere = {patient for table in tables.values() for patient in table.rows}
    for task, table in tables.items():
        in_folder = {patient for patient, folders in layout.patients.items() if task in folders.files}
        problems += _find_rows_without_images(layout, table, task, in_folder, centres)
        for patient in sorted(in_folder - set(table.rows) - table.refused_ids):
            severity = WARNING if patient in anywhere else ERROR
            text = f"a folder, no row in {table.file}"
            file = layout.name(layout.folders[task].path / patient)
            problems.append(Problem(severity, "images-without-row", patient, file, text, "a row"))
    return problems


def _find_rows_without_images(
    layout: ReleaseFiles, table: ReleaseTable, task: str, in_folder: Collection[str], centres: Mapping[str, str]
) -> Iterator[Problem]:
    """Find rows without images. If a whole centre has no folder, its rows give one warning."""
    present = {"", *(centres.get(patient, "") for patient in layout.patients)}
    centre_of_row = {patient: centres.get(patient, "") for patient in sorted(set(table.rows) - set(in_folder))}
    for centre, count in sorted(Counter(centre_of_row.values()).items()):
        if centre not in present:
            text = f"{count} rows of {centre}, no folder of this centre"
            yield Problem(WARNING, "centre-without-images", "", table.file, text, "its images, or no rows")
    for patient in (patient for patient, centre in centre_of_row.items() if centre in present):
        severity = WARNING if patient in layout.patients else ERROR
        text = f"a row of {patient}, no folder {task}/{patient}"
        yield Problem(severity, "row-without-images", patient, table.file, text, "its images")


def find_missing_outcomes(
    layout: ReleaseFiles, tables: Mapping[str, ReleaseTable], edition: Edition, allowed: Collection[str]
) -> Iterator[Problem]:
    """Find answers without outcomes in a table, an error unless another table has them or the answer is `allowed`."""
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
                text = f"no column {', '.join(missing)} for {answer.name}{_describe_unread_columns(table, edition)}"
                expected = f"one, or --allow-missing {answer.name}" if is_error else "one"
                yield Problem(ERROR if is_error else WARNING, "csv-column", "", table.file, text, expected)
            elif not filled.issuperset(columns):
                empty = ", ".join(column for column in columns if column not in filled)
                text = f"no value of {empty} in any row: nothing to train {answer.name} on"
                yield Problem(WARNING, "csv-column", "", table.file, text, "the outcome of some patients")


def _describe_unread_columns(table: ReleaseTable, edition: Edition) -> str:
    names = [name for name in table.columns if name and name not in list_columns_read(edition)]
    return f" (unknown columns: {format_names(names)})" if names else ""


def find_missing_masks(layout: ReleaseFiles) -> list[Problem]:
    """Find patients whose missing mask is not an error, because their folders have no masks or only optional masks."""
    mask_folders = [folder for folder in layout.folders.values() if folder.has_masks]
    problems = []
    for patient in layout.patients.values():
        patient_folders = [folder for folder in mask_folders if folder.name in patient.files]
        needs_mask = any(MASK_ROLE in folder.required_roles for folder in patient_folders)
        if not mask_folders or patient.first(MASK_ROLE) or needs_mask:
            continue
        file = layout.name(layout.folders[next(iter(patient.files))].path / patient.patient_id)
        missing = f"no {patient.patient_id}.nii.gz" if patient_folders else f"no folder in {mask_folders[0].name}"
        text = f"{missing}: without a reference mask only the heads can use it"
        problems.append(Problem(WARNING, "no-mask", patient.patient_id, file, text, "a reference mask"))
    return problems
