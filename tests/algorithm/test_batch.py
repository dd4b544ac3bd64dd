"""Many cases in one run of `hecktor predict --ct FOLDER`."""

from __future__ import annotations

import csv
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm.cli import main
from algorithm.predictor import Predictor
from contract.errors import HecktorError, run_main
from contract.images.volumes import read_volume, write_volume
from contract.io.files import read_json, write_json
from evaluation.cli import main as evaluate
from tests.conftest import EHR, CaseFolder

pytestmark = pytest.mark.usefixtures("root_logger")


@pytest.fixture
def images(case_folder: CaseFolder, tmp_path: Path) -> Path:
    """Write two cases with nnU-Net's names, and a third one without a PET."""
    folder = tmp_path / "imagesTs"
    for name in ("A", "B", "C"):
        write_volume(folder / f"{name}_0000.nii.gz", case_folder.ct)
        if name != "C":
            write_volume(folder / f"{name}_0001.nii.gz", case_folder.pet)
    return folder


def run(package: Path, *options: str | Path) -> int:
    return run_main(main, [*map(str, options), "--model", str(package), "--device", "cpu", "--passes", "1"])


def read_rows(output: Path) -> dict[str, dict[str, str]]:
    with (output / "answers.csv").open(newline="") as file:
        return {row["PatientID"]: row for row in csv.DictReader(file)}


def test_a_case_that_fails_does_not_stop_the_others(
    images: Path, tiny_package: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output, single = tmp_path / "output", tmp_path / "single.nii.gz"
    assert run(tiny_package, "--ct", images, "--output", output) == 1
    assert sorted(path.relative_to(output).as_posix() for path in output.rglob("*") if path.is_file()) == [
        "A.nii.gz",
        "B.nii.gz",
        "answers.csv",
        "records/A.json",
        "records/B.json",
    ]
    printed = capfd.readouterr()
    assert f"2 of 3 cases answered, table in {output / 'answers.csv'}" in printed.out
    assert "failed: C; the column error of the table has the reasons" in printed.out
    assert "C: failed: --pet: no file" in printed.err
    assert "neither a brain nor lungs" not in printed.err  # warnings are in the records
    assert read_json(output / "records" / "A.json")["notices"]
    rows = read_rows(output)
    assert [*rows] == ["A", "B", "C"]
    assert rows["C"]["error"].startswith("--pet: no file")
    assert (rows["A"]["error"], rows["A"]["mask by"], rows["A"]["passes"]) == ("", "network", "1")
    lesions = read_json(output / "records" / "A.json")["lesions"]
    assert float(rows["A"]["GTVp ml"]) == lesions["GTVp"]["volume_ml"]
    assert run(tiny_package, "--ct", images / "A_0000.nii.gz", "--output", single) == 0
    np.testing.assert_array_equal(read_volume(output / "A.nii.gz").array, read_volume(single).array)


def test_resume_leaves_out_finished_cases(
    images: Path, case_folder: CaseFolder, tiny_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case B lost its mask, C was not answered, and now its PET exists."""
    output, predicted = tmp_path / "output", []
    run(tiny_package, "--ct", images, "--output", output)
    (output / "B.nii.gz").unlink()
    write_volume(images / "C_0001.nii.gz", case_folder.pet)
    predict_files = Predictor.predict_files

    def count(self: Predictor, ct: Path, *rest: Any, **options: Any) -> Any:
        predicted.append(ct.name[0])
        return predict_files(self, ct, *rest, **options)

    monkeypatch.setattr(Predictor, "predict_files", count)
    assert run(tiny_package, "--ct", images, "--output", output, "--resume") == 0
    assert predicted == ["B", "C"]
    assert [*read_rows(output)] == ["A", "B", "C"]
    assert {row["error"] for row in read_rows(output).values()} == {""}
    record = output / "records" / "A.json"
    write_json(record, read_json(record) | {"package": {"name": "another", "manifest_sha256": "0"}})
    predicted.clear()
    assert run(tiny_package, "--ct", images, "--output", output, "--resume") == 0
    assert predicted == ["A"]
    write_json(record, [])
    write_json(output / "records" / "B.json", {"task": "segmentation"})
    predicted.clear()
    assert run(tiny_package, "--ct", images, "--output", output, "--resume") == 0
    assert predicted == ["A", "B"]


def test_risks_of_a_table(case_folder: CaseFolder, images: Path, tiny_package: Path, tmp_path: Path) -> None:
    """Only case A has clinical variables. `hecktor evaluate` reads the table's column."""
    (tmp_path / "A.json").write_text(json.dumps(EHR))
    lines = ["PatientID,CT,PET,EHR"]
    lines += [f"{name},imagesTs/{name}_0000.nii.gz,imagesTs/{name}_0001.nii.gz" for name in ("A", "B")]
    table, output = tmp_path / "cases.csv", tmp_path / "output"
    table.write_text("\n".join([lines[0], f"{lines[1]},A.json", f"{lines[2]},"]) + "\n")
    assert run(tiny_package, "--task", "rfs", "--ct", table, "--output", output) == 1
    rows = read_rows(output)
    assert float(rows["A"]["risk"]) == read_json(output / "records" / "A.json")["answers"]["rfs"]
    assert rows["B"]["risk"] == ""
    assert rows["B"]["error"].startswith("EHR: no clinical variables, expected those for rfs")
    assert not (output / "A.nii.gz").exists()


def test_an_interrupted_run_keeps_what_is_finished(
    images: Path, tiny_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    output, predict_files = tmp_path / "output", Predictor.predict_files

    def end_at_b(self: Predictor, ct: Path, *rest: Any, **options: Any) -> Any:
        if ct.name.startswith("B"):
            os.kill(os.getpid(), signal.SIGTERM)
        return predict_files(self, ct, *rest, **options)

    monkeypatch.setattr(Predictor, "predict_files", end_at_b)
    assert run(tiny_package, "--ct", images, "--output", output) == 1
    expected = "error: interrupted: 1 of 3 cases are finished, expected the same command with --resume\n"
    assert capfd.readouterr().err.endswith(expected)
    assert [*read_rows(output)] == ["A"]
    assert (output / "A.nii.gz").is_file()
    assert signal.getsignal(signal.SIGTERM) is not signal.default_int_handler


def test_a_bug_fails_its_case_and_a_broken_package_all(
    images: Path, tiny_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Predictor, ct: Path, *rest: Any, **options: Any) -> Any:
        raise ZeroDivisionError("of A") if ct.name.startswith("A") else HecktorError("package", "broken")

    monkeypatch.setattr(Predictor, "predict_files", fail)
    output = tmp_path / "output"
    with pytest.raises(HecktorError, match="package: broken"):
        main(["--ct", str(images), "--output", str(output), "--model", str(tiny_package), "--device", "cpu"])
    assert read_rows(output)["A"]["error"] == "ZeroDivisionError: of A"


def test_probabilities_of_each_case(images: Path, tiny_package: Path, tmp_path: Path) -> None:
    """Resuming answers a finished case again if it has no probabilities."""
    output, probabilities = tmp_path / "output", tmp_path / "beside"
    (images / "C_0000.nii.gz").unlink()
    assert run(tiny_package, "--ct", images, "--output", output) == 0
    before = (output / "records" / "A.json").stat().st_mtime_ns
    assert run(tiny_package, "--ct", images, "--output", output, "--resume", "--probabilities", probabilities) == 0
    names = [f"{case}/{label}_probability.nii.gz" for case in ("A", "B") for label in ("GTVn", "GTVp")]
    assert sorted(path.relative_to(probabilities).as_posix() for path in probabilities.rglob("*.nii.gz")) == names
    assert (output / "records" / "A.json").stat().st_mtime_ns > before


def test_evaluate_reads_the_output(
    images: Path, tiny_package: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Masks come from the folder, risks from the table; the case that failed has no prediction."""
    (tmp_path / "ehr").mkdir()
    for name in ("A", "B", "C"):
        (tmp_path / "ehr" / f"{name}.json").write_text(json.dumps(EHR))
    masks, risks, references = (tmp_path / name for name in ("masks", "risks", "references"))
    run(tiny_package, "--ct", images, "--output", masks)
    run(tiny_package, "--task", "rfs", "--ct", images, "--ehr", tmp_path / "ehr", "--output", risks)
    references.mkdir()
    for name in ("A", "B", "C"):
        (references / f"{name}.nii.gz").write_bytes((masks / "A.nii.gz").read_bytes())
    (tmp_path / "rfs.csv").write_text("PatientID,Relapse,RFS\nA,1,100\nB,0,500\nC,1,300\n")
    for task, predictions, truth in ((1, masks, references), (2, risks / "answers.csv", tmp_path / "rfs.csv")):
        words = ["--task", str(task), "--predictions", str(predictions), "--ground-truth", str(truth)]
        assert evaluate([*words, "--output", str(tmp_path / f"scores-{task}")]) == 0
        assert "3 of 3 cases count, 1 without a prediction" in capfd.readouterr().out
