"""Read one case from the platform's sockets or from memory, and make degenerate images safe to compute with.

Unusable input raises an `InputError`; degenerate input is repaired and listed in `Notices`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from algorithm.case import hounsfield, uptake
from algorithm.case.notices import Notices
from contract.editions import Algorithm, Edition
from contract.editions.declaration import CT, EHR, PET, RT_DOSE
from contract.errors import Finding, InputError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, find_single_image, read_volume
from contract.patient import Patient, PatientRecord, parse_ehr, read_ehr

LOGGER = logging.getLogger("hecktor")

AIR_HU: Final = hounsfield.AIR_HU
BODY_HU: Final = -300
SMALLEST_SIZE: Final = (16, 16, 4)
CT_ALONE: Final = "going on with the CT alone"
_WITHOUT_DOSE: Final = "going on without it"


@dataclass(frozen=True)
class Case:
    """One patient: CT in HU (int16, air where it was padded), PET in SUV (float32, finite, not negative).

    `pet` is None if the PET is useless for this CT (all zero, or no overlap): the CT alone is used. `dose` is the
    planned dose in Gy on its own grid, None if there is none.
    """

    ct: Volume
    pet: Volume | None
    patient: Patient
    dose: Volume | None = None


@dataclass(frozen=True)
class CaseVolumes:
    """A case in memory: CT in HU, PET in SUV, and the content of its `ehr.json`; arrays in (z, y, x)."""

    ct: Volume
    pet: Volume
    ehr: Mapping[str, Any]


def read_case(source: Path | CaseVolumes, edition: Edition, algorithm: Algorithm, notices: Notices) -> Case:
    """Read CT, PET, clinical variables, and the dose if the algorithm has that input and the case has one.

    Args:
        source: the platform's `/input` folder, or scans in memory.
        edition: gives the sockets and the clinical variables.
        algorithm: gives the inputs.
        notices: collects the findings.

    Raises:
        InputError: a socket is missing or holds anything but one usable 3D image; `ehr.json` is no JSON object.
    """
    if isinstance(source, CaseVolumes):
        return _case_in_memory(source, edition, notices)
    ct_path, pet_path = (find_single_image(edition.inputs[name].path_under(source)) for name in (CT, PET))
    patient = _patient(read_ehr(edition.inputs[EHR].path_under(source), edition.clinical), notices)
    ct = clean_ct(_checked(read_volume(ct_path), ct_path.name), f"CT {ct_path.name}", notices)
    pet = clean_pet(_checked(read_volume(pet_path), pet_path.name), ct, f"PET {pet_path.name}", notices)
    dose = {**algorithm.inputs, **algorithm.optional_inputs}.get(RT_DOSE)
    return Case(ct, pet, patient, None if dose is None else _read_dose(dose.path_under(source), notices))


def _case_in_memory(scans: CaseVolumes, edition: Edition, notices: Notices) -> Case:
    patient = _patient(parse_ehr(scans.ehr, "ehr", edition.clinical), notices)
    ct = clean_ct(_checked(scans.ct, "CT"), "CT", notices)
    return Case(ct, clean_pet(_checked(scans.pet, "PET"), ct, "PET", notices), patient)


def _patient(record: PatientRecord, notices: Notices) -> Patient:
    for finding in record.warnings:
        notices.warn(finding)
    return record.patient


def clean_ct(ct: Volume, name: str, notices: Notices) -> Volume:
    """CT as int16 HU: a missing intercept is subtracted; padding and values that are not finite become air.

    Everything but padding, which is usual, gives a notice.
    """
    array = ct.array
    if not np.issubdtype(array.dtype, np.integer):
        array = _finite(array, AIR_HU, name, "air", notices)
    array, finding = hounsfield.in_hounsfield_units(array, name)
    if finding:
        notices.warn(finding)
    low = _count_low(array, name, notices)
    if array.dtype == np.int16 and not low:
        return ct
    if not np.can_cast(np.int16, array.dtype):  # unsigned types cannot hold the HU of air
        array = array.astype(np.float32)
    return Volume(np.rint(np.clip(array, AIR_HU, np.iinfo(np.int16).max)).astype(np.int16), ct.geometry)


def _count_low(array: npt.NDArray[Any], name: str, notices: Notices) -> int:
    """Number of voxels below -1024 HU; logs those that are padding and gives a notice of the others.

    Resampling leaves values between padding and air at the padding's edge, which belong to it.
    """
    low = array[array < AIR_HU]
    padding = hounsfield.padding_values(array) if low.size else ()
    padded = np.isin(low, padding)
    edge = ~padded & (low > min(padding, default=0))
    if 0 < np.count_nonzero(edge) < np.count_nonzero(padded) / 2:
        padded |= edge
    if padded.any():
        values = " and ".join(f"{value:.6g}" for value in padding)
        LOGGER.info("%s: %d voxels of padding (%s HU) counted as air", name, np.count_nonzero(padded), values)
    others = low[~padded]
    if others.size:
        found = f"{others.size} voxels below {AIR_HU} HU (lowest {others.min():.6g})"
        notices.warn(Finding(name, found, action="counted as air"))
    return int(low.size)


def clean_pet(pet: Volume, ct: Volume, name: str, notices: Notices) -> Volume | None:
    """PET as float32 SUV, or None if only the CT can be used; every change gives a notice."""
    with np.errstate(over="ignore"):  # values beyond float32 become infinite and are counted below
        array = pet.array.astype(np.float32, copy=False)
    array = _finite(array, 0.0, name, "zero", notices)
    negative = int(np.count_nonzero(array < 0))
    if negative:
        notices.warn(Finding(name, f"{negative} voxels below zero", action="set to zero"))
        array = np.maximum(array, np.float32(0))
    cleaned = Volume(array, pet.geometry)
    if not array.any():
        notices.warn(Finding(name, "all voxels are zero", action=CT_ALONE))
        return None
    if not overlap(ct.geometry, pet.geometry):
        apart = f"does not overlap the CT ({pet.geometry.describe()} against {ct.geometry.describe()})"
        notices.warn(Finding(name, apart, action=CT_ALONE))
        return None
    cleaned, findings = uptake.in_suv(cleaned, ct, name)
    for finding in findings:
        notices.warn(finding)
    return cleaned


def overlap(first: Geometry, second: Geometry) -> bool:
    """True if the bounding boxes of two grids share any volume."""
    corners = first.corners_mm()
    return reaches_into(second, corners.min(0), corners.max(0))


def reaches_into(grid: Geometry, lower_mm: npt.ArrayLike, upper_mm: npt.ArrayLike) -> bool:
    """True if the bounding box of `grid` and the box between two corners (x, y, z, LPS) share any volume."""
    corners = grid.corners_mm()
    return bool(np.all(np.minimum(corners.max(0), upper_mm) > np.maximum(corners.min(0), lower_mm)))


def covered_height(grid: Geometry, lower_mm: npt.ArrayLike, upper_mm: npt.ArrayLike) -> float:
    """Share of the height (z) of a box (corners x, y, z, LPS) that `grid` covers; 0 if they share no volume."""
    if not reaches_into(grid, lower_mm, upper_mm):
        return 0.0
    z = grid.corners_mm()[:, 2]
    low, high = np.asarray(lower_mm)[2], np.asarray(upper_mm)[2]
    return float((min(z.max(), high) - max(z.min(), low)) / (high - low))


def _read_dose(folder: Path, notices: Notices) -> Volume | None:
    """The planned dose in Gy. A missing dose is normal; an unusable one is ignored with a notice."""
    if not folder.is_dir() or not any(folder.iterdir()):
        return None
    try:
        dose = read_volume(find_single_image(folder), "float32")
    except InputError as problem:
        notices.warn(Finding(f"RT dose {problem.what}", problem.found, problem.expected, _WITHOUT_DOSE))
        return None
    if np.isfinite(dose.array).all() and float(dose.array.min()) >= 0:
        return dose
    notices.warn(Finding("RT dose", "values below zero, NaN or infinite", "Gy", _WITHOUT_DOSE))
    return None


def _checked(volume: Volume, name: str) -> Volume:
    if any(size < smallest for size, smallest in zip(volume.geometry.size, SMALLEST_SIZE, strict=True)):
        raise InputError(name, f"size {volume.geometry.size}", f"at least {SMALLEST_SIZE} voxels")
    return volume


def _finite(array: npt.NDArray[Any], fill: float, name: str, fill_name: str, notices: Notices) -> npt.NDArray[Any]:
    bad = ~np.isfinite(array)
    if not (count := int(np.count_nonzero(bad))):
        return array
    notices.warn(Finding(name, f"{count} voxels are NaN or infinite", action=f"set to {fill_name}"))
    return np.where(bad, np.asarray(fill, array.dtype), array)
