"""Use contours that are given with a case as the segmentation for its risks and classes."""

from __future__ import annotations

import numpy as np

from algorithm.case.read import AIR_HU, Case
from algorithm.masks.segmentation import Segmentation, Segmented
from algorithm.region import grids
from algorithm.region.lattice import upright_grid
from algorithm.region.localise import Region
from contract.images.volumes import Volume


def by_contours(case: Case, contours: Volume, region: Region, spacing_mm: tuple[float, float, float]) -> Segmented:
    """The contours on the grid that training uses to measure features of reference masks, `spacing_mm` (x, y, z).

    The grid covers the region and all contours.
    """
    low, high = np.asarray(region.lower_mm), np.asarray(region.upper_mm)
    if (marked := np.argwhere(contours.array > 0)[:, ::-1]).size:
        first, last = marked.min(0), marked.max(0)
        size = (last - first + 1).tolist()
        corners = contours.geometry.cropped(tuple(first.tolist()), (size[0], size[1], size[2])).corners_mm()
        low, high = np.minimum(low, corners.min(0)), np.maximum(high, corners.max(0))
    grid = upright_grid(case.ct.geometry, grids.triple(low), grids.triple(high), spacing_mm)
    ct = grids.resample(case.ct, grid, AIR_HU)
    pet = None if case.pet is None else grids.resample(case.pet, grid, 0.0)
    segmentation = Segmentation.from_mask(grids.resample_mask(contours, grid), ct, pet, grid)
    return Segmented(case, segmentation, region, by_contours=True)
