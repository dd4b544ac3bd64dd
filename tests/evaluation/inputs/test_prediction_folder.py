"""A folder with the masks and the table of several answers: spellings, and faults."""

from __future__ import annotations

import pytest

from contract.errors import PredictionError
from evaluation import evaluate
from tests.evaluation.staging import ANSWERS, make_predictions, write_plain, write_truth

WANTED = "expected one CSV file with the columns PatientID, T-stage, N-stage, RFS"


@pytest.fixture
def truth(tmp_path, grid):
    return write_truth(tmp_path / "truth", grid)


@pytest.fixture
def folder(tmp_path, grid):
    return write_plain(tmp_path / "predictions", make_predictions(grid), ANSWERS, grid)


@pytest.fixture
def run(truth, folder):
    return lambda: evaluate(truth, edition="hecktor2026", predictions=folder, bootstraps=0).to_dict()


def rewrite(folder, old, new):
    table = folder / "predictions.csv"
    assert old in table.read_text()
    table.write_text(table.read_text().replace(old, new))


def test_spellings_of_columns_and_stages(run, folder):
    """Stages may be spelled as in a table of the release; a hidden table does not count."""
    expected = run()["aggregates"]
    (folder / "._predictions.csv").write_text("")
    rewrite(folder, "PatientID,T-stage,N-stage,RFS", "Patient ID,t_stage,N STAGE,Rfs")
    rewrite(folder, "P2,T2,N2", "P2,2.0,N2b")
    rewrite(folder, ",", ";")
    assert run()["aggregates"] == expected
    assert not [line for line in run()["warnings"] if "columns" in line]


def test_two_tables_or_none(run, truth, folder):
    (folder / "more.CSV").write_text("PatientID\n")
    with pytest.raises(PredictionError, match=f"predictions: found more.CSV and predictions.csv, {WANTED}"):
        run()
    for name in ("more.CSV", "predictions.csv"):
        (folder / name).unlink()
    with pytest.raises(PredictionError, match=f"predictions: found no table, {WANTED}"):
        run()
    for name, what in (("P1.mha", "a file"), ("nowhere", "no such folder")):
        with pytest.raises(PredictionError, match=f"{name}: found {what}"):
            evaluate(truth, edition="hecktor2026", predictions=folder / name)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("N-stage,", "N-stages,", "columns PatientID, T-stage, N-stages, RFS"),
        (",RFS", ",risk", "columns PatientID, T-stage, N-stage, risk"),
        ("PatientID,", "Case,", "expected PatientID, t_stage"),
        ("N-stage,", "T_stage,", "columns T-stage and T_stage mean the same"),
    ],
)
def test_an_absent_or_doubled_column(run, folder, old, new, message):
    """An edition that predicts times does not read a column `risk`."""
    rewrite(folder, old, new)
    with pytest.raises(PredictionError, match=message):
        run()


def test_further_columns_are_named_and_ignored(run, folder):
    expected = run()["aggregates"]
    lines = (folder / "predictions.csv").read_text().splitlines()
    lines = [f"{lines[0]},Relapse,note", *(f"{line},1,x" for line in lines[1:])]
    (folder / "predictions.csv").write_text("\n".join(lines))
    report = run()
    assert report["aggregates"] == expected
    assert report["warnings"][0] == (
        "predictions.csv: columns Relapse, note, expected only PatientID, T-stage, N-stage, RFS; they are ignored"
    )


def test_a_duplicate_and_an_unknown_patient(run, folder):
    """P1's two rows fail its three values, and its mask counts. P9 and Z are not in the reference."""
    table = folder / "predictions.csv"
    table.write_text(table.read_text() + "P1,T1,N0,400\nP9,T1,N0,400\n")
    (folder / "Z.mha").write_bytes(b"")
    report = run()
    assert report["cases"]["duplicate"] == ["P1"]
    assert report["cases"]["unknown"] == ["P9", "Z"]
    why = [entry["why"] for entry in report["cases"]["failed"] if entry["case"] == "P1"]
    assert why == [f"{name}: 2 rows, expected one" for name in ("t_stage", "n_stage", "rfs")]
    assert report["results"][0]["segmentation"]["gtvp"]["dsc"] == 1.0
