"""Area of a mask's surface by the marching cubes algorithm, without triangles.

The surface runs between the centres of voxels. A cell is the box between the centres of 2 x 2 x 2 voxels, of which some
are inside the mask; the surface cuts each edge of the cell between an inner and an outer corner in its middle. Up to
rotation, reflection and exchange of inside and outside, the piece around a group of neighbouring corners has one of six
shapes, whose area follows from the spacing. Source: Lorensen and Cline 1987 (marching cubes); Nikolov et al. 2021
(distances weighted by this area).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Final, TypeAlias

import numpy as np

from evaluation.metrics.overlap import Booleans, Floats, Integers

Corner: TypeAlias = tuple[int, int, int]
Spacing: TypeAlias = tuple[float, float, float]

# Bit k of a cell's code says whether its corner k is inside.
CORNERS: Final[tuple[Corner, ...]] = tuple(product((0, 1), (0, 1), (0, 1)))
N_CODES: Final = 1 << len(CORNERS)


def cell_codes(mask: Booleans) -> Integers:
    """The code of every cell that touches a (z, y, x) mask, 0 and 255 without a surface.

    The result is larger than the mask by one along each axis; the outside of the array is background.
    """
    padded = np.pad(mask, 1)
    codes = np.zeros([size + 1 for size in mask.shape], dtype=np.intp)
    for bit, corner in enumerate(CORNERS):
        window = tuple(slice(at, at + size + 1) for at, size in zip(corner, mask.shape, strict=True))
        codes |= padded[window].astype(np.intp) << bit
    return codes


@lru_cache(maxsize=64)
def cell_areas(spacing_mm: Spacing) -> Floats:
    """The area in mm2 of the surface in a cell of each code, shape (256,)."""
    return np.array([_area(code, spacing_mm) for code in range(N_CODES)])


def _area(code: int, spacing_mm: Spacing) -> float:
    inside = {corner for bit, corner in enumerate(CORNERS) if code >> bit & 1}
    # Where inner and outer corners alternate on a face, the fewer ones are cut off one by one.
    fewer = inside if len(inside) <= len(CORNERS) // 2 else set(CORNERS) - inside
    return sum(_group_area(group, spacing_mm) for group in _groups(fewer))


def _groups(corners: set[Corner]) -> Iterator[set[Corner]]:
    """Sets of corners that are connected by edges of the cell."""
    left = set(corners)
    while left:
        group, edge = set[Corner](), {left.pop()}
        while edge:
            group |= edge
            edge = {other for corner in edge for other in left if _are_neighbours(corner, other)}
            left -= edge
        yield group


def _are_neighbours(corner: Corner, other: Corner) -> bool:
    return sum(a != b for a, b in zip(corner, other, strict=True)) == 1


def _group_area(group: set[Corner], spacing_mm: Spacing) -> float:
    """The area around one to four connected corners.

    With the face areas (a, b, c) of the cell, normal to z, y and x, and d their Euclidean norm, which is the length of
    the normal of a triangle between edges' middles times 8 (or of a larger part of its plane, by ratio):

    - one corner: a triangle, d/8;
    - two corners along z: a rectangle across two faces, hypot(b, c)/2;
    - three corners of a face with normal z: half of that face and a trapezium, a/2 + 3d/8;
    - four corners of that face: a rectangle parallel to it, a;
    - a corner and its three neighbours: a hexagon, 3d/4;
    - a path of four corners with its middle step along z: triangles over a hexagon of six middles that is not plane,
      cut at every second middle: d/2 + hypot(a, b)/4 + hypot(a, c)/4.
    """
    faces = np.prod(spacing_mm) / np.array(spacing_mm)
    diagonal = float(np.linalg.norm(faces))
    neighbours = {corner: sum(_are_neighbours(corner, other) for other in group) for corner in group}
    extent = np.ptp(np.array(list(group)), axis=0)
    if len(group) == 1:
        return diagonal / 8
    if len(group) == 2:
        return float(np.linalg.norm(faces[extent == 0])) / 2
    if len(group) == 3:
        return float(faces[extent == 0][0]) / 2 + diagonal * 3 / 8
    if (extent == 0).any():
        return float(faces[extent == 0][0])
    if 3 in neighbours.values():
        return diagonal * 3 / 4
    first, second = (corner for corner, count in neighbours.items() if count == 2)
    middle = int(np.flatnonzero(np.subtract(first, second))[0])
    return diagonal / 2 + sum(float(np.hypot(faces[middle], faces[axis])) / 4 for axis in range(3) if axis != middle)
