from __future__ import annotations

import numpy as np
import pytest

from algorithm.case.read import Case
from algorithm.masks.threshold import SKULL_BASE_BELOW_BRAIN_MM, largest_is_primary, threshold_segmentation
from algorithm.region.localise import Region
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from contract.patient import Patient

GRID = Geometry((30, 30, 40), (3.0, 3.0, 3.0), (0.0, 0.0, 0.0))
EVERYWHERE = Region((-1.5, -1.5, -1.5), (88.5, 88.5, 118.5), "test")


def case_of(pet: np.ndarray | None) -> Case:
    ct = Volume(np.zeros(GRID.array_shape, np.int16), GRID)
    return Case(ct, None if pet is None else Volume(pet.astype(np.float32), GRID), Patient())


def test_the_largest_part_is_primary_and_specks_are_left_out() -> None:
    """Voxels of 0.1 ml: parts of 8, 4, 3 and 2 voxels are 0.8, 0.4, 0.3 and 0.2 ml; the last is under 0.3 ml."""
    hot = np.zeros((3, 3, 30), dtype=bool)
    hot[0, 0, 0:2] = True
    hot[0, 0, 5:8] = True
    hot[0, 0, 11:15] = True
    hot[0:2, 0:2, 20:22] = True
    mask = largest_is_primary(hot, 100.0)
    assert [int(mask[0, 0, x]) for x in (0, 5, 11, 20)] == [0, 2, 2, 1]
    assert np.count_nonzero(mask) == 15


def test_corners_connect() -> None:
    hot = np.zeros((4, 4, 4), dtype=bool)
    hot[[0, 1, 2], [0, 1, 2], [0, 1, 2]] = True
    assert np.count_nonzero(largest_is_primary(hot, 100.0) == 1) == 3


def test_nothing_hot() -> None:
    assert not largest_is_primary(np.zeros((3, 3, 3), dtype=bool), 100.0).any()


def test_everything_above_41_percent_of_the_highest_uptake() -> None:
    """Two cubes of 5^3 voxels of 27 mm3, 3.4 ml each, at 100 and 42, and one at 40."""
    pet = np.ones(GRID.array_shape)
    pet[5:10, 5:10, 5:10] = 100
    pet[5:10, 5:10, 15:20] = 42
    pet[20:25, 5:10, 5:10] = 40
    mask = threshold_segmentation(case_of(pet), EVERYWHERE).mask_on(GRID)
    np.testing.assert_array_equal(mask > 0, pet >= 41)


@pytest.mark.parametrize("top_mm", [118.5, 115.5])
def test_a_visible_brain_is_left_out_whole_or_in_part(top_mm: float) -> None:
    """The brain's centre at 105 + 75 mm leaves what lies up to 105 mm, slice 35, wherever the scan ends above it."""
    pet = np.ones(GRID.array_shape)
    pet[36:38, 10:20, 10:20] = 30
    pet[31:35, 10:15, 10:15] = 12
    region = Region((-1.5, -1.5, -1.5), (88.5, 88.5, top_mm), "brain case", 105.0 + SKULL_BASE_BELOW_BRAIN_MM)
    mask = threshold_segmentation(case_of(pet), region).mask_on(GRID)
    assert np.all(mask[31:35, 10:15, 10:15] == 1)
    assert not mask[36:].any()


def test_without_a_pet_the_mask_is_empty() -> None:
    assert not threshold_segmentation(case_of(None), EVERYWHERE).mask_on(GRID).any()
    assert not threshold_segmentation(case_of(np.zeros(GRID.array_shape)), EVERYWHERE).mask_on(GRID).any()
