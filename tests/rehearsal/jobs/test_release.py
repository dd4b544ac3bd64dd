"""Cases of a release: NIfTI images become `.mha` on the same grid, rows become `ehr.json`, masks and outcomes the
reference.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.editions import Edition, load_edition
from contract.editions.inputs import CT, EHR, PET, RT_DOSE
from contract.errors import GroundTruthError, InputError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume, write_volume
from contract.io.files import read_json
from hecktor.cli import main as hecktor
from rehearsal.cli import main
from rehearsal.jobs.cases import Cohort, stage_job
from rehearsal.jobs.release import has_release_layout, read_release_cohort
from tests.rehearsal.conftest import Rehearse

E2025, E2026 = load_edition(), load_edition("hecktor2026")
TOY = f"{sys.executable} {Path(__file__).parents[1] / 'toy_algorithm.py'}"
# Turned by 30 degrees about z, which the affine matrix of a NIfTI file in float32 does not hold exactly.
COS, SIN = 3**0.5 / 2, 0.5
OBLIQUE = Geometry((5, 4, 3), (0.977, 0.977, 3.27), (-10.1, 4.2, -300.3), (COS, -SIN, 0, SIN, COS, 0, 0, 0, 1))
TABLE_2025 = (
    "PatientID,Task,CenterID,Age,Gender,Tobacco,M-stage,Relapse,RFS\n"
    "A-1,2,7,61.0,1.0,,M0,1,321.5\n"
    "B-2,2,7,52.5,0,1,M9,0,999\n"
)
TABLE_2026 = (
    "PatientID,Center,Age,HPV Status,Progression,PFS,T_stage,N_stage\nA-1,3,61,1,1,321,T3,N1\nB-2,3,50,,0,999,T1,N0\n"
)


def write_patient(folder: Path, name: str, suffixes: tuple[str, ...] = ("__CT", "__PT", "")) -> None:
    (folder / name).mkdir(parents=True)
    for number, suffix in enumerate(suffixes):
        array = np.arange(60).reshape(OBLIQUE.array_shape) % 3
        kinds = {"__CT": np.int16(-1000) + array.astype(np.int16), "": array.astype(np.uint8)}
        pixels = kinds.get(suffix, array.astype(np.float32) / 7 + number)
        write_volume(folder / name / f"{name}{suffix}.nii.gz", Volume(pixels, OBLIQUE))


def write_release(root: Path, folder: str, table: str | None) -> Path:
    for name in ("A-1", "B-2"):
        write_patient(root / folder, name)
    if table is not None:
        (root / folder / "table.csv").write_text(table)
    return root


def find_ehr(cohort: Cohort, edition: Edition, number: int = 0) -> Any:
    return dict(cohort.cases[number].values)[edition.inputs[EHR]]


@pytest.mark.parametrize("folder", [".", "Task 2"], ids=["the release", "its task folder"])
def test_ehr_holds_only_the_declared_clinical_variables(tmp_path: Path, folder: str) -> None:
    """Numbers stay numbers, missing values become null, impossible values stay; Task, Relapse and RFS are absent."""
    root = write_release(tmp_path, "Task 2", TABLE_2025) / folder
    assert has_release_layout(root, load_edition())
    cohort = read_release_cohort(root, E2025, E2025.find_algorithm("rfs"))
    assert [case.case_id for case in cohort.cases] == ["A-1", "B-2"]
    expected = {"Age": 61, "Gender": 1, "Tobacco Consumption": None, "M-stage": "M0", "CenterID": "7"}
    assert find_ehr(cohort, E2025) == expected
    assert find_ehr(cohort, E2025, 1) == {
        **expected,
        "Age": 52.5,
        "Gender": 0,
        "Tobacco Consumption": 1,
        "M-stage": "M9",
    }
    assert cohort.warnings == ("table.csv: B-2: M-stage 'M9', expected M0 or M1",)


@pytest.mark.parametrize("edition", [E2025, E2026], ids=lambda edition: edition.name)
def test_no_outcome_reaches_the_input_of_any_task(tmp_path: Path, edition: Edition) -> None:
    """Write outcomes in all their spellings, with the value 4711 or Z9, into every task's folder."""
    for task in edition.algorithms:
        columns = {column: "4711" for answer in task.head_specs for column in answer.columns.values()}
        columns |= {
            name: "Z9" for answer in task.head_specs for names in answer.column_aliases.values() for name in names
        }
        header = ",".join(["PatientID", "Age", *columns])
        rows = "".join(",".join([name, "61", *columns.values()]) + "\n" for name in ("A-1", "B-2"))
        root = write_release(tmp_path / task.name, f"Task {task.number}", f"{header}\n{rows}")
        for case in read_release_cohort(root, edition, task).cases:
            job = stage_job(case, tmp_path / task.name / "jobs" / case.case_id)
            assert read_json(job.input_dir / "ehr.json") == {"Age": 61}
            texts = [path.read_text() for path in job.input_dir.rglob("*.json")]
            assert len(texts) == 2
            assert not [text for text in texts if "4711" in text or "Z9" in text]
            assert len(list(job.input_dir.rglob("*.mha"))) == 2  # CT and PET, not the mask


def test_a_clinical_variable_that_is_the_tasks_outcome_is_left_out(tmp_path: Path) -> None:
    """HPV status may be known before treatment in an edition, and the outcome of one of its tasks."""
    hpv = E2026.model_copy(update={"algorithms": E2025.algorithms})
    root = write_release(tmp_path, "Task 3", "PatientID,Age,HPV Status\nA-1,61,1\nB-2,50,0\n")
    case = read_release_cohort(root, hpv, hpv.find_algorithm("hpv")).cases[0]
    assert [value for _, value in case.values] == [{"Age": 61}]


def test_images_keep_grid_values_and_type(tmp_path: Path) -> None:
    root = write_release(tmp_path, "Task 2", TABLE_2025)
    write_patient(root / "Task 2", "C-3", ("__CT", "__PT", "__CTPlanning", "__RTDOSE"))
    task = E2025.find_algorithm("rfs")
    case = read_release_cohort(root, E2025, task, ["C-3"]).cases[0]
    job = stage_job(case, tmp_path / "job")
    for name, suffix in ((CT, "__CT"), (PET, "__PT"), (RT_DOSE, "__RTDOSE")):
        source = read_volume(root / "Task 2" / "C-3" / f"C-3{suffix}.nii.gz")
        (path,) = E2025.inputs[name].path_under(job.input_dir).glob("*.mha")
        staged = read_volume(path)
        assert staged.geometry.find_differences(source.geometry) == []
        assert np.allclose(staged.geometry.direction, source.geometry.direction, rtol=0, atol=1e-12)
        assert np.allclose(staged.geometry.origin_mm, source.geometry.origin_mm, rtol=0, atol=1e-9)
        assert np.array_equal(staged.array, source.array)
        assert staged.array.dtype == source.array.dtype
    assert len(job.entries) == 5
    assert job.entries[0]["image"]["name"] == "C-3.nii.gz"


def test_patients_without_a_table_have_an_empty_ehr(tmp_path: Path) -> None:
    cohort = read_release_cohort(write_release(tmp_path, ".", None), E2025, E2025.find_algorithm("hpv"))
    assert find_ehr(cohort, E2025) == {}
    name = "HECKTOR_2025_Training_Task.csv"
    assert cohort.warnings == (f"{tmp_path.name}: no CSV file such as {name}, so ehr.json of each case is empty",)


def test_a_factor_of_another_table_enters_the_ehr(tmp_path: Path) -> None:
    """With 75 kg and 150 MBq the factor is 75,000 g / 150e6 Bq = 0.0005."""
    root = write_release(tmp_path, "HECKTOR 2026 Training Data", TABLE_2026)
    factors = "pid,patient_weight_kg,dose_for_suv_bq\nA-1,75,150e6\nZ-9,70,1e8\n"
    (root / "HECKTOR 2026 Training Data" / "suv.csv").write_text(factors)
    cohort = read_release_cohort(root, E2026, E2026.find_algorithm())
    assert find_ehr(cohort, E2026) == {"CenterID": "3", "Age": 61, "HPV Status": 1, "SUV Factor": 0.0005}
    assert "SUV Factor" not in find_ehr(cohort, E2026, 1)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("other task", r"found Task 2, expected Task 1"),
        ("no PET", r"^A-1: no PET"),
        ("two tables", r"^Task 2: found 2 CSV files \(other\.csv, table\.csv\)"),
        ("no ID", r"^table\.csv: no column PatientID"),
        ("no case", r"no case X-9"),
    ],
)
def test_an_unusable_release_is_one_line(tmp_path: Path, fault: str, message: str) -> None:
    folder = write_release(tmp_path, "Task 2", TABLE_2025) / "Task 2"
    if fault == "no PET":
        (folder / "A-1" / "A-1__PT.nii.gz").unlink()
    elif fault == "two tables":
        (folder / "other.csv").write_text(TABLE_2025)
    elif fault == "no ID":
        (folder / "table.csv").write_text("Name,Age\nA-1,3\n")
    task = E2025.find_algorithm("segmentation" if fault == "other task" else "rfs")
    with pytest.raises(InputError, match=message):
        read_release_cohort(tmp_path, E2025, task, ["X-9"] if fault == "no case" else [])


@pytest.mark.parametrize(
    ("edition", "folder", "table", "metric"),
    [
        (["--task", "segmentation"], "Task 1", "PatientID,Age\nA-1,61\nB-2,50\n", "gtvp_dsc_mean"),
        (["--edition", "hecktor2026"], "HECKTOR 2026 Training Data", TABLE_2026, "c_index"),
    ],
    ids=["mask", "2026"],
)
def test_a_release_is_scored_by_its_own_references_and_can_be_scored_again(
    tmp_path: Path, edition: list[str], folder: str, table: str, metric: str
) -> None:
    """The toy's mask is empty, so DSC is 0; equal answers order no pair, so the C-index is 0.5; twice the same."""
    root, out, again = write_release(tmp_path / "release", folder, table), tmp_path / "out", tmp_path / "again"
    four = ["--arguments=--four-answers"] if "--edition" in edition else []
    command = ["--cases", str(root), "--output", str(out), "--command", TOY, "--evaluation-arguments=--bootstraps 0"]
    main([*edition, *command, *four])  # an undefined metric of an empty mask may leave it unranked
    first = read_json(out / "metrics.json", accept_nan=True)
    assert first["aggregates"][metric]["value"] == {"gtvp_dsc_mean": 0.0, "c_index": 0.5}[metric]
    assert {row["case"] for row in first["results"]} == {"A-1", "B-2"}
    inputs = ["--input", str(out / "evaluation" / "input"), "--ground-truth", str(out / "evaluation" / "ground_truth")]
    assert hecktor(["evaluate", *edition, *inputs, "--output", str(again), "--bootstraps", "0"]) == 0
    second = read_json(again / "metrics.json", accept_nan=True)
    assert json.dumps(second["aggregates"]) == json.dumps(first["aggregates"])
    assert json.dumps(second["results"]) == json.dumps(first["results"])


def test_a_release_without_references_is_not_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_release(tmp_path / "release", "Task 1", None)
    for path in root.glob("Task 1/*/?-?.nii.gz"):
        path.unlink()
    options = ["--task", "1", "--cases", str(root), "--output", str(tmp_path / "out"), "--command", TOY]
    assert main(options) == 0
    assert "release: no reference mask <ID>/<ID>.nii.gz, so nothing is scored" in capsys.readouterr().err
    assert not (tmp_path / "out" / "metrics.json").exists()


@pytest.mark.parametrize(("task", "kind"), [("segmentation", "masks"), ("rfs", "rows")])
def test_a_ground_truth_of_other_cases_ends_before_the_first_job(
    rehearse_toy: Rehearse, cohort: Path, tmp_path: Path, task: str, kind: str
) -> None:
    truth = cohort / "ground_truth"
    for path in truth.glob("*.mha"):
        path.rename(truth / f"{path.stem}_GT.mha")
    table = truth / "outcomes.csv"
    table.write_text(table.read_text().replace("A-1,", "A-1_GT,").replace("B-2,", "B-2_GT,"))
    expected = rf"^ground_truth: found {kind} of A-1_GT, B-2_GT"
    with pytest.raises(GroundTruthError, match=expected):
        rehearse_toy(task=task, evaluation="well")
    assert not (tmp_path / "out").exists()


def test_partial_matches_are_named(rehearse_toy: Rehearse, cohort: Path) -> None:
    (cohort / "ground_truth" / "B-2.mha").rename(cohort / "ground_truth" / "C-3.mha")
    warnings = rehearse_toy(evaluation="well").warnings
    assert warnings[:2] == (
        "ground_truth: no masks of 1 cases (B-2), which are not scored",
        "ground_truth: masks of 1 of 2 belong to no case (C-3) and count as missing",
    )


def test_another_makers_ground_truth_is_not_compared(rehearse_toy: Rehearse, cohort: Path) -> None:
    for path in (cohort / "ground_truth").iterdir():
        path.rename(path.with_suffix(".bin"))
    (cohort / "ground_truth" / "A-1.mha").mkdir()  # which the toy evaluation counts
    warnings = rehearse_toy(task="rfs", evaluation="well").warnings
    assert warnings[0] == "ground_truth: found no rows by case, so the IDs of the cases are not compared with it"


def test_decomposed_letters_and_files_of_macos_in_a_release(tmp_path: Path) -> None:
    """Folder and files of CHÜ-1 have decomposed letters, as macOS writes them; the table has composed ones."""
    composed, decomposed = "CH\N{LATIN CAPITAL LETTER U WITH DIAERESIS}-1", "CHU\N{COMBINING DIAERESIS}-1"
    write_patient(tmp_path / "Task 2", decomposed)
    (tmp_path / "Task 2" / "table.csv").write_text(TABLE_2025.replace("A-1", composed), encoding="utf-8")
    (tmp_path / "Task 2" / "._table.csv").write_bytes(b"\0\5\x16\7")
    write_patient(tmp_path / "Task 2" / "__MACOSX", decomposed)
    cohort = read_release_cohort(tmp_path, E2025, E2025.find_algorithm("rfs"))
    assert [case.case_id for case in cohort.cases] == [composed]
    assert find_ehr(cohort, E2025)["Age"] == 61.0
    assert all(path.is_file() for _, path in cohort.cases[0].files)
