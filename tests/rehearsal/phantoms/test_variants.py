"""Scan variants: images and headers change as described, and lesions stay in view."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import PhantomCase, coarsen_protocol, make_case
from rehearsal.phantoms.rendering import Rendered
from tests.rehearsal.phantoms import rearranged
from tests.rehearsal.phantoms.variants import vary


def coarse_case(index: int = 0) -> PhantomCase:
    case = make_case(17, index, CENTRES)
    return replace(case, protocol=coarsen_protocol(case.protocol, 8))


def numbered(size: tuple[int, int, int], origin_mm: tuple[float, float, float]) -> Volume:
    """Every voxel its own value."""
    grid = Geometry(size, (2.0, 3.0, 5.0), origin_mm)
    return Volume(np.arange(grid.voxel_count, dtype=np.int32).reshape(grid.array_shape), grid)


def values_at(volume: Volume, points_mm: np.ndarray) -> np.ndarray:
    """The voxels whose centres are these LPS points, exactly."""
    matrix = volume.geometry.physical_to_index_matrix()
    index = points_mm @ matrix[:3, :3].T + matrix[:3, 3]
    np.testing.assert_allclose(index, np.rint(index), atol=1e-6)
    x, y, z = np.rint(index).astype(int).T
    return np.asarray(volume.array[z, y, x])


def centres_mm(volume: Volume) -> np.ndarray:
    index = np.argwhere(np.ones(volume.array.shape, dtype=bool))[:, ::-1]
    matrix = volume.geometry.index_to_physical_matrix()
    return np.asarray(index @ matrix[:3, :3].T + matrix[:3, 3])


@given(seed=st.integers(0, 10_000))
def test_reordered_voxels_keep_their_places(seed: int) -> None:
    ct, pet = numbered((4, 3, 5), (-10.0, 7.0, 40.0)), numbered((3, 6, 2), (1.0, 2.0, 3.0))
    scan = rearranged.reordered_at_random(Rendered(ct, pet, ct, None, None), np.random.default_rng(seed))
    for before, after in ((ct, scan.ct), (ct, scan.mask), (pet, scan.pet)):
        np.testing.assert_array_equal(values_at(after, centres_mm(before)), before.array.ravel())


def test_an_oblique_grid_is_tilted_and_covers_the_scan() -> None:
    """The mask's volume stays within 5%, and the scan's eight corners lie on the new grid."""
    case = coarse_case(5)
    scan = vary(case, "head and neck", np.random.default_rng(1))
    tilted = rearranged.oblique_at_random(scan, np.random.default_rng(2))
    axes = np.asarray(tilted.ct.geometry.direction).reshape(3, 3)
    assert np.degrees(np.arccos((np.trace(axes) - 1) / 2)) >= 5
    matrix = tilted.ct.geometry.physical_to_index_matrix()
    index = scan.ct.geometry.corners_mm() @ matrix[:3, :3].T + matrix[:3, 3]
    assert (index >= -0.5 - 1e-6).all()
    assert (index <= np.asarray(tilted.ct.geometry.size) - 0.5 + 1e-6).all()
    volumes = [np.count_nonzero(one.mask.array) * one.mask.geometry.voxel_volume_mm3 for one in (scan, tilted)]
    assert volumes[1] == pytest.approx(volumes[0], rel=0.05)
