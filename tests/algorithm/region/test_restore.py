"""Only what can get a label is interpolated, and nothing is lost by it."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithm.region import grids
from algorithm.region.grids import OUTSIDE_LOGIT, make_grid_over, resample, restore_labels
from contract.images.geometry import Geometry
from contract.images.volumes import Volume


def everywhere(logits: np.ndarray, grid: Geometry, ct: Geometry) -> np.ndarray:
    """The naive way: each label's logits at every CT voxel, the largest wins, the background where it is as large."""
    values = [
        resample(Volume(part, grid), ct, OUTSIDE_LOGIT if label else -OUTSIDE_LOGIT)
        for label, part in enumerate(logits)
    ]
    return np.asarray(np.stack(values).argmax(0), dtype=np.uint8)


def turned(degrees: float, flip: bool) -> tuple[float, ...]:
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
def test_the_mask_is_that_of_the_naive_way(
    seed: int, spacing: tuple[float, float, float], origin: tuple[float, float, float], degrees: float, flip: bool
) -> None:
    """CT voxels up to the network's own size: no blocks are averaged, so that both ways compute the same sums."""
    rng = np.random.default_rng(seed)
    grid = Geometry((14, 12, 10), (3.0, 3.0, 3.0), (-18.0, -18.0, -15.0))
    logits = rng.normal(0, 1, (3, 10, 12, 14)).astype(np.float32)
    logits[0] += 3  # few voxels have a label, here and there
    ct = Geometry((20, 18, 16), spacing, origin, turned(degrees, flip))
    np.testing.assert_array_equal(restore_labels(logits, grid, ct), everywhere(logits, grid, ct))


def test_the_box_is_wider_than_the_labels_by_a_voxel_or_a_block() -> None:
    """Labels at voxels 4 to 5 of 10. On CT voxels of the same size: 3 to 6. On voxels three times as long: 1 to 8."""
    grid = Geometry((10, 10, 10), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    logits = np.zeros((3, 10, 10, 10), np.float32)
    logits[2, 4:6, 4:6, 4:6] = 1
    fine = grids._crop_to_foreground(logits, grid, grid)
    coarse = grids._crop_to_foreground(logits, grid, Geometry((4, 4, 4), (3.0, 3.0, 3.0), (0.0, 0.0, 0.0)))
    assert fine == Geometry((4, 4, 4), (1.0, 1.0, 1.0), (3.0, 3.0, 3.0))
    assert coarse == Geometry((8, 8, 8), (1.0, 1.0, 1.0), (1.0, 1.0, 1.0))


def test_ties_go_to_the_background_and_lower_labels() -> None:
    grid = make_grid_over((0, 0, 0), (9, 9, 9), (3.0, 3.0, 3.0))
    logits = np.zeros((3, *grid.array_shape), np.float32)
    assert not restore_labels(logits, grid, grid).any()
    logits[1:] = 1.0
    assert np.all(restore_labels(logits, grid, grid) == 1)


def test_a_ct_beside_the_network_grid_is_background() -> None:
    grid = make_grid_over((0, 0, 0), (9, 9, 9), (3.0, 3.0, 3.0))
    logits = np.stack([np.zeros(grid.array_shape), np.ones(grid.array_shape)]).astype(np.float32)
    assert not restore_labels(logits, grid, Geometry((5, 5, 5), (1.0, 1.0, 1.0), (100.0, 0.0, 0.0))).any()
