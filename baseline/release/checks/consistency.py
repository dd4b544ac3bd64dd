"""Whether CT, PET and mask can be of one patient in one position: images that are sound one by one and do not fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from algorithm.region.grids import resample
from baseline.release.problems import Problem, Told
from contract.images.geometry import Geometry
from contract.images.volumes import Volume

# Of the smaller field of view along each axis: less is a table that moved, or a scan of another region.
LEAST_SHARED: Final = 0.5
# Air in and around the body; the lung is above SUV 1 hardly anywhere.
AIR_HU: Final = -400.0
WARM_SUV: Final = 1.0
# Measured: 1% at most in phantoms and sarcomas; 5% to 35% where the PET is turned around, 20% where it is another's.
MOST_WARM_AIR: Final = 0.1
# A lesion around an airway holds some of its air, but is not made of it.
MOST_LESION_AIR: Final = 0.5


def check_together(ct: Volume, pet: Volume, mask: Volume | None, told: Mapping[str, Told]) -> Iterator[Problem]:
    """Warnings, since each of these may have its reason.

    Args:
        ct: in HU.
        pet: in SUV, overlapping the CT.
        mask: on the CT's grid; None where the patient has none.
        told: makes the problems of "PET" and "mask".
    """
    shared = _shared(ct.geometry, pet.geometry)
    if shared < LEAST_SHARED:
        found = f"only {shared:.0%} of the smaller field of view is both the CT's and the PET's"
        yield told["PET"].warning("together", found, f"at least {LEAST_SHARED:.0%} along each axis")
        return
    air = _warm_air(ct, pet)
    if air > MOST_WARM_AIR:
        found = f"{air:.0%} of what is above SUV {WARM_SUV:g} lies in the CT's air"
        yield told["PET"].warning("together", found, f"up to {MOST_WARM_AIR:.0%}: one patient, in one position")
    elif mask is not None and mask.array.any():
        yield from _check_lesions(ct, pet, mask.array > 0, told["mask"])


def _check_lesions(ct: Volume, pet: Volume, lesion: npt.NDArray[np.bool_], told: Told) -> Iterator[Problem]:
    uptake, seen = _at(pet, np.argwhere(lesion), ct.geometry)
    air = float(np.mean(ct.array[lesion] < AIR_HU))
    if seen < 1:
        yield told.warning("together", f"{1 - seen:.1%} of the lesions lie beyond the PET", "all of them within it")
    elif air > MOST_LESION_AIR:
        yield told.warning("together", f"{air:.0%} of the lesions lie in the CT's air", "lesions in the body")
    elif uptake.max() < WARM_SUV:
        found = f"the lesions' highest SUV is {uptake.max():.2g}"
        yield told.warning("together", found, f"{WARM_SUV:g}, the body's mean, or more")


def _shared(first: Geometry, second: Geometry) -> float:
    """The share of the smaller extent that both have, along the axis (x, y, z, LPS) where it is least."""
    one, other = first.corners_mm(), second.corners_mm()
    both = np.minimum(one.max(0), other.max(0)) - np.maximum(one.min(0), other.min(0))
    return float((both / np.minimum(np.ptp(one, axis=0), np.ptp(other, axis=0))).min())


def _warm_air(ct: Volume, pet: Volume) -> float:
    """The share of the PET's warm voxels, where there is a CT, that the CT shows as air."""
    density = resample(ct, pet.geometry, float("nan"))
    warm = density[(pet.array > WARM_SUV) & np.isfinite(density)]
    return float(np.mean(warm < AIR_HU)) if warm.size else 0.0


def _at(pet: Volume, index: npt.NDArray[np.intp], grid: Geometry) -> tuple[npt.NDArray[Any], float]:
    """The PET's nearest voxels to voxels (z, y, x) of a grid, those that it has, and the share of them."""
    matrix = pet.geometry.physical_to_index_matrix() @ grid.index_to_physical_matrix()
    places = np.rint(index[:, ::-1] @ matrix[:3, :3].T + matrix[:3, 3]).astype(np.intp)
    inside = np.all((places >= 0) & (places < pet.geometry.size), axis=1)
    x, y, z = places[inside].T
    return pet.array[z, y, x], float(inside.mean())
