"""Reference extents, margins and summaries of the localisation study."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from algorithm.region.localise import Region
from benchmarks.regions import RegionCheck, RegionStudy, by_kind, reference_extent_mm, smallest_margin_mm, table
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from tests.rehearsal.phantoms.variants import KINDS

# Voxels of 2 x 3 x 5 mm; the block reaches from (-1, -1.5, -2.5) to (19, 28.5, 47.5).
GRID = Geometry((10, 10, 10), (2.0, 3.0, 5.0), (0.0, 0.0, 0.0))
# A cube of 200 x 300 x 300 mm has 18 litres.
REGION = Region((0.0, 0.0, 0.0), (200.0, 300.0, 300.0), "brain", brain_lower_mm=250.0, brain_end_is_sure=True)
CASE = RegionCheck(0, KINDS[0], True, 12.0, 5, REGION)


def mask_of(*voxels: tuple[int, int, int]) -> Volume:
    array = np.zeros(GRID.array_shape, dtype=np.uint8)
    for x, y, z in voxels:
        array[z, y, x] = 2
    return Volume(array, GRID)


def test_a_reference_reaches_to_the_outside_of_its_voxels() -> None:
    """Voxels (1, 2, 3) and (4, 2, 3): x from 2 - 1 to 8 + 1, y from 6 - 1.5 to 6 + 1.5, z from 15 - 2.5 to 15 + 2.5."""
    low, high, count = reference_extent_mm(mask_of((1, 2, 3), (4, 2, 3)))
    assert count == 2
    np.testing.assert_allclose([low, high], [[1, 4.5, 12.5], [9, 7.5, 17.5]])
    assert reference_extent_mm(mask_of())[2] == 0


@pytest.mark.parametrize(
    ("upper_x", "margin"),
    [(12.0, 3.0), (8.0, -1.0), (19.0, None)],
    ids=["clear", "cut", "at the end of the CT"],
)
def test_the_margin_is_that_of_the_nearest_face_within_the_ct(upper_x: float, margin: float | None) -> None:
    """All other faces are the CT's own ends; the reference reaches to x = 9."""
    low, high, _ = reference_extent_mm(mask_of((1, 2, 3), (4, 2, 3)))
    region = Region((-1.0, -1.5, -2.5), (upper_x, 28.5, 47.5), "test")
    assert smallest_margin_mm(region, mask_of(), low, high) == margin


def test_a_summary_for_each_kind_and_for_all() -> None:
    """Boxes of 0.09 m^2 times 200, 400 and 600 mm: 18, 36 and 54 litres; the brain was found in the first and third."""
    wider, widest = (replace(REGION, upper_mm=(width, 300.0, 300.0)) for width in (400.0, 600.0))
    second = replace(CASE, region=replace(wider, brain_lower_mm=None), margin_mm=None)
    third = replace(CASE, kind=KINDS[1], region=widest, margin_mm=-4.0, contained=False)
    rows = by_kind([CASE, second, third])
    assert list(rows) == [KINDS[0], KINDS[1], "all"]
    assert rows[KINDS[0]] == {
        "cases": 2,
        "contained": 2,
        "smallest_margin_mm": 12.0,
        "median_litres": pytest.approx(27.0),
        "largest_litres": pytest.approx(36.0),
        "sure_share": 0.5,
    }
    cells = [cell.strip() for cell in table(rows).splitlines()[-1].split("|")[1:-1]]
    assert cells == ["all", "3", "2", "-4", "36.0", "54.0", "67%"]


def test_kinds_take_turns() -> None:
    study = RegionStudy(seed=1, patients=30, coarsening=2, root=Path())
    assert [study.kind(index) for index in range(len(KINDS))] == list(KINDS)
    assert study.kind(len(KINDS)) == KINDS[0]
