"""PET thresholding at a fixed share of SUVmax: the comparator that a network must beat."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from algorithm.case.read import Case
from algorithm.case.units import PADDING_HU
from algorithm.masks.segmentation import ANY_CORNER, Segmentation, SegmentedBy
from algorithm.region import grids
from algorithm.region.localise import Region
from contract import labels
from contract.images.geometry import Geometry

SPACING_MM: Final = (3.0, 3.0, 3.0)
SHARE_OF_SUV_MAX: Final = 0.41
SMALLEST_ML: Final = 0.3
# Width around the brain into which its uptake is blurred, and height above its lower end from where the face is hot.
BRAIN_MARGIN_MM: Final = 12.0
SKULL_ABOVE_BRAIN_END_MM: Final = 45.0
# A hot part at the upper end of a scan without a visible brain is the brain's lower end from this volume on.
SMALLEST_CUT_BRAIN_ML: Final = 60.0
TOP_SLICES: Final = 2
# Nodes of the neck have their highest uptake above this depth below the lung apices; below lies the chest.
NECK_BELOW_APEX_MM: Final = 30.0

_Float = npt.NDArray[np.float32]
_Mask = npt.NDArray[np.bool_]


def fallback_of(case: Case) -> SegmentedBy:
    """The source of the mask of `threshold_segmentation` for a case."""
    if not case.is_mr:
        return SegmentedBy.PET_THRESHOLD
    return SegmentedBy.EMPTY_MASK if case.earlier is None else SegmentedBy.EARLIER_MASK


def threshold_segmentation(case: Case, region: Region) -> Segmentation:
    """Everything in the neck above 41% of its SUVmax; the largest 26-connected part is GTVp, the others are GTVn.

    The neck lies between brain and lung apices, if they are visible. Parts under 0.3 ml are left out, and so are the
    brain and parts that are hottest in the chest. Without a usable PET the mask is empty; of MR it is the mask of the
    earlier visit on the scan's grid, or empty without one.
    """
    if case.is_mr:
        empty = np.zeros(case.scan.geometry.array_shape, np.uint8)
        mask = empty if case.earlier is None else grids.resample_mask(case.earlier, case.scan.geometry)
        return Segmentation.from_mask(mask, case.scan.array, None, case.scan.geometry)
    grid = grids.grid_over(region.lower_mm, region.upper_mm, SPACING_MM)
    ct = grids.resample(case.scan, grid, PADDING_HU)
    pet = None if case.pet is None else grids.resample(case.pet, grid, 0.0)
    if pet is None or region.is_empty:
        return Segmentation.from_mask(np.zeros(grid.array_shape, np.uint8), ct, pet, grid)
    hot = _hot_in_neck(np.where(_outside_brain(pet, region, grid), pet, np.float32(0)), region, grid)
    return Segmentation.from_mask(largest_is_primary(hot, grid.voxel_volume_mm3), ct, pet, grid)


def _heights_mm(grid: Geometry) -> npt.NDArray[np.float64]:
    return np.asarray(grid.origin_mm[2] + np.arange(grid.array_shape[0]) * grid.spacing_mm[2])


def _outside_brain(pet: _Float, region: Region, grid: Geometry) -> _Mask:
    """Voxels of `grid` that are neither brain, nor near it, nor high above its lower end."""
    brain = _cut_brain(pet, grid) if region.brain is None else grids.resample(region.brain, grid, 0.0) > 0.5
    outside = ~ndimage.binary_dilation(brain, iterations=round(BRAIN_MARGIN_MM / grid.spacing_mm[0]))
    if region.brain_lower_mm is not None:
        outside[_heights_mm(grid) > region.brain_lower_mm + SKULL_ABOVE_BRAIN_END_MM] = False
    return np.asarray(outside)


def _cut_brain(pet: _Float, grid: Geometry) -> _Mask:
    """Large hot parts at the upper end of a region without a visible brain: what the scan shows of the brain."""
    parts, _ = ndimage.label(pet >= SHARE_OF_SUV_MAX * max(float(pet.max()), 1e-6), structure=ANY_CORNER)
    cut = np.bincount(parts.ravel()) * grid.voxel_volume_mm3 / 1000 >= SMALLEST_CUT_BRAIN_ML
    at_top = np.zeros_like(cut)
    at_top[parts[-TOP_SLICES:]] = True
    at_top[0] = False
    return np.asarray((cut & at_top)[parts])


def _hot_in_neck(pet: _Float, region: Region, grid: Geometry) -> _Mask:
    """Voxels above 41% of the neck's SUVmax, without parts that are hottest in the chest."""
    z_mm = _heights_mm(grid)
    neck = np.ones_like(z_mm, dtype=np.bool_) if region.apex_mm is None else z_mm >= region.apex_mm
    if not pet[neck].any():
        neck[:] = True
    hot = pet >= SHARE_OF_SUV_MAX * max(float(pet[neck].max()), 1e-6)
    if region.apex_mm is None:
        return np.asarray(hot)
    parts, count = ndimage.label(hot, structure=ANY_CORNER)
    above_chest = np.where((z_mm >= region.apex_mm - NECK_BELOW_APEX_MM)[:, None, None], pet, np.float32(0))
    numbers = np.arange(1, count + 1)
    in_neck = ndimage.maximum(above_chest, parts, numbers) >= ndimage.maximum(pet, parts, numbers)
    return np.asarray(np.append(False, in_neck)[parts])


def largest_is_primary(hot: npt.NDArray[np.bool_], voxel_volume_mm3: float) -> npt.NDArray[np.uint8]:
    """Label the 26-connected parts of `hot`: the largest 1 (GTVp), others 2 (GTVn), those under 0.3 ml 0."""
    parts, _ = ndimage.label(hot, structure=ANY_CORNER)
    sizes = np.bincount(parts.ravel())
    lookup = np.where(sizes * voxel_volume_mm3 / 1000 >= SMALLEST_ML, labels.GTVN, labels.BACKGROUND).astype(np.uint8)
    lookup[0] = labels.BACKGROUND
    if lookup.any():
        lookup[int(sizes[1:].argmax()) + 1] = labels.GTVP
    return np.asarray(lookup[parts], dtype=np.uint8)
