"""PET thresholding at a fixed share of SUVmax: the comparator that a network must beat."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from algorithm.case.read import AIR_HU, Case
from algorithm.masks.segmentation import Segmentation
from algorithm.region import grids
from algorithm.region.localise import Region
from contract import labels

SPACING_MM: Final = (3.0, 3.0, 3.0)
SHARE_OF_SUV_MAX: Final = 0.41
SMALLEST_ML: Final = 0.3
# Below the cerebellum, so that the brain's uptake is not taken for GTVp.
SKULL_BASE_BELOW_BRAIN_MM: Final = 75.0


def threshold_segmentation(case: Case, region: Region) -> Segmentation:
    """Everything in the neck above 41% of its SUVmax; the largest 26-connected part is GTVp, the others are GTVn.

    Parts under 0.3 ml are left out, and so is the brain if the localiser found it. Without a usable PET the mask is
    empty.
    """
    grid = grids.grid_over(region.lower_mm, region.upper_mm, SPACING_MM)
    ct = grids.resample(case.ct, grid, AIR_HU)
    if case.pet is None:
        return Segmentation.from_mask(np.zeros(grid.array_shape, np.uint8), ct, None, grid)
    pet = grids.resample(case.pet, grid, 0.0)
    searched = pet.copy()
    if region.brain_z_mm is not None:
        z_mm = grid.origin_mm[2] + np.arange(grid.array_shape[0]) * grid.spacing_mm[2]
        skull_base_mm = region.brain_z_mm - SKULL_BASE_BELOW_BRAIN_MM
        if (z_mm <= skull_base_mm).any():
            searched[z_mm > skull_base_mm] = 0
    mask = largest_is_primary(searched >= SHARE_OF_SUV_MAX * max(float(searched.max()), 1e-6), grid.voxel_volume_mm3)
    return Segmentation.from_mask(mask, ct, pet, grid)


def largest_is_primary(hot: npt.NDArray[np.bool_], voxel_volume_mm3: float) -> npt.NDArray[np.uint8]:
    """Label the 26-connected parts of `hot`: the largest 1 (GTVp), others 2 (GTVn), those under 0.3 ml 0."""
    parts, count = ndimage.label(hot, structure=np.ones((3, 3, 3), dtype=bool))
    sizes = np.bincount(parts.ravel(), minlength=count + 1)
    lookup = np.where(sizes * voxel_volume_mm3 / 1000 >= SMALLEST_ML, labels.GTVN, labels.BACKGROUND).astype(np.uint8)
    lookup[0] = labels.BACKGROUND
    if count:
        largest = int(sizes[1:].argmax()) + 1
        if lookup[largest]:
            lookup[largest] = labels.GTVP
    return np.asarray(lookup[parts], dtype=np.uint8)
