"""The neck on a coarse picture of a scan: where it is beneath a brain, and whether a neck can be in view at all."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from algorithm.region.coarse import COARSE_MM, IN_SLICE, Coarse, without_cold
from algorithm.region.landmarks import BONE_HU, Brain, brains

# Heights below the brain's lower end between which the neck is thinnest.
NECK_BELOW_BRAIN_MM: Final = (25.0, 140.0)
# An arm touches the neck with less than twice this.
TOUCH_VOXELS: Final = 4
# Half width of the midline in which front and back of head and neck are measured.
MIDLINE_HALF_MM: Final = 70.0
# Largest body section through a neck or a head, smallest section of its airway, and smallest height that shows both.
LARGEST_NECK_MM2: Final = 28000.0
SMALLEST_AIRWAY_MM2: Final = 32.0
SHORTEST_AIRWAY_MM: Final = 24.0
AIRWAY_HU: Final = -400.0
# Less bone than in any part of a body, and less air than around one; without either, a scan cannot be judged.
LEAST_BONE_ML: Final = 5.0
LEAST_AIR_SHARE: Final = 0.01
# An upside-down scan shows at most this much of the body below the brain, and at least this much above it.
MOST_BELOW_HEAD_MM: Final = 60.0
LEAST_ABOVE_HEAD_MM: Final = 120.0

_Mask = npt.NDArray[np.bool_]
_Vector = npt.NDArray[np.float64]


def beneath_head(coarse: Coarse, brain: Brain) -> _Mask:
    """The body from the brain's centre downwards, in each slice the part that shares most with the one above.

    Raised arms are other parts, also where they touch the neck.
    """
    body, index = without_cold(coarse), coarse.index_of(brain.centre_mm)
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


def neck_centre_mm(coarse: Coarse, brain: Brain, beneath: _Mask) -> tuple[float, float]:
    """Centre (x, y) of the thinnest sections beneath a brain; the brain's centre if no neck is visible."""
    z_mm, area = coarse.z_mm, beneath.sum(axis=(1, 2)).astype(np.float64)
    highest, lowest = (brain.lower_mm - below for below in NECK_BELOW_BRAIN_MM)
    inside = (z_mm > lowest) & (z_mm < highest) & (area > 0)
    if not inside.any():
        return float(brain.centre_mm[0]), float(brain.centre_mm[1])
    _, y, x = np.nonzero(beneath[inside & (area <= 1.2 * area[inside].min())])
    centre = coarse.place_mm((0.0, float(y.mean()), float(x.mean())))
    return float(centre[0]), float(centre[1])


def front_and_back_mm(
    coarse: Coarse, beneath: _Mask, x_mm: float, between_mm: tuple[float, float]
) -> tuple[float, float] | None:
    """Lowest and highest y of the body near the midline between two heights; None if nothing lies there."""
    rows = (coarse.z_mm > between_mm[0]) & (coarse.z_mm < between_mm[1])
    y = np.flatnonzero(beneath[rows][:, :, np.abs(coarse.x_mm - x_mm) < MIDLINE_HALF_MM].any(axis=(0, 2)))
    if not len(y):
        return None
    front, back = (coarse.place_mm((0, end, 0))[1] for end in (y[0], y[-1]))
    return float(front) - COARSE_MM / 2, float(back) + COARSE_MM / 2


def shows_neck(coarse: Coarse) -> bool:
    """False for a scan with bone but no airway in a body section of a neck's or a head's size.

    For a scan without a brain and lung apices. Necks and faces hold an airway; legs have none, and an abdomen's gas
    lies in larger sections. A tumour or a cut larynx may hide the airway, so False is no proof. A scan without bone, or
    without air because its CT was cut off, cannot be judged and counts as showing a neck.
    """
    bone = coarse.body & (coarse.ct > BONE_HU)
    if coarse.volume_ml(bone) < LEAST_BONE_ML or np.mean(coarse.ct < AIRWAY_HU) < LEAST_AIR_SHARE:
        return True
    enclosed = ndimage.binary_fill_holes(coarse.body, IN_SLICE) & ~coarse.body & (coarse.ct < AIRWAY_HU)
    airway_mm2 = enclosed.sum(axis=(1, 2)) * COARSE_MM**2
    narrow = coarse.body.sum(axis=(1, 2)) * COARSE_MM**2 <= LARGEST_NECK_MM2
    return bool(np.count_nonzero(narrow & (airway_mm2 >= SMALLEST_AIRWAY_MM2)) * COARSE_MM >= SHORTEST_AIRWAY_MM)


def head_at_lower_end(coarse: Coarse, brain: Brain | None) -> Brain | None:
    """The brain of a head at the lower end of the body, with the body above it; None if there is none."""
    area_mm2 = coarse.body.sum(axis=(1, 2)) * COARSE_MM**2
    bottom_mm = float(coarse.z_mm[area_mm2 > 0].min(initial=np.inf))
    for head in brains(coarse, -np.inf) if brain is None else [brain]:
        is_head = area_mm2[coarse.index_of(head.centre_mm)[0]] <= LARGEST_NECK_MM2
        below, above = head.lower_mm - bottom_mm, coarse.top_mm - head.centre_mm[2]
        if is_head and below < MOST_BELOW_HEAD_MM and above > LEAST_ABOVE_HEAD_MM:
            return head
    return None
