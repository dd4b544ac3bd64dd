"""The images around the tumour as one cube, as features and heads see them."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from algorithm.region.grids import resample
from contract import labels
from contract.images.geometry import Geometry
from contract.images.volumes import Volume

Cube = npt.NDArray[np.float32]
# CT, PET, GTVp and GTVn.
CHANNELS: Final = 4
AIR_HU: Final = -1000.0
# The soft-tissue window, and the SUV at which the PET is clipped.
_LOWEST_HU: Final = -200.0
_HIGHEST_HU: Final = 300.0
_HIGHEST_SUV: Final = 25.0
_SUV_UNIT: Final = 5.0


def tumour_cube(
    mask: npt.NDArray[np.uint8], ct: Cube, pet: Cube, grid: Geometry, voxels: int, spacing_mm: float
) -> Cube | None:
    """CT, PET, GTVp and GTVn, shape (4, voxels, voxels, voxels); None without a tumour.

    The cube is centred on the centroid of GTVp, or of GTVn without GTVp. CT and PET are scaled to about -1 to 1 and
    0 to 5; the masks are shares of each voxel.

    Args:
        mask: labels in (z, y, x) on `grid`.
        ct: HU on `grid`.
        pet: SUV on `grid`.
        grid: the segmentation's grid.
        voxels: edge of the cube.
        spacing_mm: size of its voxels.
    """
    centre = _centre_mm(mask, grid)
    if centre is None:
        return None
    x, y, z = (float(value) for value in centre - (voxels - 1) / 2 * spacing_mm)
    cube = Geometry((voxels, voxels, voxels), (spacing_mm, spacing_mm, spacing_mm), (x, y, z))
    density = np.clip(resample(Volume(ct, grid), cube, AIR_HU), _LOWEST_HU, _HIGHEST_HU)
    middle, half = (_HIGHEST_HU + _LOWEST_HU) / 2, (_HIGHEST_HU - _LOWEST_HU) / 2
    uptake = np.clip(resample(Volume(pet, grid), cube, 0.0), 0.0, _HIGHEST_SUV)
    shares = [resample(Volume((mask == label).astype(np.float32), grid), cube, 0.0) for label in labels.FOREGROUND]
    return np.stack([(density - middle) / half, uptake / _SUV_UNIT, *shares]).astype(np.float32)


def absent_cube(voxels: int, _spacing_mm: float) -> Cube:
    """Return the cube of one patient without a PET or a tumour, in the shape of several patients: NaN."""
    return np.full((1, CHANNELS, voxels, voxels, voxels), np.nan, np.float32)


def _centre_mm(mask: npt.NDArray[np.uint8], grid: Geometry) -> npt.NDArray[np.float64] | None:
    """Centroid (x, y, z) of the first label that the mask contains."""
    matrix = grid.index_to_physical_matrix()
    for label in labels.FOREGROUND:
        places = np.argwhere(mask == label)
        if len(places):
            return np.asarray(matrix[:3, :3] @ places.mean(0)[::-1] + matrix[:3, 3], dtype=np.float64)
    return None
