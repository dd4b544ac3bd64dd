"""Tests of `hecktor train prepare`: nothing is written before the check or twice, and every patient left out is named."""

from __future__ import annotations

import csv
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baseline.cli import main
from baseline.release import data_set as preparing
from baseline.release.cases import read_cases
from baseline.release.prepare import summarise_preparation
from baseline.work import DATASET_NAME, Preparation, PrepareOptions, WorkFolders
from contract.errors import HecktorError, InputError
from contract.images.volumes import read_volume

Release = Any  # tests/baseline/conftest.py: TinyRelease
PATIENTS = ("CHUM-001", "CHUM-002", "MDA-003")


@pytest.fixture
def release(tiny_release: Release) -> Release:
    for patient in PATIENTS:
        tiny_release.add(patient)
    tiny_release.write_tables()
    return tiny_release


def run_prepare(release: Release, *more: str) -> int:
    places = ["--release", str(release.root), "--work", str(release.root.parent / "work")]
    return main(["prepare", *places, "--jobs", "1", "--folds", "2", "--spacing-mm", "6", "6", "6", *more])


def find_raw(release: Release) -> Path:
    return release.root.parent / "work" / "nnunet" / "raw" / DATASET_NAME


def list_files(release: Release) -> dict[str, list[str]]:
    return {
        folder: sorted(path.name.removesuffix(".nii.gz") for path in (find_raw(release) / folder).iterdir())
        for folder in ("imagesTr", "imagesTs", "labelsTr")
    }


def read_record(release: Release) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((release.root.parent / "work" / "prepare.json").read_text())
    return content


def test_the_summary_names_patients_with_notices() -> None:
    """A notice that appears only between the lines of a progress bar is easily missed."""
    preparation = Preparation(
        options=PrepareOptions("r"),
        counts={"patients": 2, "centres": {"MDA": 2}},
        corrections={"MDA-003": ("no landmark",)},
    )
    last = summarise_preparation(preparation).splitlines()[-1]
    assert last == "notices about the images, see prepare.json: MDA-003"


def test_files_that_prepare_writes(release: Release, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_prepare(release) == 0
    assert list_files(release) == {
        "imagesTr": [f"{patient}_000{channel}" for patient in PATIENTS for channel in (0, 1)],
        "imagesTs": [],
        "labelsTr": list(PATIENTS),
    }
    ct, pet = (read_volume(find_raw(release) / "imagesTr" / f"MDA-003_000{channel}.nii.gz") for channel in (0, 1))
    mask = read_volume(find_raw(release) / "labelsTr" / "MDA-003.nii.gz")
    assert ct.geometry == pet.geometry
    assert not ct.geometry.find_differences(mask.geometry)
    # nnU-Net's lattice divides the scan's field into whole voxels of about 6 mm.
    assert ct.geometry.spacing_mm == pytest.approx((6, 6, 6), abs=0.1)
    assert set(np.unique(mask.array)) == {0, 1, 2}
    assert json.loads((find_raw(release) / "dataset.json").read_text())["numTraining"] == 3
    done = read_record(release)
    assert done["options"]["release"] == str(release.root)
    assert {"python", "numpy", "SimpleITK", "torch", "nnunetv2", "hecktor"} == set(done["versions"])
    assert (done["counts"]["centres"], done["counts"]["written"]) == ({"CHUM": 2, "MDA": 1}, 3)
    assert (done["left_out"], done["mask_outside_region"]) == ([], {})
    printed = capsys.readouterr().out
    assert printed.startswith(
        "release: 0 errors, 0 warnings\n3 patients of 2 centres: 3 with mask, 3 with rfs, 0 relapses, 3 with hpv"
    )
    assert [case.patient_id for case in read_cases(WorkFolders(release.root.parent / "work"))] == list(PATIENTS)


def read_times(release: Release) -> dict[str, int]:
    return {
        p.relative_to(find_raw(release)).as_posix(): p.stat().st_mtime_ns for p in find_raw(release).rglob("*.nii.gz")
    }


@pytest.mark.slow
def test_a_patient_is_written_again_only_where_its_files_or_the_spacing_changed(release: Release) -> None:
    run_prepare(release)
    before, key = read_times(release), read_record(release)["data"]
    run_prepare(release)
    assert read_times(release) == before
    assert (read_record(release)["counts"]["written"], read_record(release)["data"]) == (0, key)
    os.utime(release.path("MDA-003", "__PT"), (1, 1))
    run_prepare(release)
    assert read_times(release) == before
    pet = release.read("MDA-003", "__PT")
    release.write("MDA-003", "__PT", replace(pet, array=pet.array * 2))
    run_prepare(release)
    changed = {name for name, time in read_times(release).items() if time != before[name]}
    assert changed == {"imagesTr/MDA-003_0000.nii.gz", "imagesTr/MDA-003_0001.nii.gz", "labelsTr/MDA-003.nii.gz"}
    (find_raw(release) / "labelsTr" / "CHUM-001.nii.gz").unlink()
    run_prepare(release)
    assert read_record(release)["counts"]["written"] == 1
    run_prepare(release, "--spacing-mm", "9", "9", "9")
    assert read_record(release)["counts"]["written"] == 3


def test_an_interruption_loses_only_what_is_unfinished(release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the third patient's mask is not written, the two patients before it are kept, and partial files do no harm."""
    resample_mask, calls = preparing.resample_mask, [0]

    def interrupt(*arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == 3:
            raise KeyboardInterrupt
        return resample_mask(*arguments)

    monkeypatch.setattr(preparing, "resample_mask", interrupt)
    with pytest.raises(HecktorError, match=r"^interrupted: finished work is saved"):
        run_prepare(release)
    before = read_times(release)
    assert "imagesTr/MDA-003_0000.nii.gz" in before
    assert not (release.root.parent / "work" / "prepare.json").exists()
    (find_raw(release) / "imagesTr" / ".partial-x.nii.gz").write_text("a killed process leaves such a file")
    assert run_prepare(release) == 0
    assert read_record(release)["counts"]["written"] == 1
    assert read_record(release)["removed"] == ["imagesTr/.partial-x.nii.gz"]
    assert {n for n, t in read_times(release).items() if t == before.get(n)} >= {n for n in before if "CHUM" in n}


def test_errors_stop_before_anything_is_made(release: Release, capsys: pytest.CaptureFixture[str]) -> None:
    release.change("MDA-003", "__PT", np.zeros_like)
    release.change("CHUM-002", "", np.zeros_like)
    with pytest.raises(InputError, match=r"^release: 1 error"):
        run_prepare(release)
    work = release.root.parent / "work"
    assert sorted(path.name for path in work.iterdir()) == ["checks", "digests.json", "problems.csv", "problems.json"]
    with (work / "problems.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows == json.loads((work / "problems.json").read_text())
    assert [(row["severity"], row["patient_id"], row["file"]) for row in rows] == [
        ("error", "MDA-003", "Task 1/MDA-003/MDA-003__PT.nii.gz"),
        ("warning", "CHUM-002", "Task 1/CHUM-002/CHUM-002.nii.gz"),
    ]
    assert " ".join(capsys.readouterr().out.split()) == (
        "Errors (1) MDA-003 suv Task 1/MDA-003/MDA-003__PT.nii.gz: all voxels are zero, expected SUV: zero or more, "
        "highest above 1 and up to 500 Warnings (1) CHUM-002 labels Task 1/CHUM-002/CHUM-002.nii.gz: an empty mask, "
        "expected a GTVp or a GTVn release: 1 error, 1 warning"
    )


def test_cases_with_errors_are_left_out_by_name(release: Release, capsys: pytest.CaptureFixture[str]) -> None:
    """Prepared files of a patient with a new error are removed, because nnU-Net would train on them."""
    run_prepare(release)
    release.change("MDA-003", "__PT", np.zeros_like)
    with pytest.raises(InputError, match=r"splits\.json: 0 new patients \(none\) and 1 missing ones \(MDA-003\)"):
        run_prepare(release, "--keep-going")
    (release.root.parent / "work" / "splits.json").unlink()
    assert run_prepare(release, "--keep-going") == 0
    assert "excluded because of errors: MDA-003\n" in capsys.readouterr().out
    assert read_record(release)["left_out"] == ["MDA-003"]
    assert list_files(release)["labelsTr"] == ["CHUM-001", "CHUM-002"]
    assert "imagesTr/MDA-003_0000.nii.gz" in read_record(release)["removed"]
    assert (find_raw(release) / "notes" / "MDA-003.json").exists() is False


def test_a_table_that_cannot_be_read_stops_also_with_keep_going(release: Release) -> None:
    release.table("Task 2").write_text("nonsense")
    with pytest.raises(
        InputError, match=r"^Task 2/.*csv: no column PatientID .* \(no single case can be excluded for it\)$"
    ):
        run_prepare(release, "--keep-going")


def test_check_only(release: Release) -> None:
    assert run_prepare(release, "--check-only") == 0
    release.path("MDA-003", "").unlink()
    assert run_prepare(release, "--check-only") == 1
    assert not (release.root.parent / "work" / "splits.json").exists()


def test_a_missing_table_is_reported_before_images_are_read(
    release: Release, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    release.table("Task 2").unlink()
    monkeypatch.setattr("baseline.release.prepare.find_problems", lambda *_: pytest.fail("images were read"))
    assert run_prepare(release, "--check-only") == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "Task 2: 0 CSV files, expected one, such as HECKTOR_2025_Training_Task_2.csv" in printed
    assert "images not checked yet" in printed


def test_patients_without_a_mask_are_prepared_for_the_heads(release: Release) -> None:
    release.forget("MDA-003", "Task 1")
    release.write_tables()
    assert run_prepare(release) == 0
    assert list_files(release)["imagesTs"] == ["MDA-003_0000", "MDA-003_0001"]
    assert list_files(release)["labelsTr"] == list(PATIENTS[:2])
    assert json.loads((find_raw(release) / "dataset.json").read_text())["numTraining"] == 2


@pytest.mark.slow
def test_two_processes_write_the_same_files(release: Release) -> None:
    run_prepare(release)
    expected = {p.name: p.read_bytes() for p in find_raw(release).rglob("*.nii.gz")}
    key = read_record(release)["data"]
    work = release.root.parent / "other"
    assert run_prepare(release, "--work", str(work), "--jobs", "2") == 0
    assert {p.name: p.read_bytes() for p in work.rglob("*.nii.gz")} == expected
    assert json.loads((work / "prepare.json").read_text())["data"] == key
