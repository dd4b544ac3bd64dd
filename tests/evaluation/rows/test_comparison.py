"""A cohort of masks with exchanged or mirrored labels gets one warning with both values."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.inputs.masks import BoxRegion
from evaluation.rows.comparison import count_changed_overlaps
from tests.evaluation.tasks import SEGMENTATION

EXCHANGED = np.array([0, 2, 1], np.uint8)
HINT = "masks: the DSC of all lesion voxels is {}; with {} it would be {}; check how they are written"


@pytest.fixture
def lesions(blank):
    """Return GTVp and GTVn of 18 voxels each that overlap neither each other nor any mirror image."""
    mask = blank()
    mask[1:3, 0:3, 1:4] = 1
    mask[6:8, 1:4, 2:5] = 2
    return mask


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda mask: EXCHANGED[mask], "GTVp and GTVn exchanged"),
        (lambda mask: mask[:, :, ::-1], "x mirrored"),
        (lambda mask: mask[::-1], "z mirrored"),
        (lambda mask: mask[:, ::-1, ::-1], "x and y mirrored"),
    ],
)
def test_a_change_that_would_fit_is_named(phase_of, blank, lesions, change, name):
    """A has 36 voxels in each mask and none in common before the change, B 4 in both; the mask of C is absent.

    DSC as given 2 x 4 / (72 + 8) = 0.10, with A changed 2 x 40 / 80 = 1.00.
    """
    phase, small = phase_of(SEGMENTATION), blank()
    small[3, 4, 4:8] = 1
    for case, truth in (("A", lesions), ("B", small), ("C", lesions)):
        phase.add_truth_mask(case, truth)
    phase.add_mask("A", change(lesions))
    phase.add_mask("B", small)
    assert HINT.format("0.10", name, "1.00") in phase.run()["warnings"]


@pytest.mark.parametrize(("n_right", "hint"), [(2, ("0.22", "0.78")), (4, None)])
def test_a_small_gain_is_no_mistake(phase_of, lesions, n_right, hint):
    """Both lesions are two planes of nine voxels; `n_right` have the right label and the rest the wrong one.

    So 4 x n_right of 36 voxels are right: DSC n_right / 9, exchanged 1 - n_right / 9. With 4 of 9 it would be 0.11 higher.
    """
    prediction = EXCHANGED[lesions]
    for label, (z, y, x) in ((1, (1, 0, 1)), (2, (6, 1, 2))):
        block = prediction[z : z + 2, y : y + 3, x : x + 3].reshape(2, 9)
        block[:, :n_right] = label
        prediction[z : z + 2, y : y + 3, x : x + 3] = block.reshape(2, 3, 3)
    phase = phase_of(SEGMENTATION)
    phase.add_truth_mask("A", lesions)
    phase.add_mask("A", prediction)
    hints = [line for line in phase.run()["warnings"] if line.startswith("masks:")]
    assert hints == ([] if hint is None else [HINT.format(hint[0], "GTVp and GTVn exchanged", hint[1])])


def test_a_mask_is_mirrored_about_the_middle_of_its_image_not_of_the_box():
    """Along x 12 voxels, the box has the first six: voxel 10 is the image of voxel 1, in the box 4 would be."""
    image = np.zeros((1, 1, 12), np.uint8)
    reference, predicted = image.copy(), image.copy()
    reference[0, 0, 1] = predicted[0, 0, 10] = 2
    box = BoxRegion((slice(0, 1), slice(0, 1), slice(0, 6)))
    common = count_changed_overlaps(box.cut(reference), predicted, box)
    assert {change for change, voxels in common.items() if voxels} == {"x mirrored", "x and y mirrored"}
