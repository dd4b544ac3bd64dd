"""Search the folders of a release; missing and shared files are problems."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from contract.editions import Edition
from contract.errors import InputError
from contract.release.layout import MASK, TASK_FOLDERS, ReleaseFolder, content_of, patient_file, release_folders
from contract.release.problems import ERROR, WARNING, Problem

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
    folders = release_folders(root, edition)
    if not folders:
        tasks = f"{', '.join(TASK_FOLDERS)} or any of them"
        scan = patient_file(edition.algorithms[0].scan.release or "", "<ID>")
        expected = tasks if edition.has_task_folders else f"{tasks}, or a folder with <ID>/{scan}"
        raise InputError(root.name, f"found {content_of(root)}", expected)
    layout = ReleaseFiles(_common_root(root, folders), {folder.name: folder for folder in folders})
    _report_other_folders(layout)
    for folder in folders:
        _search_folder(folder, layout)
    if not layout.patients:
        scan = patient_file(edition.algorithms[0].scan.release or "", "<ID>")
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
        for path in sorted(place.glob(_SPLIT_FILES)):
            found = "the organisers' splits, which name patients who are not in the release; the file is ignored"
            layout.report(WARNING, "split-file", "", path, found, "the splits that prepare makes")
    if layout.folders.keys().isdisjoint(TASK_FOLDERS):
        return
    for path in sorted(layout.root.iterdir()):
        meant = path.is_dir() and not path.name.startswith(".") and _LIKE_A_TASK.search(path.name)
        if meant and path.name not in TASK_FOLDERS:
            layout.report(WARNING, "unexpected-file", "", path, "an unknown folder", ", ".join(TASK_FOLDERS))


def _search_folder(folder: ReleaseFolder, layout: ReleaseFiles) -> None:
    if len(folder.tables) == 1:
        layout.tables[folder.name] = folder.tables[0]
    elif folder.needs_table:
        kind = "csv-doubled" if folder.tables else "csv-missing"
        names = f" ({', '.join(path.name for path in folder.tables)})" if folder.tables else ""
        layout.report(ERROR, kind, "", folder.path, f"{len(folder.tables)} CSV files{names}", "one")
    for path in sorted(folder.path.iterdir()):
        if path.is_dir() and not path.name.startswith("."):
            _read_patient(path, folder, layout)


def _read_patient(folder: Path, parent: ReleaseFolder, layout: ReleaseFiles) -> None:
    name = folder.name
    roles = {role: folder / patient_file(file, name) for role, file in parent.files.items()}
    files = {role: path for role, path in roles.items() if path.is_file()}
    layout.patients.setdefault(name, PatientFolders(name)).files[parent.name] = files
    known = [path.relative_to(folder).parts[0] for path in roles.values()]
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    others = ", ".join(one for one in names if one not in known)
    for role, path in roles.items():
        if role in files:
            continue
        if path.is_symlink() or path.exists():
            text = "a broken link" if path.is_symlink() else "not a regular file"
            layout.report(ERROR, "unreadable", name, path, text, f"the {role}")
        elif role in parent.needed:
            layout.report(ERROR, "missing-file", name, path, f"not found ({others or 'no other file'})", f"the {role}")


def _report_shared_images(layout: ReleaseFiles) -> None:
    """Report images that two patients share: they could be in different folds."""
    scans = {role for folder in layout.folders.values() for role in folder.needed if role != MASK}
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
