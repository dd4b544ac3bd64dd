"""Positions, sides and heights of lesions: nodes in one row of a simple body."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from algorithm.heads.measure import (
    detect_contralateral_nodes,
    measure_distances,
    measure_heights,
    measure_nodes,
    offset_mm,
    spread_mm,
)
from algorithm.heads.structure import cut_structure, find_components, measure_shape
from contract.images.geometry import Geometry
from tests.algorithm.heads.structures import WIDE, Array, find_structure, make_grid


def mark_columns(*columns: int) -> Array:
    structure = np.zeros(WIDE.array_shape, bool)
    structure[4, 4, list(columns)] = True
    return structure


def make_body() -> Array:
    """Make soft tissue from 20 to 58 mm along x, its middle at 39 mm; air around."""
    ct = np.full(WIDE.array_shape, -1000, np.float32)
    ct[:, :, 10:30] = 40
    return ct


def measure_columns(primary: Sequence[int], *nodes: Sequence[int], grid: Geometry = WIDE) -> dict[str, float | None]:
    """Measure nodes in one row of the body, one voxel thick, each at the given columns."""
    whole = mark_columns(*(column for columns in nodes for column in columns))
    return measure_nodes(cut_structure(mark_columns(*primary), grid), find_components(whole, grid), make_body(), grid)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ((), 0.0),
        ((12,), 0.0),
        ((12, 15), 0.0),
        ((12, 27), 1.0),
        ((12, 20), 0.0),  # 1 mm from the middle: neither side
        ((12, 17, 23), 1.0),
    ],
)
def test_nodes_on_both_sides(columns: tuple[int, ...], expected: float) -> None:
    assert measure_columns((), columns)["gtvn_bilateral"] == expected


def test_sides_follow_the_patient_and_not_the_array() -> None:
    """Columns run to the patient's back instead of to the left, rows to the left: nodes in one row are on one side,
    nodes in two rows on two."""
    turned = make_grid((8, 40, 8), (5.0, 2.0, 2.0), direction=(0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0))
    ct = np.full(turned.array_shape, -1000, np.float32)
    ct[:, 10:30] = 40
    across, along = np.zeros(turned.array_shape, bool), np.zeros(turned.array_shape, bool)
    across[4, [12, 27], 4] = True
    along[4, 12, [1, 6]] = True
    assert measure_nodes(None, find_components(across, turned), ct, turned)["gtvn_bilateral"] == 1.0
    assert measure_nodes(None, find_components(along, turned), ct, turned)["gtvn_bilateral"] == 0.0


def test_without_a_body_the_side_is_unknown() -> None:
    air = np.full(WIDE.array_shape, -1000, np.float32)
    primary, nodes = cut_structure(mark_columns(12), WIDE), find_components(mark_columns(17, 27), WIDE)
    values = measure_nodes(primary, nodes, air, WIDE)
    assert [values[name] for name in ("gtvn_bilateral", "gtvn_contralateral", "gtvp_midline_mm")] == [None] * 3


def test_the_midline_is_the_centre_of_the_body_in_the_lesions_slices() -> None:
    """The body's middle is at 39 mm in slice 4, at 19 mm in the others.

    A lesion at 24 mm lies 15 mm to the right of 39 mm; over slices 4 and 5 the middle is at 29 mm, and the lesion 5 mm
    to the right. In a mirrored grid a growing column
    runs to the patient's right.
    """
    ct = np.full(WIDE.array_shape, -1000, np.float32)
    ct[:, :, :20], ct[4] = 40, make_body()[4]
    one_slice, two_slices = mark_columns(12), mark_columns(12)
    two_slices[5, 4, 12] = True
    mirrored = replace(WIDE, direction=(-1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0))
    assert offset_mm(find_structure(one_slice, WIDE), ct, WIDE) == pytest.approx(-15)
    assert offset_mm(find_structure(two_slices, WIDE), ct, WIDE) == pytest.approx(-5)
    assert offset_mm(find_structure(one_slice, mirrored), ct, mirrored) == pytest.approx(15)


@pytest.mark.parametrize(
    ("primary", "nodes", "expected"),
    [
        ((12,), (), 0.0),
        ((12,), (15,), 0.0),
        ((12,), (27,), 1.0),  # a single contralateral node
        ((27,), (12,), 1.0),
        ((12,), (15, 27), 1.0),
        ((12,), (20,), 0.0),  # a node 1 mm from the midline
        ((20,), (12,), 0.0),  # a primary at the midline has no other side
        ((20,), (12, 27), 1.0),
        ((), (12, 27), None),
    ],
)
def test_nodes_on_the_other_side_than_the_primary(
    primary: tuple[int, ...], nodes: tuple[int, ...], expected: float | None
) -> None:
    assert measure_columns(primary, nodes)["gtvn_contralateral"] == expected


@pytest.mark.parametrize(
    ("primary_mm", "nodes_mm", "expected"),
    [(30.0, [-20.0, None], 1.0), (30.0, [20.0, None], None), (2.0, [20.0, None], None), (None, [20.0], None)],
)
def test_an_unknown_side_counts_only_where_it_could_decide(
    primary_mm: float | None, nodes_mm: list[float | None], expected: float | None
) -> None:
    assert detect_contralateral_nodes(primary_mm, nodes_mm) == expected


def test_the_distance_of_the_primary_from_the_midline() -> None:
    """Columns 12 and 27 are at 24 and 54 mm, the midline at 39 mm."""
    assert [measure_columns((column,), ())["gtvp_midline_mm"] for column in (12, 27)] == pytest.approx([15, 15])
    assert measure_columns((), (12,))["gtvp_midline_mm"] is None


def test_parts_below_5_mm_have_a_side_only_if_there_are_no_others() -> None:
    """Voxels have 2 mm along x and 5 mm along z. The mesh of one voxel is 5 mm long, of seven in a row 14 mm, of two in
    a row 5.4 mm: 5 mm along z and 2 mm along x between the sides of the two. On a grid of 2 mm along z a single voxel
    has 2 mm. The primary lies on the right, the small part on the left.
    """
    primary, large = [11], [12, 13, 14, 15, 16, 17, 18]
    pair = measure_columns(primary, [25, 26], large)
    assert pair["gtvn_largest_diameter_mm"] == pytest.approx(14)
    assert pair["gtvn_second_diameter_mm"] == pytest.approx(np.sqrt(5**2 + 2**2))
    assert [pair[f"gtvn_count{least}"] for least in ("", "_5mm", "_10mm")] == [2, 2, 1]
    assert pair["gtvn_contralateral"] == 1
    thin = replace(WIDE, spacing_mm=(2.0, 2.0, 2.0))
    single = measure_columns(primary, [25], large, grid=thin)
    assert single["gtvn_second_diameter_mm"] == pytest.approx(2)
    assert [single[f"gtvn_count{least}"] for least in ("", "_5mm", "_10mm")] == [2, 1, 1]
    assert (single["gtvn_bilateral"], single["gtvn_contralateral"]) == (1, 0)  # `gtvn_bilateral` counts every part
    only_small = measure_columns(primary, [25], grid=thin)
    assert (only_small["gtvn_count_5mm"], only_small["gtvn_contralateral"]) == (0, 1)
    assert only_small["gtvn_second_diameter_mm"] is None


def test_shape_of_the_largest_node() -> None:
    """Slices 2 to 5 are 5 mm thick: 20 mm along z, and one voxel across."""
    structure = np.zeros(WIDE.array_shape, bool)
    structure[2:6, 4, 12] = structure[4, 4, 27] = True
    values = measure_nodes(None, find_components(structure, WIDE), make_body(), WIDE)
    assert values["gtvn_largest_extent_z_mm"] == pytest.approx(20)
    assert values["gtvn_largest_diameter_mm"] == pytest.approx(20)
    assert (values["gtvn_largest_elongation"], values["gtvn_largest_flatness"]) == (0, 0)
    assert values["gtvn_largest_sphericity"] == measure_shape(find_components(structure, WIDE)[0])["sphericity"]


def test_heights_against_the_primary() -> None:
    """The slices are 5 mm apart: one node lies two slices above the primary and one three below. With both above, the
    lowest is -5 mm below. On a grid whose slices run downwards, above and below change places.
    """
    primary, nodes = np.zeros(WIDE.array_shape, bool), np.zeros(WIDE.array_shape, bool)
    primary[3, 4, 12] = nodes[5, 1, 20] = nodes[0, 7, 30] = True
    downwards = replace(WIDE, direction=(1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, -1.0))
    names = ["gtvn_highest_above_gtvp_mm", "gtvn_lowest_below_gtvp_mm"]
    for grid, expected in ((WIDE, [10, 15]), (downwards, [15, 10])):
        values = measure_heights(cut_structure(primary, grid), find_components(nodes, grid), grid)
        assert [values[name] for name in names] == pytest.approx(expected)
    nodes[0, 7, 30], nodes[4, 7, 30] = False, True
    assert list(
        measure_heights(cut_structure(primary, WIDE), find_components(nodes, WIDE), WIDE).values()
    ) == pytest.approx([10, -5])
    assert set(measure_heights(cut_structure(primary, WIDE), [], WIDE).values()) == {None}
    assert set(measure_heights(None, find_components(nodes, WIDE), WIDE).values()) == {None}


def test_distances_by_hand() -> None:
    """Primary at x = 0, nodes at 20 and 50 mm (columns 10 and 25), voxels 2 mm apart. Around the common centre
    70 / 3: squares 4900, 100 and 6400 over 9, mean 11400 / 27."""
    primary, nodes = mark_columns(0), mark_columns(10, 25)
    lesions = find_components(primary | nodes, WIDE)
    assert measure_distances(cut_structure(primary, WIDE), find_components(nodes, WIDE), lesions) == pytest.approx(
        {"node_to_node_mm": 30, "primary_to_node_mm": 50, "dispersion_mm": np.sqrt(11400 / 27)}
    )
    assert spread_mm(lesions) == pytest.approx(50)
    assert set(
        measure_distances(None, find_components(mark_columns(3), WIDE), find_components(mark_columns(3), WIDE)).values()
    ) == {None}
    assert spread_mm(find_components(mark_columns(3), WIDE)) == 0
