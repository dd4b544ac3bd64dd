"""Find the brain and the lung apices on a coarse grid, which makes the search fast.

A brain is soft tissue that bone encloses slice by slice. If the skull is open, it is a component with the uptake and
the size of a brain that is surrounded by bone, or else soft tissue in a skull with gaps. Candidates below the lungs, or
without uptake on the PET, are rejected.
"""

from __future__ import annotations

from collections.abc import Iterator
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
# Uptake in multiples of the body's median above which tissue counts as living; a table has less.
ALIVE_MEDIANS: Final = 0.25
# Marks voxels outside the PET.
OUTSIDE_PET_SUV: Final = -1.0
# Neighbours of a voxel that share a face with it in the same axial slice.
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
        """Return the height of the body's uppermost slice; minus infinity without a body."""
        return float(self.z_mm[self.body.any(axis=(1, 2))].max(initial=-np.inf))

    def place_mm(self, index: npt.ArrayLike) -> _Vector:
        """Convert an array index (z, y, x) to LPS millimetres (x, y, z)."""
        by_xyz = np.asarray(index, dtype=np.float64)[::-1]
        return np.asarray(by_xyz * np.asarray(self.grid.spacing_mm) + np.asarray(self.grid.origin_mm))

    def index_of(self, place_mm: _Vector) -> tuple[int, int, int]:
        """Return the index (z, y, x) of the voxel nearest to a position (x, y, z) in LPS millimetres."""
        index = (np.asarray(place_mm) - np.asarray(self.grid.origin_mm)) / np.asarray(self.grid.spacing_mm)
        x, y, z = (int(np.clip(round(v), 0, n - 1)) for v, n in zip(index, self.grid.size, strict=True))
        return z, y, x

    def volume_ml(self, mask: _Mask) -> float:
        """Return the volume of a mask on this grid, or on a part of the grid."""
        return float(np.count_nonzero(mask) * self.grid.voxel_volume_mm3 / 1000)


def make_coarse_picture(case: Case) -> Coarse:
    """Resample CT and PET to the coarse grid over the CT's field of view, and find the body."""
    corners = case.scan.geometry.corners_mm()
    grid = grids.make_grid_over(corners.min(0), corners.max(0), (COARSE_MM, COARSE_MM, COARSE_MM))
    ct = grids.resample(_thin_out(case.scan), grid, PADDING_HU)
    suv = np.full_like(ct, OUTSIDE_PET_SUV) if case.pet is None else grids.resample(case.pet, grid, OUTSIDE_PET_SUV)
    return Coarse(ct, suv, _find_body(ct, suv), grid)


def _thin_out(ct: Volume) -> Volume:
    """Keep every k-th voxel of a fine CT to save time; the result is still finer than the coarse grid."""
    sx, sy, sz = steps = [max(int(COARSE_MM / spacing / 1.5), 1) for spacing in ct.geometry.spacing_mm]
    array = np.ascontiguousarray(ct.array[::sz, ::sy, ::sx])
    z, y, x = array.shape
    spacing = grids.to_triple(np.multiply(ct.geometry.spacing_mm, steps))
    return Volume(array, replace(ct.geometry, size=(x, y, z), spacing_mm=spacing))


def _find_body(ct: _Float, suv: _Float) -> _Mask:
    """Find the patient without table and mask: after an opening, the connected component with the most living tissue.

    Uptake counts only up to SUV 1, so that neither a solid table nor a bag of urine outweighs the patient. If no
    component lies within the PET, the largest component is the patient.
    """
    parts, count = ndimage.label(ndimage.binary_opening(ct > BODY_HU, iterations=2))
    alive = np.bincount(parts.ravel(), weights=np.clip(suv, 0, 1).ravel(), minlength=count + 1)
    return (
        _keep_part_with_most(parts, alive)
        if alive[1:].any()
        else _keep_part_with_most(parts, np.bincount(parts.ravel()))
    )


def keep_largest_part(mask: _Mask) -> _Mask:
    """Keep the largest face-connected component; an empty mask stays empty."""
    parts, _ = ndimage.label(mask)
    return _keep_part_with_most(parts, np.bincount(parts.ravel()))


def _keep_part_with_most(parts: npt.NDArray[Any], amounts: npt.NDArray[Any]) -> _Mask:
    """Return the mask of the component (1, 2, ...) with the largest amount; an empty mask without components."""
    if len(amounts) < 2:
        return np.zeros(parts.shape, dtype=np.bool_)
    return np.asarray(parts == 1 + int(amounts[1:].argmax()))


def remove_cold_parts(coarse: Coarse) -> _Mask:
    """Return the body without voxels that show no uptake, such as a mattress; without a PET the whole body."""
    return np.asarray(coarse.body & find_warm_voxels(coarse))


def find_warm_voxels(coarse: Coarse) -> _Mask:
    """Find voxels with some uptake, and voxels outside the PET."""
    median = measure_median_uptake(coarse) or 0.0
    return np.asarray((coarse.suv > ALIVE_MEDIANS * median) | (coarse.suv <= OUTSIDE_PET_SUV))


def measure_median_uptake(coarse: Coarse) -> float | None:
    """Return the median SUV over the part of the body within the PET; None if this part is empty."""
    uptake = coarse.suv[coarse.body & (coarse.suv > OUTSIDE_PET_SUV)]
    return float(np.median(uptake)) if len(uptake) else None


BONE_HU: Final = 200.0
MIN_BRAIN_ML: Final = 250.0
# Thin skulls have gaps in voxels of 4 to 5 mm, and less brain inside them.
MIN_BRAIN_WITH_GAPS_ML: Final = 200.0
OPEN_SKULL_HU: Final = 130.0
OPEN_SKULL_GAP_VOXELS: Final = 4
MAX_BRAIN_ML: Final = 2200.0
# Minimum fraction of the bounding box filled by the brain.
BRAIN_FILL: Final = 0.35
# Minimum uptake of a brain, and of a brain visible only on the PET, in multiples of the body's median.
WARM_MEDIANS: Final = 1.5
HOT_MEDIANS: Final = 4.0
# Minimum fraction of bone in a shell of three voxels around a brain that is visible only on the PET.
BONE_AROUND: Final = 0.15
# Without visible lungs: maximum distance of a brain's centre below the body's upper end, which may be the hands.
MAX_BRAIN_DEPTH_MM: Final = 300.0
# The brain ends where its axial sections are smaller than this area. Voxels with less than this fraction of its median
# uptake do not belong to it.
BRAIN_SECTION_MM2: Final = 500.0
BRAIN_UPTAKE_SHARE: Final = 0.5
# Minimum section of a brain that is followed downwards only by its uptake; most tumours that touch it are smaller.
HOT_SECTION_MM2: Final = 1000.0
# Maximum distance of the lower end below the centre; the largest among 142 patients is 85 mm.
MAX_BELOW_CENTRE_MM: Final = 95.0
LUNG_HU: Final = (-950.0, -450.0)
MIN_LUNGS_ML: Final = 250.0
# Smaller sections are the windpipe or the tip of a lung.
APEX_SECTION_MM2: Final = 800.0
# Minimum distance between the lung apices and the visible upper end of the body.
MIN_NECK_MM: Final = 20.0


@dataclass(frozen=True)
class Brain:
    """The visible brain: its centre (x, y, z) and the height of its lower end, in LPS mm, and the evidence for it.

    `mask` is 1 inside the brain, on a part of the coarse grid. `shows_uptake` is True if the PET covers the brain;
    otherwise the lower end may be detected 115 mm too high. `has_gaps` is True if gaps of the skull were closed.
    """

    centre_mm: _Vector
    lower_mm: float
    found_by: str
    mask: Volume
    shows_uptake: bool
    has_gaps: bool = False

    @property
    def end_is_sure(self) -> bool:
        """Return whether the PET shows the lower end in a closed skull; a skull with gaps may contain other tissue."""
        return self.shows_uptake and not self.has_gaps


def find_lung_apex(coarse: Coarse) -> float | None:
    """Return the height of the lung apices, to within a centimetre; None if no lungs are visible or the scan cuts them.

    A component that reaches the body's upper end has no visible apex, or is foam between patient and table.
    """
    airy = (
        _fill_between_front_and_back(coarse.body)
        & find_warm_voxels(coarse)
        & (coarse.ct > LUNG_HU[0])
        & (coarse.ct < LUNG_HU[1])
    )
    lungs = keep_largest_part(ndimage.binary_opening(airy))
    if coarse.volume_ml(lungs) < MIN_LUNGS_ML:
        return None
    section_mm2 = lungs.sum(axis=(1, 2)) * COARSE_MM**2
    apex_mm = float(coarse.z_mm[section_mm2 >= APEX_SECTION_MM2].max(initial=-np.inf))
    return apex_mm if np.isfinite(apex_mm) and apex_mm < coarse.top_mm - MIN_NECK_MM else None


def _fill_between_front_and_back(body: _Mask) -> _Mask:
    """Return the voxels with body in front of and behind them, which include lungs that are cut off at the side."""
    ahead = np.maximum.accumulate(body, axis=1)
    behind = np.maximum.accumulate(body[:, ::-1], axis=1)[:, ::-1]
    return np.asarray(ahead & behind)


def find_brain(coarse: Coarse, apex_mm: float | None) -> Brain | None:
    """Find the uppermost brain above the height `apex_mm` of the lung apices, None if these are not visible."""
    lowest_mm = apex_mm if apex_mm is not None else coarse.top_mm - MAX_BRAIN_DEPTH_MM
    return max(_find_brains(coarse, lowest_mm), key=lambda brain: float(brain.centre_mm[2]), default=None)


def _find_brains(coarse: Coarse, lowest_mm: float) -> list[Brain]:
    """Find candidates for the brain with a centre above `lowest_mm`: by a closed skull, or else by uptake.

    If there are none, a skull with gaps is accepted, if there is no PET or if it contains tissue as hot as a brain.
    """
    median, around = measure_median_uptake(coarse), ndimage.binary_dilation(coarse.body, iterations=2)
    bone = (coarse.ct > BONE_HU) & around
    smallest_ml = MIN_BRAIN_WITH_GAPS_ML if median is None else MIN_BRAIN_ML
    enclosed = _find_parts(coarse, _find_enclosed(coarse.ct, bone), lowest_mm, smallest_ml)
    parts, found_by = [part for part in enclosed if _is_warm(part.suv, median)], "brain case"
    if not parts and median is not None:
        parts, found_by = (
            list(_find_parts(coarse, _find_hot_parts(coarse, bone, median), lowest_mm, smallest_ml)),
            "brain's uptake",
        )
    if not parts:
        soft = _find_enclosed(coarse.ct, (coarse.ct > OPEN_SKULL_HU) & around, OPEN_SKULL_GAP_VOXELS)
        with_gaps = _find_parts(coarse, soft, lowest_mm, MIN_BRAIN_WITH_GAPS_ML)
        hot = (part for part in with_gaps if _is_hot(part.suv, median))
        return [replace(_make_brain(coarse, part, "brain case"), has_gaps=True) for part in hot]
    return [_make_brain(coarse, part, found_by) for part in parts]


@dataclass(frozen=True)
class _Part:
    """A component with the size and the fill of a brain: its mask in a box of the coarse grid, and its centre."""

    mask: _Mask
    box: tuple[slice, ...]
    suv: _Float
    centre_mm: _Vector


def _is_warm(suv: _Float, median: float | None) -> bool:
    """Return whether a component may be a brain: False if the PET covers it but does not show the uptake of a brain."""
    uptake = suv[suv > 0]  # PET files contain zero outside the measured field
    if median is None or len(uptake) < len(suv) / 2:
        return True
    return float(uptake.mean()) >= WARM_MEDIANS * median


def _is_hot(suv: _Float, median: float | None) -> bool:
    """Return whether there is no PET, or most of the component is as hot as a brain."""
    return median is None or float(np.median(suv)) > HOT_MEDIANS * median


def _find_enclosed(ct: _Float, bone: _Mask, gap_voxels: int = 0) -> _Mask:
    """Find soft tissue that bone encloses within an axial slice, with gaps of up to twice `gap_voxels`."""
    if gap_voxels:
        wall = ndimage.binary_dilation(bone, IN_SLICE, iterations=gap_voxels)
        filled = ndimage.binary_fill_holes(wall, IN_SLICE)
        inside = ndimage.binary_erosion(filled, IN_SLICE, iterations=gap_voxels, border_value=1)
    else:
        inside = ndimage.binary_fill_holes(ndimage.binary_closing(bone, IN_SLICE, iterations=2), IN_SLICE)
    return np.asarray(inside & ~bone & (ct > -50) & (ct < 150), dtype=np.bool_)


def _find_hot_parts(coarse: Coarse, bone: _Mask, median: float) -> _Mask:
    """Find hot components of the body that are partly surrounded by bone."""
    hot = ndimage.binary_opening(coarse.body & (coarse.suv > HOT_MEDIANS * median), iterations=2)
    parts, count = ndimage.label(hot)
    if not count:
        return hot
    shell = ndimage.grey_dilation(parts, size=(7, 7, 7)) * (parts == 0)
    around = np.bincount(shell.ravel(), minlength=count + 1)
    bony = np.bincount(shell[bone], minlength=count + 1)
    accepted = bony >= BONE_AROUND * np.maximum(around, 1)
    accepted[0] = False
    return np.asarray(accepted[parts])


def _find_parts(coarse: Coarse, soft: _Mask, lowest_mm: float, smallest_ml: float) -> Iterator[_Part]:
    """Iterate over the components with the size and the fill of a brain and a centre above `lowest_mm`."""
    parts, _ = ndimage.label(ndimage.binary_opening(soft, iterations=2))
    for number, box in enumerate(ndimage.find_objects(parts), start=1):
        mask = parts[box] == number
        centre_mm = coarse.place_mm(np.argwhere(mask).mean(0) + [cut.start for cut in box])
        fits = smallest_ml <= coarse.volume_ml(mask) <= MAX_BRAIN_ML and mask.mean() >= BRAIN_FILL
        if fits and centre_mm[2] > lowest_mm:
            yield _Part(mask, box, coarse.suv[box][mask], centre_mm)


def _make_brain(coarse: Coarse, part: _Part, found_by: str) -> Brain:
    """Make the brain from a component: remove cold tissue that bone encloses, and add hot tissue below it."""
    mask = np.zeros_like(coarse.body)
    mask[part.box] = part.mask
    covered = part.suv > 0
    shows_uptake = bool(covered.mean() > 0.5)
    if shows_uptake:
        hot = coarse.suv > BRAIN_UPTAKE_SHARE * np.median(part.suv[covered])
        mask &= hot | (coarse.suv <= 0)
        _follow_down(mask, hot & coarse.body & (coarse.ct < BONE_HU), part.box[0])
    sections_mm2 = mask.sum(axis=(1, 2)) * COARSE_MM**2
    lower_mm = float(coarse.z_mm[int(np.argmax(sections_mm2 >= BRAIN_SECTION_MM2))]) - COARSE_MM / 2
    lower_mm = max(lower_mm, float(coarse.place_mm(np.argwhere(mask).mean(0))[2]) - MAX_BELOW_CENTRE_MM)
    mask[coarse.z_mm < lower_mm] = False
    box = ndimage.find_objects(mask.astype(np.uint8))[0]
    z, y, x = (cut.start for cut in box)
    depth, rows, columns = mask[box].shape
    grid = coarse.grid.crop((x, y, z), (columns, rows, depth))
    return Brain(part.centre_mm, lower_mm, found_by, Volume(mask[box].astype(np.uint8), grid), shows_uptake)


def _follow_down(mask: _Mask, hot: _Mask, rows: slice) -> None:
    """Add the hot voxels below the lowest large section of a brain, slice by slice, while they are as large; in place.

    If the skull is open at its base, the enclosed component ends above the lower end of the brain.
    """
    sections_mm2 = mask.sum(axis=(1, 2)) * COARSE_MM**2
    large = [row for row in range(rows.start, rows.stop) if sections_mm2[row] >= HOT_SECTION_MM2]
    for row in range(large[0] - 1 if large else -1, -1, -1):
        below = hot[row] & ndimage.binary_dilation(mask[row + 1])
        if np.count_nonzero(below) * COARSE_MM**2 < HOT_SECTION_MM2:
            return
        mask[row] |= below
