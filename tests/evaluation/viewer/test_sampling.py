"""Masks and values on a grid that is coarser than the mask."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from evaluation.viewer.grid import box_of, display_grid, to_index, to_mm
from evaluation.viewer.lesions import lesion_voxels
from evaluation.viewer.sampling import measured_pet, shown_mask, shown_pet, values_at

FINE = Geometry((24, 24, 24), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
COARSE = Geometry((9, 9, 9), (3.0, 3.0, 3.0), (25.0, 25.0, -1.0), (-1.0, 0, 0, 0, -1.0, 0, 0, 0, 1.0))


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 3, *[st.integers(0, 4)] * 3, st.integers(1, 2)), max_size=12))
def test_no_lesion_is_lost_on_a_coarser_grid(places: list[tuple[int, ...]]) -> None:
    """Lesions of one voxel, at most one in each block of 6 mm with a voxel's distance to the next block.

    Two lesions are then at least 2 mm apart; a display voxel of 3 mm holds two of them at most. Every lesion must have
    its label at the display voxel nearest to it, unless another one takes the same display voxel.
    """
    mask = np.zeros(FINE.array_shape, np.uint8)
    for bx, by, bz, x, y, z, label in places:
        block = mask[6 * bz : 6 * bz + 6, 6 * by : 6 * by + 6, 6 * bx : 6 * bx + 6]
        if not block.any():
            block[z, y, x] = label
    shown = shown_mask(lesion_voxels(mask, FINE, 26), COARSE)
    lesions = np.argwhere(mask)[:, ::-1]
    nearest = np.rint(to_index(COARSE, to_mm(FINE, lesions))).astype(int)
    for (x, y, z), (i, j, k) in zip(lesions, nearest, strict=True):
        others = np.flatnonzero((nearest == (i, j, k)).all(axis=1))
        labels = {int(mask[tuple(lesions[other][::-1])]) for other in others}
        assert int(shown[k, j, i]) in labels
        assert int(mask[z, y, x]) in labels


def test_a_large_lesion_is_sampled_and_not_swollen() -> None:
    """A cube of 12 mm from 5.5 to 17.5: the points of the coarse grid inside it are 7, 10, 13, 16 along each axis."""
    mask = np.zeros(FINE.array_shape, np.uint8)
    mask[6:18, 6:18, 6:18] = 1
    shown = shown_mask(lesion_voxels(mask, FINE, 26), COARSE)
    assert shown.sum() == 4**3
    assert np.unique(to_mm(COARSE, np.argwhere(shown)[:, ::-1])[:, 0]).tolist() == [7.0, 10.0, 13.0, 16.0]


def test_a_lesion_outside_the_grid_is_shown_at_its_border() -> None:
    mask = np.zeros(FINE.array_shape, np.uint8)
    mask[3, 3, 3] = 2
    small = Geometry((3, 3, 3), (1.0, 1.0, 1.0), (20.0, 20.0, 20.0))
    assert shown_mask(lesion_voxels(mask, FINE, 26), small)[0, 0, 0] == 2


def test_values_between_voxels_are_linear_and_0_outside() -> None:
    """Voxels 1, 3 and 5 along x at 0, 2 and 4 mm: 2 at 1 mm, 5 up to half a voxel beyond the last centre, then 0."""
    array = np.broadcast_to(np.array([1.0, 3.0, 5.0], np.float32), (2, 2, 3)).copy()
    volume = Volume(array, Geometry((3, 2, 2), (2.0, 2.0, 2.0), (0.0, 0.0, 0.0)))
    points = np.array([[1.0, 0.5, 0.5], [4.9, 1.0, 1.0], [5.1, 1.0, 1.0], [-1.1, 0.0, 0.0]])
    assert values_at(volume, points) == pytest.approx([2.0, 5.0, 0.0, 0.0])


def test_a_pet_of_any_scale_fits_its_type() -> None:
    """Up to 5 the step is 0.01; up to 3,276,700 it is 100."""
    grid = Geometry((2, 1, 1), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    for highest, step, stored in ((5.0, 0.01, 500), (3_276_700.0, 100.0, 32767)):
        array, shown_step = shown_pet(Volume(np.array([[[0.0, highest]]], np.float32), grid), grid)
        assert shown_step == pytest.approx(step)
        assert array.ravel().tolist() == [0, stored]


def test_the_measured_pet_keeps_its_own_voxels_around_the_grid() -> None:
    """A PET of 4 mm at 0 to 156 mm, a grid from 60 to 68 mm: 3 voxels of margin hold the 10 mm around it.

    With its voxels' edges the grid covers the PET's indices 14.9 to 17.1, so that 14 - 3 to 18 + 3 are kept.
    """
    pet = Volume((np.arange(40, dtype=np.float32) / 1000)[None, None], Geometry((40, 1, 1), (4.0,) * 3, (0.0,) * 3))
    measured = measured_pet(pet, Geometry((9, 1, 1), (1.0,) * 3, (60.0, 0.0, 0.0)))
    assert measured is not None
    array, geometry, step = measured
    assert (array.ravel().tolist(), step) == (list(range(11, 22)), 0.001)
    assert geometry == Geometry((11, 1, 1), (4.0,) * 3, (44.0, 0.0, 0.0))
    assert measured_pet(pet, Geometry((9, 1, 1), (1.0,) * 3, (600.0, 0.0, 0.0))) is None


def body(size: tuple[int, int, int], spacing: tuple[float, float, float]) -> Volume:
    """A body of water that fills the CT except for its outer third along x and y."""
    array = np.full(size[::-1], -1000, np.int16)
    array[:, size[1] // 3 : -(size[1] // 3), size[0] // 3 : -(size[0] // 3)] = 0
    return Volume(array, Geometry(size, spacing, (-300.0, -300.0, -900.0)))


def extent_of(grid: Geometry) -> tuple[list[float], list[float]]:
    corners = grid.corners_mm()
    return corners.min(axis=0).tolist(), corners.max(axis=0).tolist()


def test_without_lesions_the_upper_end_of_a_long_scan_is_shown() -> None:
    """A CT of 150 slices of 6 mm up to z = 0: the top 255 mm are shown. The body is 200 mm wide, from -100 to 96."""
    grid = display_grid(body((150, 150, 150), (4.0, 4.0, 6.0)), None)
    low, high = extent_of(grid)
    assert high[2] == pytest.approx(-3.0, abs=6.0)
    assert high[2] - low[2] == pytest.approx(255.0, abs=12.0)
    assert low[0] == pytest.approx(-112.0, abs=8.0)
    assert high[0] == pytest.approx(110.0, abs=8.0)


@settings(max_examples=30)
@given(
    st.tuples(*[st.floats(-290.0, 290.0)] * 2, st.floats(-890.0, -10.0)),
    st.tuples(*[st.floats(-290.0, 290.0)] * 2, st.floats(-890.0, -10.0)),
)
def test_the_grid_holds_all_lesions_within_its_limits(first: tuple[float, ...], second: tuple[float, ...]) -> None:
    lesions = box_of(np.array([first, second]))
    grid = display_grid(body((150, 150, 150), (4.0, 4.0, 6.0)), lesions)
    low, high = (np.asarray(side) for side in extent_of(grid))
    assert max(grid.size) <= 256
    assert min(grid.spacing_mm) >= 1.0
    assert (low <= lesions[0] + 1e-6).all()
    assert (high >= lesions[1] - 1e-6).all()


def test_a_long_extent_is_shown_on_a_coarser_grid() -> None:
    """Lesions 800 mm apart along z with slices of 1 mm: 860 mm with margins, in 256 planes of more than 3.3 mm."""
    ct = body((60, 60, 900), (8.0, 8.0, 1.0))
    grid = display_grid(ct, np.array([[0.0, 0.0, -850.0], [5.0, 5.0, -50.0]]))
    assert grid.size[2] == 256
    assert grid.spacing_mm[2] == pytest.approx(860.0 / 255, abs=0.01)
