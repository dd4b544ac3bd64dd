"""Features of structures that are small enough to be computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.heads.measure import measure_contacts, measure_image_features
from algorithm.heads.structure import (
    cut_structure,
    dose_volume,
    find_components,
    intensity_peak,
    measure_shape,
    measure_thresholds,
    resample_dose,
)
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from tests.algorithm.heads.structures import WIDE, Array, find_structure, make_grid

# Regions


def test_a_region_is_cut_out_with_a_margin_that_ends_at_the_image() -> None:
    """Margins of 7 mm: 4 voxels of 2 mm, 2 of 5, 1 of 10."""
    grid = make_grid((4, 20, 20), (2.0, 5.0, 10.0))
    structure = np.zeros(grid.array_shape, bool)
    structure[0, 10, 10] = True
    whole = find_structure(structure, grid)
    assert [(cut.start, cut.stop) for cut in whole.box] == [(0, 2), (8, 13), (6, 15)]
    assert whole.volume_ml == pytest.approx(0.1)
    assert whole.centre_mm.tolist() == [0, 50, 20]
    assert whole.centre_mm is whole.centre_mm  # computed once, however many nodes ask for their distance from it
    assert cut_structure(np.zeros_like(structure), grid) is None
    assert find_components(np.zeros_like(structure), grid) == []


def test_components_touch_by_corners_and_know_their_place() -> None:
    grid = make_grid((9, 9, 9), (1.0, 1.0, 1.0))
    structure = np.zeros(grid.array_shape, bool)
    structure[1, 1, 1] = structure[2, 2, 2] = structure[7, 7, 6] = True
    parts = find_components(structure, grid)
    assert [part.centre_mm.tolist() for part in parts] == [[1.5, 1.5, 1.5], [7, 7, 6]]
    for part in parts:
        assert part.cut(structure)[part.inside].all()


# Shape


def test_a_single_voxel() -> None:
    """For a voxel of edge a the mesh is an octahedron of half axes a / 2: diameter a, volume a^3 / 6, faces sqrt(3) / 8
    a^2 each. It has no axes.
    """
    grid = make_grid((3, 3, 3), (2.0, 2.0, 2.0))
    structure = np.zeros(grid.array_shape, bool)
    structure[1, 1, 1] = True
    values = measure_shape(find_structure(structure, grid))
    area, volume = np.sqrt(3) * 4, 8 / 6
    assert values["diameter_mm"] == pytest.approx(2)
    assert values["surface_mm2"] == pytest.approx(area)
    assert values["sphericity"] == pytest.approx((36 * np.pi * volume**2) ** (1 / 3) / area)
    assert values["elongation"] is None
    assert values["flatness"] is None


@given(st.integers(0, 2**32 - 1))
def test_turning_a_lesion_does_not_change_its_shape(seed: int) -> None:
    rng = np.random.default_rng(seed)
    structure = rng.random((4, 5, 6)) < 0.5
    structure[1, 2, 3] = True
    spacing = (1.0, 2.0, 3.0)
    before = measure_shape(find_structure(structure, make_grid((4, 5, 6), spacing)))
    turned = np.ascontiguousarray(structure.transpose(2, 0, 1)[::-1])
    after = measure_shape(find_structure(turned, make_grid((6, 4, 5), (2.0, 3.0, 1.0))))
    assert before["diameter_mm"] == pytest.approx(after["diameter_mm"])
    assert before["elongation"] == pytest.approx(after["elongation"], abs=1e-6)
    assert before["flatness"] == pytest.approx(after["flatness"], abs=1e-6)


# Uptake


def test_thresholds_by_hand() -> None:
    """Two lesions, voxels of 0.1 ml. First: SUV 10, 4.2, 4, 2; 41% of its maximum is 4.1. Second: SUV 3, 2.5, 1;
    41% is 1.23."""
    grid = make_grid((1, 1, 9), (2.0, 5.0, 10.0))
    suv = np.array([[[10, 4.2, 4, 2, 99, 99, 3, 2.5, 1]]], np.float32)
    whole = find_structure(suv < 50, grid)
    values = measure_thresholds(whole, suv)
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
    assert set(measure_thresholds(None, suv).values()) == {0.0}
    assert set(measure_thresholds(whole, None).values()) == {None}


@given(st.integers(0, 2**32 - 1), st.sampled_from([(1.0, 2.0, 3.0), (2.0, 2.0, 2.0), (4.0, 4.0, 9.0)]))
def test_the_peak_is_the_highest_mean_over_a_sphere(seed: int, spacing: tuple[float, float, float]) -> None:
    """Compare with the definition, voxel by voxel; spheres reach beyond the structure and stop at the image's end."""
    rng = np.random.default_rng(seed)
    grid = make_grid((6, 7, 8), spacing)
    image = rng.random(grid.array_shape).astype(np.float32)
    structure = rng.random(grid.array_shape) < 0.1
    structure[3, 3, 3] = True
    places = np.argwhere(np.ones_like(structure)) * grid.array_spacing_mm
    values = image.reshape(-1)
    means = [
        values[((places - place) ** 2).sum(1) <= (750 / np.pi) ** (2 / 3)].mean()
        for place in np.argwhere(structure) * grid.array_spacing_mm
    ]
    whole = find_structure(structure, grid)
    assert intensity_peak(whole, whole.cut(image)) == pytest.approx(max(means), rel=1e-5)


# Bone and air

# Voxels of 3 mm: a voxel that shares a face is in reach, a voxel that shares an edge is 4.2 mm away.
CUBES = make_grid((7, 7, 7), (3.0, 3.0, 3.0))


def make_cube() -> Array:
    """Make 27 voxels; 26 are at the surface."""
    structure = np.zeros(CUBES.array_shape, bool)
    structure[2:5, 2:5, 2:5] = True
    return structure


Place = tuple[int | slice, ...]
SIDE = slice(2, 5)


@pytest.mark.parametrize(
    ("places", "bone", "air", "bone_voxels"),
    [
        # Bone covers one side of the cube, air touches one voxel of the opposite side. Muscle of 250 HU is no bone.
        ([((5, SIDE, SIDE), 251), ((1, 3, 3), -501)], 9, 1, 9),
        # Bone that shares only an edge or lies further away is no contact.
        ([((5, 5, 3), 1000), ((6,), 1000)], 0, 0, 0),
        # Bone that a tumour has invaded, in the middle of one side, counts for this voxel and its four neighbours in
        # the side. The voxel behind it is not at the surface.
        ([((4, 3, 3), 1000)], 5, 0, 1),
    ],
)
def test_bone_and_air_at_the_surface_by_hand(
    places: list[tuple[Place, float]], bone: int, air: int, bone_voxels: int
) -> None:
    """Contacts are shares of the 26 voxels at the surface; a voxel is 0.027 ml."""
    ct = np.full(CUBES.array_shape, 250, np.float32)
    for place, hu in places:
        ct[place] = hu
    expected = {"bone_contact": bone / 26, "air_contact": air / 26, "bone_ml": bone_voxels * 0.027}
    assert measure_contacts(find_structure(make_cube(), CUBES), ct) == pytest.approx(expected)


def test_reach_is_3_mm_on_a_fine_grid() -> None:
    """On a row of voxels 1 mm apart, bone in the third voxel from a lesion's voxel is in reach, in the fourth not."""
    grid = make_grid((1, 1, 9), (1.0, 1.0, 1.0))
    structure = np.zeros(grid.array_shape, bool)
    structure[0, 0, 4] = True
    for column, expected in ((7, 1.0), (8, 0.0), (1, 1.0)):
        ct = np.zeros(grid.array_shape, np.float32)
        ct[0, 0, column] = 1000
        values = measure_contacts(find_structure(structure, grid), ct)
        assert values == pytest.approx({"bone_contact": expected, "air_contact": 0, "bone_ml": expected / 1000})


def test_extents_by_hand() -> None:
    """Two slices of 5 mm, three rows of 2 mm and four columns of 2 mm, at the edge of the grid."""
    structure = np.zeros(WIDE.array_shape, bool)
    structure[0, 0:3, 0], structure[1, 1, 0:4] = True, True
    assert find_structure(structure, WIDE).extent_mm == (10.0, 6.0, 8.0)
    image = np.zeros(WIDE.array_shape, np.float32)
    features = measure_image_features(structure.astype(np.uint8), image, image, WIDE)
    assert [features[f"gtvp_extent_{axis}_mm"] for axis in "zyx"] == [10, 6, 8]


# Dose


def test_dose_by_hand() -> None:
    """Doses are 1 to 100 Gy in a hundred voxels: the 5th percentile lies at 0.05 x 99 + 1."""
    grid = make_grid((4, 5, 5), (1.0, 1.0, 1.0))
    dose = np.arange(1, 101, dtype=np.float32).reshape(grid.array_shape)
    whole = find_structure(np.ones(grid.array_shape, bool), grid)
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
    here = resample_dose(dose, grid)
    x = 5.0 + np.arange(30)
    known = (x >= 10) & (x <= 30)
    assert here[1, 1, known] == pytest.approx(x[known], abs=1e-4)
    assert np.isnan(here[1, 1, x < 7]).all()
    mask = np.zeros(grid.array_shape, np.uint8)
    mask[1, 1, (x >= 12) & (x <= 16)], mask[2, 2, x <= 12] = 1, 2
    image = np.zeros(grid.array_shape, np.float32)
    features = measure_image_features(mask, image, image, grid, dose)
    assert features["gtvp_dose_mean_gy"] == pytest.approx(14, abs=1e-4)
    assert features["gtvn_dose_mean_gy"] is None
    assert measure_image_features(mask, image, image, grid)["gtvp_dose_mean_gy"] is None
