"""Find the head and neck in any scan, from head-only to whole body, in physical space.

The brain case is the landmark: soft tissue that bone encloses slice by slice. Where it is not in view, a short
scan is taken whole and of a long one its upper end. Unsure means a larger region, never a small wrong one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from algorithm import grids
from algorithm.read import AIR_HU, BODY_HU, Case
from contract.geometry import Geometry
from contract.images import Volume

COARSE_MM: Final = 4.0
BONE_HU: Final = 200.0
# Half widths around the head, and reach below and above the centre of the brain case.
HALF_WIDTH_MM: Final = 125.0
BELOW_BRAIN_MM: Final = 280.0
ABOVE_BRAIN_MM: Final = 45.0
SMALLEST_BRAIN_ML: Final = 250.0
LARGEST_BRAIN_ML: Final = 2200.0
UNSURE_HALF_WIDTH_MM: Final = 150.0
LONGEST_UNSURE_MM: Final = 450.0

_Mask = npt.NDArray[np.bool_]
_Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Region:
    """An axis-aligned box in LPS millimetres, corners in (x, y, z), clipped to the CT's field of view.

    `brain_z_mm` is the height of the brain case's centre, None where it was not found.
    """

    lower_mm: tuple[float, float, float]
    upper_mm: tuple[float, float, float]
    found_by: str
    brain_z_mm: float | None = None

    @property
    def sure(self) -> bool:
        """Whether the brain case was found."""
        return self.brain_z_mm is not None

    @property
    def volume_litres(self) -> float:
        """Volume of the box in litres."""
        return float(np.prod(np.subtract(self.upper_mm, self.lower_mm))) / 1e6


def localise(case: Case) -> Region:
    """The region that holds every GTVp and GTVn, clipped to the CT's field of view."""
    corners = case.ct.geometry.corners_mm()
    field_low, field_high = corners.min(0), corners.max(0)
    grid = grids.grid_over(field_low, field_high, (COARSE_MM, COARSE_MM, COARSE_MM))
    ct = grids.resample(_thinned(case.ct), grid, AIR_HU)
    body = _body(ct)
    brain_mm = _brain_centre_mm(ct, body, grid)
    if brain_mm is not None:
        low, high = _around_brain(brain_mm, body, grid)
        found_by = "brain case"
    else:
        low, high = _without_brain(body, grid)
        found_by = "body outline"
    brain_z_mm = None if brain_mm is None else float(brain_mm[2])
    return _clipped(low, high, field_low, field_high, brain_z_mm, found_by)


def _thinned(ct: Volume) -> Volume:
    """Every k-th voxel of a fine CT, still finer than the coarse grid: averaging all would tell no more."""
    steps = [max(int(COARSE_MM / spacing / 1.5), 1) for spacing in ct.geometry.spacing_mm]
    sx, sy, sz = steps
    array = np.ascontiguousarray(ct.array[::sz, ::sy, ::sx])
    spacing = ct.geometry.spacing_mm
    size = (array.shape[2], array.shape[1], array.shape[0])
    return Volume(
        array,
        Geometry(
            size,
            (spacing[0] * sx, spacing[1] * sy, spacing[2] * sz),
            ct.geometry.origin_mm,
            ct.geometry.direction,
        ),
    )


def _body(ct: npt.NDArray[np.float32]) -> _Mask:
    """The patient without table and mask: the largest connected soft part after an opening."""
    soft = ndimage.binary_opening(ct > BODY_HU, iterations=2)
    return _largest(soft)


def _largest(mask: _Mask) -> _Mask:
    parts, count = ndimage.label(mask)
    if count == 0:
        return mask
    sizes = np.bincount(parts.ravel())
    sizes[0] = 0
    return np.asarray(parts == sizes.argmax(), dtype=np.bool_)


def _brain_centre_mm(ct: npt.NDArray[np.float32], body: _Mask, grid: Geometry) -> _Vector | None:
    """Centre (x, y, z) of the uppermost soft part that bone encloses and that has the size of a brain, or None."""
    bone = (ct > BONE_HU) & ndimage.binary_dilation(body, iterations=2)
    enclosed = np.zeros_like(bone)
    for z in range(bone.shape[0]):
        if bone[z].any():
            enclosed[z] = ndimage.binary_fill_holes(ndimage.binary_closing(bone[z], iterations=2))
    soft = ndimage.binary_opening(enclosed & ~bone & (ct > -50) & (ct < 150), iterations=2)
    parts, _ = ndimage.label(soft)
    best: _Vector | None = None
    for number, box in enumerate(ndimage.find_objects(parts), start=1):
        part = parts[box] == number
        volume_ml = np.count_nonzero(part) * grid.voxel_volume_mm3 / 1000
        if not SMALLEST_BRAIN_ML <= volume_ml <= LARGEST_BRAIN_ML or part.mean() < 0.35:
            continue
        start = np.array([s.start for s in box])
        centre = (np.argwhere(part).mean(0) + start)[::-1]
        centre_mm = centre * np.asarray(grid.spacing_mm) + np.asarray(grid.origin_mm)
        if best is None or centre_mm[2] > best[2]:
            best = centre_mm
    return best


def _around_brain(brain_mm: _Vector, body: _Mask, grid: Geometry) -> tuple[_Vector, _Vector]:
    """The box below a brain case, centred between the head and the neck beneath it."""
    neck_mm = _neck_centre_mm(brain_mm, body, grid)
    middle = (brain_mm + neck_mm) / 2
    low = np.array([middle[0] - HALF_WIDTH_MM, middle[1] - HALF_WIDTH_MM, brain_mm[2] - BELOW_BRAIN_MM])
    high = np.array([middle[0] + HALF_WIDTH_MM, middle[1] + HALF_WIDTH_MM, brain_mm[2] + ABOVE_BRAIN_MM])
    return low, high


def _neck_centre_mm(brain_mm: _Vector, body: _Mask, grid: Geometry) -> _Vector:
    """Centre of the thinnest body sections 90 to 200 mm below the brain; the brain's own where none are in view."""
    z_mm = grid.origin_mm[2] + np.arange(body.shape[0]) * grid.spacing_mm[2]
    area = body.sum(axis=(1, 2)).astype(np.float64)
    inside = (z_mm > brain_mm[2] - 200) & (z_mm < brain_mm[2] - 90) & (area > 0)
    if not inside.any():
        return brain_mm
    thin = inside & (area <= 1.2 * area[inside].min())
    _, y, x = np.nonzero(body[thin])
    centre = np.array([x.mean(), y.mean(), 0.0]) * np.asarray(grid.spacing_mm) + np.asarray(grid.origin_mm)
    return np.array([centre[0], centre[1], brain_mm[2]])


def _without_brain(body: _Mask, grid: Geometry) -> tuple[_Vector, _Vector]:
    """The upper end of the body, or all of a short scan."""
    if not body.any():
        body = np.ones_like(body)
    z, y, x = np.nonzero(body)
    top = grid.origin_mm[2] + (z.max() + 1) * grid.spacing_mm[2]
    bottom = max(grid.origin_mm[2] + (z.min() - 1) * grid.spacing_mm[2], top - LONGEST_UNSURE_MM)
    upper = grid.origin_mm[2] + z * grid.spacing_mm[2] >= bottom
    middle_x = grid.origin_mm[0] + np.median(x[upper]) * grid.spacing_mm[0]
    middle_y = grid.origin_mm[1] + np.median(y[upper]) * grid.spacing_mm[1]
    low = np.array([middle_x - UNSURE_HALF_WIDTH_MM, middle_y - UNSURE_HALF_WIDTH_MM, bottom])
    high = np.array([middle_x + UNSURE_HALF_WIDTH_MM, middle_y + UNSURE_HALF_WIDTH_MM, top])
    return low, high


def _clipped(
    low: _Vector, high: _Vector, field_low: _Vector, field_high: _Vector, brain_z_mm: float | None, found_by: str
) -> Region:
    low, high = np.maximum(low, field_low), np.minimum(high, field_high)
    if np.any(high <= low):
        low, high, brain_z_mm, found_by = field_low, field_high, None, "whole field of view"
    return Region(
        (float(low[0]), float(low[1]), float(low[2])),
        (float(high[0]), float(high[1]), float(high[2])),
        found_by,
        brain_z_mm,
    )
