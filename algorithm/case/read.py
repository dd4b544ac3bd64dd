"""Read one case from the platform's sockets, and make degenerate images safe to compute with.

What is unusable raises an `InputError`; what is merely degenerate is mended and named in `Notices`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from algorithm.case.notices import Notices
from contract import sockets
from contract.editions import Socket, load_edition
from contract.errors import InputError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, find_single_image, read_volume
from contract.patient import Patient, read_ehr

AIR_HU: Final = -1024
BODY_HU: Final = -300
# The hottest bladder stays below this SUV; activity concentrations in Bq/ml start in the thousands.
LARGEST_PLAUSIBLE_SUV: Final = 500.0
SMALLEST_SIZE: Final = (16, 16, 4)

_Float = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Case:
    """One patient: CT in HU (int16, air where it was padded), PET in SUV (float32, finite, not negative).

    `pet` is None where the PET says nothing about this CT (all zero, or no overlap): CT alone is used. `dose` is the
    planned dose in Gy on its own grid, None where there is none.
    """

    ct: Volume
    pet: Volume | None
    patient: Patient
    dose: Volume | None = None


def read_case(input_dir: Path, notices: Notices, optional: Collection[Socket] = ()) -> Case:
    """Read CT, PET and clinical variables below `input_dir`, and of the `optional` sockets the dose where it is there.

    Raises:
        InputError: a socket is missing or holds anything but one usable 3D image; `ehr.json` is no JSON object.
    """
    ct_path = find_single_image(sockets.CT.path_under(input_dir))
    pet_path = find_single_image(sockets.PET.path_under(input_dir))
    record = read_ehr(sockets.EHR.path_under(input_dir), load_edition().clinical)
    for warning in record.warnings:
        notices.warn(warning)
    ct = clean_ct(_read(ct_path), f"CT {ct_path.name}", notices)
    pet = clean_pet(_read(pet_path), ct, f"PET {pet_path.name}", notices)
    dose = _read_dose(sockets.RT_DOSE.path_under(input_dir), notices) if sockets.RT_DOSE in optional else None
    return Case(ct, pet, record.patient, dose)


def clean_ct(ct: Volume, name: str, notices: Notices) -> Volume:
    """CT as int16 HU: values that are not finite and padding below -1024 become air, with a notice."""
    array = ct.array
    if not np.issubdtype(array.dtype, np.integer):
        array = _finite(array, AIR_HU, name, "air", notices)
    padded = int(np.count_nonzero(array < AIR_HU))
    if padded:
        notices.warn(f"{name}: {padded} voxels below {AIR_HU} HU (lowest {array.min():.6g}), counted as air")
    if array.dtype == np.int16 and not padded:
        return ct
    if not np.can_cast(np.int16, array.dtype):  # unsigned types cannot hold the HU of air
        array = array.astype(np.float32)
    return Volume(np.rint(np.clip(array, AIR_HU, np.iinfo(np.int16).max)).astype(np.int16), ct.geometry)


def clean_pet(pet: Volume, ct: Volume, name: str, notices: Notices) -> Volume | None:
    """PET as float32 SUV, or None where CT alone must do; every change is noticed."""
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite and is counted below
        array = pet.array.astype(np.float32, copy=False)
    array = _finite(array, 0.0, name, "zero", notices)
    negative = int(np.count_nonzero(array < 0))
    if negative:
        notices.warn(f"{name}: {negative} voxels below zero, set to zero")
        array = np.maximum(array, np.float32(0))
    cleaned = Volume(array, pet.geometry)
    if not array.any():
        notices.warn(f"{name}: all voxels are zero, going on with the CT alone")
        return None
    if not overlap(ct.geometry, pet.geometry):
        notices.warn(
            f"{name}: does not overlap the CT ({pet.geometry.describe()} against {ct.geometry.describe()}), "
            "going on with the CT alone"
        )
        return None
    if float(array.max()) > LARGEST_PLAUSIBLE_SUV:
        return _as_suv(cleaned, name, notices)
    return cleaned


def overlap(first: Geometry, second: Geometry) -> bool:
    """Whether the bounding boxes of two grids share any volume."""
    corners = first.corners_mm()
    return reaches_into(second, corners.min(0), corners.max(0))


def reaches_into(grid: Geometry, lower_mm: npt.ArrayLike, upper_mm: npt.ArrayLike) -> bool:
    """Whether the bounding box of `grid` and the box between two corners (x, y, z, LPS) share any volume."""
    corners = grid.corners_mm()
    return bool(np.all(np.minimum(corners.max(0), upper_mm) > np.maximum(corners.min(0), lower_mm)))


def _read_dose(folder: Path, notices: Notices) -> Volume | None:
    """The planned dose in Gy. It is optional: none is no notice, an unusable one is left out with a notice."""
    if not folder.is_dir() or not any(folder.iterdir()):
        return None
    try:
        dose = read_volume(find_single_image(folder), "float32")
    except InputError as problem:
        notices.warn(f"RT dose {problem.message}; going on without it")
        return None
    if np.isfinite(dose.array).all() and float(dose.array.min()) >= 0:
        return dose
    notices.warn("RT dose: values below zero, NaN or infinite, expected Gy; going on without it")
    return None


def _as_suv(pet: Volume, name: str, notices: Notices) -> Volume:
    """Scale an activity concentration to SUV without dose and weight.

    SUV averages 1 over a body that holds all of the injected dose, so the mean over the warm voxels (above a
    hundredth of the 99.9th percentile) is set to 1.
    """
    high = float(np.percentile(pet.array, 99.9))
    warm = pet.array[pet.array > high / 100]
    scale = 1.0 / float(warm.mean()) if warm.size else 1.0 / high
    notices.warn(
        f"{name}: highest value {float(pet.array.max()):.6g}, expected SUV; taken for Bq/ml and scaled by {scale:.3g}"
    )
    return Volume(pet.array * np.float32(scale), pet.geometry)


def _read(path: Path) -> Volume:
    volume = read_volume(path)
    if any(found < least for found, least in zip(volume.geometry.size, SMALLEST_SIZE, strict=True)):
        raise InputError(path.name, f"size {volume.geometry.size}", f"at least {SMALLEST_SIZE} voxels")
    return volume


def _finite(array: npt.NDArray[Any], fill: float, name: str, fill_name: str, notices: Notices) -> npt.NDArray[Any]:
    bad = ~np.isfinite(array)
    count = int(np.count_nonzero(bad))
    if not count:
        return array
    notices.warn(f"{name}: {count} voxels are NaN or infinite, set to {fill_name}")
    return np.where(bad, np.asarray(fill, array.dtype), array)
