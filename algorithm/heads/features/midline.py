"""The midline of head and neck in some slices of a region, also where the region cuts the body unevenly.

A region that is widened to one side for uptake holds more of that shoulder; the centre of what it holds is not the
midline. Spine, airway and jaw mirror each other about the midline wherever the region's faces lie.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

# Fat, muscle, bone and air are told apart within these HU; metal and padding weigh no more than bone and air.
_HU: Final = (-300.0, 300.0)
# The midline lies at most this far from the middle of a region, which is widened by 45 mm to one side at most.
_FARTHEST_MM: Final = 40.0
# Of a narrower image too little would be left to compare; a region of head and neck is 250 mm wide.
_LEAST_WIDTH_MM: Final = 4 * _FARTHEST_MM
# A region whose middle lies this close to the midline is even; its body's centre is the steadier midline.
EVEN_MM: Final = 2.5
# Sections of this spacing and number tell the midline.
_STEP_MM: Final = 3.0
_MOST_SLICES: Final = 12

_Image = npt.NDArray[np.float32]


def even_columns(ct: _Image, body: npt.NDArray[np.bool_], spacing_mm: tuple[float, float, float], axis: int) -> slice:
    """The columns that lie evenly about the midline: all, unless the body is cut and its midline is off the middle.

    Args:
        ct: HU of the slices, in (z, y, x).
        body: its voxels of the body.
        spacing_mm: along each axis of the array.
        axis: of the array, runs from one side of the patient to the other.
    """
    columns = ct.shape[axis]
    is_cut = columns * spacing_mm[axis] >= _LEAST_WIDTH_MM and body.take([0, columns - 1], axis=axis).any()
    doubled = _mirror(ct, body, spacing_mm, axis) if is_cut else columns - 1
    if abs(doubled - (columns - 1)) / 2 * spacing_mm[axis] <= EVEN_MM:
        return slice(0, columns)
    return slice(max(0, doubled - columns + 1), min(columns, doubled + 1))


def _mirror(ct: _Image, body: npt.NDArray[np.bool_], spacing_mm: tuple[float, float, float], axis: int) -> int:
    """Twice the column about which the slices mirror each other best, by the mean difference in HU over the body."""
    steps = [max(1, round(_STEP_MM / mm)) for mm in spacing_mm]
    steps[0] = max(steps[0], -(-len(ct) // _MOST_SLICES))
    steps[axis] = 1
    thinned = tuple(slice(None, None, step) for step in steps)
    hu = np.moveaxis(np.clip(ct[thinned], *_HU), axis, -1)
    inside = np.moveaxis(body[thinned], axis, -1)
    middle = ct.shape[axis] - 1
    reach = min(int(2 * _FARTHEST_MM / spacing_mm[axis]), middle // 2)
    # Of equal candidates the one nearest to the middle counts.
    candidates = sorted(range(middle - reach, middle + reach + 1), key=lambda doubled: abs(doubled - middle))
    return min(zip(_differences(hu, inside, candidates), candidates, strict=True), key=lambda pair: pair[0])[1]


def _differences(hu: _Image, inside: npt.NDArray[np.bool_], candidates: list[int]) -> Iterator[float]:
    columns = hu.shape[-1]
    for doubled in candidates:
        half = slice(max(0, doubled - columns + 1), doubled // 2 + 1)
        ours, theirs = hu[..., half], hu[..., doubled - np.arange(half.start, half.stop)]
        either = inside[..., half] | inside[..., doubled - np.arange(half.start, half.stop)]
        yield float(np.abs(ours - theirs)[either].mean()) if either.any() else np.inf
