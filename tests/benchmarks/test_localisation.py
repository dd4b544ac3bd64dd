"""The study's arithmetic: what counts as contained, how near a face is, and how cases are summed up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from algorithm.region.localise import Region
from benchmarks.localisation import Found, Study, by_kind, reference_extent_mm, smallest_margin_mm, table
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from rehearsal.phantoms.variants import KINDS

# Voxels of 2 x 3 x 5 mm; the block reaches from (-1, -1.5, -2.5) to (19, 28.5, 47.5).
GRID = Geometry((10, 10, 10), (2.0, 3.0, 5.0), (0.0, 0.0, 0.0))
CASE = Found(
    case=0,
    kind=KINDS[0],
    contained=True,
    margin_mm=12.0,
    volume_litres=18.0,
    sure=True,
    found_by="brain case",
    reference_voxels=5,
    lower_mm=(0.0, 0.0, 0.0),
    upper_mm=(1.0, 1.0, 1.0),
    reference_lower_mm=(0.0, 0.0, 0.0),
    reference_upper_mm=(1.0, 1.0, 1.0),
)


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
    """Litres 18, 22 and 30: median 20 of the first kind's two, 22 of all three."""
    second = replace(CASE, volume_litres=22.0, margin_mm=None, sure=False)
    third = replace(CASE, kind=KINDS[1], volume_litres=30.0, margin_mm=-4.0, contained=False)
    rows = by_kind([CASE, second, third])
    assert list(rows) == [KINDS[0], KINDS[1], "all"]
    assert rows[KINDS[0]] == {
        "cases": 2,
        "contained": 2,
        "smallest_margin_mm": 12.0,
        "median_litres": 20.0,
        "largest_litres": 22.0,
        "sure_share": 0.5,
    }
    assert (rows["all"]["contained"], rows["all"]["smallest_margin_mm"], rows["all"]["median_litres"]) == (2, -4.0, 22)
    assert "| all | 3 | 2 | -4 | 22.0 | 30.0 | 67% |" in table(rows)


def test_kinds_take_turns() -> None:
    study = Study(seed=1, patients=30, coarsening=2)
    assert [study.kind(index) for index in range(len(KINDS))] == list(KINDS)
    assert study.kind(len(KINDS)) == KINDS[0]
