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


def make_region_with_brain(top_mm: float = 118.5, brain_lower_mm: float = 88.5) -> Region:
    """Make a brain of 5 x 13 x 13 voxels in slices 30 to 34, x and y 8 to 20; its lower end is at 88.5 mm."""
    mask = np.zeros(GRID.array_shape, dtype=np.uint8)
    mask[30:35, 8:21, 8:21] = 1
    upper_mm = (88.5, 88.5, top_mm)
    return replace(EVERYWHERE, upper_mm=upper_mm, brain_lower_mm=brain_lower_mm, brain=Volume(mask, GRID))


NODE = (slice(25, 28), slice(22, 26), slice(22, 26))
BRAIN = (slice(29, 36), slice(8, 21), slice(8, 21)), 30
BESIDE_BRAIN = (slice(30, 33), slice(10, 14), slice(26, 29)), 12
BELOW_APEX = replace(EVERYWHERE, apex_mm=60.0)
SCENES: dict[str, tuple[Region, list[tuple[tuple[slice, ...], int]], set[int]]] = {
    # Uptake one voxel below the brain is within 12 mm of it; a tumour 6 voxels from its lower end is not.
    "brain": (make_region_with_brain(), [BRAIN, BESIDE_BRAIN], {12}),
    "brain above the region": (make_region_with_brain(109.5), [BRAIN, BESIDE_BRAIN], {12}),
    # Slice 20 lies at 60 mm, the lower end of the brain at 10 mm: 50 mm above it, more than 45.
    "face high above the brain's lower end": (
        make_region_with_brain(brain_lower_mm=10.0),
        [((slice(20, 23), slice(10, 14), slice(26, 29)), 12), ((slice(10, 13), slice(10, 14), slice(26, 29)), 6)],
        {6},
    ),
    # The lungs' apices lie at 60 mm. A mass of SUV 38 below 24 mm, more than 30 mm lower, blurs up to SUV 20 at 57 mm.
    # From SUV 20 the level would be 8.2 and the node at SUV 7 lost. The level is 41% of the node's 7, which is 2.9.
    "hot lesion of the chest": (
        BELOW_APEX,
        [((slice(8), slice(8, 20), slice(8, 20)), 38), ((slice(8, 20), slice(8, 20), slice(8, 20)), 20), (NODE, 7)],
        {7},
    ),
    # Its 4 slices from 36 to 45 mm lie at most 24 mm below the apices at 60 mm.
    "node just below the apices": (BELOW_APEX, [(NODE, 7), ((slice(12, 16), slice(5, 9), slice(5, 9)), 5)], {5, 7}),
    "empty scan": (replace(EVERYWHERE, is_empty=True), [(NODE, 7)], set()),
    # 13 x 20 x 20 voxels of 27 mm3 at the upper end are 140 ml, more than 60: a brain that the scan cuts.
    "brain that the scan cuts": (
        EVERYWHERE,
        [((slice(27, None), slice(5, 25), slice(5, 25)), 9), ((slice(10, 13), slice(10, 14), slice(10, 14)), 7)],
        {7},
    ),
    # 6 x 8 x 8 voxels are 10 ml.
    "tumour that the scan cuts": (EVERYWHERE, [((slice(34, None), slice(10, 18), slice(10, 18)), 9)], {9}),
}


@pytest.mark.parametrize("name", SCENES)
def test_which_uptake_is_a_lesion(name: str) -> None:
    """Uptake of 1 fills the grid; then the boxes are filled in their order. Lesions are the boxes of these SUVs."""
    region, boxes, lesions = SCENES[name]
    pet = np.ones(GRID.array_shape)
    for box, suv in boxes:
        pet[box] = suv
    mask = segment_by_threshold(make_case(pet), region).mask_on(GRID)
    np.testing.assert_array_equal(mask > 0, np.isin(pet, sorted(lesions)))


def test_without_a_pet_the_mask_is_empty() -> None:
    assert not segment_by_threshold(make_case(None), EVERYWHERE).mask_on(GRID).any()
    assert not segment_by_threshold(make_case(np.zeros(GRID.array_shape)), EVERYWHERE).mask_on(GRID).any()
