"""Resampling against a naive oracle and closed forms.

The grids are anisotropic, flipped, oblique and overlap only in part.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithm.region import grids
from algorithm.region.grids import make_grid_over, resample, resample_mask
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from tests.algorithm.region.oriented_grids import DIRECTIONS, SPACINGS, find_voxel_centres_mm, make_covering_grid

# make_grid_over


@given(
    st.tuples(*[st.floats(-500, 500)] * 3), st.tuples(*[st.floats(0.1, 200)] * 3), st.tuples(*[st.floats(0.5, 6)] * 3)
)
def test_grid_over_covers_the_box_and_no_more_than_a_voxel_beyond(
    low: tuple[float, ...], extent: tuple[float, ...], spacing: tuple[float, float, float]
) -> None:
    high = np.add(low, extent)
    corners = make_grid_over(low, high, spacing).corners_mm()
    assert np.all(corners.min(0) <= np.add(low, 1e-6))
    assert np.all(corners.max(0) >= high - 1e-6)
    assert np.all(corners.max(0) - corners.min(0) < extent + np.asarray(spacing) + 1e-6)
    np.testing.assert_allclose(corners.min(0) + corners.max(0), low + high, atol=1e-6)


def test_grid_over_by_hand() -> None:
    """A box from 0 to 10 mm at 3 mm needs 4 voxels: 12 mm about the centre 5, so edges -1 and 11, first centre 0.5."""
    grid = make_grid_over((0, 0, 0), (10, 10, 10), (3.0, 3.0, 3.0))
    assert grid.size == (4, 4, 4)
    assert grid.origin_mm == pytest.approx((0.5, 0.5, 0.5))


# resample against a naive oracle


def interpolate_naively(volume: Volume, point_mm: np.ndarray, outside: float) -> float:
    """Interpolate trilinearly, one point at a time; a voxel reaches half its spacing around its centre."""
    matrix = volume.geometry.physical_to_index_matrix()
    index = (matrix[:3, :3] @ point_mm + matrix[:3, 3])[::-1]
    shape = volume.array.shape
    if any(not -0.5 <= i <= n - 0.5 for i, n in zip(index, shape, strict=True)):
        return outside
    total = 0.0
    for corner in itertools.product((0, 1), repeat=3):
        weight, where = 1.0, []
        for bit, i, n in zip(corner, index, shape, strict=True):
            base = math.floor(i)
            weight *= (i - base) if bit else (1 - (i - base))
            where.append(min(max(base + bit, 0), n - 1))
        total += weight * float(volume.array[tuple(where)])
    return total


def find_clear_points(volume: Geometry, points: np.ndarray) -> np.ndarray:
    """Return points that rounding cannot move across the volume's outer faces."""
    matrix = volume.physical_to_index_matrix()
    index = points @ matrix[:3, :3].T + matrix[:3, 3]
    gaps = np.minimum(np.abs(index + 0.5), np.abs(index - (np.asarray(volume.size) - 0.5)))
    return np.asarray(gaps.min(-1) > 1e-5)


@settings(max_examples=60)
@given(
    st.tuples(*[st.integers(2, 5)] * 3),
    st.tuples(*[st.floats(2.0, 6.0)] * 3),
    DIRECTIONS,
    DIRECTIONS,
    st.tuples(*[st.floats(-8, 8)] * 3),
    st.integers(0, 2**32 - 1),
)
def test_resample_agrees_with_the_naive_oracle(
    size: tuple[int, int, int],
    spacing: tuple[float, float, float],
    direction: tuple[float, ...],
    target_direction: tuple[float, ...],
    shift: tuple[float, ...],
    seed: int,
) -> None:
    """Target spacing below every source spacing, so that nothing is averaged."""
    source = Geometry(size, spacing, (-6.0, 3.0, 10.0), direction)
    centre = source.corners_mm().mean(0) + shift
    target = make_covering_grid(centre, 5.0, (1.9, 1.7, 1.3), target_direction)
    array = np.random.default_rng(seed).normal(0, 100, source.array_shape).astype(np.float32)
    values = resample(Volume(array, source), target, -1024.0)
    points = find_voxel_centres_mm(target).reshape(-1, 3)
    clear = find_clear_points(source, points)
    expected = [interpolate_naively(Volume(array, source), point, -1024.0) for point in points[clear]]
    np.testing.assert_allclose(values.ravel()[clear], expected, atol=2e-3)


@settings(max_examples=60)
@given(
    SPACINGS, DIRECTIONS, SPACINGS, DIRECTIONS, st.tuples(*[st.floats(-1, 1)] * 3), st.tuples(*[st.floats(-30, 30)] * 3)
)
def test_a_linear_ramp_is_reproduced(
    spacing: tuple[float, float, float],
    direction: tuple[float, ...],
    target_spacing: tuple[float, float, float],
    target_direction: tuple[float, ...],
    slope: tuple[float, ...],
    shift: tuple[float, ...],
) -> None:
    """Averaging whole blocks and interpolating linearly both reproduce a linear function.

    That holds inside, at least one averaged voxel and the block's rest from the faces; the ramp rises by at most
    sqrt(3) a millimetre over 60 mm, so float32 rounding stays below 1e-3.
    """
    source = make_covering_grid(np.zeros(3), 30.0, spacing, direction)
    target = make_covering_grid(np.asarray(shift), 20.0, target_spacing, target_direction)
    ramp = find_voxel_centres_mm(source) @ np.asarray(slope) + 7
    values = resample(Volume(ramp.astype(np.float32), source), target, -999.0)
    points = find_voxel_centres_mm(target)
    matrix = source.physical_to_index_matrix()
    index = points @ matrix[:3, :3].T + matrix[:3, 3]
    margin = 2.5 * max(target_spacing) / np.asarray(spacing) + 1.5
    inside = np.all((index > margin) & (index < np.asarray(source.size) - 1 - margin), axis=-1)
    np.testing.assert_allclose(values[inside], (points @ np.asarray(slope) + 7)[inside], atol=1e-3)


@settings(max_examples=40)
@given(SPACINGS, DIRECTIONS, SPACINGS, DIRECTIONS, st.tuples(*[st.floats(-60, 60)] * 3))
def test_a_constant_stays_constant_and_beyond_it_is_outside(
    spacing: tuple[float, float, float],
    direction: tuple[float, ...],
    target_spacing: tuple[float, float, float],
    target_direction: tuple[float, ...],
    shift: tuple[float, ...],
) -> None:
    source = make_covering_grid(np.zeros(3), 20.0, spacing, direction)
    target = make_covering_grid(np.asarray(shift), 20.0, target_spacing, target_direction)
    values = resample(Volume(np.full(source.array_shape, 40, np.int16), source), target, -1024.0)
    assert set(np.unique(values)) <= {40.0, -1024.0}
    matrix = source.physical_to_index_matrix()
    index = find_voxel_centres_mm(target) @ matrix[:3, :3].T + matrix[:3, 3]
    clear = find_clear_points(source, find_voxel_centres_mm(target))
    within = np.all((index >= -0.5) & (index <= np.asarray(source.size) - 0.5), axis=-1)
    assert np.all(values[within & clear] == 40.0)
    # The last block may reach beyond the source by the rest of its voxels, less than a target voxel.
    beyond = np.any(
        (index < -1e-5 - 0.5) | (index > np.asarray(source.size) - 0.5 + max(target_spacing) / np.asarray(spacing)),
        axis=-1,
    )
    assert np.all(values[beyond] == -1024.0)


def test_block_averaging_by_hand() -> None:
    """Six voxels of 1 mm onto three of 2 mm at the same place are the means of pairs, with no half-voxel shift."""
    source = Geometry((6, 1, 1), (1.0, 2.0, 2.0), (0.0, 0.0, 0.0))
    target = Geometry((3, 1, 1), (2.0, 2.0, 2.0), (0.5, 0.0, 0.0))
    values = np.array([1, 3, 10, 20, 5, 5], dtype=np.int16).reshape(1, 1, 6)
    assert resample(Volume(values, source), target, 0.0).ravel().tolist() == [2.0, 15.0, 5.0]


def test_the_crop_before_resampling_changes_nothing() -> None:
    rng = np.random.default_rng(5)
    source = Volume(
        rng.normal(0, 1, (20, 30, 40)).astype(np.float32), Geometry((40, 30, 20), (3.0, 3.5, 4.0), (1.0, 2.0, 3.0))
    )
    small = Geometry((6, 6, 6), (2.0, 2.0, 2.0), (50.0, 40.0, 30.0))
    large = Geometry((46, 42, 36), (2.0, 2.0, 2.0), (10.0, 10.0, 4.0))
    part = resample(source, large, 0.0)[13:19, 15:21, 20:26]
    np.testing.assert_allclose(resample(source, small, 0.0), part, atol=1e-5)


def test_no_overlap_is_all_outside() -> None:
    source = Volume(np.ones((4, 4, 4), np.int16), Geometry((4, 4, 4), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)))
    target = Geometry((3, 3, 3), (2.0, 2.0, 2.0), (500.0, 0.0, 0.0))
    assert np.all(resample(source, target, -1024.0) == -1024.0)


# Masks, and what is read


@settings(max_examples=20)
@given(SPACINGS, DIRECTIONS)
def test_a_mask_on_its_own_grid_is_itself(spacing: tuple[float, float, float], direction: tuple[float, ...]) -> None:
    geometry = make_covering_grid(np.zeros(3), 10.0, spacing, direction)
    mask = np.random.default_rng(0).integers(0, 3, geometry.array_shape).astype(np.uint8)
    np.testing.assert_array_equal(resample_mask(Volume(mask, geometry), geometry), mask)


def test_training_masks_take_the_largest_share() -> None:
    """With two voxels of 1 mm in one of 2 mm, a label needs more than half of it."""
    source = Geometry((2, 1, 1), (1.0, 2.0, 2.0), (0.0, 0.0, 0.0))
    target = Geometry((1, 1, 1), (2.0, 2.0, 2.0), (0.5, 0.0, 0.0))

    def resample_labels(*labels: int) -> int:
        return int(resample_mask(Volume(np.array([[labels]], np.uint8), source), target)[0, 0, 0])

    pairs = ((1, 1), (2, 2), (0, 0), (1, 0), (1, 2))
    assert [resample_labels(*pair) for pair in pairs] == [1, 2, 0, 0, 0]


def test_far_less_is_read_than_the_scan_holds() -> None:
    """From a whole-body scan only the target's part is cropped, one voxel more on each side."""
    scan = Geometry((500, 500, 1000), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    window = grids._find_window(scan, Geometry((10, 10, 10), (1.0, 1.0, 1.0), (100.0, 100.0, 900.0)))
    assert window is not None
    assert max(window[1]) <= 10 + 6


def test_blocks_are_averaged_along_the_axis_of_the_scan_that_the_coarse_steps_follow() -> None:
    """Store a scan with its first axis upwards, 0 0 9 three times from below, and resample it on slices of 3 mm.

    Slices lie in the middle of three voxels, whose mean is 3. Averages along another axis of the scan, where nothing
    changes, would give the middle voxel, 0.
    """
    upwards_first = (0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0)
    scan = Geometry((9, 6, 6), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0), upwards_first)
    values = np.broadcast_to(np.tile(np.array([0, 0, 9], np.int16), 3), scan.array_shape)
    slices = Geometry((4, 4, 3), (1.0, 1.0, 3.0), (1.0, 1.0, 1.0))
    np.testing.assert_allclose(resample(Volume(values.copy(), scan), slices, -1.0), 3.0)
