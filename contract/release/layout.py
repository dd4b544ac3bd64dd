"""Find folders, tables and images of a release; missing and shared files are problems.

A release has `Task 1` to `Task 3`, or one folder of any name for all answers of an edition with one algorithm.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from contract.editions import Algorithm, Edition
from contract.editions.inputs import CONTOURS, CT, CT_PLANNING, EHR, MR, PET, RELEASE_FILES, RT_DOSE
from contract.errors import InputError
from contract.release.problems import ERROR, WARNING, Problem
from contract.release.tables import ID, read_columns

TASK_FOLDERS: Final = ("Task 1", "Task 2", "Task 3")
# Levels below the given folder where the patients may be: "HECKTOR 2026 Training Data" may contain itself.
_DEEPEST: Final = 2
# Roles of files; that of another input is its name. The reference mask's is `MASK`.
MASK: Final = "mask"
_ROLES: Final = {CT: "CT", PET: "PET", CT_PLANNING: "planning CT", RT_DOSE: "dose", CONTOURS: MASK}
# Files that every release of CT and PET may hold, by role.
_FILES: Final = {_ROLES[name]: file for name, file in RELEASE_FILES.items()}
# Folder names that look like a misspelled task folder.
_LIKE_A_TASK: Final = re.compile(r"task[\W_]*[123]\b", re.IGNORECASE)
# The organisers' cross-validation splits name patients who are not in the release.
_SPLIT_FILES: Final = "splits_final*.json"


@dataclass(frozen=True)
class ReleaseFolder:
    """A folder of patients' folders.

    `tables` are the CSV files that could be its table, one in a sound release. `needed` are the images that every
    patient must have; `has_masks` is True if the folder holds the reference masks. `outcomes` are the columns that its
    table should have. `files` are the images' paths in a patient's folder by role; an edition without clinical
    variables and outcomes `needs_table` not.
    """

    path: Path
    tables: tuple[Path, ...]
    needed: tuple[str, ...]
    has_masks: bool
    outcomes: tuple[str, ...]
    files: dict[str, str]
    needs_table: bool = True

    @property
    def name(self) -> str:
        return self.path.name


def release_folders(root: Path, edition: Edition) -> tuple[ReleaseFolder, ...]:
    """The task folders in `root`; else, if the edition has one algorithm, the one folder with patients.

    That folder is `root` itself, or at most two levels below it. Its table is inside, beside it, or one level higher.
    """
    tasks = [(number, root / name) for number, name in enumerate(TASK_FOLDERS) if (root / name).is_dir()]
    if tasks:
        algorithms = {algorithm.number - 1: algorithm for algorithm in edition.algorithms}
        return tuple(_folder(path, csv_files(path), edition, algorithms.get(number)) for number, path in tasks)
    if edition.has_task_folders or not root.is_dir():
        return ()
    images = _folder_with_patients(root, edition)
    return () if images is None else (_folder(images, _tables(images, edition), edition, edition.algorithms[0]),)


def task_folder(root: Path, edition: Edition, algorithm: Algorithm) -> ReleaseFolder:
    """An algorithm's patients in `root`: its task folder or, without task folders, the one folder with patients.

    The latter is found as in `release_folders`. Raises InputError if there is neither.
    """
    tasks = [name for name in TASK_FOLDERS if (root / name).is_dir()]
    own = f"Task {algorithm.number}"
    if own in tasks:
        return _folder(root / own, csv_files(root / own), edition, algorithm)
    if tasks:
        raise InputError(root.name, f"found {', '.join(tasks)}", f"{own} for the task {algorithm.name}")
    images = _folder_with_patients(root, edition)
    if images is None:
        scan = patient_file(algorithm.scan.release or "", "<ID>")
        raise InputError(root.name, f"found {_content(root)}", f"{own} or folders <ID> with {scan}")
    edition = edition.model_copy(update={"algorithms": (algorithm,)})
    return _folder(images, _tables(images, edition), edition, algorithm)


def is_release(root: Path, edition: Edition) -> bool:
    """Whether `root` has task folders or, at most two levels below it, a folder with patients."""
    has_tasks = any((root / name).is_dir() for name in TASK_FOLDERS)
    return has_tasks or (root.is_dir() and _folder_with_patients(root, edition) is not None)


def csv_files(folder: Path) -> tuple[Path, ...]:
    """The visible CSV files in a folder, by name."""
    return tuple(path for path in _visible(folder) if path.suffix.lower() == ".csv" and path.is_file())


def _folder(path: Path, tables: Sequence[Path], edition: Edition, algorithm: Algorithm | None) -> ReleaseFolder:
    """A mask is needed if it is the only answer: without one a patient can still train the heads of other answers."""
    has_masks = algorithm is not None and algorithm.mask is not None
    needs_mask = has_masks and algorithm is not None and not algorithm.heads
    images: tuple[str, ...] = ("CT", "PET")
    if algorithm is not None and algorithm.modality == MR:
        images = (algorithm.input_names[0], *algorithm.registered)
    return ReleaseFolder(
        path,
        tuple(tables),
        (*images, MASK) if needs_mask else images,
        has_masks,
        () if algorithm is None else _outcomes(algorithm),
        files_by_role(edition, algorithm),
        needs_table=EHR in edition.inputs,
    )


def files_by_role(edition: Edition, algorithm: Algorithm | None = None) -> dict[str, str]:
    """Paths below a patient's folder by role, with `{id}` for the ID; the mask is the algorithm's reference."""
    own = {role_of(name): one.release for name, one in edition.inputs.items() if one.release is not None}
    files = (_FILES | own) if CT in edition.inputs else own
    return files if algorithm is None or algorithm.mask is None else files | {MASK: algorithm.mask.release}


def role_of(name: str) -> str:
    """The role of an input's file in a release."""
    return _ROLES.get(name, name)


def patient_file(file: str, patient_id: str) -> str:
    """A file of `files_by_role` for one patient."""
    return file.replace("{id}", patient_id)


def _outcomes(algorithm: Algorithm) -> tuple[str, ...]:
    return tuple(column for answer in algorithm.heads for column in answer.columns.values())


def _folder_with_patients(root: Path, edition: Edition) -> Path | None:
    scans = {algorithm.scan.release or "" for algorithm in edition.algorithms}
    scans |= {edition.inputs[PET].release or ""} if PET in edition.inputs else set()
    level = [root]
    for _ in range(_DEEPEST + 1):
        with_patients = [folder for folder in level if _has_patients(folder, scans)]
        if len(with_patients) > 1:
            names = ", ".join(folder.relative_to(root).as_posix() for folder in with_patients)
            raise InputError(root.name, f"found patients in {len(with_patients)} folders ({names})", "one of them")
        if with_patients:
            return with_patients[0]
        level = [path for folder in level for path in _subfolders(folder)]
    return None


def _has_patients(folder: Path, scans: Collection[str]) -> bool:
    return any((path / patient_file(scan, path.name)).exists() for path in _subfolders(folder) for scan in scans)


def _tables(images: Path, edition: Edition) -> tuple[Path, ...]:
    """CSV files with the patient ID and every outcome; if there is none, with any outcome, or with a clinical variable.

    Otherwise an only CSV file beside the patients is the table, so that its fault is reported.
    """
    outcomes = {column for algorithm in edition.algorithms for column in _outcomes(algorithm)}
    clinical = {variable.key for variable in edition.clinical}
    columns = {path: set(read_columns(path, edition)) for folder in _places(images) for path in csv_files(folder)}
    with_id = {path: names for path, names in columns.items() if ID in names}
    fits = (outcomes.issubset, lambda names: bool(outcomes & names), lambda names: bool(clinical & names))
    found = (tuple(path for path, names in with_id.items() if fit(names)) for fit in fits)
    return next(filter(None, found), csv_files(images))


def _places(images: Path) -> Iterator[Path]:
    """Folders that may hold the table: the one with the images, its parent, and of a nested one the next parent."""
    yield images
    yield images.parent
    if images.parent.name == images.name:
        yield images.parent.parent


def _content(folder: Path) -> str:
    """The first names in a folder, for messages."""
    if not folder.is_dir():
        return "no such folder"
    return ", ".join(sorted(path.name for path in folder.iterdir())[:5]) or "nothing"


def _subfolders(folder: Path) -> list[Path]:
    return [path for path in _visible(folder) if path.is_dir()]


def _visible(folder: Path) -> list[Path]:
    try:
        return [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    except PermissionError:
        return []


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
        raise InputError(root.name, f"found {_content(root)}", expected)
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


def patient_files(folder: Path, files: Mapping[str, str]) -> dict[str, Path]:
    """The files of a patient's folder by role, of those in `files` (`ReleaseFolder.files`)."""
    paths = {role: folder / patient_file(file, folder.name) for role, file in files.items()}
    return {role: path for role, path in paths.items() if path.is_file()}


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
