"""Area of surfaces: closed forms, and the surface-distance package on all cells and on real masks."""

from __future__ import annotations

import importlib
import math
import warnings

import numpy as np
import pytest

from contract.images.volumes import read_volume
from evaluation.metrics.areas import CORNERS, cell_areas, cell_codes
from evaluation.metrics.surface import MEASURED, compare_surfaces
from tests.shared_data import shared

SPACING = (3.0, 2.0, 1.0)


def surface_area(mask, spacing):
    return cell_areas(spacing)[cell_codes(mask)].sum()


def code_of(*corners):
    return sum(1 << CORNERS.index(corner) for corner in corners)


def test_a_single_voxel_is_an_octahedron():
    """Its surface has a triangle in each of 8 cells, with the corners 1.5, 1 and 0.5 mm along z, y and x: half the
    cross product of (-1.5, 1, 0) and (-1.5, 0, 0.5), |(0.5, 0.75, 1.5)| / 2 = 0.875 mm2.
    """
    mask = np.zeros((3, 3, 3), bool)
    mask[1, 1, 1] = True
    assert surface_area(mask, SPACING) == pytest.approx(8 * 0.875)


def test_a_block_has_flat_faces_and_bevelled_edges():
    """4 x 5 x 6 voxels of 3 x 2 x 1 mm. Between the centres of the outer voxels the faces are flat: twice
    (4 x 5) x 2 + (3 x 5) x 3 + (3 x 4) x 6 = 157 mm2. An edge's cell holds half a diagonal of a face: along z (3 cells)
    hypot(3, 6) / 2, along y (4) hypot(2, 6) / 2, along x (5) hypot(2, 3) / 2, four edges each. The 8 corners hold a
    triangle of |(2, 3, 6)| / 8 = 7/8 mm2.
    """
    edges = 3 * math.hypot(3, 6) / 2 + 4 * math.hypot(2, 6) / 2 + 5 * math.hypot(2, 3) / 2
    mask = np.ones((4, 5, 6), bool)
    assert surface_area(mask, SPACING) == pytest.approx(2 * 157 + 4 * edges + 7)


def test_pieces_in_the_unit_cell():
    """The area of each shape from its corners' coordinates, voxels of 1 mm."""
    areas = cell_areas((1.0, 1.0, 1.0))
    triangle = math.sqrt(3) / 8
    assert areas[code_of((0, 0, 0))] == pytest.approx(triangle)
    assert areas[code_of((0, 0, 0), (0, 0, 1))] == pytest.approx(math.sqrt(2) / 2)
    # A right triangle with legs of 1, and a trapezium of sides sqrt(2) and sqrt(1/2) that are sqrt(3/8) apart.
    assert areas[code_of((0, 0, 0), (0, 0, 1), (0, 1, 0))] == pytest.approx(1 / 2 + 3 * math.sqrt(3) / 8)
    assert areas[code_of((0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1))] == pytest.approx(1)
    # A regular hexagon with sides of sqrt(1/2).
    assert areas[code_of((0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0))] == pytest.approx(3 * math.sqrt(3) / 4)
    assert areas[code_of((0, 0, 0), (0, 1, 1))] == pytest.approx(2 * triangle)


def test_inside_and_outside_have_the_same_surface():
    for spacing in (SPACING, (0.7, 1.9, 0.4)):
        areas = cell_areas(spacing)
        assert areas[[0, -1]].tolist() == [0, 0]
        np.testing.assert_array_equal(areas, areas[::-1])


def test_distances_weigh_the_area_of_their_cells(rules):
    """Two rods of two voxels of 1 mm along z, the second four further. Each has three layers of four cells: triangles of
    t = sqrt(3)/8 at the ends, rectangles of m = sqrt(2)/2 between; layers are 4, 3 and 2 mm from the other rod. The mean
    is (4t + 3m + 2t) / (2t + m) = 3, and t / (2t + m) of the area lies within 2 mm. Up to 3 mm lie 81% of it.
    """
    first, second = np.zeros((9, 3, 3), bool), np.zeros((9, 3, 3), bool)
    first[1:3, 1, 1] = second[5:7, 1, 1] = True
    row = compare_surfaces(first, second, (1.0, 1.0, 1.0), rules(surface_weights="area"))
    triangle, rectangle = math.sqrt(3) / 8, math.sqrt(2) / 2
    assert (row.state, row.values["hd95_mm"], row.values["asd_mm"]) == (MEASURED, 4.0, pytest.approx(3))
    assert row.values["surface_dsc"] == pytest.approx(triangle / (2 * triangle + rectangle))
    pooled = compare_surfaces(first, second, (1.0, 1.0, 1.0), rules(surface_weights="area", hd95="pooled"))
    assert pooled.values["hd95_mm"] == 4.0


@pytest.fixture(scope="module")
def package():
    """The surface-distance package, which is written for older versions of scipy."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("surface_distance")


@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (3.27, 1.17, 1.17), (0.5, 2.0, 1.1)])
def test_all_cells_have_the_area_of_the_package(package, spacing):
    tables = importlib.import_module("surface_distance.lookup_tables")
    theirs = tables.create_table_neighbour_code_to_surface_area(spacing)
    for code, area in enumerate(cell_areas(spacing)):
        place = sum(
            int(tables.ENCODE_NEIGHBOURHOOD_3D_KERNEL[corner]) for bit, corner in enumerate(CORNERS) if code >> bit & 1
        )
        assert area == pytest.approx(theirs[place], abs=1e-12)


def theirs_of(package, first, second, spacing, tolerance_mm):
    """HD95, mean distance over the area of both surfaces, and surface DSC by the package."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        distances = package.compute_surface_distances(first, second, spacing)
        hd95 = package.compute_robust_hausdorff(distances, 95)
        there, back = package.compute_average_surface_distance(distances)
        dsc = package.compute_surface_dice_at_tolerance(distances, tolerance_mm)
    areas = [distances[f"surfel_areas_{side}"].sum() for side in ("gt", "pred")]
    return hd95, np.average([there, back], weights=areas), dsc


@pytest.mark.parametrize("seed", range(5))
def test_random_masks_give_the_figures_of_the_package(package, rules, seed):
    rng = np.random.default_rng(seed)
    first, second = rng.random((6, 9, 7)) < 0.4, rng.random((6, 9, 7)) < 0.3
    row = compare_surfaces(first, second, (3.1, 1.2, 0.9), rules(surface_weights="area"))
    expected = theirs_of(package, first, second, (3.1, 1.2, 0.9), 2.0)
    assert (row.values["hd95_mm"], row.values["asd_mm"], row.values["surface_dsc"]) == pytest.approx(expected, abs=1e-9)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["sts_petct/STS_001/CT_mask", "sts_petct/STS_035/CT_mask", "hgj_pet/PET_mask"])
@pytest.mark.parametrize("shift", [(0, 0, 0), (1, 2, -3), (-2, 5, 4)])
def test_real_masks_give_the_figures_of_the_package(package, rules, name, shift):
    """A real mask against itself, moved and without its upper half, on its own grid."""
    volume = read_volume(shared(f"data/{name}.nii.gz"))
    mask = volume.array > 0
    planes = np.flatnonzero(mask.any(axis=(1, 2)))
    moved = np.roll(mask, shift, axis=(0, 1, 2))
    moved[planes[len(planes) // 2] :] = False
    spacing = volume.geometry.array_spacing_mm
    row = compare_surfaces(mask, moved, spacing, rules(surface_weights="area"))
    expected = theirs_of(package, mask, moved, spacing, 2.0)
    assert (row.values["hd95_mm"], row.values["asd_mm"], row.values["surface_dsc"]) == pytest.approx(expected, abs=1e-6)
