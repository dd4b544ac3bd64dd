"""Each family of features on structures small or plain enough to be reckoned by hand."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.heads.features.dose import dose_on, dose_volume
from algorithm.heads.features.neighbours import neighbours
from algorithm.heads.features.nodes import nodal
from algorithm.heads.features.places import contralateral, distances, heights, offset_mm, spread_mm
from algorithm.heads.features.shape import shape
from algorithm.heads.features.structure import Structure, components, structure_of
from algorithm.heads.features.uptake import intensity_peak, thresholded
from algorithm.heads.measure import image_features
from contract.images.geometry import Geometry
from contract.images.volumes import Volume

Array = np.ndarray[Any, np.dtype[Any]]


def grid_of(shape_zyx: tuple[int, int, int], spacing: tuple[float, float, float], **more: Any) -> Geometry:
    z, y, x = shape_zyx
    return Geometry((x, y, z), spacing, (0.0, 0.0, 0.0), **more)


def ball(grid: Geometry, centre_mm: tuple[float, float, float], radius_mm: float) -> Array:
    """Voxels whose centres lie within the radius; the centre is (z, y, x) in mm from the first voxel."""
    axes = [np.arange(n) * s - c for n, s, c in zip(grid.array_shape, grid.array_spacing_mm, centre_mm, strict=True)]
    z, y, x = np.meshgrid(*axes, indexing="ij", sparse=True)
    return np.asarray(z**2 + y**2 + x**2 <= radius_mm**2)


def found(structure: Array, grid: Geometry) -> Structure:
    whole = structure_of(structure, grid)
    assert whole is not None
    return whole


# Regions


def test_a_region_is_cut_out_with_a_margin_that_ends_at_the_image() -> None:
    """Margins of 7 mm: 4 voxels of 2 mm, 2 of 5, 1 of 10."""
    grid = grid_of((4, 20, 20), (2.0, 5.0, 10.0))
    structure = np.zeros(grid.array_shape, bool)
    structure[0, 10, 10] = True
    whole = found(structure, grid)
    assert [(cut.start, cut.stop) for cut in whole.box] == [(0, 2), (8, 13), (6, 15)]
    assert whole.volume_ml == pytest.approx(0.1)
    assert whole.centre_mm.tolist() == [0, 50, 20]
    assert whole.centre_mm is whole.centre_mm  # found once, however many nodes ask for their distance from it
    assert structure_of(np.zeros_like(structure), grid) is None
    assert components(np.zeros_like(structure), grid) == []


def test_components_touch_by_corners_and_know_their_place() -> None:
    grid = grid_of((9, 9, 9), (1.0, 1.0, 1.0))
    structure = np.zeros(grid.array_shape, bool)
    structure[1, 1, 1] = structure[2, 2, 2] = structure[7, 7, 6] = True
    parts = components(structure, grid)
    assert [part.centre_mm.tolist() for part in parts] == [[1.5, 1.5, 1.5], [7, 7, 6]]
    for part in parts:
        assert part.cut(structure)[part.inside].all()


# Shape


def test_a_large_ball_is_nearly_a_sphere() -> None:
    """Radius 20 mm in voxels of 1 mm. A stepped surface is a little larger than the sphere's 5027 mm2."""
    grid = grid_of((45, 45, 45), (1.0, 1.0, 1.0))
    values = shape(found(ball(grid, (22, 22, 22), 20), grid))
    assert values["diameter_mm"] == pytest.approx(41, abs=0.5)
    assert values["sphericity"] == pytest.approx(0.95, abs=0.05)
    assert values["surface_mm2"] == pytest.approx(4 * np.pi * 20**2, rel=0.1)
    assert values["elongation"] == values["flatness"] == pytest.approx(1)


def test_a_single_voxel() -> None:
    """The mesh of one voxel of edge a is an octahedron of half axes a / 2: diameter a, volume a^3 / 6, faces
    sqrt(3) / 8 a^2 each. It has no axes."""
    grid = grid_of((3, 3, 3), (2.0, 2.0, 2.0))
    structure = np.zeros(grid.array_shape, bool)
    structure[1, 1, 1] = True
    values = shape(found(structure, grid))
    area, volume = np.sqrt(3) * 4, 8 / 6
    assert values["diameter_mm"] == pytest.approx(2)
    assert values["surface_mm2"] == pytest.approx(area)
    assert values["sphericity"] == pytest.approx((36 * np.pi * volume**2) ** (1 / 3) / area)
    assert values["elongation"] is None
    assert values["flatness"] is None


def test_a_rod_is_neither_round_nor_flat() -> None:
    """Five voxels in a row, 2 mm apart: all variance along x, and the mesh reaches half a voxel beyond."""
    grid = grid_of((3, 3, 7), (2.0, 1.0, 1.0))
    structure = np.zeros(grid.array_shape, bool)
    structure[1, 1, 1:6] = True
    values = shape(found(structure, grid))
    assert values["diameter_mm"] == pytest.approx(10)
    assert (values["elongation"], values["flatness"]) == (0, 0)


def test_nothing_has_no_shape() -> None:
    assert set(shape(None).values()) == {None}


@given(st.integers(0, 2**32 - 1))
def test_turning_a_lesion_does_not_change_its_shape(seed: int) -> None:
    rng = np.random.default_rng(seed)
    structure = rng.random((4, 5, 6)) < 0.5
    structure[1, 2, 3] = True
    spacing = (1.0, 2.0, 3.0)
    before = shape(found(structure, grid_of((4, 5, 6), spacing)))
    turned = np.ascontiguousarray(structure.transpose(2, 0, 1)[::-1])
    after = shape(found(turned, grid_of((6, 4, 5), (2.0, 3.0, 1.0))))
    assert before["diameter_mm"] == pytest.approx(after["diameter_mm"])
    assert before["elongation"] == pytest.approx(after["elongation"], abs=1e-6)
    assert before["flatness"] == pytest.approx(after["flatness"], abs=1e-6)


# Uptake


def test_thresholds_by_hand() -> None:
    """Two lesions, voxels of 0.1 ml. First: SUV 10, 4.2, 4, 2; 41% of its maximum is 4.1. Second: SUV 3, 2.5, 1;
    41% is 1.23."""
    grid = grid_of((1, 1, 9), (2.0, 5.0, 10.0))
    suv = np.array([[[10, 4.2, 4, 2, 99, 99, 3, 2.5, 1]]], np.float32)
    whole = found(suv < 50, grid)
    values = thresholded(whole, suv)
    assert values == pytest.approx(
        {
            "mtv_over_2.5_ml": 0.5,
            "tlg_over_2.5": 2.37,  # 10 + 4.2 + 4 + 3 + 2.5
            "mtv_over_4.0_ml": 0.3,
            "tlg_over_4.0": 1.82,
            "mtv_over_41pct_ml": 0.4,
            "tlg_over_41pct": 1.97,  # 10 + 4.2 and 3 + 2.5
        }
    )
    assert set(thresholded(None, suv).values()) == {0.0}
    assert set(thresholded(whole, None).values()) == {None}


@given(st.integers(0, 2**32 - 1), st.sampled_from([(1.0, 2.0, 3.0), (2.0, 2.0, 2.0), (4.0, 4.0, 9.0)]))
def test_the_peak_is_the_highest_mean_over_a_sphere(seed: int, spacing: tuple[float, float, float]) -> None:
    """Against the definition, voxel by voxel; spheres reach beyond the structure and stop at the image's end."""
    rng = np.random.default_rng(seed)
    grid = grid_of((6, 7, 8), spacing)
    image = rng.random(grid.array_shape).astype(np.float32)
    structure = rng.random(grid.array_shape) < 0.1
    structure[3, 3, 3] = True
    places = np.argwhere(np.ones_like(structure)) * grid.array_spacing_mm
    values = image.reshape(-1)
    means = [
        values[((places - place) ** 2).sum(1) <= (750 / np.pi) ** (2 / 3)].mean()
        for place in np.argwhere(structure) * grid.array_spacing_mm
    ]
    whole = found(structure, grid)
    assert intensity_peak(whole, whole.cut(image)) == pytest.approx(max(means), rel=1e-5)


# Places

WIDE = grid_of((8, 8, 40), (2.0, 2.0, 5.0))


def nodes_at(*columns: int) -> Array:
    structure = np.zeros(WIDE.array_shape, bool)
    structure[4, 4, list(columns)] = True
    return structure


def body() -> Array:
    """Soft tissue from 20 to 58 mm along x, its middle at 39 mm; air around."""
    ct = np.full(WIDE.array_shape, -1000, np.float32)
    ct[:, :, 10:30] = 40
    return ct


def measured_nodes(primary: Sequence[int], *nodes: Sequence[int], grid: Geometry = WIDE) -> dict[str, float | None]:
    """Features of nodes in one row of the body, one voxel thick, each at the given columns."""
    whole = nodes_at(*(column for columns in nodes for column in columns))
    return nodal(structure_of(nodes_at(*primary), grid), components(whole, grid), body(), grid)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ((), 0.0),
        ((12,), 0.0),
        ((12, 15), 0.0),
        ((12, 27), 1.0),
        ((12, 20), 0.0),  # 1 mm beside the middle: neither side
        ((12, 17, 23), 1.0),
    ],
)
def test_nodes_on_both_sides(columns: tuple[int, ...], expected: float) -> None:
    assert measured_nodes((), columns)["gtvn_bilateral"] == expected


def test_sides_follow_the_patient_and_not_the_array() -> None:
    """Columns run to the patient's back instead of to the left, rows to the left: nodes in one row are on one side,
    nodes in two rows on two."""
    turned = grid_of((8, 40, 8), (5.0, 2.0, 2.0), direction=(0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0))
    ct = np.full(turned.array_shape, -1000, np.float32)
    ct[:, 10:30] = 40
    across, along = np.zeros(turned.array_shape, bool), np.zeros(turned.array_shape, bool)
    across[4, [12, 27], 4] = True
    along[4, 12, [1, 6]] = True
    assert nodal(None, components(across, turned), ct, turned)["gtvn_bilateral"] == 1.0
    assert nodal(None, components(along, turned), ct, turned)["gtvn_bilateral"] == 0.0


def test_without_a_body_the_side_is_unknown() -> None:
    air = np.full(WIDE.array_shape, -1000, np.float32)
    primary, nodes = structure_of(nodes_at(12), WIDE), components(nodes_at(17, 27), WIDE)
    values = nodal(primary, nodes, air, WIDE)
    assert [values[name] for name in ("gtvn_bilateral", "gtvn_contralateral", "gtvp_midline_mm")] == [None] * 3


def test_the_midline_is_the_centre_of_the_body_in_the_lesions_slices() -> None:
    """The body's middle is at 39 mm in slice 4, at 19 mm in the others. A lesion at 24 mm lies 15 mm to the right of
    the former; over slices 4 and 5 the middle is at 29 mm, and the lesion 5 mm to the right. Where x runs to the
    patient's right, so does a growing column."""
    ct = np.full(WIDE.array_shape, -1000, np.float32)
    ct[:, :, :20], ct[4] = 40, body()[4]
    one, two = nodes_at(12), nodes_at(12)
    two[5, 4, 12] = True
    mirrored = replace(WIDE, direction=(-1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0))
    assert offset_mm(found(one, WIDE), ct, WIDE) == pytest.approx(-15)
    assert offset_mm(found(two, WIDE), ct, WIDE) == pytest.approx(-5)
    assert offset_mm(found(one, mirrored), ct, mirrored) == pytest.approx(15)


@pytest.mark.parametrize(
    ("primary", "nodes", "expected"),
    [
        ((12,), (), 0.0),
        ((12,), (15,), 0.0),
        ((12,), (27,), 1.0),  # a single contralateral node
        ((27,), (12,), 1.0),
        ((12,), (15, 27), 1.0),
        ((12,), (20,), 0.0),  # a node 1 mm beside the midline
        ((20,), (12,), 0.0),  # a primary at the midline has no other side
        ((20,), (12, 27), 1.0),
        ((), (12, 27), None),
    ],
)
def test_nodes_on_the_other_side_than_the_primary(
    primary: tuple[int, ...], nodes: tuple[int, ...], expected: float | None
) -> None:
    assert measured_nodes(primary, nodes)["gtvn_contralateral"] == expected


@pytest.mark.parametrize(
    ("primary_mm", "nodes_mm", "expected"),
    [(30.0, [-20.0, None], 1.0), (30.0, [20.0, None], None), (2.0, [20.0, None], None), (None, [20.0], None)],
)
def test_an_unknown_side_counts_only_where_it_could_decide(
    primary_mm: float | None, nodes_mm: list[float | None], expected: float | None
) -> None:
    assert contralateral(primary_mm, nodes_mm) == expected


def test_the_distance_of_the_primary_from_the_midline() -> None:
    """Columns 12 and 27 are at 24 and 54 mm, the midline at 39 mm."""
    assert [measured_nodes((column,), ())["gtvp_midline_mm"] for column in (12, 27)] == pytest.approx([15, 15])
    assert measured_nodes((), (12,))["gtvp_midline_mm"] is None


def test_parts_below_5_mm_have_a_side_only_if_there_are_no_others() -> None:
    """Voxels of 2 mm along x and 5 mm along z. The mesh of a single voxel is 5 mm long, that of seven in a row 14 mm,
    that of two in a row 5.4 mm: 5 mm along z and 2 mm along x between the sides of the two. On a grid of 2 mm along z a
    single voxel has 2 mm. The primary lies on the right, the small part on the left."""
    primary, large = [11], [12, 13, 14, 15, 16, 17, 18]
    pair = measured_nodes(primary, [25, 26], large)
    assert pair["gtvn_largest_diameter_mm"] == pytest.approx(14)
    assert pair["gtvn_second_diameter_mm"] == pytest.approx(np.sqrt(5**2 + 2**2))
    assert [pair[f"gtvn_count{least}"] for least in ("", "_5mm", "_10mm")] == [2, 2, 1]
    assert pair["gtvn_contralateral"] == 1
    thin = replace(WIDE, spacing_mm=(2.0, 2.0, 2.0))
    single = measured_nodes(primary, [25], large, grid=thin)
    assert single["gtvn_second_diameter_mm"] == pytest.approx(2)
    assert [single[f"gtvn_count{least}"] for least in ("", "_5mm", "_10mm")] == [2, 1, 1]
    assert (single["gtvn_bilateral"], single["gtvn_contralateral"]) == (1, 0)  # `gtvn_bilateral` counts every part
    alone = measured_nodes(primary, [25], grid=thin)
    assert (alone["gtvn_count_5mm"], alone["gtvn_contralateral"]) == (0, 1)
    assert alone["gtvn_second_diameter_mm"] is None


def test_shape_of_the_largest_node() -> None:
    """Slices 2 to 5 are 5 mm thick: 20 mm along z, and one voxel across."""
    structure = np.zeros(WIDE.array_shape, bool)
    structure[2:6, 4, 12] = structure[4, 4, 27] = True
    values = nodal(None, components(structure, WIDE), body(), WIDE)
    assert values["gtvn_largest_extent_z_mm"] == pytest.approx(20)
    assert values["gtvn_largest_diameter_mm"] == pytest.approx(20)
    assert (values["gtvn_largest_elongation"], values["gtvn_largest_flatness"]) == (0, 0)
    assert values["gtvn_largest_sphericity"] == shape(components(structure, WIDE)[0])["sphericity"]


def test_heights_against_the_primary() -> None:
    """Slices are 5 mm apart: a node two slices above the primary and one three below. With both above, the lowest is
    -5 mm below. On a grid whose slices run downwards above and below change places."""
    primary, nodes = np.zeros(WIDE.array_shape, bool), np.zeros(WIDE.array_shape, bool)
    primary[3, 4, 12] = nodes[5, 1, 20] = nodes[0, 7, 30] = True
    downwards = replace(WIDE, direction=(1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, -1.0))
    names = ["gtvn_highest_above_gtvp_mm", "gtvn_lowest_below_gtvp_mm"]
    for grid, expected in ((WIDE, [10, 15]), (downwards, [15, 10])):
        values = heights(structure_of(primary, grid), components(nodes, grid), grid)
        assert [values[name] for name in names] == pytest.approx(expected)
    nodes[0, 7, 30], nodes[4, 7, 30] = False, True
    assert list(heights(structure_of(primary, WIDE), components(nodes, WIDE), WIDE).values()) == pytest.approx([10, -5])
    assert set(heights(structure_of(primary, WIDE), [], WIDE).values()) == {None}
    assert set(heights(None, components(nodes, WIDE), WIDE).values()) == {None}


def test_distances_by_hand() -> None:
    """Primary at x = 0, nodes at 20 and 50 mm (columns 10 and 25), voxels 2 mm apart. Around the common centre
    70 / 3: squares 4900, 100 and 6400 over 9, mean 11400 / 27."""
    primary, nodes = nodes_at(0), nodes_at(10, 25)
    lesions = components(primary | nodes, WIDE)
    assert distances(structure_of(primary, WIDE), components(nodes, WIDE), lesions) == pytest.approx(
        {"node_to_node_mm": 30, "primary_to_node_mm": 50, "dispersion_mm": np.sqrt(11400 / 27)}
    )
    assert spread_mm(lesions) == pytest.approx(50)
    assert set(distances(None, components(nodes_at(3), WIDE), components(nodes_at(3), WIDE)).values()) == {None}
    assert spread_mm(components(nodes_at(3), WIDE)) == 0


# Bone and air

# Voxels of 3 mm: what shares a face is in reach, what shares an edge is 4.2 mm away.
CUBES = grid_of((7, 7, 7), (3.0, 3.0, 3.0))


def cube() -> Array:
    """27 voxels, of which 26 are at the surface."""
    structure = np.zeros(CUBES.array_shape, bool)
    structure[2:5, 2:5, 2:5] = True
    return structure


def test_bone_and_air_at_the_surface_by_hand() -> None:
    """Bone covers the nine voxels of one side of the cube; air touches one voxel of the opposite side. Muscle of 250
    HU is no bone. A voxel is 0.027 ml."""
    ct = np.full(CUBES.array_shape, 250, np.float32)
    ct[5, 2:5, 2:5], ct[1, 3, 3] = 251, -501
    expected = {"bone_contact": 9 / 26, "air_contact": 1 / 26, "bone_ml": 9 * 0.027}
    assert neighbours(found(cube(), CUBES), ct) == pytest.approx(expected)


def test_bone_that_shares_only_an_edge_or_lies_further_away_is_no_contact() -> None:
    ct = np.zeros(CUBES.array_shape, np.float32)
    ct[5, 5, 3] = ct[6] = 1000
    assert set(neighbours(found(cube(), CUBES), ct).values()) == {0.0}


def test_bone_that_a_tumour_has_invaded_lies_within_it() -> None:
    """The central voxel of one side: itself, its four neighbours in the side; the one behind it is not at the
    surface."""
    ct = np.zeros(CUBES.array_shape, np.float32)
    ct[4, 3, 3] = 1000
    values = neighbours(found(cube(), CUBES), ct)
    assert values == pytest.approx({"bone_contact": 5 / 26, "air_contact": 0, "bone_ml": 0.027})


def test_reach_is_3_mm_on_a_fine_grid() -> None:
    """A single voxel, 1 mm apart in a row: bone in the third voxel beside it is in reach, in the fourth not."""
    grid = grid_of((1, 1, 9), (1.0, 1.0, 1.0))
    structure = np.zeros(grid.array_shape, bool)
    structure[0, 0, 4] = True
    for column, expected in ((7, 1.0), (8, 0.0), (1, 1.0)):
        ct = np.zeros(grid.array_shape, np.float32)
        ct[0, 0, column] = 1000
        values = neighbours(found(structure, grid), ct)
        assert values == pytest.approx({"bone_contact": expected, "air_contact": 0, "bone_ml": expected / 1000})


def test_nothing_touches_nothing() -> None:
    assert set(neighbours(None, np.zeros(CUBES.array_shape, np.float32)).values()) == {None}


def test_extents_by_hand() -> None:
    """Two slices of 5 mm, three rows of 2 mm and four columns of 2 mm, at the edge of the grid."""
    structure = np.zeros(WIDE.array_shape, bool)
    structure[0, 0:3, 0], structure[1, 1, 0:4] = True, True
    assert found(structure, WIDE).extent_mm == (10.0, 6.0, 8.0)
    image = np.zeros(WIDE.array_shape, np.float32)
    features = image_features(structure.astype(np.uint8), image, image, WIDE)
    assert [features[f"gtvp_extent_{axis}_mm"] for axis in "zyx"] == [10, 6, 8]


# Dose


def test_dose_by_hand() -> None:
    """Doses 1 to 100 Gy in a hundred voxels: the 5th percentile lies at 0.05 x 99 + 1."""
    grid = grid_of((4, 5, 5), (1.0, 1.0, 1.0))
    dose = np.arange(1, 101, dtype=np.float32).reshape(grid.array_shape)
    whole = found(np.ones(grid.array_shape, bool), grid)
    assert dose_volume(whole, dose) == pytest.approx(
        {"dose_mean_gy": 50.5, "dose_d95_gy": 5.95, "dose_v60_share": 0.41, "dose_v66_share": 0.35}
    )
    assert set(dose_volume(None, dose).values()) == set(dose_volume(whole, None).values()) == {None}


def test_a_dose_is_brought_onto_the_grid_and_unknown_beyond() -> None:
    """The dose rises by 1 Gy a mm along x from x = 10 mm on its own grid of 4 mm, and ends at 30 mm."""
    coarse = Geometry((6, 3, 3), (4.0, 4.0, 4.0), (10.0, 0.0, 0.0))
    ramp = np.broadcast_to(np.arange(10, 34, 4, dtype=np.float32), coarse.array_shape)
    dose = Volume(np.ascontiguousarray(ramp), coarse)
    grid = Geometry((30, 4, 4), (1.0, 2.0, 2.0), (5.0, 0.0, 0.0))
    here = dose_on(dose, grid)
    x = 5.0 + np.arange(30)
    known = (x >= 10) & (x <= 30)
    assert here[1, 1, known] == pytest.approx(x[known], abs=1e-4)
    assert np.isnan(here[1, 1, x < 7]).all()
    mask = np.zeros(grid.array_shape, np.uint8)
    mask[1, 1, (x >= 12) & (x <= 16)], mask[2, 2, x <= 12] = 1, 2
    image = np.zeros(grid.array_shape, np.float32)
    features = image_features(mask, image, image, grid, dose)
    assert features["gtvp_dose_mean_gy"] == pytest.approx(14, abs=1e-4)
    assert features["gtvn_dose_mean_gy"] is None
    assert image_features(mask, image, image, grid)["gtvp_dose_mean_gy"] is None


def test_a_patient_takes_well_under_a_second() -> None:
    """A large tumour and three nodes on a fine grid of 12 million voxels."""
    grid = grid_of((310, 200, 200), (1.0, 1.0, 1.0))
    mask = np.zeros(grid.array_shape, np.uint8)
    for place, radius, label in (((150, 100, 80), 22, 1), ((150, 90, 40), 15, 2), ((100, 100, 160), 12, 2)):
        mask[ball(grid, place, radius)] = label
    ct, pet = np.full(grid.array_shape, 40, np.float32), np.full(grid.array_shape, 5, np.float32)
    image_features(mask[:60, :60, :60], ct[:60, :60, :60], pet[:60, :60, :60], grid_of((60, 60, 60), (1.0, 1.0, 1.0)))
    begun = time.process_time()  # what other processes take of the machine does not count
    features = image_features(mask, ct, pet, grid)
    assert time.process_time() - begun < 3
    assert features["suv_peak"] == pytest.approx(5)
    assert features["gtvn_bilateral"] == 1.0
