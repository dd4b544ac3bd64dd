"""Landmarks on a coarse picture of a scan: brain, lung apices, neck.

A brain is soft tissue enclosed by bone slice by slice or, if the skull is open, a part as hot and as large as a brain
with bone around it. Candidates below the lungs, or without uptake on the PET, are rejected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from algorithm.region.coarse import COARSE_MM, Coarse, largest_part, median_uptake, not_cold, without_cold

BONE_HU: Final = 200.0
SMALLEST_BRAIN_ML: Final = 250.0
LARGEST_BRAIN_ML: Final = 2200.0
# Minimum fraction of the bounding box filled by the brain.
BRAIN_FILL: Final = 0.35
# Minimum uptake of a brain, and of a brain visible on the PET alone, in multiples of the body's median.
WARM_MEDIANS: Final = 1.5
HOT_MEDIANS: Final = 4.0
# Minimum fraction of bone in a shell of three voxels around such a brain.
BONE_AROUND: Final = 0.15
# Without visible lungs: largest distance of a brain's centre below the body's upper end, which may be the hands.
LOWEST_BRAIN_MM: Final = 300.0
LUNG_HU: Final = (-950.0, -450.0)
SMALLEST_LUNGS_ML: Final = 250.0
# Smaller sections are the windpipe or the tip of a lung.
APEX_SECTION_MM2: Final = 800.0
# Smallest distance between the lungs and the visible upper end of the body.
SHORTEST_NECK_MM: Final = 20.0
# Voxels that share an edge in one axial slice, none above or below.
IN_SLICE: Final = ndimage.generate_binary_structure(3, 1) & np.array([False, True, False])[:, None, None]

_Mask = npt.NDArray[np.bool_]
_Float = npt.NDArray[np.float32]
_Vector = npt.NDArray[np.float64]


def lung_apex_mm(coarse: Coarse) -> float | None:
    """Height of the lung apices within a centimetre; None if no lungs are visible or the scan cuts them.

    A part that reaches the body's upper end has no visible apex, or is foam between patient and table.
    """
    airy = _between_front_and_back(coarse.body) & not_cold(coarse) & (coarse.ct > LUNG_HU[0]) & (coarse.ct < LUNG_HU[1])
    lungs = largest_part(ndimage.binary_opening(airy))
    if coarse.volume_ml(lungs) < SMALLEST_LUNGS_ML:
        return None
    section_mm2 = lungs.sum(axis=(1, 2)) * COARSE_MM**2
    apex_mm = float(coarse.z_mm[section_mm2 >= APEX_SECTION_MM2].max(initial=-np.inf))
    return apex_mm if np.isfinite(apex_mm) and apex_mm < _top_mm(coarse) - SHORTEST_NECK_MM else None


def _between_front_and_back(body: _Mask) -> _Mask:
    """Voxels between parts of the body in front and behind, which includes lungs cut off at the side."""
    ahead = np.maximum.accumulate(body, axis=1)
    behind = np.maximum.accumulate(body[:, ::-1], axis=1)[:, ::-1]
    return np.asarray(ahead & behind)


def brain_centre_mm(coarse: Coarse, apex_mm: float | None) -> tuple[_Vector, str] | None:
    """Centre (x, y, z) of the uppermost brain and the evidence for it, or None.

    `apex_mm` is the height of the lung apices, None if they are not visible.
    """
    median = median_uptake(coarse)
    lowest_mm = apex_mm if apex_mm is not None else _top_mm(coarse) - LOWEST_BRAIN_MM
    bone = (coarse.ct > BONE_HU) & ndimage.binary_dilation(coarse.body, iterations=2)
    brains = [part for part in _brains(coarse, _enclosed(coarse.ct, bone), lowest_mm) if _is_warm(part, median)]
    if brains:
        return _uppermost(brains), "brain case"
    if median is not None:
        brains = list(_brains(coarse, _hot(coarse, bone, median), lowest_mm))
    return (_uppermost(brains), "brain's uptake") if brains else None


def _uppermost(brains: list[_Part]) -> _Vector:
    return max((part.centre_mm for part in brains), key=lambda centre: float(centre[2]))


def _top_mm(coarse: Coarse) -> float:
    """Height of the body's uppermost slice."""
    return float(coarse.z_mm[coarse.body.any(axis=(1, 2))].max(initial=-np.inf))


@dataclass(frozen=True)
class _Part:
    """A connected part of the size and fill of a brain, its centre in LPS, the PET's values in it."""

    centre_mm: _Vector
    suv: _Float


def _is_warm(part: _Part, median: float | None) -> bool:
    """False if the PET covers the part and shows no uptake of a brain."""
    uptake = part.suv[part.suv > 0]  # PET files hold zero outside the measured field
    if median is None or len(uptake) < len(part.suv) / 2:
        return True
    return float(uptake.mean()) >= WARM_MEDIANS * median


def _enclosed(ct: _Float, bone: _Mask) -> _Mask:
    """Soft tissue that bone surrounds within a slice."""
    inside = ndimage.binary_fill_holes(ndimage.binary_closing(bone, IN_SLICE, iterations=2), IN_SLICE)
    return np.asarray(inside & ~bone & (ct > -50) & (ct < 150), dtype=np.bool_)


def _hot(coarse: Coarse, bone: _Mask, median: float) -> _Mask:
    """Hot parts of the body that are partly surrounded by bone."""
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


def _brains(coarse: Coarse, soft: _Mask, lowest_mm: float) -> Iterator[_Part]:
    """The connected parts of an opened mask with the size and fill of a brain and a centre above `lowest_mm`."""
    parts, _ = ndimage.label(ndimage.binary_opening(soft, iterations=2))
    for number, box in enumerate(ndimage.find_objects(parts), start=1):
        part = parts[box] == number
        centre_mm = coarse.place_mm(np.argwhere(part).mean(0) + [cut.start for cut in box])
        fits = SMALLEST_BRAIN_ML <= coarse.volume_ml(part) <= LARGEST_BRAIN_ML and part.mean() >= BRAIN_FILL
        if fits and centre_mm[2] > lowest_mm:
            yield _Part(centre_mm, coarse.suv[box][part])


def neck_centre_mm(brain_mm: _Vector, coarse: Coarse) -> _Vector:
    """Centre of the thinnest body sections 90 to 200 mm below the brain; the brain's centre if none are visible."""
    z_mm, body = coarse.z_mm, without_cold(coarse)
    area = body.sum(axis=(1, 2)).astype(np.float64)
    inside = (z_mm > brain_mm[2] - 200) & (z_mm < brain_mm[2] - 90) & (area > 0)
    if not inside.any():
        return brain_mm
    thin = inside & (area <= 1.2 * area[inside].min())
    _, y, x = np.nonzero(body[thin])
    centre = coarse.place_mm((0.0, float(y.mean()), float(x.mean())))
    return np.array([centre[0], centre[1], brain_mm[2]])
