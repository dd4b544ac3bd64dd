"""Closed contours of one structure, drawn on the slices of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np
import numpy.typing as npt

# A voxel whose centre lies so near to a contour, in voxels, lies on it: files round to hundredths of a mm.
ON_CONTOUR: Final = 0.01

_Points = npt.NDArray[np.float64]
_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Contour:
    """A closed contour: its slice and its points (x, y) in voxels.

    `is_parity` marks one of a structure whose contours are combined by parity (CLOSEDPLANAR_XOR).
    """

    slice_index: int
    points: _Points
    is_parity: bool = False


@dataclass(frozen=True)
class _Area:
    """A contour's voxels with and without those on it; `depth` counts the contours around it, one in the other."""

    contour: Contour
    closed: _Mask
    opened: _Mask
    depth: int = 0


def drawn(contours: Sequence[Contour], array_shape: tuple[int, int, int]) -> tuple[_Mask, int]:
    """The voxels (z, y, x) inside a structure's contours or on them, and the number of contours that are holes.

    Contours are joined, and one wholly inside another is a hole. Those by parity enclose what an odd number of them
    holds.
    """
    mask, holes = np.zeros(array_shape, dtype=np.bool_), 0
    ordered = sorted(contours, key=lambda one: (one.slice_index, one.is_parity))
    for (index, is_parity), group in groupby(ordered, key=lambda one: (one.slice_index, one.is_parity)):
        areas = _nested([_area(one, array_shape[1:]) for one in group])
        plane = np.zeros(array_shape[1:], dtype=np.bool_)
        for area in sorted(areas, key=lambda one: one.depth):
            if is_parity:
                plane ^= area.opened if area.depth else area.closed
            elif area.depth % 2:
                plane &= ~area.opened
                holes += 1
            else:
                plane |= area.closed
        mask[index] |= plane
    return mask, holes


def _area(contour: Contour, shape: tuple[int, int]) -> _Area:
    from skimage.draw import polygon

    points = contour.points
    closed = np.zeros(shape, dtype=np.bool_)
    rows, columns = polygon(points[:, 1], points[:, 0], shape)  # type: ignore[no-untyped-call]
    closed[rows, columns] = True
    on_contour = _on_contour(points, shape)
    return _Area(contour, closed | on_contour, closed & ~on_contour)


def _on_contour(points: _Points, shape: tuple[int, int]) -> _Mask:
    """The voxels whose centres lie on the contour, edge by edge along the longer side of each."""
    mask = np.zeros(shape, dtype=np.bool_)
    for start, end in zip(points, np.roll(points, -1, axis=0), strict=True):
        step = end - start
        along = int(np.abs(step).argmax())
        low, high = sorted((start[along], end[along]))
        ticks = np.arange(np.ceil(low - ON_CONTOUR), np.floor(high + ON_CONTOUR) + 1)
        length = float(np.hypot(*step))
        share = np.clip((ticks - start[along]) / step[along], 0, 1) if length else np.zeros_like(ticks)
        across = start[1 - along] + share * step[1 - along]
        # The distance from the edge: that across it, times the cosine of its slope.
        gap = np.abs(np.rint(across) - across) * (abs(step[along]) / length if length else 1.0)
        near = gap <= ON_CONTOUR
        voxels = np.empty((int(near.sum()), 2), dtype=np.int64)
        voxels[:, along], voxels[:, 1 - along] = ticks[near], np.rint(across[near])
        inside = np.all((voxels >= 0) & (voxels < shape[::-1]), axis=1)
        mask[voxels[inside, 1], voxels[inside, 0]] = True
    return mask


def _nested(areas: Sequence[_Area]) -> list[_Area]:
    """The areas with their depth: 1 inside another one, 2 inside one of these."""
    around = {
        i: [j for j, outer in enumerate(areas) if j != i and _is_inside(areas[i], outer)] for i in range(len(areas))
    }

    def depth(index: int) -> int:
        return 1 + max(map(depth, around[index])) if around[index] else 0

    return [_Area(one.contour, one.closed, one.opened, depth(index)) for index, one in enumerate(areas)]


def _is_inside(inner: _Area, outer: _Area) -> bool:
    """True if a contour lies wholly inside another one, without touching it."""
    from skimage.measure import points_in_poly

    points = inner.contour.points
    if np.any(inner.closed & ~outer.opened):
        return False
    within: _Mask = points_in_poly(points, outer.contour.points)  # type: ignore[no-untyped-call]
    return bool(within.all()) and bool(_distances(points, outer.contour.points).min() > ON_CONTOUR)


def _distances(points: _Points, contour: _Points) -> _Points:
    """The distance of each point from the contour."""
    start = contour[None]
    step = np.roll(contour, -1, axis=0)[None] - start
    squared = (step**2).sum(axis=-1)
    share = ((points[:, None] - start) * step).sum(axis=-1) / np.where(squared > 0, squared, 1)
    nearest = start + np.clip(share, 0, 1)[..., None] * step
    return np.asarray(np.linalg.norm(points[:, None] - nearest, axis=-1).min(axis=1), dtype=np.float64)
