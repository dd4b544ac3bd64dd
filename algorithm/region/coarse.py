"""A coarse picture of a scan: CT, PET and the patient's body on one grid, small enough to search in no time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from algorithm.case.read import AIR_HU, BODY_HU, Case
from algorithm.region import grids
from contract.images.geometry import Geometry
from contract.images.volumes import Volume

COARSE_MM: Final = 4.0
# Of the body's median uptake, what is alive has more and a table less.
ALIVE_MEDIANS: Final = 0.25
# No PET here.
UNSEEN_SUV: Final = -1.0

_Mask = npt.NDArray[np.bool_]
_Float = npt.NDArray[np.float32]
_Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Coarse:
    """CT (HU), PET (SUV, -1 where there is none) and body on one axis-aligned LPS grid of 4 mm; arrays (z, y, x)."""

    ct: _Float
    suv: _Float
    body: _Mask
    grid: Geometry

    @property
    def z_mm(self) -> _Vector:
        """Height of each slice."""
        return np.asarray(self.grid.origin_mm[2] + np.arange(self.body.shape[0]) * self.grid.spacing_mm[2])

    def place_mm(self, index: npt.ArrayLike) -> _Vector:
        """LPS millimetres (x, y, z) of an array index (z, y, x)."""
        by_xyz = np.asarray(index, dtype=np.float64)[::-1]
        return np.asarray(by_xyz * np.asarray(self.grid.spacing_mm) + np.asarray(self.grid.origin_mm))

    def volume_ml(self, mask: _Mask) -> float:
        """Volume of a mask on this grid, or a part of it."""
        return float(np.count_nonzero(mask) * self.grid.voxel_volume_mm3 / 1000)


def coarse_picture(case: Case) -> Coarse:
    """Both images over the CT's field of view."""
    corners = case.ct.geometry.corners_mm()
    grid = grids.grid_over(corners.min(0), corners.max(0), (COARSE_MM, COARSE_MM, COARSE_MM))
    ct = grids.resample(_thinned(case.ct), grid, AIR_HU)
    suv = np.full_like(ct, UNSEEN_SUV) if case.pet is None else grids.resample(case.pet, grid, UNSEEN_SUV)
    return Coarse(ct, suv, _body(ct, suv), grid)


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


def _body(ct: _Float, suv: _Float) -> _Mask:
    """The patient without table and mask: after an opening the connected soft part with the most living tissue.

    Uptake counts up to SUV 1, so that neither a solid table nor a bag of urine outweighs a patient. Where no PET shows
    any part, the largest is taken.
    """
    parts, count = ndimage.label(ndimage.binary_opening(ct > BODY_HU, iterations=2))
    alive = np.bincount(parts.ravel(), weights=np.clip(suv, 0, 1).ravel(), minlength=count + 1)
    return _part_with_most(parts, alive) if alive[1:].any() else _part_with_most(parts, np.bincount(parts.ravel()))


def largest_part(mask: _Mask) -> _Mask:
    """The largest part connected by faces; empty where the mask is."""
    parts, _ = ndimage.label(mask)
    return _part_with_most(parts, np.bincount(parts.ravel()))


def _part_with_most(parts: npt.NDArray[Any], amounts: npt.NDArray[Any]) -> _Mask:
    """The part (1, 2, ...) of which there is most; empty where there are none."""
    if len(amounts) < 2:
        return np.zeros(parts.shape, dtype=np.bool_)
    return np.asarray(parts == 1 + int(amounts[1:].argmax()))


def without_cold(coarse: Coarse) -> _Mask:
    """The body without what takes up nothing, such as a mattress it lies on; where there is no PET, all of it."""
    return np.asarray(coarse.body & not_cold(coarse))


def not_cold(coarse: Coarse) -> _Mask:
    """Where the PET shows some uptake or nothing at all is known."""
    median = median_uptake(coarse) or 0.0
    return np.asarray((coarse.suv > ALIVE_MEDIANS * median) | (coarse.suv <= UNSEEN_SUV))


def median_uptake(coarse: Coarse) -> float | None:
    """Median SUV over the body as far as there is a PET; None where there is none."""
    seen = coarse.suv[coarse.body & (coarse.suv > UNSEEN_SUV)]
    return float(np.median(seen)) if len(seen) else None
