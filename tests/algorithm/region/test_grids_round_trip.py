"""The way from the network's grid back to the CT is exact."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from algorithm.region.grids import grid_over, restore_labels
from contract.images.geometry import Geometry
from tests.algorithm.region.oriented_grids import DIRECTIONS, SPACINGS, covering, points_mm

NETWORK_SPACING_MM = (3.0, 3.0, 3.0)


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
