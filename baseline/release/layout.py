"""Find the images of each patient in the release's folders; missing, duplicate and unexpected files are problems."""

from __future__ import annotations

import filecmp
import gzip
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from baseline.release.folders import TASK_FOLDERS, ReleaseFolder, release_folders
from baseline.release.problems import ERROR, WARNING, Problem
from contract.editions import Edition
from contract.errors import HecktorError, InputError
from contract.images.volumes import read_volume

SUFFIXES: Final = {"CT": "__CT", "PET": "__PT", "mask": "", "planning CT": "__CTPlanning", "dose": "__RTDOSE"}
_TOGETHER: Final = ("planning CT", "dose")
# Folder names that look like a misspelled task folder.
_LIKE_A_TASK: Final = re.compile(r"task[\W_]*[123]\b", re.IGNORECASE)
# The organisers' cross-validation splits name patients who are not in the release.
_SPLIT_FILES: Final = "splits_final*.json"


@dataclass
class PatientFolders:
    """Files of one patient by folder (task) and role; `patient_id` is spelled like the first folder."""

    patient_id: str
    files: dict[str, dict[str, Path]] = field(default_factory=dict)

    def first(self, role: str) -> Path | None:
        """The role's file in the first folder that has one."""
        return next((files[role] for files in self.files.values() if role in files), None)


@dataclass
class ReleaseFiles:
    """All patients by ID in capitals, the CSV files by folder, and the problems of both."""

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
    """Search all folders of the release that exist.

    Raises:
        InputError: no folder of a release, no patient folder, or several folders that could be the only one.
    """
    root = root.absolute()
    folders = release_folders(root, edition)
    if not folders:
        found = ", ".join(sorted(path.name for path in root.iterdir())[:5]) if root.is_dir() else "no such folder"
        tasks = f"{', '.join(TASK_FOLDERS)} or any of them"
        expected = tasks if len(edition.algorithms) > 1 else f"{tasks}, or a folder with <ID>/<ID>__CT.nii.gz"
        raise InputError(root.name, f"found {found or 'nothing'}", expected)
    layout = ReleaseFiles(_common_root(root, folders), {folder.name: folder for folder in folders})
    _report_beside(layout)
    for folder in folders:
        _search_folder(folder, layout)
    if not layout.patients:
        raise InputError(root.name, f"no patient folder in {', '.join(layout.folders)}", "<ID>/<ID>__CT.nii.gz")
    for patient in layout.patients.values():
        _compare_copies(patient, layout)
    _compare_patients(layout)
    return layout


def _common_root(root: Path, folders: Sequence[ReleaseFolder]) -> Path:
    """The given folder, or the one above it that holds the table."""
    parents = {table.parent for folder in folders for table in folder.tables}
    return min((root, *(path for path in parents if root.is_relative_to(path))), key=lambda p: len(p.parts))


def _report_beside(layout: ReleaseFiles) -> None:
    """Report folders beside the task folders that may be meant as one, and the organisers' splits."""
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
    else:
        kind = "csv-doubled" if folder.tables else "csv-missing"
        names = f" ({', '.join(path.name for path in folder.tables)})" if folder.tables else ""
        layout.report(ERROR, kind, "", folder.path, f"{len(folder.tables)} CSV files{names}", "one")
    for path in sorted(folder.path.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            _read_folder(path, folder, layout)
        elif path not in folder.tables and not path.match(_SPLIT_FILES):
            layout.report(WARNING, "unexpected-file", "", path, "an unknown file", "patient folders and a CSV")


def _read_folder(folder: Path, parent: ReleaseFolder, layout: ReleaseFiles) -> None:
    patient = layout.patients.setdefault(folder.name.upper(), PatientFolders(folder.name))
    if parent.name in patient.files:
        text = f"a second folder of {patient.patient_id}"
        layout.report(ERROR, "doubled-folder", patient.patient_id, folder, text, "one folder for each patient and task")
        return
    if folder.name != patient.patient_id:
        text = f"another spelling of {patient.patient_id}"
        layout.report(WARNING, "folder-name", patient.patient_id, folder, text, "one spelling in all tasks")
    names = {f"{folder.name}{suffix}.nii.gz": role for role, suffix in SUFFIXES.items()}
    present = {path.name: path for path in sorted(folder.iterdir()) if not path.name.startswith(".")}
    files = {names[name]: path for name, path in present.items() if name in names and path.is_file()}
    patient.files[parent.name] = files
    for name, path in present.items():
        if name not in names:
            _report_other_file(path, patient.patient_id, files, layout)
        elif names[name] not in files:
            text = "a broken link" if path.is_symlink() else "not a regular file"
            layout.report(ERROR, "unreadable", patient.patient_id, path, text, f"the {names[name]}")
    _report_missing(folder, patient.patient_id, parent.needed, present, layout)


def _report_missing(
    folder: Path, patient_id: str, needed: Sequence[str], present: Mapping[str, Path], layout: ReleaseFiles
) -> None:
    """Report missing files; a planning CT and a dose may be missing together, but not alone."""
    expected = {role: f"{folder.name}{suffix}.nii.gz" for role, suffix in SUFFIXES.items()}
    missing = {role: folder / name for role, name in expected.items() if name not in present}
    others = ", ".join(name for name in present if name not in expected.values()) or "no other file"
    for role in needed:
        if role in missing:
            layout.report(ERROR, "missing-file", patient_id, missing[role], f"not found ({others})", f"the {role}")
    alone = [role for role in _TOGETHER if role in missing]
    if len(alone) == 1:
        together = f"{' and '.join(_TOGETHER)} together"
        layout.report(WARNING, "missing-file", patient_id, missing[alone[0]], "not found", together)


def _report_other_file(path: Path, patient_id: str, files: Mapping[str, Path], layout: ReleaseFiles) -> None:
    """Report a file whose name the release does not define: a second copy of an image, or something else."""
    copy = re.fullmatch(
        rf"{re.escape(path.parent.name)}(__[a-z]+)?[ _.-]*(?:copy|\(?\d+\)?)?\.nii(?:\.gz)?", path.name, re.IGNORECASE
    )
    suffixes = {suffix.lower(): role for role, suffix in SUFFIXES.items()}
    role = suffixes.get((copy[1] or "").lower()) if copy else None
    if role is not None and role in files:
        layout.report(ERROR, "doubled-file", patient_id, path, f"a second {role} beside {files[role].name}", "one file")
    elif role is None:
        layout.report(WARNING, "unexpected-file", patient_id, path, "an unknown file", "the release's names")


def _compare_copies(folders: PatientFolders, layout: ReleaseFiles) -> None:
    for role in ("CT", "PET"):
        copies = [files[role] for files in folders.files.values() if role in files]
        for other in copies[1:]:
            if not _same_image(copies[0], other):
                found = f"another {role} than in {layout.name(copies[0])}"
                layout.report(ERROR, "images-differ", folders.patient_id, other, found, "the same image in each task")


def _same_image(first: Path, second: Path) -> bool:
    """True if two files hold the same voxels on the same grid; identical files are equal even if unreadable."""
    checksum = gzip_checksum(first)
    if (checksum and checksum == gzip_checksum(second)) or filecmp.cmp(first, second, shallow=False):
        return True
    try:
        one, two = read_volume(first), read_volume(second)
    except HecktorError:
        return False
    return not one.geometry.differences(two.geometry) and np.array_equal(one.array, two.array)


def gzip_checksum(path: Path) -> bytes | None:
    """Checksum and length of the content, the last bytes of a gzip stream; None if the file is no such stream."""
    with path.open("rb") as file:
        if file.read(2) != b"\x1f\x8b" or file.seek(0, 2) < 18:
            return None
        file.seek(-8, 2)
        return file.read()


def _compare_patients(layout: ReleaseFiles) -> None:
    """Report images that two patients share: they could be in different folds."""
    for role in ("CT", "PET"):
        known: dict[bytes, Path] = {}
        for folders in layout.patients.values():
            path = folders.first(role)
            checksum = gzip_checksum(path) if path else None
            if path is None or checksum is None:
                continue
            first = known.setdefault(checksum, path)
            if first != path and _same_stream(first, path):
                found = f"the same image as {layout.name(first)}"
                layout.report(ERROR, "doubled-image", folders.patient_id, path, found, "each patient's own")


def _same_stream(first: Path, second: Path) -> bool:
    try:
        with gzip.open(first) as one, gzip.open(second) as two:
            same = all(block == two.read(len(block)) for block in iter(partial(one.read, 1 << 20), b""))
            return same and not two.read(1)
    except (OSError, EOFError):  # damaged: the image checks report it
        return False
