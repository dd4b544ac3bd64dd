"""Draw the closed contours of one structure on the slices of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import numpy as np
import numpy.typing as npt

# A voxel lies on a contour if its centre is at most this many voxels away, since files round to hundredths of a mm.
MAX_OUTLINE_DISTANCE: Final = 0.01

_Points = npt.NDArray[np.float64]
_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Contour:
    """A closed contour of a structure.

    Attributes:
        slice_index: Slice of the grid.
        points: Points (x, y) in voxels.
        is_parity: Whether the contour is combined with others by parity (CLOSEDPLANAR_XOR).
    """

    slice_index: int
    points: _Points
    is_parity: bool = False


@dataclass(frozen=True)
class _Area:
    """The voxels of a contour on its slice.

    Attributes:
        filled: Voxels inside the contour or on it.
        interior: Voxels inside the contour.
        depth: Number of nested contours around this one.
    """

    contour: Contour
    filled: _Mask
    interior: _Mask
    depth: int = 0


def draw_contours(contours: Sequence[Contour], array_shape: tuple[int, int, int]) -> tuple[_Mask, int]:
    """Draw the contours of a structure.

    The mask is the union of the contours; a contour that lies entirely inside another contour is a hole. Contours that
    are combined by parity enclose the voxels that lie inside an odd number of them.

    Returns:
        The mask (z, y, x) of the voxels inside the contours or on them, and the number of holes.
    """
    mask = np.zeros(array_shape, dtype=np.bool_)
    holes = 0
    ordered = sorted(contours, key=_get_slice_and_rule)
    for (index, is_parity), group in groupby(ordered, key=_get_slice_and_rule):
        areas = _order_by_depth([_draw_area(contour, array_shape[1:]) for contour in group])
        plane = np.zeros(array_shape[1:], dtype=np.bool_)
        for area in areas:
            if is_parity:
                plane ^= area.interior if area.depth else area.filled
            elif area.depth % 2:
                plane &= ~area.interior
                holes += 1
            else:
                plane |= area.filled
        mask[index] |= plane
    return mask, holes


def _get_slice_and_rule(contour: Contour) -> tuple[int, bool]:
    return contour.slice_index, contour.is_parity


def _draw_area(contour: Contour, shape: tuple[int, int]) -> _Area:
    from skimage.draw import polygon

    points = contour.points
    filled = np.zeros(shape, dtype=np.bool_)
    rows, columns = polygon(points[:, 1], points[:, 0], shape)  # type: ignore[no-untyped-call]
    filled[rows, columns] = True
    outline = _draw_outline(points, shape)
    return _Area(contour, filled | outline, filled & ~outline)


def _draw_outline(points: _Points, shape: tuple[int, int]) -> _Mask:
    """Return the voxels whose centres lie on the contour; each edge is sampled along its longer extent."""
    mask = np.zeros(shape, dtype=np.bool_)
    for start, end in zip(points, np.roll(points, -1, axis=0), strict=True):
        step = end - start
        along = int(np.abs(step).argmax())
        low, high = sorted((start[along], end[along]))
        ticks = np.arange(np.ceil(low - MAX_OUTLINE_DISTANCE), np.floor(high + MAX_OUTLINE_DISTANCE) + 1)
        length = float(np.hypot(*step))
        share = np.clip((ticks - start[along]) / step[along], 0, 1) if length else np.zeros_like(ticks)
        across = start[1 - along] + share * step[1 - along]
        # The distance from the edge is the distance across the axis times the cosine of the edge's slope.
        gap = np.abs(np.rint(across) - across) * (abs(step[along]) / length if length else 1.0)
        near = gap <= MAX_OUTLINE_DISTANCE
        voxels = np.empty((int(near.sum()), 2), dtype=np.int64)
        voxels[:, along], voxels[:, 1 - along] = ticks[near], np.rint(across[near])
        inside = np.all((voxels >= 0) & (voxels < shape[::-1]), axis=1)
        mask[voxels[inside, 1], voxels[inside, 0]] = True
    return mask


def _order_by_depth(areas: Sequence[_Area]) -> list[_Area]:
    """Sort the areas by depth: an area inside one other area has depth 1, an area inside that area has depth 2."""
    outer_areas = {
        i: [j for j, outer in enumerate(areas) if j != i and _is_inside(areas[i], outer)] for i in range(len(areas))
    }

    def depth(index: int) -> int:
        return 1 + max(map(depth, outer_areas[index])) if outer_areas[index] else 0

    nested = [replace(area, depth=depth(index)) for index, area in enumerate(areas)]
    return sorted(nested, key=lambda area: area.depth)


def _is_inside(inner: _Area, outer: _Area) -> bool:
    """Return whether a contour lies entirely inside another contour, without touching it."""
    from skimage.measure import points_in_poly

    points = inner.contour.points
    if np.any(inner.filled & ~outer.interior):
        return False
    within: _Mask = points_in_poly(points, outer.contour.points)  # type: ignore[no-untyped-call]
    return bool(within.all()) and bool(_compute_distances(points, outer.contour.points).min() > MAX_OUTLINE_DISTANCE)


def _compute_distances(points: _Points, contour: _Points) -> _Points:
    """Compute the distance of each point from the contour."""
    start = contour[None]
    step = np.roll(contour, -1, axis=0)[None] - start
    squared = (step**2).sum(axis=-1)
    share = ((points[:, None] - start) * step).sum(axis=-1) / np.where(squared > 0, squared, 1)
    nearest = start + np.clip(share, 0, 1)[..., None] * step
    return np.asarray(np.linalg.norm(points[:, None] - nearest, axis=-1).min(axis=1), dtype=np.float64)
