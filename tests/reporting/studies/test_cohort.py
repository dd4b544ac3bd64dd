"""The cohort's table by split and centre, by hand."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from contract.errors import HecktorError
from tests.evaluation.tables import read_lines
from tests.reporting.studies.runs import run_study


@pytest.fixture
def splits(add_case, blank, grid, tmp_path):
    """Write scans with voxels of 6 mm3. Train: CHUM-1 and CHUM-2 with GTVp of 10 and 20 voxels, SUVmax 5 and 7; CHUM-2 has four nodes.

    Test: CHUP-1 without GTVp and one node of 5 voxels, SUVmax 9.
    """

    def add(name, gtvp, suv, nodes=()):
        mask, uptake = blank(), np.zeros(grid.array_shape)
        mask[2, 2, :10] = 1 if gtvp else 0
        mask[2, 3, :10] = 1 if gtvp > 10 else 0
        for place, size in enumerate(nodes):
            mask[5, 2 * place, :size] = 2
        uptake[mask > 0] = suv
        return add_case(name, mask, uptake)

    add("CHUM-1", 10, 5)
    train = add("CHUM-2", 20, 7, (1, 1, 1, 1))
    shutil.move(train, tmp_path / "train")
    test = add("CHUP-1", 0, 9, (5,))
    (tmp_path / "table.csv").write_text(
        "PatientID,Age,M-stage,Gender,Relapse,RFS,HPV Status\n"
        "CHUM-1,50,M0,1.0,1,100,1\nCHUM-2,70,M1,1,0,300,\nCHUP-1,,M0,0,0,500,0\nCHUP-9,1,M0,1,0,5,0\n",
        encoding="utf-8",
    )
    return [f"train={tmp_path / 'train'}", f"test={test}"]


def study(splits, tmp_path, *more):
    content = run_study("cohort", tmp_path / "out", *splits, "--workers", 0, *more)
    return content, {(line["split"], line["centre"]): line for line in content["groups"]}


def test_volumes_uptake_nodes_and_outcomes_by_split_and_centre(splits, tmp_path):
    """GTVp volumes of 0.06 and 0.12 ml: median 0.09, quartiles 0.075 and 0.105. RFS 100, 300, 500: median 300."""
    content, groups = study(splits, tmp_path, "--table", str(tmp_path / "table.csv"))
    assert content["splits"] == {"train": 2, "test": 1}
    assert list(groups) == [
        ("train", "CHUM"),
        ("train", "all"),
        ("test", "CHUP"),
        ("test", "all"),
        ("all", "CHUM"),
        ("all", "CHUP"),
        ("all", "all"),
    ]
    train, everyone = groups["train", "all"], groups["all", "all"]
    volume = [train[f"gtvp_volume_ml_{part}"] for part in ("median", "q1", "q3")]
    assert volume == pytest.approx([0.09, 0.075, 0.105])
    assert (train["gtvp_suv_max_median"], everyone["gtvp_volume_ml_patients"], everyone["patients"]) == (6, 2, 3)
    assert [everyone[f"nodes {count}"] for count in ("0", "1", "3 or more")] == [1, 1, 1]
    assert (everyone["gtvn_volume_ml_patients"], groups["test", "CHUP"]["gtvn_volume_ml_median"]) == (2, 0.03)
    assert (everyone["RFS_median"], everyone["Relapse 1"], everyone["Relapse 0"]) == (300, 1, 2)
    assert (everyone["M-stage M0"], everyone["M-stage M1"]) == (2, 1)
    assert (everyone["Age_median"], everyone["Age_patients"]) == (60, 2)
    assert (everyone["HPV Status True"], everyone["HPV Status False"], everyone["HPV Status_patients"]) == (1, 1, 2)
    assert (everyone["Gender 0"], everyone["Gender 1"]) == (1, 2)
    assert groups["test", "all"]["gtvp_volume_ml_median"] is None
    assert len(read_lines(tmp_path / "out" / "cohort.csv")) == len(groups)


def test_tables_next_to_the_masks_are_read(splits, tmp_path):
    """Only the table of outcomes has patients."""
    (tmp_path / "train" / "ground_truth" / "notes.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    shutil.copy(tmp_path / "table.csv", tmp_path / "train" / "ground_truth" / "outcomes.csv")
    content, groups = study(splits, tmp_path)
    assert groups["train", "all"]["RFS_median"] == 200
    assert content["without_row"] == []
    (tmp_path / "own.csv").write_text("PatientID,RFS\nCHUM-1,7\n", encoding="utf-8")
    content, groups = study(splits, tmp_path, "--table", str(tmp_path / "own.csv"))
    assert groups["train", "all"]["RFS_median"] == 7
    assert content["without_row"] == ["CHUM-2", "CHUP-1"]


def test_faults_are_named(splits, tmp_path):
    for names, message in (
        ([splits[0], splits[0].replace("train=", "other=")], "CHUM-1: in two splits"),
        ([splits[0].replace("train=", "all="), splits[1]], "a split named 'all'"),
    ):
        with pytest.raises(HecktorError, match=message):
            study(names, tmp_path)
    for table, message in (
        ("PatientID,Age\nX-1,50\n", "--table: no patient of the splits"),
        ("PatientID,M-stage\nCHUM-1,M7\n", r"table\.csv, CHUM-1: M-stage: found 'M7'"),
        ("PatientID,RFS\nCHUM-1,1\nCHUM-1,2\n", r"table\.csv, CHUM-1: rows 2 and 3"),
        ("PatientID,RFS\nCHUM-1,long\n", r"table\.csv, CHUM-1: RFS 'long'"),
    ):
        (tmp_path / "table.csv").write_text(table, encoding="utf-8")
        with pytest.raises(HecktorError, match=message):
            study(splits, tmp_path, "--table", str(tmp_path / "table.csv"))


def test_tables_that_differ_about_a_patient_are_refused(splits, tmp_path):
    """Ages of 50 and 50.0 years are equal, ages of 50 and 51 are not."""
    second = tmp_path / "second.csv"
    tables = ["--table", str(tmp_path / "table.csv"), "--table", str(second)]
    second.write_text("PatientID,Age\nCHUM-1,50.0\n", encoding="utf-8")
    assert study(splits, tmp_path, *tables)[1]["all", "all"]["Age_median"] == 60
    second.write_text("PatientID,Age\nCHUM-1,51\n", encoding="utf-8")
    with pytest.raises(HecktorError, match=r"second\.csv, CHUM-1: Age 51\.0, expected 50\.0"):
        study(splits, tmp_path, *tables)
