"""Masks end to end: the scores, and the treatment of hostile masks."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from contract.errors import PredictionError
from contract.images.volumes import Volume, write_mask, write_volume
from evaluation.rows.mask import MaskRow, flatten_row
from tests.evaluation.tasks import SEGMENTATION


@pytest.fixture
def phase(phase_of, blank):
    """Case A with 2 x 2 x 2 GTVp, one GTVn of 4 voxels; B the same, and its prediction perfect."""
    made = phase_of(SEGMENTATION)
    made.truth_mask("A", reference(blank()))
    made.truth_mask("B", reference(blank()), suffix=".nii.gz")
    made.mask("B", reference(blank()))
    return made


def reference(mask):
    mask[2:4, 2:4, 2:4] = 1
    mask[6, 6, 4:8] = 2
    return mask


def row_of(report, case):
    return next(row for row in report["results"] if row["case"] == case)


def value(report, metric):
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
    phase.mask("A", mask)
    report = phase.run()
    assert value(report, "gtvp_dsc_mean") == pytest.approx(11 / 14)
    assert value(report, "gtvn_dsc_agg") == pytest.approx(0.8)
    assert value(report, "gtvn_f1_agg") == pytest.approx(0.8)
    row = row_of(report, "A")
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


def test_a_row_is_its_json(phase):
    """A has no prediction: its one lesion of 4 voxels is missed."""
    row = row_of(phase.run(), "A")
    assert MaskRow.model_validate(row).model_dump() == row
    assert (row["gtvn"]["lesions"]["reference_voxels"], row["gtvn"]["lesions"]["dsc"]) == ([4], [None])


def volumes(report, *labels):
    """False-positive and false-negative volume and volume bias of labels, in ml."""
    names = ("fp_volume", "fn_volume", "volume_bias")
    return [value(report, f"{label}_{name}_mean_ml") for label in labels for name in names]


def test_volumes_by_hand(phase, blank):
    """Voxels have 6 mm3, B adds 0 to each mean of two cases.

    A: of the GTVp 1 of 8 voxels is marked, so that none is in a missed component, and 3 voxels apart are a false one: bias
    1 + 3 - 8 = -4. The GTVn's 4 voxels are missed; 2 marked GTVn voxels lie on the GTVp, which is no GTVn: bias 2 - 4 = -2.
    """
    mask = blank()
    mask[2, 2, 2], mask[2, 2:4, 3] = 1, 2
    mask[6, 0, 0:3] = 1
    phase.mask("A", mask)
    report = phase.run()
    gtvp, gtvn = (3, 0, -4), (2, 4, -2)
    assert volumes(report, "gtvp", "gtvn") == pytest.approx([voxels * 6 / 1000 / 2 for voxels in (*gtvp, *gtvn)])
    assert flatten_row(row_of(report, "A"))["gtvp_false_positive_mm3"] == 18.0


def test_voxels_that_share_a_corner_are_one_component_by_connectivity_26_alone(phase, blank):
    """A: a GTVp voxel that touches the reference and, at a corner, 1 other: false by connectivity 6, and not by 26."""
    mask = blank()
    mask[3, 3, 3], mask[4, 4, 4] = 1, 1
    phase.mask("A", mask)
    found = {rule: volumes(phase.run(options={"connectivity": rule}), "gtvp")[0] for rule in ("26", "6")}
    assert found == {"26": 0.0, "6": pytest.approx(1 * 6 / 1000 / 2)}


def test_without_a_prediction_the_reference_is_missed_and_nothing_false(phase):
    report = phase.run()
    assert volumes(report, "gtvp", "gtvn") == pytest.approx([of * 6 / 1000 / 2 for of in (0, 8, -8, 0, 4, -4)])


def worst_of_a(report):
    """A counts as the worst case: mean DSC (0 + 1) / 2, DSCagg 2 * 4 / (4 + 4 + 4), F1 2 / (2 + 1)."""
    assert value(report, "gtvp_dsc_mean") == pytest.approx(0.5)
    assert value(report, "gtvn_dsc_agg") == pytest.approx(2 / 3)
    assert value(report, "gtvn_f1_agg") == pytest.approx(2 / 3)
    assert row_of(report, "A")["gtvn"]["lesions"]["fn"] == 1


def test_a_missing_case_scores_worst_and_is_named(phase):
    report = phase.run()
    worst_of_a(report)
    assert report["cases"]["missing"] == ["A"]
    assert report["cases"]["answered"] == 1


def pixels(change):
    return lambda path, mask, grid: write_volume(path, Volume(change(mask), grid))


def truncated(path, mask, grid):
    write_volume(path, Volume(mask, grid), compress=False)
    path.write_bytes(path.read_bytes()[:-300])


def two_images(path, mask, grid):
    write_mask(path, mask, grid)
    write_mask(path.with_name("second.mha"), mask, grid)


def no_image(path, mask, grid):
    path.with_name("notes.txt").write_text("see attachment")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (truncated, "truncated"),
        (pixels(lambda mask: mask + np.uint8(3) * (mask == 2)), "labels from 0 to 5, expected only 0, 1, 2"),
        (pixels(lambda mask: -mask.astype(np.int16)), "labels from -2 to 0"),
        (pixels(lambda mask: mask.astype(np.float32) / 2), "0.5 is not an integer label"),
        (pixels(lambda mask: np.where(mask == 2, np.nan, mask).astype(np.float32)), "nan is not an integer label"),
        (pixels(lambda mask: mask.astype(np.float64) * 2), "labels from 0 to 4"),
        (lambda path, *_: os.mkfifo(path), "regular file"),
        (two_images, "found 2 images"),
        (no_image, "notes.txt"),
    ],
)
def test_an_unusable_mask_fails_its_case_alone(phase, blank, grid, make, message):
    make(phase.job("A") / "mask.mha", reference(blank()), grid)
    report = phase.run()
    worst_of_a(report)
    (failed,) = report["cases"]["failed"]
    assert failed["case"] == "A"
    assert any(part in failed["why"] for part in message.split("|")), failed["why"]
    assert str(phase.root) not in failed["why"]


def test_another_grid_is_an_error_that_names_both(phase, grid):
    other = replace(grid, size=(11, 10, 8), spacing_mm=(1.0, 2.0, 3.1))
    phase.mask("A", np.ones(other.array_shape, np.uint8), other)
    report = phase.run()
    worst_of_a(report)
    why = report["cases"]["failed"][0]["why"]
    assert other.describe() in why
    assert grid.describe() in why


def test_a_grid_within_the_tolerance_is_the_same(phase, blank, grid):
    """1e-3 of the spacing may be lost in a file format; half of that is."""
    phase.mask("A", reference(blank()), replace(grid, origin_mm=(-5.0005, 4.0, 7.0)))
    assert value(phase.run(), "gtvp_dsc_mean") == 1.0


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_masks_of_whole_numbers_of_any_type_are_read(phase, blank, grid, dtype):
    write_volume(phase.job("A") / "m.mha", Volume(reference(blank()).astype(dtype), grid))
    report = phase.run()
    assert value(report, "gtvn_f1_agg") == value(report, "gtvp_dsc_mean") == 1.0


def test_failed_duplicate_and_unknown_jobs_are_named(phase, blank, grid):
    phase.truth_mask("C", reference(blank()))
    phase.job("A", status="Failed")
    phase.mask("C", reference(blank()))
    phase.mask("C", reference(blank()))
    phase.mask("Z-99", reference(blank()))
    cases = phase.run()["cases"]
    assert {failed["case"]: failed["why"].split(",")[0] for failed in cases["failed"]} == {
        "A": "the job's status is 'Failed'",
        "C": "2 jobs",
    }
    assert cases["duplicate"] == ["C"]
    assert cases["unknown"] == ["Z-99"]


def test_a_link_out_of_the_submission_is_no_answer(phase):
    """The answer's folder and its file may both be links, here to the ground truth itself."""
    folder = phase.job("A")
    folder.rmdir()
    folder.symlink_to(phase.truth_dir)
    assert "outside the submission" in phase.run()["cases"]["failed"][0]["why"]
    folder.unlink()
    folder.mkdir()
    (folder / "mask.mha").symlink_to(phase.truth_dir / "A.mha")
    assert "a link" in phase.run()["cases"]["failed"][0]["why"]


def test_gtvp_absent_from_both_is_skipped_and_counted(phase, blank):
    phase.truth_mask("C", blank())
    phase.mask("A", reference(blank()))
    phase.mask("C", blank())
    report = phase.run()
    skipped = {"gtvp_empty_not_in_mean_dsc": ["C"], "gtvn_empty_not_in_mean_dsc": ["C"]}
    assert report["cases"]["skipped"] == skipped
    assert value(report, "gtvp_dsc_mean") == 1.0
    assert row_of(report, "C")["gtvp"]["dsc"] is None


def test_gtvp_invented_and_gtvp_not_answered_are_zero(phase, blank):
    """References C and D hold no GTVp: C's prediction does, D has none: (1 + 1 + 0 + 0) / 4."""
    phase.mask("A", reference(blank()))
    phase.truth_mask("C", blank())
    phase.truth_mask("D", blank())
    phase.mask("C", reference(blank()))
    assert value(phase.run(), "gtvp_dsc_mean") == 0.5


def test_nothing_to_measure_is_null_with_a_warning(phase_of, blank):
    phase = phase_of(SEGMENTATION)
    phase.truth_mask("A", blank())
    phase.mask("A", blank())
    report = phase.run()
    assert {value(report, name) for name in report["aggregates"] if not name.endswith("_ml")} == {None}
    assert volumes(report, "gtvp", "gtvn") == [0.0] * 6
    assert len([line for line in report["warnings"] if not line.startswith("centres:")]) == 3


def test_case_volumes_weigh_in_mm3(phase_of, blank, grid):
    """A: 4 voxels of 6 mm3 all found; B: 4 voxels of 18 mm3 all missed: 2*24 / (48 + 72) = 0.4, in voxels 8/12."""
    phase = phase_of(SEGMENTATION)
    wide = replace(grid, spacing_mm=(3.0, 2.0, 3.0))
    phase.truth_mask("A", reference(blank()))
    phase.truth_mask("B", reference(blank()), wide)
    phase.mask("A", reference(blank()))
    phase.mask("B", blank(), wide)
    assert value(phase.run(), "gtvn_dsc_agg") == pytest.approx(0.4)


def test_broken_predictions_json_stops_the_run_and_leaves_no_old_result(phase):
    phase.run()
    phase.jobs.append({"pk": "x"})
    with pytest.raises(PredictionError, match=r"predictions\.json"):
        phase.run()
    assert not (phase.output_dir / "metrics.json").exists()
