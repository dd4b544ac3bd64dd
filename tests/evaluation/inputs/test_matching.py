"""Predictions that match no case are an error with the names of both sides; a job without an output is a low score."""

from __future__ import annotations

import json

import pytest

from contract.errors import GroundTruthError, PredictionError
from contract.images.volumes import write_mask
from evaluation import evaluate
from evaluation.cli import main
from tests.evaluation.staging import ANSWERS, make_predictions, write_plain, write_truth
from tests.evaluation.tasks import HPV, RFS, SEGMENTATION

FOLLOW_UP = "PatientID,Relapse,RFS\nCHUM-001,1,1\nCHUM-002,1,2\nCHUM-003,0,3\nCHUM-004,1,4\n"
CASES = "the 4 cases CHUM-001, CHUM-002, CHUM-003 and 1 more"


@pytest.fixture
def masks(phase_of, blank, grid):
    """Write references A and B, and the right masks of both in `predictions/fold_0`."""
    phase = phase_of(SEGMENTATION)
    phase.folder = phase.root / "predictions"
    (phase.folder / "fold_0").mkdir(parents=True)
    for case in "AB":
        phase.add_truth_mask(case, blank())
        write_mask(phase.folder / "fold_0" / f"{case}.mha", blank(), grid)
    return phase


def test_masks_one_folder_down(masks):
    message = r"^predictions: found no masks, but 2 in fold_0/, expected masks of the 2 cases A, B$"
    with pytest.raises(PredictionError, match=message):
        masks.run(predictions=masks.folder)
    assert not (masks.output_dir / "metrics.json").exists()
    (masks.folder / "predictions.json").write_text("[]")
    with pytest.raises(PredictionError, match=r"but predictions\.json \(a submission in the platform's layout\)"):
        masks.run(predictions=masks.folder)


def write_risks(phase_of, text):
    phase = phase_of(RFS)
    phase.add_truth_table(FOLLOW_UP)
    table = phase.root / "risks.csv"
    table.write_text(text)
    return phase, table


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            "CHUM-001.mha,1\n",
            f"rows of CHUM-001.mha, expected rows of {CASES}; CHUM-001.mha differs from CHUM-001 by the ending '.mha'",
        ),
        ("Z-9,1\n", f"rows of Z-9, expected rows of {CASES}"),
        ("", f"no rows, expected rows of {CASES}"),
        ("CHUM-001,\nCHUM-002,NaN\n", "no risk in the rows of the cases, expected risk for each case"),
    ],
)
def test_rows_that_match_no_case_are_named(phase_of, rows, message):
    phase, table = write_risks(phase_of, f"PatientID,risk\n{rows}")
    with pytest.raises(PredictionError) as error:
        phase.run(predictions=table)
    assert error.value.message == f"risks.csv: found {message}"


def test_jobs_without_an_output_are_the_lowest_score_and_a_warning(phase_of):
    """The warnings do not ask for the sign, since there is no risk."""
    phase = phase_of(RFS)
    phase.add_truth_table(FOLLOW_UP)
    for number in range(1, 5):
        phase.add_job(f"CHUM-00{number}")
    report = phase.run()
    assert report["aggregates"]["c_index"]["value"] == 0.0
    assert len(report["cases"]["missing"]) == 4
    assert "rfs: no usable answer to any of 4 cases; each case counts as missing" in report["warnings"]
    assert not [line for line in report["warnings"] if "sign" in line]


def test_jobs_of_other_patients_are_an_error(phase_of):
    phase = phase_of(RFS)
    phase.add_truth_table(FOLLOW_UP)
    phase.add_job("", ct_name="Z.mha").write_text("1")
    with pytest.raises(PredictionError, match=rf"predictions\.json: found jobs of Z, expected jobs of {CASES}"):
        phase.run()
    phase.jobs = []
    with pytest.raises(PredictionError, match=r"predictions\.json: found no jobs"):
        phase.run()


@pytest.mark.parametrize("plain", [True, False])
def test_without_rows_an_error_names_no_case(phase_of, plain):
    phase, table = write_risks(phase_of, "PatientID,risk\nCHUM001,1\n")
    phase.add_job("", ct_name="CHUM001.mha").write_text("1")
    with pytest.raises(PredictionError) as error:
        phase.run(rows=False, **({"predictions": table} if plain else {}))
    assert error.value.message.endswith(
        ": found no prediction of a case, expected predictions of the reference's cases"
    )


def test_masks_and_tables_of_the_reference_share_cases(tmp_path, grid):
    truth = write_truth(tmp_path / "truth", grid)
    folder = write_plain(tmp_path / "predictions", make_predictions(grid), ANSWERS, grid)
    (table,) = truth.glob("*.csv")
    table.write_text(table.read_text().replace("\nP", "\nP-").replace("Center", "Site"))
    with pytest.raises(GroundTruthError, match=r"reference of t_stage: found cases P-1, .*; P-1 differs from P1 in"):
        evaluate(truth, edition="hecktor2026", predictions=folder, bootstraps=0)


def list_centres(report):
    return {name: block["names"] for name, block in report["centres"].items()}


def test_centres_come_from_a_table_or_from_the_ids(phase_of):
    """CHUM cases have code 3 in the table, so CHUM-004 has it as well. CHUV002 is not in the table; X1 has no centre."""
    phase = phase_of(HPV)
    rows = "CHUM-001,1,3\nCHUM-002,0,3.0\nCHUM-004,1,\nCHUV002,0,\nMDA-1,1,\nX1,0,\n"
    phase.add_truth_table(f"PatientID,HPV Status,CenterID\n{rows}")
    phase.add_value("CHUM-001", "true")
    report = phase.run()
    assert list_centres(report) == {"3": ["CHUM-001", "CHUM-002", "CHUM-004"], "CHUV": ["CHUV002"], "MDA": ["MDA-1"]}
    assert [line for line in report["warnings"] if line.startswith("centres: none known for X1, expected a column")]


def test_no_known_centre_is_a_warning(phase_of):
    """A word for a missing value is no centre."""
    phase = phase_of(HPV)
    phase.add_truth_table("PatientID,HPV Status,CenterID\ncase001,1,NA\ncase002,0,unknown\ncase003,0,nan\n")
    phase.add_value("case001", "true")
    report = phase.run()
    assert report["centres"] == {}
    assert [line for line in report["warnings"] if line.startswith("centres: none known, expected a column CenterID")]
    assert not [line for line in phase.run(rows=False)["warnings"] if "centre" in line]


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (["PatientID,CenterID\nA.mha,1\n"], r"0\.csv: found cases A\.mha"),
        (["PatientID,CenterID\nA,1\n", "PatientID,CenterID\nA,2\n"], r"1\.csv: another centre of A than in another"),
        (["PatientID,CenterID\nA,1\nA,1.0\nA,2\n"], r"0\.csv: two centres of A"),
    ],
)
def test_tables_of_centres_that_disagree_are_refused(masks, tables, message):
    for number, text in enumerate(tables):
        masks.add_truth_table(text, f"{number}.csv")
    with pytest.raises(GroundTruthError, match=message):
        masks.run(predictions=masks.folder / "fold_0")


def test_failed_counts_cases(tmp_path, grid, capsys):
    """P1 has two unusable answers and P4 one: three answers of two cases."""
    truth = write_truth(tmp_path / "truth", grid)
    folder = write_plain(tmp_path / "predictions", make_predictions(grid), ANSWERS, grid)
    table = folder / "predictions.csv"
    lines = table.read_text().splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("P1,"))
    lines[place] = ",".join(["P1", "T9", "N9", lines[place].split(",")[3]])
    table.write_text("\n".join(lines))
    arguments = ["--edition", "hecktor2026", "--predictions", str(folder), "--ground-truth", str(truth)]
    main([*arguments, "--output", str(tmp_path / "out"), "--bootstraps", "0"])
    report = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert [failure["case"] for failure in report["cases"]["failed"]] == ["P1", "P1", "P4"]
    assert ", 1 without a prediction, 2 with an unusable one\n" in capsys.readouterr().out
