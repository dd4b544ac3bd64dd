"""A coarse picture of a scan: CT, PET and the patient's body on one grid, small enough for a fast search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from algorithm.case.read import BODY_HU, Case
from algorithm.case.units import PADDING_HU
from algorithm.region import grids
from contract.images.geometry import Geometry
from contract.images.volumes import Volume

COARSE_MM: Final = 4.0
# Multiple of the body's median uptake: living tissue has more, a table less.
ALIVE_MEDIANS: Final = 0.25
# Marks voxels outside the PET.
OUTSIDE_PET_SUV: Final = -1.0
# Voxels that share an edge in one axial slice, none above or below.
IN_SLICE: Final = ndimage.generate_binary_structure(3, 1) & np.array([False, True, False])[:, None, None]

_Mask = npt.NDArray[np.bool_]
_Float = npt.NDArray[np.float32]
_Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Coarse:
    """CT (HU), PET (SUV, -1 outside the PET) and body on one axis-aligned LPS grid of 4 mm; arrays (z, y, x)."""

    ct: _Float
    suv: _Float
    body: _Mask
    grid: Geometry

    @property
    def z_mm(self) -> _Vector:
        """Return the height of each slice."""
        return np.asarray(self.grid.origin_mm[2] + np.arange(self.body.shape[0]) * self.grid.spacing_mm[2])

    @property
    def x_mm(self) -> _Vector:
        """Return the left-right position of each column."""
        return np.asarray(self.grid.origin_mm[0] + np.arange(self.body.shape[2]) * self.grid.spacing_mm[0])

    @property
    def top_mm(self) -> float:
        """Return the height of the body's uppermost slice."""
        return float(self.z_mm[self.body.any(axis=(1, 2))].max(initial=-np.inf))

    def place_mm(self, index: npt.ArrayLike) -> _Vector:
        """Convert an array index (z, y, x) to LPS millimetres (x, y, z)."""
        by_xyz = np.asarray(index, dtype=np.float64)[::-1]
        return np.asarray(by_xyz * np.asarray(self.grid.spacing_mm) + np.asarray(self.grid.origin_mm))

    def index_of(self, place_mm: _Vector) -> tuple[int, int, int]:
        """Return the index (z, y, x) of the voxel nearest to a place in the picture."""
        index = (np.asarray(place_mm) - np.asarray(self.grid.origin_mm)) / np.asarray(self.grid.spacing_mm)
        x, y, z = (int(np.clip(round(v), 0, n - 1)) for v, n in zip(index, self.grid.size, strict=True))
        return z, y, x

    def volume_ml(self, mask: _Mask) -> float:
        """Return the volume of a mask on this grid, or on a part of the grid."""
        return float(np.count_nonzero(mask) * self.grid.voxel_volume_mm3 / 1000)


def make_coarse_picture(case: Case) -> Coarse:
    """Resample both images over the CT's field of view, and find the body."""
    corners = case.scan.geometry.corners_mm()
    grid = grids.make_grid_over(corners.min(0), corners.max(0), (COARSE_MM, COARSE_MM, COARSE_MM))
    ct = grids.resample(_thin_out(case.scan), grid, PADDING_HU)
    suv = np.full_like(ct, OUTSIDE_PET_SUV) if case.pet is None else grids.resample(case.pet, grid, OUTSIDE_PET_SUV)
    return Coarse(ct, suv, _find_body(ct, suv), grid)


def _thin_out(ct: Volume) -> Volume:
    """Keep every k-th voxel of a fine CT, still finer than the coarse grid, to save time."""
    sx, sy, sz = steps = [max(int(COARSE_MM / spacing / 1.5), 1) for spacing in ct.geometry.spacing_mm]
    array = np.ascontiguousarray(ct.array[::sz, ::sy, ::sx])
    z, y, x = array.shape
    spacing = grids.triple(np.multiply(ct.geometry.spacing_mm, steps))
    return Volume(array, replace(ct.geometry, size=(x, y, z), spacing_mm=spacing))


def _find_body(ct: _Float, suv: _Float) -> _Mask:
    """Find the patient without table and mask: after an opening the connected soft part with the most living tissue.

    Uptake counts up to SUV 1, so that neither a solid table nor a bag of urine outweighs a patient. If no part lies
    within the PET, the largest part is taken.
    """
    parts, count = ndimage.label(ndimage.binary_opening(ct > BODY_HU, iterations=2))
    alive = np.bincount(parts.ravel(), weights=np.clip(suv, 0, 1).ravel(), minlength=count + 1)
    return (
        _keep_part_with_most(parts, alive)
        if alive[1:].any()
        else _keep_part_with_most(parts, np.bincount(parts.ravel()))
    )


def keep_largest_part(mask: _Mask) -> _Mask:
    """Keep the largest part that is connected by faces; an empty mask stays empty."""
    parts, _ = ndimage.label(mask)
    return _keep_part_with_most(parts, np.bincount(parts.ravel()))


def _keep_part_with_most(parts: npt.NDArray[Any], amounts: npt.NDArray[Any]) -> _Mask:
    """Return the mask of the part (1, 2, ...) with the largest amount; empty without parts."""
    if len(amounts) < 2:
        return np.zeros(parts.shape, dtype=np.bool_)
    return np.asarray(parts == 1 + int(amounts[1:].argmax()))


def remove_cold_parts(coarse: Coarse) -> _Mask:
    """Return the body without parts that show no uptake, such as a mattress; the whole body without a PET."""
    return np.asarray(coarse.body & find_warm_voxels(coarse))


def find_warm_voxels(coarse: Coarse) -> _Mask:
    """Find voxels with some uptake, and voxels outside the PET."""
    median = measure_median_uptake(coarse) or 0.0
    return np.asarray((coarse.suv > ALIVE_MEDIANS * median) | (coarse.suv <= OUTSIDE_PET_SUV))


def measure_median_uptake(coarse: Coarse) -> float | None:
    """Return the median SUV over the part of the body within the PET; None if this part is empty."""
    uptake = coarse.suv[coarse.body & (coarse.suv > OUTSIDE_PET_SUV)]
    return float(np.median(uptake)) if len(uptake) else None
