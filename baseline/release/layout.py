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

from baseline.release.problems import ERROR, WARNING, Problem
from contract.errors import HecktorError, InputError
from contract.images.volumes import read_volume

TASK_FOLDERS: Final = ("Task 1", "Task 2", "Task 3")
SUFFIXES: Final = {"CT": "__CT", "PET": "__PT", "mask": "", "planning CT": "__CTPlanning", "dose": "__RTDOSE"}
_NEEDED: Final = {"Task 1": ("CT", "PET", "mask"), "Task 2": ("CT", "PET"), "Task 3": ("CT", "PET")}
_TOGETHER: Final = ("planning CT", "dose")
# Folder names that look like a misspelled task folder.
_LIKE_A_TASK: Final = re.compile(r"task[\W_]*[123]\b", re.IGNORECASE)


@dataclass
class PatientFolders:
    """Files of one patient by task and role; `patient_id` is spelled like the first folder."""

    patient_id: str
    files: dict[str, dict[str, Path]] = field(default_factory=dict)

    def first(self, role: str) -> Path | None:
        """The role's file in the first task folder that has one."""
        return next((files[role] for files in self.files.values() if role in files), None)


@dataclass
class ReleaseFiles:
    """All patients by ID in capitals, the CSV files by task, and the problems of both."""

    root: Path
    patients: dict[str, PatientFolders] = field(default_factory=dict)
    tables: dict[str, Path] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def report(self, severity: str, kind: str, patient_id: str, path: Path, found: str, expected: str) -> None:
        self.problems.append(Problem(severity, kind, patient_id, self.name(path), found, expected))

    def name(self, path: Path) -> str:
        """A file's path below the root, as problems show it."""
        return path.relative_to(self.root).as_posix()

    def tasks(self) -> tuple[str, ...]:
        return tuple(task for task in TASK_FOLDERS if (self.root / task).is_dir())


def read_layout(root: Path) -> ReleaseFiles:
    """Search all task folders that exist.

    Raises:
        InputError: no task folder or no patient folder.
    """
    layout = ReleaseFiles(root)
    if not layout.tasks():
        found = ", ".join(sorted(path.name for path in root.iterdir())[:5]) if root.is_dir() else "no such folder"
        raise InputError(root.name, f"found {found or 'nothing'}", f"{', '.join(TASK_FOLDERS)} or any of them")
    for path in sorted(root.iterdir()):
        meant = path.is_dir() and not path.name.startswith(".") and _LIKE_A_TASK.search(path.name)
        if meant and path.name not in TASK_FOLDERS:
            layout.report(WARNING, "unexpected-file", "", path, "an unknown folder", ", ".join(TASK_FOLDERS))
    for task in layout.tasks():
        _search_task(task, layout)
    if not layout.patients:
        raise InputError(root.name, f"no patient folder in {', '.join(layout.tasks())}", "<ID>/<ID>__CT.nii.gz")
    for folders in layout.patients.values():
        _compare_copies(folders, layout)
    _compare_patients(layout)
    return layout


def _search_task(task: str, layout: ReleaseFiles) -> None:
    top = layout.root / task
    entries = [path for path in sorted(top.iterdir()) if not path.name.startswith(".")]
    tables = [path for path in entries if path.suffix.lower() == ".csv" and path.is_file()]
    if len(tables) == 1:
        layout.tables[task] = tables[0]
    else:
        kind = "csv-doubled" if tables else "csv-missing"
        names = f" ({', '.join(path.name for path in tables)})" if tables else ""
        layout.report(ERROR, kind, "", top, f"{len(tables)} CSV files{names}", "one")
    for path in entries:
        if path.is_dir():
            _read_folder(path, task, layout)
        elif path not in tables:
            layout.report(WARNING, "unexpected-file", "", path, "an unknown file", "patient folders and a CSV")


def _read_folder(folder: Path, task: str, layout: ReleaseFiles) -> None:
    patient = layout.patients.setdefault(folder.name.upper(), PatientFolders(folder.name))
    if task in patient.files:
        text = f"a second folder of {patient.patient_id}"
        layout.report(ERROR, "doubled-folder", patient.patient_id, folder, text, "one folder for each patient and task")
        return
    if folder.name != patient.patient_id:
        text = f"another spelling of {patient.patient_id}"
        layout.report(WARNING, "folder-name", patient.patient_id, folder, text, "one spelling in all tasks")
    names = {f"{folder.name}{suffix}.nii.gz": role for role, suffix in SUFFIXES.items()}
    present = {path.name: path for path in sorted(folder.iterdir()) if not path.name.startswith(".")}
    files = {names[name]: path for name, path in present.items() if name in names and path.is_file()}
    patient.files[task] = files
    for name, path in present.items():
        if name not in names:
            _report_other_file(path, patient.patient_id, files, layout)
        elif names[name] not in files:
            text = "a broken link" if path.is_symlink() else "not a regular file"
            layout.report(ERROR, "unreadable", patient.patient_id, path, text, f"the {names[name]}")
    _report_missing(folder, patient.patient_id, _NEEDED[task], present, layout)


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
