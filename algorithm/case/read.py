"""Read one case from the platform's sockets, plain files or memory, and make degenerate images safe to compute with.

Unusable input raises an `InputError`; degenerate input is repaired and listed in `Notices`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from algorithm.case.inputs import CaseFiles, Notices, find_image, find_input
from algorithm.case.units import PADDING_HU, check_hu, convert_to_suv, is_ct
from contract import labels
from contract.editions import Algorithm, Edition
from contract.editions.inputs import CONTOURS, CT, EHR, MR, PET, RT_DOSE
from contract.errors import Finding, InputError
from contract.images.geometry import Geometry
from contract.images.volumes import (
    Volume,
    convert_to_labels,
    find_single_image,
    read_header,
    read_volume,
    replace_nonfinite,
)
from contract.patient import Patient, PatientRecord, parse_ehr, read_ehr
from contract.platform import is_system_name

LOGGER = logging.getLogger("hecktor")

BODY_HU: Final = -300
MIN_SIZE_VOXELS: Final = (16, 16, 4)
CT_ONLY: Final = "continuing with only the CT; expect an empty mask"
_WITHOUT_DOSE: Final = "continuing without it"
_WITHOUT_CONTOURS: Final = "the network finds the lesions instead"
_WITHOUT_CLINICAL: Final = "continuing without clinical variables"


class WrongScanError(InputError):
    """CT and PET are swapped."""


@dataclass(frozen=True)
class Case:
    """Images and clinical variables of one patient.

    For PET/CT, `scan` is the CT in HU (int16; padding has the value of air) and `pet` the PET in SUV (float32, finite,
    not negative). `pet` is None if it cannot be used with this CT, because all voxels are zero or it does not overlap
    the CT. `dose` is the planned dose in Gy on its own grid, None without a dose. `contours` is a lesion mask on the
    CT's grid that comes with the case, None if the algorithm has to find the lesions.

    For MR (`is_mr`), `scan` is the MR (float32, finite) on whose grid the mask is answered. `registered` has the other
    channels of the networks: MR images, and for a mask one image of 0 and 1 for each structure. `earlier` is the mask
    of the earlier visit, None without one.
    """

    scan: Volume
    pet: Volume | None
    patient: Patient
    dose: Volume | None = None
    contours: Volume | None = None
    is_mr: bool = False
    registered: tuple[Volume, ...] = ()
    earlier: Volume | None = None

    @property
    def channels(self) -> tuple[Volume | None, ...]:
        """Return the networks' images in the order of `Algorithm.channels`; None for a PET that cannot be used."""
        return (self.scan, *self.registered) if self.is_mr else (self.scan, self.pet)

    @property
    def scans(self) -> dict[str, Volume | None]:
        """Return CT and PET, or MR, by their names; None for a PET that cannot be used."""
        return {"MR": self.scan} if self.is_mr else {"CT": self.scan, "PET": self.pet}

    @property
    def has_pet_threshold(self) -> bool:
        """Return whether the fallback for this case is the PET threshold: for PET/CT, even without a usable PET."""
        return not self.is_mr

    @property
    def outside(self) -> float:
        """Return the value to assume outside the grid of `scan`: air in HU, or 0 for MR."""
        return 0 if self.is_mr else PADDING_HU


@dataclass(frozen=True)
class CaseVolumes:
    """A case in memory: CT in HU, PET in SUV, and the content of its `ehr.json`; arrays in (z, y, x)."""

    ct: Volume
    pet: Volume
    ehr: Mapping[str, Any]


# The platform's `/input` folder, plain files, or scans in memory.
CaseSource = Path | CaseFiles | CaseVolumes


def read_case(
    source: CaseSource,
    edition: Edition,
    algorithm: Algorithm,
    notices: Notices,
    *,
    tolerant: bool = False,
    contours: Path | None = None,
) -> Case:
    """Read CT, PET and clinical variables, and dose and contours if the algorithm has these inputs and they exist.

    Args:
        source: The case.
        edition: Declares the inputs and the clinical variables.
        algorithm: Task, which may declare further inputs.
        notices: Collects what was repaired or left out.
        tolerant: Whether a PET, clinical variables or contours that cannot be used are left out with a notice.
        contours: File of a lesion mask that replaces the input of contours.

    Raises:
        InputError: There is not exactly one usable 3D image of the CT, or CT and PET are swapped. Unless `tolerant`,
            also for the PET and the contours, and if `ehr.json` is not a JSON object, or is absent for an algorithm
            that answers more than a mask.
    """
    if algorithm.modality == MR:
        return _read_mr_folder(source, algorithm, notices)
    reader = _Reader(edition, algorithm, notices, tolerant)
    if isinstance(source, CaseVolumes):
        case = reader.read_memory(source)
    elif isinstance(source, CaseFiles):
        case = reader.read_files(source.ct, source.pet, source.ehr)
    else:
        case = reader.read_folder(source)
    return replace(case, contours=reader.read_contours(source, case.scan.geometry, contours))


def _read_mr_folder(source: CaseSource, algorithm: Algorithm, notices: Notices) -> Case:
    """Read the MR and the images that are registered to it.

    Raises:
        InputError: An image is absent or unusable, or the case comes as plain files.
    """
    if not isinstance(source, Path):
        actual = f"plain files, or scans in memory, for task {algorithm.name}"
        raise InputError("input", actual, "a folder in the platform's layout, which names the images of MR")
    paths = {
        name: find_image(find_input(source, socket, notices))
        for name, socket in {algorithm.input_names[0]: algorithm.scan, **algorithm.registered_inputs}.items()
    }
    return read_mr_case(paths, algorithm.channels, notices)


def read_mr_case(paths: Mapping[str, Path], channels: Collection[str], notices: Notices) -> Case:
    """Read a case of MR.

    Args:
        paths: File of each input by the input's name; the first one is the scan.
        channels: Names of the inputs that are channels of the networks, `Algorithm.channels`; another input is the mask
            of the earlier visit.
        notices: Collects what was repaired.

    Raises:
        InputError: An image is unusable, or does not overlap the scan.
    """
    (scan_path, *other_paths), names = paths.values(), list(paths)[1:]
    scan = _clean_mr(read_volume(scan_path), scan_path.name, notices)
    registered: list[Volume] = []
    earlier = None
    for name, path in zip(names, other_paths, strict=True):
        image = read_volume(path)
        if not overlap(scan.geometry, image.geometry):
            apart = f"does not overlap {scan_path.name} ({image.geometry.describe()})"
            raise InputError(path.name, apart, "an image registered to it, as HNTS-MRG releases them")
        if name in channels:
            registered.append(_clean_mr(image, path.name, notices))
            continue
        earlier = convert_to_labels(image, path.name)
        parts = [(earlier.array == label).astype(np.uint8) for label in labels.FOREGROUND]
        registered += [Volume(part, image.geometry) for part in parts]
    return Case(scan, None, Patient(), is_mr=True, registered=tuple(registered), earlier=earlier)


def _clean_mr(image: Volume, name: str, notices: Notices) -> Volume:
    """Return an MR as float32, with 0 for values that are not finite; such values and an empty MR give a notice."""
    checked = _check_size(image, name)
    array = _replace_nonfinite(
        Volume(checked.array.astype(np.float32), checked.geometry), 0.0, name, "zero", notices
    ).array
    if not array.any():
        notices.note(Finding(f"MR {name}", "all voxels are zero", action="continuing with it"))
    return Volume(array, image.geometry)


def read_header_case(source: CaseSource, edition: Edition) -> Case:
    """Read only the header of the CT, and return a case of air on its grid, whose array takes no memory.

    Raises:
        InputError: The header cannot be read.
    """
    if isinstance(source, CaseVolumes):
        grid = source.ct.geometry
    elif isinstance(source, CaseFiles):
        grid = read_header(source.ct).geometry
    else:
        grid = read_header(find_image(find_input(source, edition.inputs[CT], Notices()))).geometry
    return Case(Volume(np.broadcast_to(np.int16(PADDING_HU), grid.array_shape), grid), None, Patient())


@dataclass(frozen=True)
class _Reader:
    """Reads a case of PET/CT; `tolerant` as in `read_case`."""

    edition: Edition
    algorithm: Algorithm
    notices: Notices
    tolerant: bool

    def read_folder(self, root: Path) -> Case:
        inputs = self.edition.inputs
        ct_path, pet_path, ehr_path = (find_input(root, inputs[name], self.notices) for name in (CT, PET, EHR))
        ct_image, pet_image = find_image(ct_path), None
        with self._tolerate(CT_ONLY):
            pet_image = find_image(pet_path)
        case = self.read_files(ct_image, pet_image, ehr_path)
        dose = {**self.algorithm.inputs, **self.algorithm.optional_inputs}.get(RT_DOSE)
        return case if dose is None else replace(case, dose=_read_dose(dose.path_under(root), self.notices))

    def read_files(self, ct_path: Path, pet_path: Path | None, ehr_path: Path | None) -> Case:
        patient, suv_factor = self._make_patient(self._read_record(ehr_path))
        ct = clean_ct(_check_size(read_volume(ct_path), ct_path.name), f"CT {ct_path.name}", self.notices)
        pet: Volume | None = None
        if pet_path is not None:
            with self._tolerate(CT_ONLY):
                image = _check_size(read_volume(pet_path), pet_path.name)
                pet = clean_pet(image, ct, f"PET {pet_path.name}", self.notices, suv_factor)
        return Case(ct, pet, patient)

    def read_memory(self, scans: CaseVolumes) -> Case:
        record = parse_ehr(scans.ehr, "ehr", self.edition.clinical, self.edition.suv_factor)
        patient, suv_factor = self._make_patient(record)
        ct = clean_ct(_check_size(scans.ct, "CT"), "CT", self.notices)
        pet: Volume | None = None
        with self._tolerate(CT_ONLY):
            pet = clean_pet(_check_size(scans.pet, "PET"), ct, "PET", self.notices, suv_factor)
        return Case(ct, pet, patient)

    def read_contours(self, source: CaseSource, ct: Geometry, path: Path | None) -> Volume | None:
        """Read the lesion mask from `path`, or from the case if the algorithm has this input; None without contours.

        Raises:
            InputError: The contours are required but absent, not a mask, or not on the CT's grid; unless tolerant.
        """
        contours: Volume | None = None
        with self._tolerate(_WITHOUT_CONTOURS):
            path = path or self._find_contours(source)
            if path is not None:
                mask = read_volume(path)
                if differences := mask.geometry.find_differences(ct):
                    raise InputError(path.name, f"not on the CT's grid ({differences[0]})", "contours on the CT's grid")
                contours = convert_to_labels(mask, path.name)
        return contours

    def _find_contours(self, source: CaseSource) -> Path | None:
        """Find the image of the contours; None if the algorithm has no such input, or an optional image is absent."""
        required = self.algorithm.inputs.get(CONTOURS)
        socket = required or self.algorithm.optional_inputs.get(CONTOURS)
        if required is not None and not isinstance(source, Path):
            raise InputError(CONTOURS, "not given", "a mask of the lesions, such as --contours MASK")
        if socket is None or not isinstance(source, Path):
            return None
        path = find_input(source, socket, self.notices)
        return find_image(path) if required is not None or path.exists() else None

    def _read_record(self, path: Path | None) -> PatientRecord | None:
        """Read `ehr.json`; its absence only gives a notice for an algorithm that answers only a mask."""
        record: PatientRecord | None = None
        if path is None or (not self.algorithm.head_specs and not path.exists()):
            self.notices.note(Finding("ehr.json", "absent", "the clinical variables", _WITHOUT_CLINICAL))
        else:
            with self._tolerate(_WITHOUT_CLINICAL):
                record = read_ehr(path, self.edition.clinical, self.edition.suv_factor)
        return record

    def _make_patient(self, record: PatientRecord | None) -> tuple[Patient, float | None]:
        if record is None:
            return Patient(dict.fromkeys(variable.name for variable in self.edition.clinical)), None
        for finding in record.warnings:
            if self.algorithm.head_specs or finding is not record.missing:  # a mask needs no clinical variables
                self.notices.note(finding)
        return record.patient, record.suv_factor

    @contextmanager
    def _tolerate(self, action: str) -> Iterator[None]:
        """Turn an `InputError` in the block into a notice with the text `action`, if the reader is tolerant."""
        try:
            yield
        except InputError as problem:
            if not self.tolerant or isinstance(problem, WrongScanError):  # swapped images leave nothing to work with
                raise
            self.notices.note(Finding(problem.what, problem.found, problem.expected, action))


def clean_ct(ct: Volume, name: str, notices: Notices) -> Volume:
    """Return a CT as int16 HU; values that are not finite, and padding below -1024, become air (-1024).

    Values that are not finite and a missing rescale intercept give a notice.
    """
    array = _replace_nonfinite(ct, PADDING_HU, name, "air", notices).array
    if finding := check_hu(array, name):
        notices.note(finding)
    low = array[array < PADDING_HU]
    if array.dtype == np.int16 and not low.size:
        return ct
    if low.size:
        LOGGER.info("%s: %d voxels below %d HU (lowest %.6g) counted as air", name, low.size, PADDING_HU, low.min())
    if not np.can_cast(np.int16, array.dtype):  # unsigned types cannot hold the HU of air
        array = array.astype(np.float32)
    return Volume(np.rint(np.clip(array, PADDING_HU, np.iinfo(np.int16).max)).astype(np.int16), ct.geometry)


def clean_pet(pet: Volume, ct: Volume, name: str, notices: Notices, suv_factor: float | None = None) -> Volume | None:
    """Return a PET as float32 SUV, or None if only the CT can be used; every change gives a notice.

    Args:
        pet: PET in SUV or Bq/ml.
        ct: CT in HU.
        name: Name of the PET in messages.
        notices: Collects the changes.
        suv_factor: Factor from Bq/ml to SUV that comes with the case.

    Raises:
        InputError: The PET has the values of a CT; `WrongScanError` if CT and PET are swapped.
    """
    if is_ct(pet.array):
        actual = f"the values of a CT (air near -1000, lowest {float(np.nanmin(pet.array)):.6g})"
        if is_ct(ct.array):
            raise InputError(name, actual, "uptake in SUV")
        raise WrongScanError(name, actual, "uptake in SUV; CT and PET are swapped")
    with np.errstate(over="ignore"):  # values beyond float32 become infinite and are counted below
        array = pet.array.astype(np.float32, copy=False)
    array = _replace_nonfinite(Volume(array, pet.geometry), 0.0, name, "zero", notices).array
    negative = int(np.count_nonzero(array < 0))
    if negative:
        notices.note(Finding(name, f"{negative} voxels below zero", action="set to zero"))
        array = np.maximum(array, np.float32(0))
    cleaned = Volume(array, pet.geometry)
    if not array.any():
        notices.note(Finding(name, "all voxels are zero", action=CT_ONLY))
        return None
    if not overlap(ct.geometry, pet.geometry):
        apart = f"does not overlap the CT ({pet.geometry.describe()} against {ct.geometry.describe()})"
        notices.note(Finding(name, apart, action=CT_ONLY))
        return None
    cleaned, findings = convert_to_suv(cleaned, ct, name, suv_factor)
    for finding in findings:
        notices.note(finding)
    return cleaned


def overlap(first: Geometry, second: Geometry) -> bool:
    """Return whether the bounding boxes of two grids share any volume."""
    corners = first.corners_mm()
    return reaches_into(second, corners.min(0), corners.max(0))


def reaches_into(grid: Geometry, lower_mm: npt.ArrayLike, upper_mm: npt.ArrayLike) -> bool:
    """Return whether the bounding box of `grid` and the box between two corners (x, y, z, LPS) share any volume."""
    corners = grid.corners_mm()
    return bool(np.all(np.minimum(corners.max(0), upper_mm) > np.maximum(corners.min(0), lower_mm)))


def compute_covered_height(grid: Geometry, lower_mm: npt.ArrayLike, upper_mm: npt.ArrayLike) -> float:
    """Return the fraction of a box's height (z) that `grid` covers, 0 if they do not overlap; corners in LPS."""
    if not reaches_into(grid, lower_mm, upper_mm):
        return 0.0
    z = grid.corners_mm()[:, 2]
    low, high = np.asarray(lower_mm)[2], np.asarray(upper_mm)[2]
    return float((min(z.max(), high) - max(z.min(), low)) / (high - low))


def _read_dose(folder: Path, notices: Notices) -> Volume | None:
    """Read the planned dose in Gy; a missing dose is normal, and an unusable dose is ignored with a notice."""
    if not folder.is_dir() or all(is_system_name(path.name) for path in folder.iterdir()):
        return None
    try:
        dose = read_volume(find_single_image(folder), "float32")
    except InputError as problem:
        notices.note(Finding(f"RT dose {problem.what}", problem.found, problem.expected, _WITHOUT_DOSE))
        return None
    if np.isfinite(dose.array).all() and float(dose.array.min()) >= 0:
        return dose
    notices.note(Finding("RT dose", "values below zero, NaN or infinite", "Gy", _WITHOUT_DOSE))
    return None


def _check_size(volume: Volume, name: str) -> Volume:
    if any(size < smallest for size, smallest in zip(volume.geometry.size, MIN_SIZE_VOXELS, strict=True)):
        raise InputError(name, f"size {volume.geometry.size}", f"at least {MIN_SIZE_VOXELS} voxels")
    return volume


def _replace_nonfinite(image: Volume, fill: float, name: str, fill_name: str, notices: Notices) -> Volume:
    cleaned, count = replace_nonfinite(image, fill)
    if count:
        notices.note(Finding(name, f"{count} voxels are NaN or infinite", action=f"set to {fill_name}"))
    return cleaned
