"""Masks in a folder and values in a table, without the platform; options, bounding boxes, centres."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from contract.errors import GroundTruthError, HecktorError, PredictionError
from contract.images.volumes import Volume, write_mask, write_volume
from evaluation.cli import main
from tests.evaluation.staging import make_tumour
from tests.evaluation.tasks import HPV, RFS, SEGMENTATION

FOLLOW_UP = "PatientID;Relapse;RFS;CenterID\nP1;1;1;A\nP2;1;2;A\nP3;0;3;B\nP4;1;4;A\nP5;;;B\n"
WHOLE_IMAGE = {"bounding_box": "whole_image"}
HPV_STATUS = "PatientID,HPV Status\nP1,1\nP2,1\nP3,0\nP4,0\nP5,\n"


@pytest.fixture
def masks(phase_of):
    """Write references A (.mha) and B (.nii.gz); the folder of predictions is empty."""
    phase = phase_of(SEGMENTATION)
    phase.add_truth_mask("A", make_tumour())
    phase.add_truth_mask("B", make_tumour(), suffix=".nii.gz")
    phase.folder = phase.root / "predictions"
    phase.folder.mkdir()
    return phase


def get_values(report):
    return {name: figures["value"] for name, figures in report["aggregates"].items()}


def test_masks_are_paired_by_case_name(masks, grid):
    """B's centre has no mask at first, then two, then a link; Z is unknown."""
    masks.add_truth_table("PatientID,CenterID\nA,1\nB,2\n")
    write_mask(masks.folder / "A.nii.gz", make_tumour(), grid)
    write_mask(masks.folder / "Z.mha", make_tumour(), grid)
    report = masks.run(predictions=masks.folder)
    assert (report["cases"]["missing"], report["cases"]["unknown"]) == (["B"], ["Z"])
    centres = {name: block["aggregates"]["gtvp_dsc_mean"]["value"] for name, block in report["centres"].items()}
    assert centres == {"1": 1, "2": 0}
    write_mask(masks.folder / "B.mha", make_tumour(), grid)
    values = get_values(masks.run(predictions=masks.folder))
    assert values["gtvp_dsc_mean"] == values["dsc_agg_mean"] == 1.0
    write_mask(masks.folder / "B.nii.gz", make_tumour(), grid)
    report = masks.run(predictions=masks.folder)
    assert (report["cases"]["duplicate"], get_values(report)["gtvp_dsc_mean"]) == (["B"], 0.5)
    for name in ("B.mha", "B.nii.gz"):
        (masks.folder / name).unlink()
    (masks.folder / "B.mha").symlink_to(masks.truth_dir / "A.mha")
    assert "link" in masks.run(predictions=masks.folder)["cases"]["failed"][0]["why"]


def test_median_hd95_of_a_cohort_that_misses_half_is_infinite_and_null(masks, blank, grid):
    """With A perfect (0 mm) and B missing (infinite) the median is infinite, which is null in JSON.

    Without detections precision, recall and their harmonic mean are 0; a null would take the team out of the ranking.
    """
    write_mask(masks.folder / "A.mha", make_tumour(), grid)
    report = masks.run(predictions=masks.folder, edition="hecktor2021", options=WHOLE_IMAGE)
    figures = report["aggregates"]["gtvp_hd95_median_mm"]
    assert figures["value"] is None
    assert "value" in figures["infinite"]
    assert any("infinite" in line for line in report["warnings"])
    assert "Infinity" not in (masks.output_dir / "metrics.json").read_text()
    assert report["results"][1]["gtvp"]["surface"]["state"] == "no_prediction"
    write_mask(masks.folder / "A.mha", blank(), grid)
    report = masks.run(predictions=masks.folder, edition="hecktor2021", options=WHOLE_IMAGE)
    assert report["aggregates"]["gtvp_f1"] == dict.fromkeys(("value", "ci95_low", "ci95_high", "ci95_half_width"), 0.0)
    assert not [line for line in report["warnings"] if "gtvp_f1" in line]


def test_nearest_neighbour_resampling_is_an_option(masks, grid):
    """Half the spacing along x holds each voxel twice; the first centre lies a quarter voxel before the reference's."""
    fine = replace(
        grid, size=(24, 10, 8), spacing_mm=(0.5, 2.0, 3.0), origin_mm=(grid.origin_mm[0] - 0.25, *grid.origin_mm[1:])
    )
    write_mask(masks.folder / "A.mha", np.repeat(make_tumour(), 2, axis=2), fine)
    write_mask(masks.folder / "B.mha", make_tumour(), grid)
    assert masks.run(predictions=masks.folder)["cases"]["failed"][0]["case"] == "A"
    report = masks.run(predictions=masks.folder, options={"geometry": "resample_nearest"})
    assert get_values(report)["gtvp_dsc_mean"] == 1.0
    assert report["provenance"]["options"]["geometry"] == "resample_nearest"


def test_a_prediction_of_too_many_voxels_is_not_resampled(masks, grid, monkeypatch):
    monkeypatch.setattr("evaluation.inputs.masks.MAX_PREDICTION_VOXELS", 100)
    write_mask(masks.folder / "A.mha", np.zeros((7, 10, 12), np.uint8), replace(grid, size=(12, 10, 7)))
    report = masks.run(predictions=masks.folder, options={"geometry": "resample_nearest"})
    assert "840 voxels, expected at most 100" in report["cases"]["failed"][0]["why"]


def test_only_voxels_in_the_bounding_box_count(masks, grid):
    """From (-5, 4, 7) mm, in steps of (1, 2, 3) mm, the box holds x 2..3, y 2..3, z 2..3: the whole GTVp."""
    wrong = make_tumour()
    wrong[0] = 1
    for case in "AB":
        write_mask(masks.folder / f"{case}.mha", wrong, grid)
    boxes = masks.root / "boxes.csv"
    boxes.write_text("PatientID,x1,x2,y1,y2,z1,z2\nA,-3,-1,8,12,13,19\nB,-3,-1,8,12,13,19\n")
    whole = masks.run(predictions=masks.folder, edition="hecktor2020", options=WHOLE_IMAGE)
    assert get_values(whole)["gtvp_dsc_mean"] < 0.2
    assert whole["provenance"]["options"]["bounding_box"] == "whole_image"
    report = masks.run(predictions=masks.folder, edition="hecktor2020", bounding_boxes=boxes)
    assert get_values(report)["gtvp_dsc_mean"] == 1.0
    assert report["results"][0]["gtvn"]["reference_voxels"] == 0
    assert report["provenance"]["options"]["bounding_box"] == "required"
    assert len(report["provenance"]["options"]["bounding_boxes_sha256"]) == 64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("PatientID,x1,x2,y1,y2,z1,z2\nA,0,1,0,1,0,1\n", "no bounding box of B"),
        ("PatientID,x1,x2,y1,y2,z1,z2\na,0,1,0,1,0,1\n", "box of A, B, expected one per case; a differs from A in"),
        ("PatientID,x1,x2\nA,0,1\n", "expected the columns"),
        ("PatientID,x1,x2,y1,y2,z1,z2\nA,1,0,0,1,0,1\nB,0,1,0,1,0,1\n", "first corner below"),
        ("PatientID,x1,x2,y1,y2,z1,z2\nA,,1,0,1,0,1\n", "no x1"),
        ("PatientID,x1,x2,y1,y2,z1,z2\nA,0,1,0,1,0,1\nA,0,1,0,1,0,1\n", "appears twice"),
        # Along z the grid ends at 31 mm; a box in other coordinates would skip the case.
        (
            "PatientID,x1,x2,y1,y2,z1,z2\nA,-3,-1,8,12,13,19\nB,-3,-1,8,12,40,50\n",
            "bounding box of B: lies outside the image",
        ),
    ],
)
def test_bounding_boxes_that_cannot_be_used(masks, grid, text, message):
    write_mask(masks.folder / "A.mha", make_tumour(), grid)
    boxes = masks.root / "boxes.csv"
    boxes.write_text(text)
    with pytest.raises(GroundTruthError, match=message):
        masks.run(predictions=masks.folder, bounding_boxes=boxes)


def test_editions_of_bounding_boxes_need_them_or_the_whole_image(masks):
    with pytest.raises(HecktorError, match=r"hecktor2021 scores inside .*--option bounding_box=whole_image"):
        masks.run(predictions=masks.folder, edition="hecktor2021")
    with pytest.raises(HecktorError, match="together with bounding_box=whole_image"):
        masks.run(predictions=masks.folder, bounding_boxes=masks.root / "boxes.csv", options=WHOLE_IMAGE)


@pytest.fixture
def risks(phase_of):
    phase = phase_of(RFS)
    phase.add_truth_table(FOLLOW_UP, "rfs.csv")
    phase.table = phase.root / "risks.csv"
    return phase


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("P2," + "x" * 131_073, "risks.csv, line 3: "),  # Python's parser stops at 131,072 characters
        ("P2," + "1" * 131_073, "risks.csv, line 3: "),
        ("P2,3,0", "risks.csv, line 3: 3 fields, expected one for each of 2 columns"),
        ("P2", "risks.csv, line 3: 1 fields, expected one for each of 2 columns"),
    ],
    ids=["text", "number", "three fields", "one field"],
)
def test_an_unusable_line_fails_only_its_case(risks, line, why):
    """P2 without a risk leaves 2 of 5 pairs."""
    limit = csv.field_size_limit()
    risks.table.write_text(f"PatientID,risk\nP1,4\n{line}\nP3,2\nP4,1\n")
    report = risks.run(predictions=risks.table)
    (failed,) = report["cases"]["failed"]
    assert failed["case"] == "P2"
    assert failed["why"].startswith(why)
    assert len(failed["why"]) < 200
    assert get_values(report)["c_index"] == pytest.approx(0.4)
    assert csv.field_size_limit() == limit


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PatientID,score\nP1,1\n", "columns PatientID, score"),
        (b"PatientID,risk,risk\nP1,1,2\n", "risk appears twice with different values"),
        (b"PatientID,patient_id,risk\nP1,01,2\n", "columns PatientID and patient_id mean the same and differ"),
        (b"\xff\xfe\x00", "UTF-8"),
    ],
)
def test_a_table_that_cannot_be_used(risks, content, message):
    risks.table.write_bytes(content)
    with pytest.raises(PredictionError, match=message):
        risks.run(predictions=risks.table)


@pytest.fixture
def hpv(phase_of):
    phase = phase_of(HPV)
    phase.add_truth_table(HPV_STATUS)
    phase.table = phase.root / "hpv.csv"
    return phase


def test_a_table_of_statuses_with_probabilities(hpv):
    """Positive P1 0.9, P2 0.4 against negative P3 0.6, P4 0.1: 3 of 4 pairs in order.

    Brier (0.01 + 0.36 + 0.36 + 0.01) / 4; mean probability 0.5 less half positives is 0.
    """
    hpv.table.write_text("PatientID,hpv,probability\nP1,1,0.9\nP2,false,0.4\nP3,true,0.6\nP4,0,0.1\n")
    scores = get_values(hpv.run(predictions=hpv.table))
    assert scores["balanced_accuracy"] == 0.5
    assert scores["auc"] == 0.75
    assert scores["brier"] == pytest.approx(0.185)
    assert scores["calibration_in_the_large"] == pytest.approx(0.0)


def test_an_unusable_probability_drops_its_column(hpv):
    """One of the positives P1 and P2 and both negatives are right: (1/2 + 1) / 2."""
    hpv.table.write_text("PatientID,hpv,probability\nP1,1,80\nP2,0,0.4\nP3,0,0.6\nP4,0,0.1\n")
    report = hpv.run(predictions=hpv.table)
    assert get_values(report)["balanced_accuracy"] == 0.75
    assert report["cases"]["failed"] == []
    assert "auc" not in report["aggregates"]
    assert report["warnings"][0] == (
        "hpv.csv, line 2: probability 80, expected a number from 0 to 1; the column probability is not used"
    )


@pytest.mark.parametrize(("column", "text"), [("RFS", "P5,,5,B"), ("Relapse", "P5,1,,B")])
def test_a_reference_row_with_a_part_of_its_target_is_named(risks, column, text, capsys):
    missing_column = {"RFS": "Relapse", "Relapse": "RFS"}[column]
    risks.add_truth_table(FOLLOW_UP.replace("P5;;;B", text.replace(",", ";")), "rfs.csv")
    risks.table.write_text("PatientID,risk\nP1,4\nP2,3\nP3,2\nP4,1\nP5,1\n")
    report = risks.run(predictions=risks.table)
    assert report["cases"]["skipped"]["no_target_in_ground_truth"] == ["P5"]
    warning = f"reference of rfs: {column} without {missing_column} for P5, expected both; not scored"
    assert warning in report["warnings"]
    paths = ["--predictions", str(risks.table), "--ground-truth", str(risks.truth_dir)]
    assert main(["--task", "2", *paths, "--output", str(risks.root / "shown"), "--bootstraps", "0"]) == 0
    shown = capsys.readouterr()
    assert "left out, no target in ground truth: P5" in shown.out
    assert f"warning: {warning}" in shown.err
    report = risks.run(predictions=risks.table, rows=False)
    assert not [line for line in report["warnings"] if "P5" in line]


def test_the_command_line(masks, grid, capsys):
    write_volume(masks.folder / "A.mha", Volume(make_tumour(), grid))
    arguments = ["--task", "1", "--predictions", str(masks.folder), "--ground-truth", str(masks.truth_dir)]
    arguments += ["--output", str(masks.output_dir), "--bootstraps", "5", "--workers", "0"]
    assert main([*arguments, "--option", "surfaces=both", "--option", "missing=skip"]) == 0
    report = json.loads((masks.output_dir / "metrics.json").read_text())
    assert report["provenance"]["options"]["surfaces"] == "both"
    assert get_values(report)["gtvn_hd95_median_mm"] == 0.0
    assert "gtvn_hd95_median_mm" in capsys.readouterr().out
    with pytest.raises(HecktorError, match="appears twice"):
        main([*arguments, "--option", "missing=skip", "--option", "missing=stop"])
