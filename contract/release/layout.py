"""Find the folders and tables of a release.

A release has `Task 1` to `Task 3`, or one folder of any name for all answers of an edition with one algorithm.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

from contract.editions import Algorithm, Edition
from contract.editions.inputs import CONTOURS, CT, CT_PLANNING, EHR, MR, PET, RELEASE_FILES, RT_DOSE
from contract.errors import InputError
from contract.io.files import suggest_folder
from contract.platform import is_system_name, normalise_unicode
from contract.release.tables import ID_COLUMN, read_columns

TASK_FOLDERS: Final = ("Task 1", "Task 2", "Task 3")
# Maximum depth of the folder with the patients: "HECKTOR 2026 Training Data" may contain a folder of the same name.
_MAX_LEVELS: Final = 2
# Roles of the shared inputs' files. The role of another input is its name.
MASK_ROLE: Final = "mask"
_ROLES: Final = {CT: "CT", PET: "PET", CT_PLANNING: "planning CT", RT_DOSE: "dose", CONTOURS: MASK_ROLE}
# Files that every release of CT and PET may contain, by role.
_FILES: Final = {_ROLES[name]: file for name, file in RELEASE_FILES.items()}


@dataclass(frozen=True)
class ReleaseFolder:
    """A folder with the folders of patients.

    Attributes:
        path: The folder.
        tables: CSV files that may be its table. A correct release has only one.
        required_roles: Roles of the images that every patient must have.
        has_masks: Whether the folder contains the reference masks.
        outcomes: Columns that the table should have.
        files: Template of each image's path in a patient's folder, by role.
        needs_table: False if the edition has neither clinical variables nor outcomes.
    """

    path: Path
    tables: tuple[Path, ...]
    required_roles: tuple[str, ...]
    has_masks: bool
    outcomes: tuple[str, ...]
    files: dict[str, str]
    needs_table: bool = True

    @property
    def name(self) -> str:
        return self.path.name


def find_release_folders(root: Path, edition: Edition) -> tuple[ReleaseFolder, ...]:
    """Find the task folders in `root`, or for an edition with one algorithm the folder with patients.

    The folder with patients is `root` itself, or at most two levels below it. Its table is in this folder, in its
    parent folder, or one level higher if both folders have the same name.
    """
    tasks = [(number, root / name) for number, name in enumerate(TASK_FOLDERS, start=1) if (root / name).is_dir()]
    if tasks:
        algorithm_of = {algorithm.number: algorithm for algorithm in edition.algorithms}
        return tuple(_describe_folder(path, list_csv_files(path), edition, algorithm_of.get(n)) for n, path in tasks)
    images = None if edition.has_task_folders or not root.is_dir() else _find_patients(root, edition)
    if images is None:
        return ()
    return (_describe_folder(images, _find_tables(images, edition), edition, edition.algorithms[0]),)


def find_task_folder(root: Path, edition: Edition, algorithm: Algorithm) -> ReleaseFolder:
    """Find the folder with the patients of an algorithm in `root`.

    It is the task folder or, if there are no task folders, the folder with patients as in `find_release_folders`.

    Raises:
        InputError: There is no such folder.
    """
    tasks = [name for name in TASK_FOLDERS if (root / name).is_dir()]
    task_folder = f"Task {algorithm.number}"
    if task_folder in tasks:
        return _describe_folder(root / task_folder, list_csv_files(root / task_folder), edition, algorithm)
    if tasks:
        expected = f"{task_folder} for the task {algorithm.name}"
        raise InputError(root.absolute().name, f"found {', '.join(tasks)}", expected)
    images = _find_patients(root, edition)
    if images is None:
        scan = fill_template(algorithm.scan.release or "", "<ID>")
        expected = f"{task_folder} or folders <ID> with {scan}"
        raise InputError(root.absolute().name, f"found {describe_content(root)}", expected)
    edition = edition.model_copy(update={"algorithms": (algorithm,)})
    return _describe_folder(images, _find_tables(images, edition), edition, algorithm)


def is_release(root: Path, edition: Edition) -> bool:
    """Return whether `root` has task folders or, at most two levels below it, a folder with patients."""
    return _has_task_folders(root) or (root.is_dir() and _find_patients(root, edition) is not None)


def require_release(root: Path, edition: Edition) -> tuple[ReleaseFolder, ...]:
    """Find the folders of a release.

    Raises:
        InputError: There is no such folder. The message names a nearby folder that contains a release.
    """
    folders = find_release_folders(root, edition)
    if not folders:
        expected = f"one or more of {', '.join(TASK_FOLDERS)}"
        if not edition.has_task_folders:
            scan = fill_template(edition.algorithms[0].scan.release or "", "<ID>")
            expected += f", or a folder with <ID>/{scan}"
        nearby = suggest_folder(root, _has_task_folders)
        raise InputError(root.absolute().name, f"found {describe_content(root)}{nearby}", expected)
    return folders


def _has_task_folders(root: Path) -> bool:
    return any((root / name).is_dir() for name in TASK_FOLDERS)


def format_table_name(title: str, task: int | None) -> str:
    """Format the name of a release's table from the edition's title; `task` is None for the table of all answers."""
    number = "" if task is None else f"_{task}"
    return f"{'_'.join(title.split())}_Training_Task{number}.csv"


def find_table_name(folder: ReleaseFolder, edition: Edition) -> str:
    """Return the name that the table of a folder should have."""
    is_task = folder.name in TASK_FOLDERS
    return format_table_name(edition.title, TASK_FOLDERS.index(folder.name) + 1 if is_task else None)


def list_csv_files(folder: Path) -> tuple[Path, ...]:
    """List the CSV files in a folder that are not hidden, sorted by name."""
    return tuple(path for path in _list_visible(folder) if path.suffix.lower() == ".csv" and path.is_file())


def _describe_folder(
    path: Path, tables: Sequence[Path], edition: Edition, algorithm: Algorithm | None
) -> ReleaseFolder:
    """Describe a folder of patients; `algorithm` is None if the edition has no algorithm for the task folder."""
    images: tuple[str, ...] = ("CT", "PET")
    has_masks = needs_mask = False
    outcomes: tuple[str, ...] = ()
    if algorithm is not None:
        has_masks = algorithm.mask_spec is not None
        # With other answers, patients without a mask are still used to train the heads.
        needs_mask = has_masks and not algorithm.head_specs
        outcomes = _list_outcomes(algorithm)
        if algorithm.modality == MR:
            images = (algorithm.input_names[0], *algorithm.registered_inputs)
    return ReleaseFolder(
        path,
        tuple(tables),
        (*images, MASK_ROLE) if needs_mask else images,
        has_masks,
        outcomes,
        make_file_templates(edition, algorithm),
        needs_table=EHR in edition.inputs,
    )


def make_file_templates(edition: Edition, algorithm: Algorithm | None = None) -> dict[str, str]:
    """Make the template of each file's path in a patient's folder, by role.

    A template contains `{id}` in place of the patient's ID. The mask is the reference of `algorithm`.
    """
    templates = dict(_FILES) if CT in edition.inputs else {}
    for name, socket in edition.inputs.items():
        if socket.release is not None:
            templates[find_role(name)] = socket.release
    if algorithm is not None and algorithm.mask_spec is not None:
        templates[MASK_ROLE] = algorithm.mask_spec.release
    return templates


def find_role(name: str) -> str:
    """Return the role of an input's file in a release."""
    return _ROLES.get(name, name)


def fill_template(template: str, patient_id: str) -> str:
    """Put a patient's ID into a template of `make_file_templates`."""
    return template.replace("{id}", patient_id)


def _list_outcomes(algorithm: Algorithm) -> tuple[str, ...]:
    return tuple(column for answer in algorithm.head_specs for column in answer.columns.values())


def _find_patients(root: Path, edition: Edition) -> Path | None:
    """Find the folder whose subfolders are patients, at most `_MAX_LEVELS` below `root`.

    Raises:
        InputError: Several folders of the same level contain patients.
    """
    scans = {algorithm.scan.release or "" for algorithm in edition.algorithms}
    if PET in edition.inputs:
        scans.add(edition.inputs[PET].release or "")
    level = [root]
    for _ in range(_MAX_LEVELS + 1):
        with_patients = [folder for folder in level if _has_patients(folder, scans)]
        if len(with_patients) > 1:
            names = ", ".join(folder.relative_to(root).as_posix() for folder in with_patients)
            problem = f"found patients in {len(with_patients)} folders ({names})"
            raise InputError(root.absolute().name, problem, "one of them")
        if with_patients:
            return with_patients[0]
        level = [path for folder in level for path in _list_subfolders(folder)]
    return None


def _has_patients(folder: Path, scans: Collection[str]) -> bool:
    """Return whether a subfolder contains one of the scans, whose names are templates."""
    return any(
        find_file(path, fill_template(scan, path.name)).exists() for path in _list_subfolders(folder) for scan in scans
    )


def _find_tables(images: Path, edition: Edition) -> tuple[Path, ...]:
    """Find the CSV files that may be the table of the patients in the folder `images`.

    The first of these sets that is not empty is returned: the files with the column of IDs and all outcomes, with this
    column and any outcome, with this column and any clinical variable, and all CSV files in the folder. The last set
    is returned so that the problems of its files are reported.
    """
    places = [images, images.parent]
    if images.parent.name == images.name:
        places.append(images.parent.parent)
    columns_of = {path: set(read_columns(path, edition)) for place in places for path in list_csv_files(place)}
    columns_of = {path: columns for path, columns in columns_of.items() if ID_COLUMN in columns}
    outcomes = {column for algorithm in edition.algorithms for column in _list_outcomes(algorithm)}
    clinical = {variable.key for variable in edition.clinical}
    for candidates in (
        tuple(path for path, columns in columns_of.items() if outcomes <= columns),
        tuple(path for path, columns in columns_of.items() if outcomes & columns),
        tuple(path for path, columns in columns_of.items() if clinical & columns),
    ):
        if candidates:
            return candidates
    return list_csv_files(images)


def describe_content(folder: Path) -> str:
    """List the names of the first five entries of a folder, for messages."""
    if not folder.is_dir():
        return "no such folder"
    return ", ".join(sorted(path.name for path in folder.iterdir())[:5]) or "nothing"


def _list_subfolders(folder: Path) -> list[Path]:
    return [path for path in _list_visible(folder) if path.is_dir()]


def _list_visible(folder: Path) -> list[Path]:
    try:
        return [path for path in sorted(folder.iterdir()) if not is_system_name(path.name)]
    except PermissionError:
        return []


def find_file(folder: Path, name: str) -> Path:
    """Find a file by its relative path in a folder; return the path even if there is no such file.

    Names on the disk may be in Unicode form NFC or NFD.
    """
    path = folder
    for part in PurePath(name).parts:
        entry = path / part
        if not entry.exists() and not part.isascii() and path.is_dir():
            entry = next(
                (child for child in sorted(path.iterdir()) if normalise_unicode(child.name) == normalise_unicode(part)),
                entry,
            )
        path = entry
    return path


def find_patient_files(folder: Path, templates: Mapping[str, str]) -> dict[str, Path]:
    """Find the existing files in a patient's folder by role; `templates` are `ReleaseFolder.files`."""
    paths = {role: find_file(folder, fill_template(template, folder.name)) for role, template in templates.items()}
    return {role: path for role, path in paths.items() if path.is_file()}
