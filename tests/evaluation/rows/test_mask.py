"""Masks end to end: the scores, unusable masks, and a warning about exchanged or mirrored labels."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from contract.errors import PredictionError
from contract.images.volumes import Volume, write_mask, write_volume
from evaluation.inputs.masks import BoxRegion
from evaluation.rows.comparison import count_changed_overlaps
from evaluation.rows.mask import MaskRow, flatten_row
from tests.evaluation.tasks import SEGMENTATION


@pytest.fixture
def phase(phase_of, blank):
    """Write cases A and B with 2 x 2 x 2 GTVp and one GTVn of 4 voxels; only B is answered, perfectly."""
    phase = phase_of(SEGMENTATION)
    phase.add_truth_mask("A", draw_reference(blank()))
    phase.add_truth_mask("B", draw_reference(blank()), suffix=".nii.gz")
    phase.add_mask("B", draw_reference(blank()))
    return phase


def draw_reference(mask):
    mask[2:4, 2:4, 2:4] = 1
    mask[6, 6, 4:8] = 2
    return mask


def find_row(report, case):
    return next(row for row in report["results"] if row["case"] == case)


def get_value(report, metric):
    return report["aggregates"][metric]["value"]


def test_by_hand(phase, blank):
    """A: 4 of 8 GTVp voxels, 2 extra: DSC 8 / 14; GTVn 2 of 4 voxels, IoU 0.5, and one invented lesion of 1 voxel.

    Mean DSC (4/7 + 1) / 2 = 11/14; DSCagg 2 (2 + 4) / (4 + 3 + 4 + 4) = 0.8; F1 2*2 / (2*2 + 1) = 0.8.
    """
    mask = blank()
    mask[2, 2:4, 2:4] = 1
    mask[2, 4, 2:4] = 1
    mask[6, 6, 4:6] = 2
    mask[0, 0, 0] = 2
    phase.add_mask("A", mask)
    report = phase.run()
    assert get_value(report, "gtvp_dsc_mean") == pytest.approx(11 / 14)
    assert get_value(report, "gtvn_dsc_agg") == pytest.approx(0.8)
    assert get_value(report, "gtvn_f1_agg") == pytest.approx(0.8)
    row = find_row(report, "A")
    lesions = row["gtvn"]["lesions"]
    assert (lesions["tp"], lesions["fp"], lesions["fn"]) == (1, 1, 0)
    assert (lesions["reference_voxels"], lesions["dsc"]) == ([4], [pytest.approx(2 * 2 / (4 + 2))])
    assert sorted(lesions["predicted_voxels"]) == [1, 2]
    (pair,) = lesions["pairs"]
    assert (pair["reference"], lesions["predicted_voxels"][pair["predicted"]], pair["iou"]) == (0, 2, 0.5)
    assert row["gtvp"]["reference_voxels"] == 8
    assert flatten_row(row)["gtvp_reference_mm3"] == pytest.approx(8 * 6.0)
    assert report["cases"]["used"] == 2
    assert report["cases"]["missing"] == report["cases"]["unknown"] == []


def get_volumes(report, *labels):
    """Return the false-positive and the false-negative volume and the volume bias of labels, in ml."""
    names = ("fp_volume", "fn_volume", "volume_bias")
    return [get_value(report, f"{label}_{name}_mean_ml") for label in labels for name in names]


def test_volumes_by_hand(phase, blank):
    """Voxels have 6 mm3, B adds 0 to each mean of two cases.

    A: of the GTVp 1 of 8 voxels is marked, so that none is in a missed component, and 3 voxels apart are a false one: bias
    1 + 3 - 8 = -4. The GTVn's 4 voxels are missed; 2 marked GTVn voxels lie on the GTVp, which is no GTVn: bias 2 - 4 = -2.
    """
    mask = blank()
    mask[2, 2, 2], mask[2, 2:4, 3] = 1, 2
    mask[6, 0, 0:3] = 1
    phase.add_mask("A", mask)
    report = phase.run()
    gtvp, gtvn = (3, 0, -4), (2, 4, -2)
    assert get_volumes(report, "gtvp", "gtvn") == pytest.approx([voxels * 6 / 1000 / 2 for voxels in (*gtvp, *gtvn)])
    assert flatten_row(find_row(report, "A"))["gtvp_false_positive_mm3"] == 18.0


def check_worst_score_of_a(report):
    """Check that A counts as the worst case: mean DSC (0 + 1) / 2, DSCagg 2 * 4 / (4 + 4 + 4), F1 2 / (2 + 1)."""
    assert get_value(report, "gtvp_dsc_mean") == pytest.approx(0.5)
    assert get_value(report, "gtvn_dsc_agg") == pytest.approx(2 / 3)
    assert get_value(report, "gtvn_f1_agg") == pytest.approx(2 / 3)
    assert find_row(report, "A")["gtvn"]["lesions"]["fn"] == 1


def test_a_missing_case_scores_worst_and_is_named(phase):
    """A has no prediction: its one lesion of 4 voxels is missed, and nothing is false."""
    report = phase.run()
    check_worst_score_of_a(report)
    assert report["cases"]["missing"] == ["A"]
    assert report["cases"]["answered"] == 1
    missed = [voxels * 6 / 1000 / 2 for voxels in (0, 8, -8, 0, 4, -4)]
    assert get_volumes(report, "gtvp", "gtvn") == pytest.approx(missed)
    row = find_row(report, "A")
    assert MaskRow.model_validate(row).model_dump() == row
    assert (row["gtvn"]["lesions"]["reference_voxels"], row["gtvn"]["lesions"]["dsc"]) == ([4], [None])


def make_writer(change):
    return lambda path, mask, grid: write_volume(path, Volume(change(mask), grid))


def write_truncated(path, mask, grid):
    write_volume(path, Volume(mask, grid), compress=False)
    path.write_bytes(path.read_bytes()[:-300])


def write_two_images(path, mask, grid):
    write_mask(path, mask, grid)
    write_mask(path.with_name("second.mha"), mask, grid)


def write_no_image(path, mask, grid):
    path.with_name("notes.txt").write_text("see attachment")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (write_truncated, "truncated"),
        (make_writer(lambda mask: mask + np.uint8(3) * (mask == 2)), "labels from 0 to 5, expected only 0, 1, 2"),
        (make_writer(lambda mask: -mask.astype(np.int16)), "labels from -2 to 0"),
        (make_writer(lambda mask: mask.astype(np.float32) / 2), "0.5 is not an integer label"),
        (make_writer(lambda mask: np.where(mask == 2, np.nan, mask).astype(np.float32)), "nan is not an integer label"),
        (lambda path, *_: os.mkfifo(path), "regular file"),
        (write_two_images, "found 2 images"),
        (write_no_image, "notes.txt"),
    ],
)
def test_an_unusable_mask_fails_only_its_case(phase, blank, grid, make, message):
    make(phase.add_job("A") / "mask.mha", draw_reference(blank()), grid)
    report = phase.run()
    check_worst_score_of_a(report)
    (failed,) = report["cases"]["failed"]
    assert failed["case"] == "A"
    assert message in failed["why"]
    assert str(phase.root) not in failed["why"]


def test_another_grid_is_an_error_that_names_both(phase, blank, grid):
    """File formats may lose 1e-3 of the spacing; half of it is no other grid."""
    mask_grid = replace(grid, size=(11, 10, 8), spacing_mm=(1.0, 2.0, 3.1))
    path = phase.add_mask("A", np.ones(mask_grid.array_shape, np.uint8), mask_grid)
    report = phase.run()
    check_worst_score_of_a(report)
    why = report["cases"]["failed"][0]["why"]
    assert mask_grid.describe() in why
    assert grid.describe() in why
    near = Volume(draw_reference(blank()).astype(np.float32), replace(grid, origin_mm=(-5.0005, 4.0, 7.0)))
    write_volume(path, near)
    assert get_value(phase.run(), "gtvp_dsc_mean") == 1.0


def test_failed_duplicate_and_unknown_jobs_are_named(phase, blank, grid):
    phase.add_truth_mask("C", draw_reference(blank()))
    phase.add_job("A", status="Failed")
    phase.add_mask("C", draw_reference(blank()))
    phase.add_mask("C", draw_reference(blank()))
    phase.add_mask("Z-99", draw_reference(blank()))
    cases = phase.run()["cases"]
    assert {failed["case"]: failed["why"].split(",")[0] for failed in cases["failed"]} == {
        "A": "the job's status is 'Failed'",
        "C": "2 jobs",
    }
    assert cases["duplicate"] == ["C"]
    assert cases["unknown"] == ["Z-99"]


def test_a_link_out_of_the_submission_is_no_answer(phase):
    """Both the answer's folder and its file are links to the ground truth."""
    folder = phase.add_job("A")
    folder.rmdir()
    folder.symlink_to(phase.truth_dir)
    assert "outside the submission" in phase.run()["cases"]["failed"][0]["why"]
    folder.unlink()
    folder.mkdir()
    (folder / "mask.mha").symlink_to(phase.truth_dir / "A.mha")
    assert "a link" in phase.run()["cases"]["failed"][0]["why"]


def test_empty_references(phase, phase_of, blank):
    """C is empty in both and is skipped. In D a GTVp is invented, E is empty and not predicted: (1 + 1 + 0 + 0) / 4.

    Nothing to measure is null with a warning.
    """
    phase.add_mask("A", draw_reference(blank()))
    phase.add_truth_mask("C", blank())
    phase.add_mask("C", blank())
    report = phase.run()
    skipped = {"gtvp_empty_not_in_mean_dsc": ["C"], "gtvn_empty_not_in_mean_dsc": ["C"]}
    assert report["cases"]["skipped"] == skipped
    assert get_value(report, "gtvp_dsc_mean") == 1.0
    assert find_row(report, "C")["gtvp"]["dsc"] is None
    phase.add_truth_mask("D", blank())
    phase.add_truth_mask("E", blank())
    phase.add_mask("D", draw_reference(blank()))
    assert get_value(phase.run(), "gtvp_dsc_mean") == 0.5
    for path in phase.truth_dir.iterdir():
        if path.name != "C.mha":
            path.unlink()
    report = phase.run()
    assert {get_value(report, name) for name in report["aggregates"] if not name.endswith("_ml")} == {None}
    assert get_volumes(report, "gtvp", "gtvn") == [0.0] * 6
    assert len([line for line in report["warnings"] if not line.startswith("centres:")]) == 3


def test_case_volumes_weigh_in_mm3(phase_of, blank, grid):
    """A: 4 voxels of 6 mm3 all found; B: 4 voxels of 18 mm3 all missed: 2*24 / (48 + 72) = 0.4, in voxels 8/12."""
    phase = phase_of(SEGMENTATION)
    wide = replace(grid, spacing_mm=(3.0, 2.0, 3.0))
    phase.add_truth_mask("A", draw_reference(blank()))
    phase.add_truth_mask("B", draw_reference(blank()), wide)
    phase.add_mask("A", draw_reference(blank()))
    phase.add_mask("B", blank(), wide)
    assert get_value(phase.run(), "gtvn_dsc_agg") == pytest.approx(0.4)


def test_broken_predictions_json_stops_the_run_and_leaves_no_old_result(phase):
    phase.run()
    phase.jobs.append({"pk": "x"})
    with pytest.raises(PredictionError, match=r"predictions\.json"):
        phase.run()
    assert not (phase.output_dir / "metrics.json").exists()


def test_voxels_that_share_a_corner_are_one_component_only_by_connectivity_26(phase, blank):
    """A: a GTVp voxel that touches the reference and, at a corner, 1 other: false by connectivity 6, and not by 26."""
    mask = blank()
    mask[3, 3, 3], mask[4, 4, 4] = 1, 1
    phase.add_mask("A", mask)
    volume_of = {rule: get_volumes(phase.run(options={"connectivity": rule}), "gtvp")[0] for rule in ("26", "6")}
    assert volume_of == {"26": 0.0, "6": pytest.approx(1 * 6 / 1000 / 2)}


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
