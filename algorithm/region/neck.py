"""The neck on a coarse picture of a scan: where it is beneath a brain."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from algorithm.region.coarse import COARSE_MM, Coarse, without_cold
from algorithm.region.landmarks import Brain

# Heights below the brain's lower end between which the neck is thinnest.
NECK_BELOW_BRAIN_MM: Final = (25.0, 140.0)
# An arm touches the neck with less than twice this.
TOUCH_VOXELS: Final = 4
# Half width of the midline in which front and back of head and neck are measured.
MIDLINE_HALF_MM: Final = 70.0

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
