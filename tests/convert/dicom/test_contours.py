"""Contours are drawn on a slice: voxels counted by hand on a plane of 20 x 24."""

from __future__ import annotations

import numpy as np
import pytest

from convert.dicom.contours import Contour, draw_contours

SHAPE = (8, 20, 24)


def make_square(x: tuple[float, float], y: tuple[float, float], index: int = 3, *, is_parity: bool = False) -> Contour:
    """Return a contour with these corners in voxels."""
    corners = [(x[0], y[0]), (x[1], y[0]), (x[1], y[1]), (x[0], y[1])]
    return Contour(index, np.array(corners, dtype=np.float64), is_parity)


def make_contour(*points: tuple[float, float]) -> Contour:
    return Contour(3, np.array(points, dtype=np.float64))


def count_voxels(*contours: Contour) -> int:
    return int(draw_contours(contours, SHAPE)[0].sum())


BOX = make_square((4, 10), (5, 12))  # 7 x 8 voxels with those on the contour


def test_voxels_on_the_contour_count():
    """Three slices of 56 voxels are drawn."""
    contours = [make_square((4, 10), (5, 12), index) for index in (2, 3, 4)]
    mask, holes = draw_contours(contours, SHAPE)
    assert mask[2:5, 5:13, 4:11].all()
    assert (int(mask.sum()), holes) == (168, 0)


@pytest.mark.parametrize(("by", "expected"), [(0.009, 56), (-0.009, 56), (0.011, 48), (-0.011, 48)])
def test_a_hundredth_of_a_voxel_is_on_the_contour(by, expected):
    """Shifted by more along x, one side of eight voxels lies outside: 6 x 8."""
    assert count_voxels(Contour(3, BOX.points + np.array([by, 0.0]))) == expected


@pytest.mark.parametrize("seed", range(4))
def test_rounded_points_through_voxel_centres(seed):
    """Points of 0.9766 mm voxels with two digits, at origins of 17 bits."""
    origin, spacing = -249.5117 + seed, 0.9766
    points = np.round(BOX.points * spacing + origin, 2)
    assert count_voxels(Contour(3, (points - origin) / spacing)) == 56


@pytest.mark.parametrize("turn", range(4))
def test_any_first_point_and_direction_give_the_same(turn):
    points = np.roll(BOX.points, turn, axis=0)
    assert count_voxels(Contour(3, points)) == count_voxels(Contour(3, points[::-1])) == 56


OUTER, INNER = make_square((2, 16), (2, 16)), make_square((6, 12), (6, 12))
OUTER_BY_PARITY, INNER_BY_PARITY = (
    Contour(contour.slice_index, contour.points, is_parity=True) for contour in (OUTER, INNER)
)
LEFT_BY_PARITY = make_square((3.5, 10.5), (4.5, 12.5), is_parity=True)
RIGHT_BY_PARITY = make_square((7.5, 14.5), (7.5, 14.5), is_parity=True)
# Contours, and the voxels and holes that they give.
DRAWINGS = {
    # 11 + 10 + ... + 1 voxels, 11 of them on the slanted edge.
    "a triangle": ([make_contour((2, 2), (12, 2), (2, 12))], 66, 0),
    "two squares of 7 x 8 and 7 x 7 with 3 x 5 in common": ([BOX, make_square((8, 14), (8, 14))], 56 + 49 - 15, 0),
    "two squares that touch": ([make_square((1, 6), (1, 11)), make_square((6, 11), (1, 11))], 11 * 11, 0),
    "one square twice": ([BOX, BOX], 56, 0),
    # The hole's own contour belongs to the structure: 15 x 15 without 5 x 5.
    "a hole": ([INNER, OUTER], 225 - 25, 1),
    "an island of 3 x 3 in a hole": ([make_square((8, 10), (8, 10)), INNER, OUTER], 225 - 25 + 9, 1),
    # Both contours reach around the hole, which makes it no island.
    "a hole of two overlapping squares": (
        [make_square((1, 12), (1, 12)), make_square((2, 13), (1, 12)), make_square((5, 8), (5, 8))],
        13 * 12 - 4,
        1,
    ),
    "a square that touches another from inside": ([BOX, make_square((4, 8), (5, 8))], 56, 0),
    # Voxels inside an odd number of contours count.
    "a hole by parity": ([OUTER_BY_PARITY, INNER_BY_PARITY], 225 - 25, 0),
    "two squares by parity": ([LEFT_BY_PARITY, RIGHT_BY_PARITY], 56 + 49 - 2 * 15, 0),
    "one square twice by parity": ([LEFT_BY_PARITY, LEFT_BY_PARITY], 0, 0),
    # One contour runs to its hole and back; the voxels on it count.
    "a keyhole": (
        [make_contour((2, 2), (16, 2), (16, 16), (2, 16), (2, 2), (6, 6), (6, 12), (12, 12), (12, 6), (6, 6))],
        225 - 25,
        0,
    ),
    "beyond the first corner of the grid": ([make_square((-5, 2), (-5, 3))], 3 * 4, 0),
    "beyond the last corner of the grid": ([make_square((20, 40), (17, 40))], 4 * 3, 0),
    "one point repeated": ([make_contour(*[(5, 5)] * 3)], 1, 0),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_voxels_and_holes(name):
    contours, voxels, holes = DRAWINGS[name]
    mask, number_of_holes = draw_contours(contours, SHAPE)
    assert (int(mask.sum()), number_of_holes) == (voxels, holes)
