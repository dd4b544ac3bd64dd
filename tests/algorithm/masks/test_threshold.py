from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from algorithm.case.read import Case
from algorithm.masks.segmentation import label_largest_as_primary, segment_by_threshold
from algorithm.region.localise import Region
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from contract.patient import Patient

GRID = Geometry((30, 30, 40), (3.0, 3.0, 3.0), (0.0, 0.0, 0.0))
EVERYWHERE = Region((-1.5, -1.5, -1.5), (88.5, 88.5, 118.5), "test")


def make_case(pet: np.ndarray | None) -> Case:
    ct = Volume(np.zeros(GRID.array_shape, np.int16), GRID)
    return Case(ct, None if pet is None else Volume(pet.astype(np.float32), GRID), Patient())


def test_the_largest_part_is_primary_and_specks_are_left_out() -> None:
    """Voxels of 0.1 ml: parts of 8, 4, 3 and 2 voxels are 0.8, 0.4, 0.3 and 0.2 ml; the last is under 0.3 ml."""
    hot = np.zeros((3, 3, 30), dtype=bool)
    hot[0, 0, 0:2] = True
    hot[0, 0, 5:8] = True
    hot[0, 0, 11:15] = True
    hot[0:2, 0:2, 20:22] = True
    mask = label_largest_as_primary(hot, 100.0)
    assert [int(mask[0, 0, x]) for x in (0, 5, 11, 20)] == [0, 2, 2, 1]
    assert np.count_nonzero(mask) == 15


def test_a_part_of_exactly_the_minimum_volume_is_kept() -> None:
    """3 voxels of 100 mm3 are 0.3 ml, also with a spacing in single precision, which is up to 6e-8 off."""
    hot = np.ones((1, 1, 3), dtype=bool)
    assert label_largest_as_primary(hot, 100.0 * (1 - 6e-8) ** 3).all()
    assert not label_largest_as_primary(hot, 99.9).any()


def test_corners_connect() -> None:
    hot = np.zeros((4, 4, 4), dtype=bool)
    hot[[0, 1, 2], [0, 1, 2], [0, 1, 2]] = True
    assert np.count_nonzero(label_largest_as_primary(hot, 100.0) == 1) == 3
    assert not label_largest_as_primary(np.zeros((3, 3, 3), dtype=bool), 100.0).any()


def test_everything_above_41_percent_of_the_highest_uptake() -> None:
    """Two cubes of 5^3 voxels of 27 mm3, 3.4 ml each, at 100 and 42, and one at 40."""
    pet = np.ones(GRID.array_shape)
    pet[5:10, 5:10, 5:10] = 100
    pet[5:10, 5:10, 15:20] = 42
    pet[20:25, 5:10, 5:10] = 40
    mask = segment_by_threshold(make_case(pet), EVERYWHERE).mask_on(GRID)
    np.testing.assert_array_equal(mask > 0, pet >= 41)


def make_region_with_brain(top_mm: float = 118.5) -> Region:
    """Make a brain of 5 x 13 x 13 voxels in slices 30 to 34, x and y 8 to 20; its lower end is at 88.5 mm."""
    mask = np.zeros(GRID.array_shape, dtype=np.uint8)
    mask[30:35, 8:21, 8:21] = 1
    return replace(EVERYWHERE, upper_mm=(88.5, 88.5, top_mm), brain_lower_mm=88.5, brain=Volume(mask, GRID))


@pytest.mark.parametrize("top_mm", [118.5, 109.5])
def test_the_brain_and_what_is_blurred_around_it_are_left_out(top_mm: float) -> None:
    """Uptake one voxel below the brain is within 12 mm of it; a tumour 6 voxels from its lower end is not."""
    pet = np.ones(GRID.array_shape)
    pet[29:36, 8:21, 8:21] = 30
    pet[30:33, 10:14, 26:29] = 12
    mask = segment_by_threshold(make_case(pet), make_region_with_brain(top_mm)).mask_on(GRID)
    np.testing.assert_array_equal(mask == 1, pet == 12)


def test_hot_tissue_high_above_the_lower_end_of_the_brain_is_no_lesion() -> None:
    """Slice 20 lies at 60 mm, the lower end of the brain at 10 mm: 50 mm above it, more than 45."""
    pet = np.ones(GRID.array_shape)
    pet[20:23, 10:14, 26:29] = 12
    pet[10:13, 10:14, 26:29] = 6
    region = replace(make_region_with_brain(), brain_lower_mm=10.0)
    mask = segment_by_threshold(make_case(pet), region).mask_on(GRID)
    np.testing.assert_array_equal(mask == 1, pet == 6)


def test_a_hot_lesion_of_the_chest_neither_hides_a_node_of_the_neck_nor_is_it_one() -> None:
    """The lungs' apices lie at 60 mm. A mass of SUV 38 below 24 mm, more than 30 mm lower, blurs up to SUV 20 at 57 mm.

    From SUV 20 the level would be 8.2 and the node at SUV 7 lost. The level is 41% of the node's 7, which is 2.9.
    """
    pet = np.ones(GRID.array_shape)
    pet[:8, 8:20, 8:20] = 38
    pet[8:20, 8:20, 8:20] = 20
    pet[25:28, 22:26, 22:26] = 7
    mask = segment_by_threshold(make_case(pet), replace(EVERYWHERE, apex_mm=60.0)).mask_on(GRID)
    np.testing.assert_array_equal(mask == 1, pet == 7)


def test_a_node_just_below_the_lung_apices_is_a_lesion() -> None:
    """Its 4 slices from 36 to 45 mm lie at most 24 mm below the apices at 60 mm."""
    pet = np.ones(GRID.array_shape)
    pet[25:28, 22:26, 22:26] = 7
    pet[12:16, 5:9, 5:9] = 5
    mask = segment_by_threshold(make_case(pet), replace(EVERYWHERE, apex_mm=60.0)).mask_on(GRID)
    np.testing.assert_array_equal(mask > 0, pet > 1)


@pytest.mark.parametrize("is_empty", [False, True])
def test_uptake_is_a_lesion_unless_the_scan_is_empty(is_empty: bool) -> None:
    pet = np.ones(GRID.array_shape)
    pet[25:28, 22:26, 22:26] = 7
    mask = segment_by_threshold(make_case(pet), replace(EVERYWHERE, is_empty=is_empty)).mask_on(GRID)
    np.testing.assert_array_equal(mask == 1, (pet == 7) & (not is_empty))


def test_without_a_pet_the_mask_is_empty() -> None:
    assert not segment_by_threshold(make_case(None), EVERYWHERE).mask_on(GRID).any()
    assert not segment_by_threshold(make_case(np.zeros(GRID.array_shape)), EVERYWHERE).mask_on(GRID).any()


def test_a_brain_that_the_scan_cuts_is_no_lesion() -> None:
    """13 x 20 x 20 voxels of 27 mm3 at the upper end are 140 ml, more than 60."""
    pet = np.ones(GRID.array_shape)
    pet[27:, 5:25, 5:25] = 9
    pet[10:13, 10:14, 10:14] = 7
    mask = segment_by_threshold(make_case(pet), EVERYWHERE).mask_on(GRID)
    np.testing.assert_array_equal(mask == 1, pet == 7)


def test_a_tumour_that_the_scan_cuts_is_a_lesion() -> None:
    """6 x 8 x 8 voxels of 27 mm3 are 10 ml."""
    pet = np.ones(GRID.array_shape)
    pet[34:, 10:18, 10:18] = 9
    mask = segment_by_threshold(make_case(pet), EVERYWHERE).mask_on(GRID)
    np.testing.assert_array_equal(mask == 1, pet == 9)
