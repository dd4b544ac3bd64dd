"""Consistency of CT, PET and mask: one patient, in one position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from algorithm.region.grids import resample
from baseline.release.problems import Problem, ProblemReporter
from contract.images.geometry import Geometry
from contract.images.volumes import Volume

# Share of the smaller field of view along each axis; below it the table moved, or the scan shows another region.
LEAST_SHARED: Final = 0.5
# Air in and around the body; the lung hardly ever exceeds SUV 1.
AIR_HU: Final = -400.0
WARM_SUV: Final = 1.0
# Measured: at most 1% in phantoms and sarcomas; 5% to 35% with a flipped PET, 20% with another patient's.
MOST_WARM_AIR: Final = 0.1
# A lesion around an airway contains some of its air.
MOST_LESION_AIR: Final = 0.5


def check_consistency(
    ct: Volume, pet: Volume, mask: Volume | None, reporters: Mapping[str, ProblemReporter]
) -> Iterator[Problem]:
    """Yield warnings, not errors: each finding can have a legitimate cause.

    The CT is in HU, the PET in SUV, and they overlap; the mask is on the CT's grid. `reporters` are those of the
    roles "PET" and "mask".
    """
    shared = _shared(ct.geometry, pet.geometry)
    if shared < LEAST_SHARED:
        found = f"CT and PET share only {shared:.0%} of the smaller field of view"
        yield reporters["PET"].warning("together", found, f"at least {LEAST_SHARED:.0%} along each axis")
        return
    air = _warm_air(ct, pet)
    if air > MOST_WARM_AIR:
        found = f"{air:.0%} of the voxels above SUV {WARM_SUV:g} lie in the CT's air"
        yield reporters["PET"].warning("together", found, f"up to {MOST_WARM_AIR:.0%}: one patient, in one position")
    elif mask is not None and mask.array.any():
        yield from _check_lesions(ct, pet, mask.array > 0, reporters["mask"])


def _check_lesions(
    ct: Volume, pet: Volume, lesion: npt.NDArray[np.bool_], report: ProblemReporter
) -> Iterator[Problem]:
    uptake, inside = _sampled(pet, np.argwhere(lesion), ct.geometry)
    air = float(np.mean(ct.array[lesion] < AIR_HU))
    if inside < 1:
        yield report.warning("together", f"{1 - inside:.1%} of the lesions lie outside the PET", "all inside")
    elif air > MOST_LESION_AIR:
        yield report.warning("together", f"{air:.0%} of the lesions lie in the CT's air", "lesions in the body")
    elif uptake.max() < WARM_SUV:
        found = f"the lesions' highest SUV is {uptake.max():.2g}"
        yield report.warning("together", found, f"{WARM_SUV:g}, the body's mean, or more")


def _shared(first: Geometry, second: Geometry) -> float:
    """Smallest overlap along any axis (x, y, z, LPS), as a share of the smaller extent."""
    one, other = first.corners_mm(), second.corners_mm()
    both = np.minimum(one.max(0), other.max(0)) - np.maximum(one.min(0), other.min(0))
    return float((both / np.minimum(np.ptp(one, axis=0), np.ptp(other, axis=0))).min())


def _warm_air(ct: Volume, pet: Volume) -> float:
    """Share of the PET's warm voxels inside the CT's field of view that are air in the CT."""
    density = resample(ct, pet.geometry, float("nan"))
    warm = density[(pet.array > WARM_SUV) & np.isfinite(density)]
    return float(np.mean(warm < AIR_HU)) if warm.size else 0.0


def _sampled(pet: Volume, index: npt.NDArray[np.intp], grid: Geometry) -> tuple[npt.NDArray[Any], float]:
    """Values of the PET voxels nearest to voxels (z, y, x) of `grid`, and the share that lies inside the PET."""
    matrix = pet.geometry.physical_to_index_matrix() @ grid.index_to_physical_matrix()
    places = np.rint(index[:, ::-1] @ matrix[:3, :3].T + matrix[:3, 3]).astype(np.intp)
    inside = np.all((places >= 0) & (places < pet.geometry.size), axis=1)
    x, y, z = places[inside].T
    return pet.array[z, y, x], float(inside.mean())
