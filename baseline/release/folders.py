"""Find the folders of a release that hold patients, and the table of each.

A release has `Task 1` to `Task 3`, or one folder of any name for all answers of an edition with one algorithm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from baseline.release.tables import ID, read_columns
from contract.editions import Algorithm, Edition
from contract.errors import InputError

TASK_FOLDERS: Final = ("Task 1", "Task 2", "Task 3")
_IMAGE_SUFFIXES: Final = ("__CT.nii.gz", "__PT.nii.gz")
# Levels below the given folder where the patients may be: "HECKTOR 2026 Training Data" may contain itself.
_DEEPEST: Final = 2


@dataclass(frozen=True)
class ReleaseFolder:
    """A folder of patients' folders.

    `tables` are the CSV files that could be its table, one in a sound release. `needed` are the images that every
    patient must have; `has_masks` is True if the folder holds the reference masks. `outcomes` are the columns that its
    table should have.
    """

    path: Path
    tables: tuple[Path, ...]
    needed: tuple[str, ...]
    has_masks: bool
    outcomes: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path.name


def release_folders(root: Path, edition: Edition) -> tuple[ReleaseFolder, ...]:
    """The task folders in `root`; else, if the edition has one algorithm, the one folder with patients.

    That folder is `root` itself, or at most two levels below it. Its table is inside, beside it, or one level higher.

    Raises:
        InputError: several folders on one level have patients.
    """
    tasks = [(number, root / name) for number, name in enumerate(TASK_FOLDERS) if (root / name).is_dir()]
    if tasks:
        algorithms = {algorithm.number - 1: algorithm for algorithm in edition.algorithms}
        return tuple(_folder(path, csv_files(path), algorithms.get(number)) for number, path in tasks)
    if len(edition.algorithms) > 1 or not root.is_dir():
        return ()
    images = _folder_with_patients(root)
    return () if images is None else (_folder(images, _tables(images, edition), edition.algorithms[0]),)


def csv_files(folder: Path) -> tuple[Path, ...]:
    """The visible CSV files in a folder, by name."""
    return tuple(path for path in _visible(folder) if path.suffix.lower() == ".csv" and path.is_file())


def _folder(path: Path, tables: Sequence[Path], algorithm: Algorithm | None) -> ReleaseFolder:
    """A mask is needed if it is the only answer: without one a patient can still train the heads of other answers."""
    has_masks = algorithm is not None and algorithm.mask is not None
    needs_mask = has_masks and algorithm is not None and not algorithm.heads
    needed = ("CT", "PET", "mask") if needs_mask else ("CT", "PET")
    return ReleaseFolder(path, tuple(tables), needed, has_masks, () if algorithm is None else _outcomes(algorithm))


def _outcomes(algorithm: Algorithm) -> tuple[str, ...]:
    return tuple(column for answer in algorithm.heads for column in answer.columns.values())


def _folder_with_patients(root: Path) -> Path | None:
    level = [root]
    for _ in range(_DEEPEST + 1):
        with_patients = [folder for folder in level if _has_patients(folder)]
        if len(with_patients) > 1:
            names = ", ".join(folder.relative_to(root).as_posix() for folder in with_patients)
            raise InputError(root.name, f"found patients in {len(with_patients)} folders ({names})", "one of them")
        if with_patients:
            return with_patients[0]
        level = [path for folder in level for path in _subfolders(folder)]
    return None


def _has_patients(folder: Path) -> bool:
    return any((path / f"{path.name}{suffix}").exists() for path in _subfolders(folder) for suffix in _IMAGE_SUFFIXES)


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


def _subfolders(folder: Path) -> list[Path]:
    return [path for path in _visible(folder) if path.is_dir()]


def _visible(folder: Path) -> list[Path]:
    try:
        return [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    except PermissionError:
        return []
