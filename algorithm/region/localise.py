"""Find the region of head and neck in CT and PET, in any scan from a head to a whole body.

The landmark is the brain. If the brain is not visible, it is the lung apices; if these are not visible either, it is
the top of the body. Without the brain and its uptake the region is unsure and therefore larger, but still limited.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from algorithm.case.read import Case
from algorithm.region.grids import to_triple
from algorithm.region.landmarks import (
    COARSE_MM,
    HOT_MEDIANS,
    Brain,
    Coarse,
    find_brain,
    find_lung_apex,
    make_coarse_picture,
    measure_median_uptake,
    remove_cold_parts,
)
from contract.images.volumes import Volume

# Half width and half depth around head and neck, and extent above the lower end of the brain. A usual region has 17
# litres, the largest one 39.
HALF_WIDTH_MM: Final = 125.0
HALF_DEPTH_MM: Final = 118.0
ABOVE_BRAIN_END_MM: Final = 92.0
# Minimum extent above the brain's centre: a tumour that touches the brain can make its lower end appear too low.
ABOVE_BRAIN_CENTRE_MM: Final = 32.0
# Half width of an unsure region, and maximum half width of a region that is widened to include uptake: supraclavicular
# targets reach 164 mm.
WIDE_HALF_WIDTH_MM: Final = 170.0
# Margin around this uptake, and its minimum volume in a column of 4 mm.
UPTAKE_MARGIN_MM: Final = 10.0
MIN_UPTAKE_ML: Final = 0.3
# Visible lungs mark the lower end of the neck; nodes lie down to the clavicles, which reach below the apices.
BELOW_APEX_MM: Final = 45.0
# Distance of the region's lower end from the brain's lower end: without visible lungs, and the minimum and maximum with
# lungs, which may be a false detection. The apices lie 90 to 162 mm below the brain in 142 patients. Without uptake the
# brain's lower end may be detected up to 115 mm too high.
BELOW_BRAIN_END_MM: Final = 230.0
BELOW_BRAIN_END_BY_APEX_MM: Final = (140.0, 290.0)
BRAIN_END_TOO_HIGH_MM: Final = 115.0
# Distance from the front and the back of the neck to the faces of the region, and the maximum depth of the region.
SKIN_MM: Final = 8.0
MAX_DEPTH_MM: Final = 290.0
# Without a brain: extent above the lung apices, half depth, maximum depth, and maximum length; at most 50 litres.
ABOVE_APEX_MM: Final = 320.0
UNSURE_HALF_DEPTH_MM: Final = 150.0
MAX_UNSURE_DEPTH_MM: Final = 330.0
MAX_UNSURE_LENGTH_MM: Final = 450.0
# The body may end between two coarse slices, or with a tilt.
ABOVE_BODY_MM: Final = 12.0
# A scan without a body and without uptake above this SUV is empty.
BACKGROUND_SUV: Final = 1.0
# Landmarks need Hounsfield units; an MR of the neck is searched whole.
WHOLE_SCAN: Final = "the whole scan"
# Regions without a landmark.
OUTLINE: Final = "body outline"
FIELD_OF_VIEW: Final = "whole field of view"

# Heights below the brain's lower end between which the neck is thinnest.
NECK_BELOW_BRAIN_MM: Final = (25.0, 140.0)
# An arm touches the neck over less than twice this number of voxels.
TOUCH_VOXELS: Final = 4
# Front and back of head and neck are measured within this distance of the midline.
MIDLINE_HALF_MM: Final = 70.0

_Mask = npt.NDArray[np.bool_]
_Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Region:
    """An axis-aligned box in LPS millimetres, corners in (x, y, z), clipped to the CT's field of view.

    Attributes:
        lower_mm: Corner with the lowest coordinates.
        upper_mm: Corner with the highest coordinates.
        found_by: The landmark.
        brain_lower_mm: Height of the brain's lower end; None if the brain is not visible.
        apex_mm: Height of the lung apices; None if they are not visible.
        brain: Mask of the brain; None if it is not visible.
        brain_end_is_sure: `Brain.end_is_sure`; False without a brain.
        is_empty: Whether the scan shows neither a body nor uptake, so that there is nothing to segment.
    """

    lower_mm: tuple[float, float, float]
    upper_mm: tuple[float, float, float]
    found_by: str
    brain_lower_mm: float | None = None
    apex_mm: float | None = None
    brain: Volume | None = field(default=None, repr=False, compare=False)
    brain_end_is_sure: bool = False
    is_empty: bool = False

    @property
    def sure(self) -> bool:
        """Return whether the region is a whole scan, or the brain is visible in a closed skull and by its uptake."""
        by_brain = self.brain_lower_mm is not None and self.brain_end_is_sure
        return (by_brain or self.found_by == WHOLE_SCAN) and not self.is_empty

    @property
    def has_no_landmark(self) -> bool:
        """Return whether neither the brain nor the lung apices were found."""
        return self.found_by in (OUTLINE, FIELD_OF_VIEW)

    @property
    def volume_litres(self) -> float:
        """Return the volume of the box in litres."""
        return float(np.prod(np.subtract(self.upper_mm, self.lower_mm))) / 1e6

    def as_json(self) -> dict[str, Any]:
        """Return box, landmark and certainty as plain data, heights in mm."""
        names = ("lower_mm", "upper_mm", "found_by", "sure", "brain_lower_mm")
        values = {name: getattr(self, name) for name in names}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def summary(self) -> str:
        """Describe in one line the searched heights, the landmark, and whether the region is sure."""
        heights = f"z {self.lower_mm[2]:.0f} to {self.upper_mm[2]:.0f} mm, {self.volume_litres:.1f} litres"
        return f"{heights}, found by {self.found_by}, {'sure' if self.sure else 'unsure'}"


def localise(case: Case) -> Region:
    """Find the region of head and neck, large enough for every GTVp and GTVn, clipped to the CT's field of view.

    For MR it is the box of all voxels that are not zero, to which nnU-Net also crops an image.
    """
    if case.is_mr:
        return _find_nonzero_box(case.scan)
    corners = case.scan.geometry.corners_mm()
    field_low, field_high = corners.min(0), corners.max(0)
    coarse = make_coarse_picture(case)
    apex_mm = find_lung_apex(coarse)
    brain = find_brain(coarse, apex_mm)
    is_empty = not coarse.body.any() and bool(coarse.suv.max(initial=0.0) <= BACKGROUND_SUV)
    if brain is None:
        low, high = _find_box_without_brain(coarse, apex_mm)
        found_by = OUTLINE if apex_mm is None else "lung apices"
    else:
        low, high = _find_box_below_brain(coarse, brain, apex_mm)
        found_by = brain.found_by
    low, high = np.maximum(low, field_low), np.minimum(high, field_high)
    if np.any(high <= low):
        low, high, brain, found_by = field_low, field_high, None, FIELD_OF_VIEW
    box = to_triple(low), to_triple(high)
    if brain is None:
        return Region(*box, found_by, apex_mm=apex_mm, is_empty=is_empty)
    return Region(*box, found_by, brain.lower_mm, apex_mm, brain.mask, brain.end_is_sure, is_empty)


def cover_scan(scan: Volume) -> Region:
    """Return the region of a whole scan."""
    corners = scan.geometry.corners_mm()
    return Region(to_triple(corners.min(0)), to_triple(corners.max(0)), WHOLE_SCAN)


def _find_nonzero_box(mr: Volume) -> Region:
    geometry, box = mr.geometry, next(iter(ndimage.find_objects((mr.array != 0).astype(np.uint8))), None)
    if box is None:
        return replace(cover_scan(mr), is_empty=True)
    start, size = [part.start for part in box[::-1]], [part.stop - part.start for part in box[::-1]]
    corners = geometry.crop((start[0], start[1], start[2]), (size[0], size[1], size[2])).corners_mm()
    return Region(to_triple(corners.min(0)), to_triple(corners.max(0)), WHOLE_SCAN)


def _find_box_below_brain(coarse: Coarse, brain: Brain, apex_mm: float | None) -> tuple[_Vector, _Vector]:
    """Return the box around head and neck, from above the brain's lower end to below the lung apices.

    The box is its lower and its upper corner (x, y, z), as for all functions that return a box.
    """
    too_high = 0.0 if brain.end_is_sure else BRAIN_END_TOO_HIGH_MM
    below = BELOW_BRAIN_END_MM + too_high
    if apex_mm is not None:
        nearest, farthest = BELOW_BRAIN_END_BY_APEX_MM
        below = float(np.clip(brain.lower_mm - apex_mm + BELOW_APEX_MM, nearest, farthest + too_high))
    low_z = brain.lower_mm - below
    high_z = max(brain.lower_mm + ABOVE_BRAIN_END_MM, float(brain.centre_mm[2]) + ABOVE_BRAIN_CENTRE_MM)
    beneath = find_body_below_head(coarse, brain)
    x, y = np.add(brain.centre_mm[:2], find_neck_centre(coarse, brain, beneath)) / 2
    front, back = y - HALF_DEPTH_MM, y + HALF_DEPTH_MM
    skin = find_front_and_back(coarse, beneath, x, (low_z + BELOW_APEX_MM, brain.lower_mm))
    if skin is not None:
        front, back = _move_range(front, back, skin, MAX_DEPTH_MM)
    half = HALF_WIDTH_MM if brain.end_is_sure else WIDE_HALF_WIDTH_MM
    low, high = np.array([x - half, front, low_z]), np.array([x + half, back, high_z])
    if brain.end_is_sure:
        _widen_to_uptake(coarse, low, high, below_mm=brain.lower_mm)
    return low, high


def _widen_to_uptake(coarse: Coarse, low: _Vector, high: _Vector, below_mm: float) -> None:
    """Move the left and right faces of a box outwards to include uptake next to it, up to the maximum width; in place.

    Only uptake below the height `below_mm` counts.
    """
    median, x_mm = measure_median_uptake(coarse), coarse.x_mm
    rows = (coarse.z_mm > low[2]) & (coarse.z_mm < below_mm)
    centre = (low[0] + high[0]) / 2
    hot = (coarse.body & (coarse.suv > HOT_MEDIANS * (median or np.inf)))[rows]
    columns = hot.sum(axis=(0, 1)) * coarse.grid.voxel_volume_mm3 / 1000 >= MIN_UPTAKE_ML
    hot_mm = x_mm[columns & (np.abs(x_mm - centre) < WIDE_HALF_WIDTH_MM)]
    if len(hot_mm):
        low[0] = min(low[0], max(hot_mm.min() - UPTAKE_MARGIN_MM, centre - WIDE_HALF_WIDTH_MM))
        high[0] = max(high[0], min(hot_mm.max() + UPTAKE_MARGIN_MM, centre + WIDE_HALF_WIDTH_MM))


def _move_range(front: float, back: float, skin: tuple[float, float], deepest_mm: float) -> tuple[float, float]:
    """Move the range from `front` to `back`, and lengthen it if necessary, so that it contains the skin.

    If the skin does not fit `deepest_mm`, the range is centred on it.
    """
    first, last = skin[0] - SKIN_MM, skin[1] + SKIN_MM
    length = min(max(back - front, last - first), deepest_mm)
    start = (first + last - length) / 2 if last - first > length else float(np.clip(front, last - length, first))
    return start, start + length


def _find_box_without_brain(coarse: Coarse, apex_mm: float | None) -> tuple[_Vector, _Vector]:
    """Return the box around and above the lung apices, or without lungs the box of the upper end of the body."""
    lowest, highest = _find_body_ends(coarse)
    top, bottom = highest, max(lowest, highest - MAX_UNSURE_LENGTH_MM)
    if apex_mm is not None:
        top = min(top, apex_mm + ABOVE_APEX_MM)
        bottom = max(lowest, apex_mm - BELOW_APEX_MM)
    return _find_box_around_body(coarse, bottom, top)


def _find_living_body(coarse: Coarse) -> npt.NDArray[np.bool_]:
    body = remove_cold_parts(coarse)
    return body if body.any() else np.ones_like(body)


def _find_body_ends(coarse: Coarse) -> tuple[float, float]:
    z_mm = coarse.z_mm[_find_living_body(coarse).any(axis=(1, 2))]
    return float(z_mm[0]) - COARSE_MM, float(z_mm[-1]) + ABOVE_BODY_MM


def _find_box_around_body(coarse: Coarse, bottom: float, top: float) -> tuple[_Vector, _Vector]:
    """Return the box around the body between two heights, which contains front and back of the body at the midline."""
    body = _find_living_body(coarse)
    body[(coarse.z_mm < bottom) | (coarse.z_mm > top)] = False
    _, rows, columns = np.nonzero(body)
    x, y, _ = coarse.place_mm((0.0, float(np.median(rows)), float(np.median(columns))))
    front, back = y - UNSURE_HALF_DEPTH_MM, y + UNSURE_HALF_DEPTH_MM
    skin = find_front_and_back(coarse, body, x, (bottom, top))
    if skin is not None:
        front, back = _move_range(front, back, skin, MAX_UNSURE_DEPTH_MM)
    low_x, high_x = x - WIDE_HALF_WIDTH_MM, x + WIDE_HALF_WIDTH_MM
    return np.array([low_x, front, bottom]), np.array([high_x, back, top])


def find_body_below_head(coarse: Coarse, brain: Brain) -> _Mask:
    """Follow the body from the brain's centre downwards; return its mask on the coarse grid.

    In each slice it is the component that overlaps most with the slice above. Raised arms are separate components, even
    where they touch the neck.
    """
    body, index = remove_cold_parts(coarse), coarse.index_of(brain.centre_mm)
    result = np.zeros_like(body)
    if not body[index[0]].any():
        return result
    disc = ndimage.iterate_structure(ndimage.generate_binary_structure(2, 1), TOUCH_VOXELS)
    above = np.zeros(body.shape[1:], dtype=np.bool_)
    above[index[1], index[2]] = True
    above = ndimage.binary_dilation(above, iterations=2 * TOUCH_VOXELS)
    for row in range(index[0], -1, -1):
        parts, _ = ndimage.label(ndimage.binary_erosion(body[row], disc))
        shared = np.bincount(parts[above])
        shared[:1] = 0
        if not shared.any():
            break
        above = ndimage.binary_dilation(parts == shared.argmax(), disc)
        result[row] = above
    return result


def find_neck_centre(coarse: Coarse, brain: Brain, beneath: _Mask) -> tuple[float, float]:
    """Return the centre (x, y) in mm of the thinnest sections below the brain; without a neck, the brain's centre."""
    z_mm, area = coarse.z_mm, beneath.sum(axis=(1, 2)).astype(np.float64)
    highest, lowest = (brain.lower_mm - below for below in NECK_BELOW_BRAIN_MM)
    inside = (z_mm > lowest) & (z_mm < highest) & (area > 0)
    if not inside.any():
        return float(brain.centre_mm[0]), float(brain.centre_mm[1])
    _, y, x = np.nonzero(beneath[inside & (area <= 1.2 * area[inside].min())])
    centre = coarse.place_mm((0.0, float(y.mean()), float(x.mean())))
    return float(centre[0]), float(centre[1])


def find_front_and_back(
    coarse: Coarse, beneath: _Mask, x_mm: float, between_mm: tuple[float, float]
) -> tuple[float, float] | None:
    """Return the lowest and highest y in mm of the body near the midline between two heights; None without a body."""
    rows = (coarse.z_mm > between_mm[0]) & (coarse.z_mm < between_mm[1])
    y = np.flatnonzero(beneath[rows][:, :, np.abs(coarse.x_mm - x_mm) < MIDLINE_HALF_MM].any(axis=(0, 2)))
    if not len(y):
        return None
    front, back = (coarse.place_mm((0, end, 0))[1] for end in (y[0], y[-1]))
    return float(front) - COARSE_MM / 2, float(back) + COARSE_MM / 2
