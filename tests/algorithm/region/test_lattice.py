"""Networks' grids lie on nnU-Net's grid of the whole scan."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnunetv2.preprocessing.resampling.default_resampling import compute_new_shape

from algorithm.region.grids import (
    crop_to_box,
    find_first_voxel,
    make_grid_over,
    make_scan_grid,
    make_upright_grid,
    reorient,
)
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from tests.algorithm.region.oriented_grids import DIRECTIONS, SPACINGS, find_voxel_centres_mm, make_direction

SCANS = st.builds(
    Geometry, st.tuples(*[st.integers(1, 40)] * 3), SPACINGS, st.tuples(*[st.floats(-300, 300)] * 3), DIRECTIONS
)
NEW_SPACINGS = st.tuples(*[st.floats(0.5, 6)] * 3)


def find_index(grid: Geometry, points: np.ndarray) -> np.ndarray:
    matrix = grid.physical_to_index_matrix()
    return np.asarray(points @ matrix[:3, :3].T + matrix[:3, 3])


def test_by_hand() -> None:
    """Ten voxels of 2 mm are 20 mm, at 3 mm round(6.67) = 7 voxels of 20 / 7 mm; the faces stay at -1 and 19 mm.

    Voxel centres begin half a voxel from the face, at -1 + 10 / 7. The box from 4 to 9 mm begins in voxel floor(5 / (20
    / 7)) = 1 and ends in voxel ceil(10 / (20 / 7)) - 1 = 3.
    """
    scan = Geometry((10, 10, 10), (2.0, 2.0, 2.0), (0.0, 0.0, 0.0))
    whole = make_scan_grid(scan, (3.0, 3.0, 3.0))
    assert whole.size == (7, 7, 7)
    assert whole.spacing_mm == pytest.approx([20 / 7] * 3)
    assert whole.origin_mm == pytest.approx([-1 + 10 / 7] * 3)
    part = crop_to_box(whole, (4, 4, 4), (9, 9, 9))
    assert (find_first_voxel(part, whole), part.size) == ((1, 1, 1), (3, 3, 3))
    assert part.origin_mm == pytest.approx([-1 + 1.5 * 20 / 7] * 3)


def test_a_scan_with_the_networks_spacing_is_its_own_lattice() -> None:
    scan = Geometry((12, 9, 7), (3.0, 3.0, 3.0), (0.3, -0.7, 11.0))
    grid = make_upright_grid(scan, (2, 2, 12), (20, 18, 25), (3.0, 3.0, 3.0))
    assert find_index(scan, np.array(grid.origin_mm)) == pytest.approx(
        np.rint(find_index(scan, np.array(grid.origin_mm)))
    )


@given(SCANS, NEW_SPACINGS)
def test_the_whole_lattice_has_nnunets_shape_and_the_scans_faces(
    scan: Geometry, spacing: tuple[float, float, float]
) -> None:
    whole = make_scan_grid(scan, spacing)
    shape = compute_new_shape(scan.array_shape, scan.array_spacing_mm, spacing[::-1])
    np.testing.assert_array_equal(whole.array_shape, np.maximum(shape, 1))
    np.testing.assert_allclose(whole.corners_mm(), scan.corners_mm(), atol=1e-6)


@given(SCANS, NEW_SPACINGS, st.tuples(*[st.floats(-350, 350)] * 3), st.tuples(*[st.floats(1, 120)] * 3), st.booleans())
def test_the_lattice_of_a_crop_is_part_of_the_lattice_of_the_whole(
    scan: Geometry,
    spacing: tuple[float, float, float],
    lower: tuple[float, ...],
    extent: tuple[float, ...],
    is_part: bool,
) -> None:
    """Voxels of the crop are voxels of the whole, and the scan's points in the box are in the crop."""
    low = np.asarray(scan.corners_mm().min(0) if is_part else lower)
    whole = make_scan_grid(scan, spacing)
    part = crop_to_box(whole, low, low + extent)
    index = find_index(whole, find_voxel_centres_mm(part)).reshape(-1, 3)
    np.testing.assert_allclose(index, np.rint(index), atol=1e-6)
    assert tuple(np.rint(index).min(0)[::-1]) == find_first_voxel(part, whole)
    assert np.all(np.rint(index).max(0) < whole.size)
    points = find_voxel_centres_mm(scan).reshape(-1, 3)
    inside = points[np.all((points > low) & (points < low + extent), axis=1)]
    in_crop = find_index(part, inside)
    assert np.all((in_crop > -0.5 - 1e-6) & (in_crop < np.asarray(part.size) - 0.5 + 1e-6))


@given(SCANS, NEW_SPACINGS)
def test_the_upright_grid_has_lps_axes_for_every_scan(scan: Geometry, spacing: tuple[float, float, float]) -> None:
    corners = scan.corners_mm()
    grid = make_upright_grid(scan, corners.min(0), corners.max(0), spacing)
    assert grid.direction == (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
    upright = np.abs(np.abs(np.asarray(scan.direction)) - 0.5).min() > 0.499
    if upright:
        np.testing.assert_allclose(grid.corners_mm()[[0, -1]], [corners.min(0), corners.max(0)], atol=1e-6)
    else:
        assert grid == make_grid_over(corners.min(0), corners.max(0), spacing)


@given(SCANS)
def test_an_oriented_scan_has_the_same_values_in_the_same_places(scan: Geometry) -> None:
    rng = np.random.default_rng(0)
    volume = Volume(rng.integers(0, 1000, scan.array_shape), scan)
    turned = reorient(volume)
    index = np.rint(find_index(scan, find_voxel_centres_mm(turned.geometry))).astype(int)
    np.testing.assert_allclose(find_index(scan, find_voxel_centres_mm(turned.geometry)), index, atol=1e-6)
    np.testing.assert_array_equal(volume.array[index[..., 2], index[..., 1], index[..., 0]], turned.array)
    assert np.shares_memory(turned.array, volume.array)
    axes = np.asarray(turned.geometry.direction).reshape(3, 3)
    assert np.diag(axes).min() > 0.7


def test_the_first_voxel_of_a_part() -> None:
    scan = Geometry((9, 8, 7), (1.0, 2.0, 3.0), (4.0, 5.0, 6.0), make_direction((0, 1, 2), (1.0, 1.0, 1.0), (0.3, 0.1)))
    assert find_first_voxel(scan.crop((2, 3, 1), (4, 4, 4)), scan) == (1, 3, 2)
