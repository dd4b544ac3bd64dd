"""How far a PET is shifted against its CT, by the outlines of the body that both show."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import fft, ndimage

from algorithm.case.read import AIR_HU, BODY_HU, Case
from algorithm.region import grids
from algorithm.region.localise import Region

SPACING_MM: Final = 4.0
# Shifts below this occur between sound scans: the outline of a PET is blurred, and patients move.
LEAST_SHIFT_MM: Final = 12.0
MOST_SHIFT_MM: Final = 60.0
# Share of overlap that a voxel of shift must gain: a neck or leg looks alike along its length.
GAIN_OF_VOXEL: Final = 0.002
# The shifted outlines overlap (Dice) better by at least this than those as they are, and well.
LEAST_GAIN: Final = 0.02
LEAST_OVERLAP: Final = 0.8
# A body that fills more of the region has no outline there, as in a CT cut off above the HU of air.
MOST_FILLED: Final = 0.9
# Smallest extent of what both scans show of the region.
LEAST_EXTENT_MM: Final = 100.0
# The body of a PET lies above this share of its median uptake within the CT's body.
_SHARE_OF_MEDIAN: Final = 0.3

_Float = npt.NDArray[np.float32]
_Mask = npt.NDArray[np.bool_]


def pet_shift_mm(case: Case, region: Region) -> tuple[float, float, float] | None:
    """The shift (x, y, z, LPS) of the PET's body outline against the CT's in the region, to about 4 mm.

    None for a shift below 12 mm, or if the outlines do not show one: a better overlap at another shift is no proof if
    the overlap stays poor, as with arms that moved.
    """
    if case.pet is None:
        return None
    corners = np.stack([scan.geometry.corners_mm() for scan in (case.ct, case.pet)])
    lower = np.maximum(corners.min(1).max(0), region.lower_mm)
    upper = np.minimum(corners.max(1).min(0), region.upper_mm)
    if (upper - lower).min() < LEAST_EXTENT_MM:
        return None
    grid = grids.grid_over(lower, upper, (SPACING_MM, SPACING_MM, SPACING_MM))
    ct = _outline(grids.resample(case.ct, grid, AIR_HU) > BODY_HU)
    uptake = grids.resample(case.pet, grid, 0.0)
    if not 0 < ct.mean() < MOST_FILLED or not (median := float(np.median(uptake[ct]))) > 0:
        return None
    pet = _outline(uptake > _SHARE_OF_MEDIAN * median)
    most = round(MOST_SHIFT_MM / SPACING_MM)
    steps, gain, overlap = best_shift(ct, pet, most)
    shift = tuple(float(step * SPACING_MM) for step in steps[::-1])
    at_border = max(map(abs, steps)) == most  # beyond the search there may be a better one
    if at_border or np.linalg.norm(shift) < LEAST_SHIFT_MM or gain < LEAST_GAIN or overlap < LEAST_OVERLAP:
        return None
    return shift[0], shift[1], shift[2]


def best_shift(fixed: _Mask, moved: _Mask, most: int) -> tuple[tuple[int, int, int], float, float]:
    """The shift (z, y, x) in voxels, at most `most` along each axis, that takes `fixed` best to `moved`.

    The best shift has the highest Dice overlap less `GAIN_OF_VOXEL` for each voxel of its length. Parts that a shift
    takes out of the array do not count.

    Returns the shift, by how much it improves the overlap, and that overlap.
    """
    shape = [fft.next_fast_len(size + most, real=True) for size in fixed.shape]
    inside = np.ones(fixed.shape, dtype=np.float32)
    parts = (fixed.astype(np.float32), moved.astype(np.float32), inside)
    of_fixed, of_moved, of_inside = (fft.rfftn(part, shape) for part in parts)
    window = np.ix_(*(np.arange(-most, most + 1) for _ in shape))

    def correlation(first: npt.NDArray[np.complex64], second: npt.NDArray[np.complex64]) -> _Float:
        return np.asarray(fft.irfftn(np.conj(first) * second, shape)[window], dtype=np.float32)

    both = correlation(of_fixed, of_moved)
    sizes = correlation(of_fixed, of_inside) + correlation(of_inside, of_moved)
    overlap = 2 * both / np.maximum(sizes, 1.0)
    length = np.sqrt(sum(steps**2 for steps in np.ogrid[(slice(-most, most + 1),) * 3]))
    best = np.unravel_index(int((overlap - GAIN_OF_VOXEL * length).argmax()), overlap.shape)
    at_best, at_zero = float(overlap[best]), float(overlap[most, most, most])
    z, y, x = (int(index) - most for index in best)
    return (z, y, x), at_best - at_zero, at_best


def _outline(body: _Mask) -> _Mask:
    """The largest connected part, filled slice by slice: without the couch, with airways and lungs."""
    parts, count = ndimage.label(body)
    if count:
        body = parts == 1 + int(np.argmax(np.bincount(parts.ravel())[1:]))
    return np.asarray(np.stack([ndimage.binary_fill_holes(plane) for plane in body]), dtype=np.bool_)
