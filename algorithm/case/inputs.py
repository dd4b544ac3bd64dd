"""Find the inputs of a case (declared paths, `inputs.json`, or plain files), and collect warnings about them.

Many cases are found by nnU-Net's file names, in the layout of a release of HECKTOR, by equal file names in two folders,
or by the paths in a table.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from contract.editions import Algorithm, Edition, Socket
from contract.editions.inputs import CT, PET
from contract.errors import Finding, InputError
from contract.images.volumes import find_image_suffix, find_single_image, list_images
from contract.platform import NAMED_IMAGE_SUFFIXES
from contract.predictions import read_inputs
from contract.release.layout import (
    fill_template,
    find_file,
    find_patient_files,
    find_role,
    find_task_folder,
    is_release,
    make_file_templates,
)
from contract.release.tables import ID_COLUMN, CsvCells, read_cells, read_table

LOGGER = logging.getLogger("hecktor")
LISTING: Final = "inputs.json"
# Channel numbers in nnU-Net's file names.
_NNUNET_CT, _NNUNET_PET = "_0000", "_0001"


@dataclass(frozen=True)
class CaseFiles:
    """A case in plain files: CT in HU, PET in SUV, and its `ehr.json` if there is one."""

    ct: Path
    pet: Path
    ehr: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """Return all files of the case."""
        return (self.ct, self.pet) if self.ehr is None else (self.ct, self.pet, self.ehr)


def make_case_files(ct: Path, pet: Path | None, ehr: Path | None) -> CaseFiles:
    """Return a case in plain files; without `pet` the PET is CASE_0001 next to a CT with nnU-Net's name CASE_0000.

    Raises:
        InputError: A file does not exist or is not an image, there is no PET, or CT and PET are the same file.
    """
    files = CaseFiles(ct, find_pet(ct) if pet is None else pet, ehr)
    for option, path in zip(("--ct", "--pet", "--ehr"), files.paths, strict=False):
        if not path.is_file():
            raise InputError(option, f"no file {path}", "an existing file")
        if option != "--ehr" and find_image_suffix(path, NAMED_IMAGE_SUFFIXES) is None:
            raise InputError(option, f"{path.name}", f"an image in {', '.join(NAMED_IMAGE_SUFFIXES)}")
    if files.ct.samefile(files.pet):
        raise InputError("--pet", f"the file of --ct, {ct.name}", "another file")
    return files


def find_pet(ct: Path) -> Path:
    """Return the path of the PET, CASE_0001, for a CT with nnU-Net's name CASE_0000; else raise `InputError`.

    The PET may not exist.
    """
    suffix = find_image_suffix(ct, NAMED_IMAGE_SUFFIXES) or ""
    stem = ct.name[: len(ct.name) - len(suffix)]
    if not suffix or not stem.endswith(_NNUNET_CT):
        expected = f"the PET's file, or a CT with nnU-Net's name CASE{_NNUNET_CT}.nii.gz"
        raise InputError("--pet", f"not given, with a CT named {ct.name}", expected)
    return ct.with_name(stem.removesuffix(_NNUNET_CT) + _NNUNET_PET + ct.name[len(stem) :])


def find_input(root: Path, socket: Socket, notices: Notices) -> Path:
    """Find the path of a socket below `root`: a folder or an image for an image socket, a file for a JSON socket.

    If there is no input at the declared path, an entry of `inputs.json` with the socket's slug may name another path,
    which gives a notice. A listed path that leads out of `root` is never used. Without a usable entry, the declared
    path is returned, which may not exist.
    """
    declared = socket.path_under(root)
    if _has_input(declared, socket) or not (root / LISTING).is_file():
        return declared
    for path in dict.fromkeys(_list_paths(root, socket, notices)):
        try:
            is_inside = (root / path).resolve().is_relative_to(root.resolve())
            has_input = is_inside and _has_input(root / path, socket)
        except (OSError, RuntimeError, ValueError):  # too long, not a path, or links in a circle
            continue
        if not is_inside:
            notices.note(Finding(LISTING, f"{path!r} of {socket.slug} leads out of the input folder", action="ignored"))
        elif has_input:
            action = f"the input is read from {path}"
            notices.note(Finding(LISTING, f"{path!r} as path of {socket.slug}", repr(socket.relative_path), action))
            return root / path
    return declared


def find_image(path: Path) -> Path:
    """Return the image at `path`, which is an image or a folder with a single image; else raise `InputError`."""
    return path if path.is_file() else find_single_image(path)


def _list_paths(root: Path, socket: Socket, notices: Notices) -> Iterator[str]:
    """Iterate over the paths of the entries with the socket's slug in `inputs.json`."""
    try:
        entries = read_inputs(root / LISTING, error=InputError)
    except InputError as problem:
        notices.note(Finding(problem.what, problem.found, problem.expected, "ignored"))
        return
    yield from (entry.relative_path for entry in entries if entry.slug == socket.slug and entry.relative_path)


def _has_input(path: Path, socket: Socket) -> bool:
    if not socket.is_image:
        return path.is_file()
    return bool(list_images(path)) if path.is_dir() else path.is_file() and find_image_suffix(path) is not None


@dataclass
class Notices:
    """Collects findings about a case, which is answered nevertheless: one failed case fails a whole submission."""

    findings: list[Finding] = field(default_factory=list)

    def note(self, finding: Finding) -> None:
        """Log a finding and keep it for the record."""
        self.findings.append(finding)
        LOGGER.warning("%s", finding)


TABLE_COLUMNS: Final = (ID_COLUMN, "CT", "PET", "EHR")
_LAYOUTS: Final = (
    "images CASE_0000.nii.gz and CASE_0001.nii.gz (nnU-Net), folders ID with ID__CT.nii.gz (a release), "
    "or --pet FOLDER with a PET of the same name for each CT"
)


@dataclass(frozen=True)
class BatchCase:
    """The files of one of many cases; a file may not exist, which fails the case when it is read.

    Attributes:
        patient_id: Name of the case.
        ct: CT in HU.
        pet: PET in SUV.
        ehr: File of the clinical variables; None if there is no such file.
        clinical: Clinical variables from the table of a release, in place of `ehr`.
    """

    patient_id: str
    ct: Path
    pet: Path
    ehr: Path | None = None
    clinical: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_ehr(self) -> bool:
        """Return whether the case has clinical variables."""
        return self.ehr is not None or bool(self.clinical)


def find_cases(
    ct: Path, pet: Path | None, ehr: Path | None, edition: Edition, algorithm: Algorithm
) -> tuple[BatchCase, ...]:
    """Find the cases of a folder or of a table, sorted by their names.

    Args:
        ct: Folder with the CTs, or a CSV file with paths.
        pet: Folder with the PETs; None if they are next to the CTs.
        ehr: Folder with clinical variables `CASE.json`; None takes them from the table or the release.
        edition: Declares the file names in a release.
        algorithm: Task whose folder in the release is used.

    Raises:
        InputError: There is no case, two cases have the same name, or the table cannot be read.
    """
    if ct.is_file():
        if pet is not None or ehr is not None:
            raise InputError("--ct", f"the table {ct.name} with --pet or --ehr", "all paths in the table")
        cases = read_case_table(ct)
    elif nnunet_cases := find_nnunet_cases(ct, pet or ct):
        cases = nnunet_cases
    elif is_release(ct, edition):
        cases = _find_release_cases(ct, pet, edition, algorithm)
    elif pet is not None:
        cases = tuple(BatchCase(_name_case(path), path, pet / path.name) for path in _list_images(ct))
    else:
        cases = ()
    if not cases:
        raise InputError("--ct", f"no cases in {ct.absolute()}", _LAYOUTS)
    _check_names(cases)
    if ehr is not None:
        cases = tuple(BatchCase(case.patient_id, case.ct, case.pet, ehr / f"{case.patient_id}.json") for case in cases)
    return tuple(sorted(cases, key=lambda case: case.patient_id))


def find_nnunet_cases(
    ct_folder: Path, pet_folder: Path, ct_number: int = 0, pet_number: int = 1
) -> tuple[BatchCase, ...]:
    """Find the cases of nnU-Net's `imagesTr` or `imagesTs`, whose files are named CASE_0000 and CASE_0001.

    Args:
        ct_folder: Folder with the CTs.
        pet_folder: Folder with the PETs, which may be the same.
        ct_number: Channel number of the CT in the file names.
        pet_number: Channel number of the PET.

    Returns:
        The cases in the order of their names: one for each CT, and, if both folders are the same, one for each PET
        without a CT, which fails when its CT is read. Empty if no file has the name of a CT.

    Raises:
        InputError: An image of a case exists in two formats.
    """
    cts = _list_channel(ct_folder, ct_number)
    if not cts:
        return ()
    pets = _list_channel(pet_folder, pet_number)
    patient_ids = sorted(cts.keys() | pets.keys() if ct_folder == pet_folder else cts.keys())
    cases = []
    for patient_id in patient_ids:
        suffix = find_image_suffix(cts.get(patient_id) or pets[patient_id], NAMED_IMAGE_SUFFIXES)
        ct = cts.get(patient_id, ct_folder / f"{patient_id}_{ct_number:04}{suffix}")
        pet = pets.get(patient_id, pet_folder / f"{patient_id}_{pet_number:04}{suffix}")
        cases.append(BatchCase(patient_id, ct, pet))
    return tuple(cases)


def _list_channel(folder: Path, number: int) -> dict[str, Path]:
    """Find the image of each case in one channel, by the name of the case.

    Raises:
        InputError: An image exists in two formats.
    """
    mark = f"_{number:04}"
    path_of: dict[str, Path] = {}
    for path in _list_images(folder):
        name = _name_case(path)
        if name.endswith(mark) and name != mark:
            first = path_of.setdefault(name.removesuffix(mark), path)
            if first != path:
                raise InputError("--ct", f"two files {name}: {first.name} and {path.name}", "one file of each image")
    return path_of


def read_case_table(path: Path) -> tuple[BatchCase, ...]:
    """Read the cases of a CSV file with the columns `PatientID`, `CT` and `PET`, and optionally `EHR`.

    Relative paths start at the file's folder.

    Raises:
        InputError: The table cannot be read, a column is absent or repeated, or a cell is empty.
    """
    cells = read_cells(path)
    places = _find_columns(cells, path)
    cases = []
    for number, row in cells.rows:
        texts = {name: row[place] if place < len(row) else "" for name, place in places.items()}
        if absent := [name for name in TABLE_COLUMNS[:3] if not texts[name]]:
            raise InputError(path.name, f"row {number} without {absent[0]}", "a name and two paths in each row")
        patient_id = texts[ID_COLUMN]
        if "/" in patient_id or patient_id in {".", ".."}:
            raise InputError(path.name, f"{ID_COLUMN} {patient_id!r} in row {number}", "a name without /")
        ehr = path.parent / texts["EHR"] if texts.get("EHR") else None
        cases.append(BatchCase(patient_id, path.parent / texts["CT"], path.parent / texts["PET"], ehr))
    return tuple(cases)


def _find_columns(cells: CsvCells, path: Path) -> dict[str, int]:
    """Return the index of each column of `TABLE_COLUMNS` that the table has; upper and lower case are the same.

    Raises:
        InputError: A required column is absent, or a column is repeated.
    """
    folded = [column.casefold() for column in cells.columns]
    if repeated := [name for name in TABLE_COLUMNS if folded.count(name.casefold()) > 1]:
        raise InputError(path.name, f"column {repeated[0]} twice", "each column once")
    places = {name: folded.index(name.casefold()) for name in TABLE_COLUMNS if name.casefold() in folded}
    if absent := [name for name in TABLE_COLUMNS[:3] if name not in places]:
        raise InputError(path.name, f"no column {absent[0]}", f"the columns {', '.join(TABLE_COLUMNS[:3])}")
    return places


def _find_release_cases(
    root: Path, pet_root: Path | None, edition: Edition, algorithm: Algorithm
) -> tuple[BatchCase, ...]:
    """Find the patients in a release's folder, with their clinical variables if the release has exactly one table."""
    folder = find_task_folder(root, edition, algorithm)
    pets = folder.path if pet_root is None else find_task_folder(pet_root, edition, algorithm).path
    tables = [read_table(table, table.name, edition) for table in folder.tables]
    rows = tables[0].rows if len(tables) == 1 else {}
    known = {variable.key for variable in edition.clinical}
    ct_role, pet_role = find_role(CT), find_role(PET)
    templates, cases = make_file_templates(edition), []
    for patient in sorted(path for path in folder.path.iterdir() if path.is_dir()):
        files = find_patient_files(patient, templates)
        if files:  # an absent CT or PET fails the case later
            ct = find_file(patient, fill_template(templates[ct_role], patient.name))
            pet = find_file(pets / patient.name, fill_template(templates[pet_role], patient.name))
            clinical = {column: cell for column, cell in rows.get(patient.name, {}).items() if column in known}
            cases.append(BatchCase(patient.name, ct, pet, clinical=clinical))
    return tuple(cases)


def _list_images(folder: Path) -> list[Path]:
    return list_images(folder, NAMED_IMAGE_SUFFIXES)


def _name_case(path: Path) -> str:
    """Return the name of an image without its suffix."""
    suffix = find_image_suffix(path, NAMED_IMAGE_SUFFIXES) or ""
    return path.name[: len(path.name) - len(suffix)]


def _check_names(cases: tuple[BatchCase, ...]) -> None:
    """Raise `InputError` if two cases have the same name, from two file formats or two rows of a table."""
    case_of: dict[str, BatchCase] = {}
    for case in cases:
        first = case_of.setdefault(case.patient_id, case)
        if first is not case:
            fault = f"two cases {case.patient_id}: {first.ct.name} and {case.ct.name}"
            raise InputError("--ct", fault, "one CT and one PET for each case")
