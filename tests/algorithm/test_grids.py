"""Resampling against a naive oracle and closed forms; the way to the network's grid and back is exact.

The grids are anisotropic, flipped, oblique and overlap only in part.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from algorithm import grids
from algorithm.grids import grid_over, resample, resample_mask, restore_labels
from algorithm.localise import Region
from algorithm.read import Case
from algorithm.segment import network_channels, network_grid
from algorithm.segmentation import Segmentation
from contract.geometry import Geometry
from contract.images import Volume
from contract.patient import Patient

NETWORK_SPACING_MM = (3.0, 3.0, 3.0)


def oriented(order: tuple[int, ...], signs: tuple[float, ...], tilt: tuple[float, float]) -> tuple[float, ...]:
    """Axes in any order and sign, then tilted about z and x by angles in radians."""
    cz, sz, cx, sx = math.cos(tilt[0]), math.sin(tilt[0]), math.cos(tilt[1]), math.sin(tilt[1])
    about_z = np.array([[cz, -sz, 0], [sz, cz, 0], [0, 0, 1]])
    about_x = np.array([[1, 0, 0], [0, cx, -sx], [0, sx, cx]])
    return tuple(float(v) for v in (about_z @ about_x @ (np.eye(3)[list(order)] * signs)).ravel())


DIRECTIONS = st.builds(
    oriented,
    st.permutations([0, 1, 2]),
    st.tuples(*[st.sampled_from([-1.0, 1.0])] * 3),
    st.sampled_from([(0.0, 0.0), (0.3, 0.0), (-0.2, 0.15), (0.0, 0.4)]),
)
SPACINGS = st.tuples(st.floats(0.8, 5), st.floats(0.8, 5), st.floats(1.5, 6))


def covering(
    centre_mm: np.ndarray, half_mm: float, spacing: tuple[float, float, float], direction: tuple[float, ...]
) -> Geometry:
    """A grid of any orientation whose voxels cover the ball of radius `half_mm` about a point."""
    size = tuple(math.ceil(2 * half_mm / step) + 1 for step in spacing)
    axes = np.asarray(direction).reshape(3, 3)
    origin = centre_mm - axes @ ((np.asarray(size) - 1) / 2 * np.asarray(spacing))
    return Geometry((size[0], size[1], size[2]), spacing, (origin[0], origin[1], origin[2]), direction)


def points_mm(geometry: Geometry) -> np.ndarray:
    """LPS coordinates (z, y, x, 3) of all voxel centres."""
    z, y, x = np.meshgrid(*(np.arange(n, dtype=np.float64) for n in geometry.array_shape), indexing="ij")
    matrix = geometry.index_to_physical_matrix()
    return np.stack([x, y, z], axis=-1) @ matrix[:3, :3].T + matrix[:3, 3]


# grid_over


@given(
    st.tuples(*[st.floats(-500, 500)] * 3), st.tuples(*[st.floats(0.1, 200)] * 3), st.tuples(*[st.floats(0.5, 6)] * 3)
)
def test_grid_over_covers_the_box_and_no_more_than_a_voxel_beyond(
    low: tuple[float, ...], extent: tuple[float, ...], spacing: tuple[float, float, float]
) -> None:
    high = np.add(low, extent)
    corners = grid_over(low, high, spacing).corners_mm()
    assert np.all(corners.min(0) <= np.add(low, 1e-6))
    assert np.all(corners.max(0) >= high - 1e-6)
    assert np.all(corners.max(0) - corners.min(0) < extent + np.asarray(spacing) + 1e-6)
    np.testing.assert_allclose(corners.min(0) + corners.max(0), low + high, atol=1e-6)


def test_grid_over_by_hand() -> None:
    """A box from 0 to 10 mm at 3 mm needs 4 voxels: 12 mm about its centre 5, so edges -1 and 11, first centre 0.5."""
    grid = grid_over((0, 0, 0), (10, 10, 10), (3.0, 3.0, 3.0))
    assert grid.size == (4, 4, 4)
    assert grid.origin_mm == pytest.approx((0.5, 0.5, 0.5))


# resample against a naive oracle


def naive_linear(volume: Volume, point_mm: np.ndarray, outside: float) -> float:
    """Trilinear interpolation, one point at a time; a voxel reaches half its spacing around its centre."""
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


def away_from_edges(volume: Geometry, points: np.ndarray) -> np.ndarray:
    """Points whose side of the volume's outer faces does not hang on a rounding error."""
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
    target = covering(centre, 5.0, (1.9, 1.7, 1.3), target_direction)
    array = np.random.default_rng(seed).normal(0, 100, source.array_shape).astype(np.float32)
    found = resample(Volume(array, source), target, -1024.0)
    points = points_mm(target).reshape(-1, 3)
    clear = away_from_edges(source, points)
    expected = [naive_linear(Volume(array, source), point, -1024.0) for point in points[clear]]
    np.testing.assert_allclose(found.ravel()[clear], expected, atol=2e-3)


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
    """Averaging whole blocks and interpolating linearly both leave a linear function as it is.

    That holds inside, at least one averaged voxel and the block's rest from the faces; the ramp rises by at most
    sqrt(3) a millimetre over 60 mm, so float32 rounding stays below 1e-3.
    """
    source = covering(np.zeros(3), 30.0, spacing, direction)
    target = covering(np.asarray(shift), 20.0, target_spacing, target_direction)
    ramp = points_mm(source) @ np.asarray(slope) + 7
    found = resample(Volume(ramp.astype(np.float32), source), target, -999.0)
    points = points_mm(target)
    matrix = source.physical_to_index_matrix()
    index = points @ matrix[:3, :3].T + matrix[:3, 3]
    margin = 2.5 * max(target_spacing) / np.asarray(spacing) + 1.5
    inside = np.all((index > margin) & (index < np.asarray(source.size) - 1 - margin), axis=-1)
    np.testing.assert_allclose(found[inside], (points @ np.asarray(slope) + 7)[inside], atol=1e-3)


@settings(max_examples=40)
@given(SPACINGS, DIRECTIONS, SPACINGS, DIRECTIONS, st.tuples(*[st.floats(-60, 60)] * 3))
def test_a_constant_stays_constant_and_beyond_it_is_outside(
    spacing: tuple[float, float, float],
    direction: tuple[float, ...],
    target_spacing: tuple[float, float, float],
    target_direction: tuple[float, ...],
    shift: tuple[float, ...],
) -> None:
    source = covering(np.zeros(3), 20.0, spacing, direction)
    target = covering(np.asarray(shift), 20.0, target_spacing, target_direction)
    found = resample(Volume(np.full(source.array_shape, 40, np.int16), source), target, -1024.0)
    assert set(np.unique(found)) <= {40.0, -1024.0}
    matrix = source.physical_to_index_matrix()
    index = points_mm(target) @ matrix[:3, :3].T + matrix[:3, 3]
    clear = away_from_edges(source, points_mm(target))
    within = np.all((index >= -0.5) & (index <= np.asarray(source.size) - 0.5), axis=-1)
    assert np.all(found[within & clear] == 40.0)
    # The last block may reach beyond the source by the rest of its voxels, less than a target voxel.
    beyond = np.any(
        (index < -1e-5 - 0.5) | (index > np.asarray(source.size) - 0.5 + max(target_spacing) / np.asarray(spacing)),
        axis=-1,
    )
    assert np.all(found[beyond] == -1024.0)


def test_block_averaging_by_hand() -> None:
    """Six voxels of 1 mm onto three of 2 mm at the same place are the means of pairs, with no half-voxel shift."""
    source = Geometry((6, 1, 1), (1.0, 2.0, 2.0), (0.0, 0.0, 0.0))
    target = Geometry((3, 1, 1), (2.0, 2.0, 2.0), (0.5, 0.0, 0.0))
    values = np.array([1, 3, 10, 20, 5, 5], dtype=np.int16).reshape(1, 1, 6)
    assert resample(Volume(values, source), target, 0.0).ravel().tolist() == [2.0, 15.0, 5.0]


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_averaging_does_not_alias_a_fine_pattern(factor: int) -> None:
    """A pattern that repeats every `factor` voxels averages to its mean everywhere; picking voxels would not."""
    n = 24
    source = Geometry((n, n, n), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    pattern = (np.arange(n) % factor).astype(np.float32)
    array = np.broadcast_to(pattern, (n, n, n)).copy()
    target = grid_over((4, 4, 4), (16, 16, 16), (float(factor),) * 3)
    found = resample(Volume(array, source), target, 0.0)
    np.testing.assert_allclose(found, (factor - 1) / 2, atol=1e-5)


def test_the_crop_before_resampling_changes_nothing() -> None:
    """A small target within a large volume gives what the same target gives without the crop."""
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


# Back to the CT


@settings(max_examples=60)
@given(
    SPACINGS, DIRECTIONS, st.tuples(*[st.floats(-1, 1)] * 3), st.floats(-15, 15), st.tuples(*[st.floats(-25, 25)] * 3)
)
def test_a_plane_is_restored_exactly(
    spacing: tuple[float, float, float],
    direction: tuple[float, ...],
    normal: tuple[float, ...],
    offset: float,
    shift: tuple[float, ...],
) -> None:
    """Logits that are linear in space are interpolated without error, so every CT voxel gets the right label.

    Left out are voxels within 0.01 mm of the plane (float32) and, where the CT is coarser than the network's grid
    and logits are averaged, those in the outermost blocks. Beyond the network's grid all is background.
    """
    assume(np.linalg.norm(normal) > 0.1)
    unit = np.asarray(normal) / np.linalg.norm(normal)
    grid = grid_over((-24, -24, -24), (24, 24, 24), NETWORK_SPACING_MM)
    ct = covering(np.asarray(shift), 25.0, spacing, direction)
    distance = (points_mm(grid) @ unit - offset).astype(np.float32)
    logits = np.stack([-distance, distance, np.full_like(distance, -1e3)])
    found = restore_labels(logits, grid, ct)
    assert found.shape == ct.array_shape
    assert found.dtype == np.uint8
    points = points_mm(ct)
    truth = points @ unit - offset
    deep = np.all(np.abs(points) < 24 - 2.5 * max(*spacing, 3.0), axis=-1) & (np.abs(truth) > 0.01)
    np.testing.assert_array_equal(found[deep], (truth > 0)[deep])
    assert not found[np.any(np.abs(points) > 24 + max(*spacing, 3.0), axis=-1)].any()


@settings(max_examples=30)
@given(
    st.tuples(st.floats(0.8, 3), st.floats(0.8, 3), st.floats(1.5, 3)),
    DIRECTIONS,
    st.tuples(*[st.floats(-1.5, 1.5)] * 3),
)
def test_a_sphere_is_restored_to_a_third_of_a_millimetre(
    spacing: tuple[float, float, float], direction: tuple[float, ...], centre: tuple[float, ...]
) -> None:
    """Trilinear interpolation of the signed distance r - |p| errs by at most h^2 / 8 times the sum of its second
    derivatives, 2 / |p|: with h = 3 mm and |p| > 12 mm near a surface at 15 mm below 9 / 8 * 2 / 12 = 0.19 mm."""
    grid = grid_over((-24, -24, -24), (24, 24, 24), NETWORK_SPACING_MM)
    ct = covering(np.zeros(3), 20.0, spacing, direction)
    distance = (15 - np.linalg.norm(points_mm(grid) - centre, axis=-1)).astype(np.float32)
    found = restore_labels(np.stack([-distance, np.full_like(distance, -1e3), distance]), grid, ct)
    truth = 15 - np.linalg.norm(points_mm(ct) - centre, axis=-1)
    clear = np.abs(truth) > 0.2
    np.testing.assert_array_equal(found[clear], 2 * (truth > 0)[clear])


def test_ties_go_to_the_background_and_lower_labels() -> None:
    grid = grid_over((0, 0, 0), (9, 9, 9), NETWORK_SPACING_MM)
    logits = np.zeros((3, *grid.array_shape), np.float32)
    assert not restore_labels(logits, grid, grid).any()
    logits[1:] = 1.0
    assert np.all(restore_labels(logits, grid, grid) == 1)


def test_a_ct_beside_the_network_grid_is_background() -> None:
    grid = grid_over((0, 0, 0), (9, 9, 9), NETWORK_SPACING_MM)
    logits = np.stack([np.zeros(grid.array_shape), np.ones(grid.array_shape)]).astype(np.float32)
    assert not restore_labels(logits, grid, Geometry((5, 5, 5), (1.0, 1.0, 1.0), (100.0, 0.0, 0.0))).any()


# There and back again


def round_trip(case: Case, channel: int) -> tuple[np.ndarray, Geometry]:
    """What a perfect network would answer that marks what is bright in one channel (0 CT, 1 PET) above 0.5."""
    corners = case.ct.geometry.corners_mm()
    region = Region(tuple(corners.min(0)), tuple(corners.max(0)), "test")
    grid = network_grid(region, NETWORK_SPACING_MM)
    ct, pet = network_channels(case, grid)
    bright = np.clip((ct, pet)[channel], 0, 1) - 0.5
    logits = np.stack([-bright, bright, np.full_like(bright, -1e3)])
    return Segmentation(logits, ct, pet, grid).mask_on(case.ct.geometry), case.ct.geometry


RADIUS_MM = 18.0


@settings(max_examples=25)
@given(
    st.tuples(st.floats(0.8, 1.5), st.floats(0.8, 1.5), st.floats(1.5, 5)),
    DIRECTIONS,
    st.tuples(st.floats(2.0, 5.5), st.floats(2.0, 5.5), st.floats(2.0, 5.0)),
    DIRECTIONS,
    st.tuples(*[st.floats(-6, 6)] * 3),
    st.tuples(*[st.floats(-10, 10)] * 3),
    st.sampled_from([0, 1]),
)
def test_a_known_shape_survives_the_whole_round_trip(
    ct_spacing: tuple[float, float, float],
    ct_direction: tuple[float, ...],
    pet_spacing: tuple[float, float, float],
    pet_direction: tuple[float, ...],
    pet_shift: tuple[float, ...],
    place: tuple[float, ...],
    channel: int,
) -> None:
    """A ball of radius 18 mm in CT or PET, through the network's 3 mm grid, back onto the CT.

    A scanner records a voxel's mean, here the share of the ball in it (a linear edge over one voxel), so that the
    surface's position is not lost to sampling. Bounds: if the surface moves by no more than half a network voxel
    (1.5 mm), the volume of what is wrong is at most that of the shell, 3 * 1.5 / 18 of the ball, so Dice is at
    least 1 - 0.25 / 2 = 0.875. Errors of the surface are the same on opposite sides, so the centroid stays within
    a quarter of a network voxel (0.75 mm), where a shift of half a voxel anywhere on the way would show.
    """
    middle = np.asarray(place) + 100
    ct = covering(np.full(3, 100.0), 42.0, ct_spacing, ct_direction)
    pet = covering(middle + pet_shift, 38.0, pet_spacing, pet_direction)
    case = Case(Volume(ball(ct, middle), ct), Volume(ball(pet, middle), pet), Patient())
    mask, geometry = round_trip(case, channel)
    assert mask.shape == geometry.array_shape
    points = points_mm(geometry)
    truth = np.linalg.norm(points - middle, axis=-1) < RADIUS_MM
    dice = 2 * np.count_nonzero(truth & (mask == 1)) / (np.count_nonzero(truth) + np.count_nonzero(mask))
    assert dice > 0.875
    np.testing.assert_allclose(points[mask == 1].mean(0), points[truth].mean(0), atol=0.75)
    reach = np.abs(np.linalg.norm(points - middle, axis=-1) - RADIUS_MM)
    wrong = (mask == 1) != truth
    assert reach[wrong].max(initial=0) < 0.5 * max(3.0, *(ct_spacing, pet_spacing)[channel]) + 0.5


def ball(geometry: Geometry, middle: np.ndarray) -> np.ndarray:
    """The share of a ball in each voxel: 1 within, 0 without, linear over a voxel's width at the surface."""
    width = max(geometry.spacing_mm)
    depth = RADIUS_MM - np.linalg.norm(points_mm(geometry) - middle, axis=-1)
    return np.clip(depth / width + 0.5, 0, 1).astype(np.float32)


def test_a_pet_that_covers_half_the_ct_marks_only_that_half() -> None:
    """Two equal balls 60 mm apart, the PET reaching over one: only that one comes back, and in its place."""
    first, second = np.array([0.0, 0.0, -30.0]), np.array([0.0, 0.0, 30.0])
    ct = covering(np.zeros(3), 55.0, (1.2, 1.1, 3.0), oriented((1, 0, 2), (1.0, -1.0, -1.0), (0.1, 0.0)))
    pet = covering(second, 25.0, (4.0, 4.0, 3.0), oriented((0, 1, 2), (-1.0, 1.0, 1.0), (0.0, 0.1)))
    both = np.maximum(ball(ct, first), ball(ct, second))
    case = Case(Volume(both, ct), Volume(ball(pet, second), pet), Patient())
    mask, geometry = round_trip(case, 1)
    centre = points_mm(geometry)[mask == 1].mean(0)
    np.testing.assert_allclose(centre, second, atol=0.75)


@settings(max_examples=20)
@given(SPACINGS, DIRECTIONS)
def test_a_mask_on_its_own_grid_is_itself(spacing: tuple[float, float, float], direction: tuple[float, ...]) -> None:
    geometry = covering(np.zeros(3), 10.0, spacing, direction)
    mask = np.random.default_rng(0).integers(0, 3, geometry.array_shape).astype(np.uint8)
    np.testing.assert_array_equal(resample_mask(Volume(mask, geometry), geometry), mask)


def test_training_masks_take_the_largest_share() -> None:
    """Two voxels of 1 mm onto one of 2 mm: a label needs more than half of it."""
    source = Geometry((2, 1, 1), (1.0, 2.0, 2.0), (0.0, 0.0, 0.0))
    target = Geometry((1, 1, 1), (2.0, 2.0, 2.0), (0.5, 0.0, 0.0))

    def onto(*labels: int) -> int:
        return int(resample_mask(Volume(np.array([[labels]], np.uint8), source), target)[0, 0, 0])

    assert [onto(1, 1), onto(2, 2), onto(0, 0), onto(1, 0), onto(1, 2)] == [1, 2, 0, 0, 0]


def test_far_less_is_read_than_the_scan_holds() -> None:
    """Of a whole-body scan only what the target touches is cropped out, one voxel more on each side."""
    scan = Geometry((500, 500, 1000), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    window = grids._window(scan, Geometry((10, 10, 10), (1.0, 1.0, 1.0), (100.0, 100.0, 900.0)))
    assert window is not None
    assert max(window[1]) <= 10 + 6
