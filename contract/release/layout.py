"""Find the folders and tables of a release.

A release has `Task 1` to `Task 3`, or one folder of any name for all answers of an edition with one algorithm.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

from contract.editions import Algorithm, Edition
from contract.editions.inputs import CONTOURS, CT, CT_PLANNING, EHR, MR, PET, RELEASE_FILES, RT_DOSE
from contract.errors import InputError
from contract.io.files import suggest_folder
from contract.platform import compose, is_system_name
from contract.release.tables import ID_COLUMN, read_columns

TASK_FOLDERS: Final = ("Task 1", "Task 2", "Task 3")
# Levels below the given folder where the patients may be: "HECKTOR 2026 Training Data" may contain itself.
_DEEPEST: Final = 2
# Roles of files; that of another input is its name. The reference mask's is `MASK_ROLE`.
MASK_ROLE: Final = "mask"
_ROLES: Final = {CT: "CT", PET: "PET", CT_PLANNING: "planning CT", RT_DOSE: "dose", CONTOURS: MASK_ROLE}
# Files that every release of CT and PET may hold, by role.
_FILES: Final = {_ROLES[name]: file for name, file in RELEASE_FILES.items()}


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


def find_release_folders(root: Path, edition: Edition) -> tuple[ReleaseFolder, ...]:
    """The task folders in `root`; else, if the edition has one algorithm, the one folder with patients.

    That folder is `root` itself, or at most two levels below it. Its table is inside, beside it, or one level higher.
    """
    tasks = [(number, root / name) for number, name in enumerate(TASK_FOLDERS) if (root / name).is_dir()]
    if tasks:
        algorithms = {algorithm.number - 1: algorithm for algorithm in edition.algorithms}
        return tuple(_folder(path, list_csv_files(path), edition, algorithms.get(number)) for number, path in tasks)
    if edition.has_task_folders or not root.is_dir():
        return ()
    images = _folder_with_patients(root, edition)
    return () if images is None else (_folder(images, _tables(images, edition), edition, edition.algorithms[0]),)


def find_task_folder(root: Path, edition: Edition, algorithm: Algorithm) -> ReleaseFolder:
    """An algorithm's patients in `root`: its task folder or, without task folders, the one folder with patients.

    The latter is found as in `find_release_folders`. Raises InputError if there is neither.
    """
    tasks = [name for name in TASK_FOLDERS if (root / name).is_dir()]
    own = f"Task {algorithm.number}"
    if own in tasks:
        return _folder(root / own, list_csv_files(root / own), edition, algorithm)
    if tasks:
        raise InputError(root.absolute().name, f"found {', '.join(tasks)}", f"{own} for the task {algorithm.name}")
    images = _folder_with_patients(root, edition)
    if images is None:
        scan = fill_template(algorithm.scan.release or "", "<ID>")
        raise InputError(root.absolute().name, f"found {describe_content(root)}", f"{own} or folders <ID> with {scan}")
    edition = edition.model_copy(update={"algorithms": (algorithm,)})
    return _folder(images, _tables(images, edition), edition, algorithm)


def is_release(root: Path, edition: Edition) -> bool:
    """True if `root` has task folders or, at most two levels below it, a folder with patients."""
    has_tasks = any((root / name).is_dir() for name in TASK_FOLDERS)
    return has_tasks or (root.is_dir() and _folder_with_patients(root, edition) is not None)


def require_release(root: Path, edition: Edition) -> tuple[ReleaseFolder, ...]:
    """The folders of a release. Raises InputError for a folder that holds none, with the release that lies nearby."""
    folders = find_release_folders(root, edition)
    if not folders:
        tasks = f"{', '.join(TASK_FOLDERS)} or any of them"
        scan = fill_template(edition.algorithms[0].scan.release or "", "<ID>")
        expected = tasks if edition.has_task_folders else f"{tasks}, or a folder with <ID>/{scan}"
        nearby = suggest_folder(root, lambda path: any((path / name).is_dir() for name in TASK_FOLDERS))
        raise InputError(root.absolute().name, f"found {describe_content(root)}{nearby}", expected)
    return folders


def format_table_name(title: str, task: int | None) -> str:
    """Return the name of a release's table by the edition's title; `task` is None for the table of all answers."""
    number = "" if task is None else f"_{task}"
    return f"{'_'.join(title.split())}_Training_Task{number}.csv"


def find_table_name(folder: ReleaseFolder, edition: Edition) -> str:
    """Return the name that the table of a folder is expected to have."""
    is_task = folder.name in TASK_FOLDERS
    return format_table_name(edition.title, TASK_FOLDERS.index(folder.name) + 1 if is_task else None)


def list_csv_files(folder: Path) -> tuple[Path, ...]:
    """The visible CSV files in a folder, by name."""
    return tuple(path for path in _visible(folder) if path.suffix.lower() == ".csv" and path.is_file())


def _folder(path: Path, tables: Sequence[Path], edition: Edition, algorithm: Algorithm | None) -> ReleaseFolder:
    """A mask is needed if it is the only answer: without one a patient can still train the heads of other answers."""
    has_masks = algorithm is not None and algorithm.mask_spec is not None
    needs_mask = has_masks and algorithm is not None and not algorithm.head_specs
    images: tuple[str, ...] = ("CT", "PET")
    if algorithm is not None and algorithm.modality == MR:
        images = (algorithm.input_names[0], *algorithm.registered_inputs)
    return ReleaseFolder(
        path,
        tuple(tables),
        (*images, MASK_ROLE) if needs_mask else images,
        has_masks,
        () if algorithm is None else _outcomes(algorithm),
        make_file_templates(edition, algorithm),
        needs_table=EHR in edition.inputs,
    )


def make_file_templates(edition: Edition, algorithm: Algorithm | None = None) -> dict[str, str]:
    """Paths below a patient's folder by role, with `{id}` for the ID; the mask is the algorithm's reference."""
    own = {find_role(name): one.release for name, one in edition.inputs.items() if one.release is not None}
    files = (_FILES | own) if CT in edition.inputs else own
    return (
        files if algorithm is None or algorithm.mask_spec is None else files | {MASK_ROLE: algorithm.mask_spec.release}
    )


def find_role(name: str) -> str:
    """The role of an input's file in a release."""
    return _ROLES.get(name, name)


def fill_template(file: str, patient_id: str) -> str:
    """A file of `make_file_templates` for one patient."""
    return file.replace("{id}", patient_id)


def _outcomes(algorithm: Algorithm) -> tuple[str, ...]:
    return tuple(column for answer in algorithm.head_specs for column in answer.columns.values())


def _folder_with_patients(root: Path, edition: Edition) -> Path | None:
    scans = {algorithm.scan.release or "" for algorithm in edition.algorithms}
    scans |= {edition.inputs[PET].release or ""} if PET in edition.inputs else set()
    level = [root]
    for _ in range(_DEEPEST + 1):
        with_patients = [folder for folder in level if _has_patients(folder, scans)]
        if len(with_patients) > 1:
            names = ", ".join(folder.relative_to(root).as_posix() for folder in with_patients)
            raise InputError(
                root.absolute().name, f"found patients in {len(with_patients)} folders ({names})", "one of them"
            )
        if with_patients:
            return with_patients[0]
        level = [path for folder in level for path in _subfolders(folder)]
    return None


def _has_patients(folder: Path, scans: Collection[str]) -> bool:
    return any(
        find_file(path, fill_template(scan, path.name)).exists() for path in _subfolders(folder) for scan in scans
    )


def _tables(images: Path, edition: Edition) -> tuple[Path, ...]:
    """CSV files with the patient ID and every outcome; if there is none, with any outcome, or with a clinical variable.

    Otherwise an only CSV file beside the patients is the table, so that its fault is reported.
    """
    outcomes = {column for algorithm in edition.algorithms for column in _outcomes(algorithm)}
    clinical = {variable.key for variable in edition.clinical}
    columns = {path: set(read_columns(path, edition)) for folder in _places(images) for path in list_csv_files(folder)}
    with_id = {path: names for path, names in columns.items() if ID_COLUMN in names}
    fits = (outcomes.issubset, lambda names: bool(outcomes & names), lambda names: bool(clinical & names))
    found = (tuple(path for path, names in with_id.items() if fit(names)) for fit in fits)
    return next(filter(None, found), list_csv_files(images))


def _places(images: Path) -> Iterator[Path]:
    """Folders that may hold the table: the one with the images, its parent, and of a nested one the next parent."""
    yield images
    yield images.parent
    if images.parent.name == images.name:
        yield images.parent.parent


def describe_content(folder: Path) -> str:
    """The first names in a folder, for messages."""
    if not folder.is_dir():
        return "no such folder"
    return ", ".join(sorted(path.name for path in folder.iterdir())[:5]) or "nothing"


def _subfolders(folder: Path) -> list[Path]:
    return [path for path in _visible(folder) if path.is_dir()]


def _visible(folder: Path) -> list[Path]:
    try:
        return [path for path in sorted(folder.iterdir()) if not is_system_name(path.name)]
    except PermissionError:
        return []


def find_file(folder: Path, name: str) -> Path:
    """Return a relative path in a folder, whose names may have their letters composed or not; it need not exist."""
    path = folder
    for part in PurePath(name).parts:
        entry = path / part
        if not entry.exists() and not part.isascii() and path.is_dir():
            entry = next((other for other in sorted(path.iterdir()) if compose(other.name) == compose(part)), entry)
        path = entry
    return path


def find_patient_files(folder: Path, files: Mapping[str, str]) -> dict[str, Path]:
    """The files of a patient's folder by role, of those in `files` (`ReleaseFolder.files`)."""
    paths = {role: find_file(folder, fill_template(file, folder.name)) for role, file in files.items()}
    return {role: path for role, path in paths.items() if path.is_file()}
