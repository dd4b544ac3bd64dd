"""Labels on the CT: only voxels that can get a label are interpolated."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from algorithm.region.grids import OUTSIDE_LOGIT, make_grid_over, resample, restore_labels
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from tests.algorithm.region.oriented_grids import DIRECTIONS, SPACINGS, find_voxel_centres_mm, make_covering_grid


def restore_naively(logits: np.ndarray, grid: Geometry, ct: Geometry) -> np.ndarray:
    """Interpolate each label's logits at every CT voxel; the largest wins, and the background wins ties."""
    values = [
        resample(Volume(part, grid), ct, OUTSIDE_LOGIT if label else -OUTSIDE_LOGIT)
        for label, part in enumerate(logits)
    ]
    return np.asarray(np.stack(values).argmax(0), dtype=np.uint8)


def make_rotated_direction(degrees: float, flip: bool) -> tuple[float, ...]:
    a = np.deg2rad(degrees)
    matrix = np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, -1 if flip else 1]])
    return tuple(float(v) for v in matrix.ravel())


spacings = st.tuples(*[st.sampled_from([0.8, 1.5, 3.0])] * 3)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    spacing=spacings,
    origin=st.tuples(*[st.floats(-20, 20)] * 3),
    degrees=st.sampled_from([0.0, 7.0, 90.0]),
    flip=st.booleans(),
)
def test_the_mask_is_equal_to_the_naive_one(
    seed: int, spacing: tuple[float, float, float], origin: tuple[float, float, float], degrees: float, flip: bool
) -> None:
    """CT voxels have at most the network's size, so no blocks are averaged and both ways compute the same sums."""
    rng = np.random.default_rng(seed)
    grid = Geometry((14, 12, 10), (3.0, 3.0, 3.0), (-18.0, -18.0, -15.0))
    logits = rng.normal(0, 1, (3, 10, 12, 14)).astype(np.float32)
    logits[0] += 3  # few voxels have a label, here and there
    ct = Geometry((20, 18, 16), spacing, origin, make_rotated_direction(degrees, flip))
    np.testing.assert_array_equal(restore_labels(logits, grid, ct), restore_naively(logits, grid, ct))


def test_ties_go_to_the_background_and_lower_labels() -> None:
    grid = make_grid_over((0, 0, 0), (9, 9, 9), (3.0, 3.0, 3.0))
    logits = np.zeros((3, *grid.array_shape), np.float32)
    assert not restore_labels(logits, grid, grid).any()
    logits[1:] = 1.0
    assert np.all(restore_labels(logits, grid, grid) == 1)


def test_a_ct_outside_the_network_grid_is_background() -> None:
    grid = make_grid_over((0, 0, 0), (9, 9, 9), (3.0, 3.0, 3.0))
    logits = np.stack([np.zeros(grid.array_shape), np.ones(grid.array_shape)]).astype(np.float32)
    assert not restore_labels(logits, grid, Geometry((5, 5, 5), (1.0, 1.0, 1.0), (100.0, 0.0, 0.0))).any()


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

    Not checked are voxels within 0.01 mm of the plane (float32) and, where the CT is coarser than the network's grid
    and logits are averaged, the outermost blocks. Beyond the network's grid all is background.
    """
    assume(np.linalg.norm(normal) > 0.1)
    unit = np.asarray(normal) / np.linalg.norm(normal)
    grid = make_grid_over((-24, -24, -24), (24, 24, 24), (3.0, 3.0, 3.0))
    ct = make_covering_grid(np.asarray(shift), 25.0, spacing, direction)
    distance = (find_voxel_centres_mm(grid) @ unit - offset).astype(np.float32)
    mask = restore_labels(np.stack([-distance, distance, np.full_like(distance, -1e3)]), grid, ct)
    assert mask.shape == ct.array_shape
    assert mask.dtype == np.uint8
    points = find_voxel_centres_mm(ct)
    depth = points @ unit - offset
    is_inner = np.all(np.abs(points) < 24 - 2.5 * max(*spacing, 3.0), axis=-1) & (np.abs(depth) > 0.01)
    np.testing.assert_array_equal(mask[is_inner], (depth > 0)[is_inner])
    assert not mask[np.any(np.abs(points) > 24 + max(*spacing, 3.0), axis=-1)].any()
