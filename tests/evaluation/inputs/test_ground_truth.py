"""Mask folders and the release's CSV files."""

from __future__ import annotations

import pytest

from contract.editions import load_edition
from contract.errors import GroundTruthError, PredictionError
from contract.images.volumes import write_mask
from evaluation.inputs.ground_truth import FollowUp, read_classes, read_follow_up, read_mask_folder
from evaluation.inputs.tables import parse_number
from tests.evaluation.tasks import RISK, STATUS


def test_masks_by_case(tmp_path, blank, grid):
    with pytest.raises(GroundTruthError, match="no folder"):
        read_mask_folder(tmp_path / "absent")
    with pytest.raises(GroundTruthError, match="no image"):
        read_mask_folder(tmp_path)
    for name in ("B.mha", "A.nii.gz"):
        write_mask(tmp_path / name, blank(), grid)
    for name in ("targets.csv", "README.md", "notes.txt", "list.json", ".hidden.mha", ".DS_Store"):
        (tmp_path / name).write_text("")
    targets = read_mask_folder(tmp_path).targets
    assert {case: path.name for case, path in targets.items()} == {"A": "A.nii.gz", "B": "B.mha"}
    write_mask(tmp_path / "A.mha", blank(), grid)
    with pytest.raises(GroundTruthError, match=r"A\.mha and A\.nii\.gz"):
        read_mask_folder(tmp_path)


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("PatientID,CenterID,Age,Relapse,RFS\nB,2,60,1,120.5\nA,1,,0,900\nC,1,,,\nD,1,,1,\n", "utf-8"),
        ("PatientID;CenterID;Age;Relapse;RFS\nB;2;60;1.0;120,5\nA;1;;0;900\nC;1;;nan;NaN\nD;1;;1;\n", "utf-8-sig"),
        ("PatientID , Relapse, RFS \r\nB, 1, 120.5\r\nA, 0, 900\r\nC,,\r\n\r\nD,1,\r\n", "utf-8"),
    ],
)
def test_follow_up_in_the_release_spellings(tmp_path, text, encoding):
    (tmp_path / "any.csv").write_bytes(text.encode(encoding))
    reference = read_follow_up(tmp_path, RISK)
    assert reference.targets == {"A": FollowUp(900.0, relapse=False), "B": FollowUp(120.5, relapse=True)}
    assert list(reference.targets) == ["A", "B"]
    assert reference.without_target == ("C", "D")


def test_the_file_is_chosen_by_its_columns(tmp_path):
    (tmp_path / "task2.csv").write_text("PatientID,Relapse,RFS\nA,1,3\n")
    (tmp_path / "task3.csv").write_text("PatientID,HPV Status\nA,1.0\nB,0\nC,\n")
    assert read_classes(tmp_path, STATUS).targets == {"A": True, "B": False}
    assert read_classes(tmp_path, STATUS).without_target == ("C",)
    (tmp_path / "task4.csv").write_text("PatientID,HPV Status\nA,1\n")
    with pytest.raises(GroundTruthError, match=r"task3\.csv, task4\.csv"):
        read_classes(tmp_path, STATUS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("PatientID,Relapse\nA,1\n", "found none"),
        ("PatientID,Relapse,RFS\nA,2,3\n", "line 2: Relapse is not usable, expected 0 or 1"),
        ("PatientID,Relapse,RFS\nA,1,-3\n", "RFS is negative"),
        ("PatientID,Relapse,RFS\nA,1,inf\n", "RFS is not usable"),
        ("PatientID,Relapse,RFS\nA,1,3\nA,1,3\n", "line 3: A appears twice"),
        ("PatientID,Relapse,RFS\n,1,3\n", "no PatientID"),
        ("PatientID,Relapse,RFS\nA,1\n", "line 2: 2 fields, expected one for each of 3"),
        ("PatientID,Relapse,RFS\nA,,\n", "no patient with Relapse and RFS"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path, text, message):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(GroundTruthError, match=message):
        read_follow_up(tmp_path, RISK)


T_STAGE = load_edition("hecktor2026").find_algorithm().find_answer("t_stage")
STAGES = "PatientID;Center;T_stage\nA;3.0;T1\nB;chum;2.0\nC;X;t4A\nD;;T0\nE;;tx\nF;;\nG;;3\n"


@pytest.mark.parametrize("column", ["T_stage", "T-stage", "t stage"])
def test_stages_in_the_spellings_of_a_release(tmp_path, column):
    """T0 and TX are no class of the edition: these patients do not count and are kept apart from missing ones."""
    (tmp_path / "HECKTOR_2026_Training.csv").write_text(STAGES.replace("T_stage", column))
    reference = read_classes(tmp_path, T_STAGE, ("CenterID", "Center"))
    assert reference.targets == {"A": "T1", "B": "T2", "C": "T4", "G": "T3"}
    assert (reference.without_target, reference.not_counted) == (("F",), ("D", "E"))
    assert reference.centres == {"A": "3", "B": "CHUM", "C": "X"}
    assert reference.cases == set("ABCDEFG")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("X;t4A", "X;T9", "line 4: T-stage is not usable, expected T1 or T2 or T3 or T4"),
        (";Center;", ";T-stage;", "columns T-stage and T_stage mean the same"),
        ("T_stage", "stage", "expected one CSV file with the columns PatientID, T-stage"),
        ("F;;\n", "D;;T1\n", "line 7: D appears twice"),  # a patient who does not count
    ],
)
def test_stages_that_cannot_be_used(tmp_path, old, new, message):
    (tmp_path / "a.csv").write_text(STAGES.replace(old, new))
    with pytest.raises(GroundTruthError, match=message):
        read_classes(tmp_path, T_STAGE)


@pytest.mark.parametrize(
    "text", ["1_0", "\N{ARABIC-INDIC DIGIT THREE}", "0x10", "1e999", "inf", ".", "1,000.5", "--1", "1 2", "-0,5"]
)
def test_texts_that_are_not_plain_numbers(text):
    with pytest.raises(PredictionError, match="expected a number"):
        parse_number(text, "risk", "a number", PredictionError)


@pytest.mark.parametrize(
    "header", ["PatientID,Progression,PFS", "patient_id,progression,Progression free survival", "PatientID,Relapse,RFS"]
)
def test_progression_free_survival_in_place_of_recurrence(tmp_path, header):
    """HECKTOR 2021 ranks by it; a table with both outcomes is read as recurrence."""
    table = tmp_path / "table.csv"
    table.write_text(f"{header}\nP1,1,300\n")
    follow_up = {"P1": FollowUp(300.0, relapse=True)}
    assert read_follow_up(table, RISK).targets == follow_up
    table.write_text(f"{header},pfs\nP1,1,300,7\n")
    if "RFS" in header:
        assert read_follow_up(table, RISK).targets == follow_up
    else:
        with pytest.raises(GroundTruthError, match="mean the same"):
            read_follow_up(table, RISK)
