"""Cubes at the tumour: place, scales, and the lesion in their centre."""

from __future__ import annotations

import numpy as np
import pytest

from algorithm.heads.feature_hook import make_tumour_cube
from contract.images.geometry import Geometry

GRID = Geometry((20, 20, 20), (2.0, 2.0, 2.0), (-100.0, 50.0, 0.0))


def make_images(*lesions: tuple[int, tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mark single voxels of a label at (z, y, x) in a mask, with a CT of 150 HU and a PET of SUV 10 at these voxels
    only.
    """
    mask = np.zeros(GRID.array_shape, dtype=np.uint8)
    for label, place in lesions:
        mask[place] = label
    return mask, np.full(mask.shape, 150.0, dtype=np.float32), np.where(mask > 0, 10.0, 0.0).astype(np.float32)


def test_cube_is_centred_on_the_primary() -> None:
    """The voxel of GTVp at (8, 9, 10) is the centre of five voxels of the grid's own spacing.

    The node at (8, 9, 12) is two voxels from it in x. 150 HU lie (150 - 50) / 250 above the middle of
    the window; SUV 10 is 2 units of 5.
    """
    mask, ct, pet = make_images((1, (8, 9, 10)), (2, (8, 9, 12)))
    cube = make_tumour_cube(mask, ct, pet, GRID, 5, 2.0)
    assert cube is not None
    assert cube.shape == (4, 5, 5, 5)
    assert cube[0] == pytest.approx(0.4)
    for channel, values in ((1, {(2, 2, 2): 2.0, (2, 2, 4): 2.0}), (2, {(2, 2, 2): 1.0}), (3, {(2, 2, 4): 1.0})):
        places = np.argwhere(cube[channel] > 1e-4)
        assert {tuple(place): float(cube[channel][tuple(place)]) for place in places} == pytest.approx(values)


def test_cube_without_a_primary_is_centred_on_the_nodes() -> None:
    """Nodes at x 4 and 8 have their centre at 6, so both lie two voxels from it."""
    cube = make_tumour_cube(*make_images((2, (8, 9, 4)), (2, (8, 9, 8))), GRID, 5, 2.0)
    assert cube is not None
    assert [tuple(place) for place in np.argwhere(cube[3] > 0.5)] == [(2, 2, 0), (2, 2, 4)]


def test_cube_is_air_without_uptake_beyond_the_images() -> None:
    """More than half of a cube around a tumour in the first voxel lies outside, at the window's lower end."""
    cube = make_tumour_cube(*make_images((1, (0, 0, 0))), GRID, 5, 2.0)
    assert cube is not None
    assert cube[0, 0] == pytest.approx(-1.0)
    assert not cube[1:, 0].any()


def test_no_tumour_gives_no_cube() -> None:
    assert make_tumour_cube(*make_images(), GRID, 5, 2.0) is None
