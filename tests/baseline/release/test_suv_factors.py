"""Tests of PETs in Bq/ml: the table of factors, and how the check and the preparation use it."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm.region.grids import resample
from baseline.cli import main
from baseline.release.checks import scale_by_factor
from baseline.work import DATASET_NAME
from contract.errors import InputError
from contract.images.volumes import Volume, read_volume
from contract.release.tables import ReleaseTable, read_cells, read_suv_factors
from tests.baseline.release.one_folder import EDITION, FOLDER, HEADER, TABLE

Release = Any  # tests/baseline/conftest.py: TinyRelease
BQ_PER_SUV = 5000.0


def read_factors(tmp_path: Path, text: str) -> tuple[dict[str, float], list[tuple[str, str, str]]]:
    """Read the factors, and severity, patient and finding of each problem, for patients A-1, A-2 and A-3."""
    path = tmp_path / "suv.csv"
    path.write_text(text)
    table = ReleaseTable("suv.csv")
    factors = read_suv_factors(path, table, {"A-1", "A-2", "A-3"})
    return factors, [(problem.severity, problem.patient_id, problem.found) for problem in table.problems]


@pytest.mark.parametrize("name", ["pid", "PatientID", "patient_id", "Patient ID"])
def test_the_factor_or_weight_over_dose(tmp_path: Path, name: str) -> None:
    """Weight over dose is in grams per Bq: 70 kg are 70,000 g; 70,000 / 350,000,000 = 0.0002."""
    text = f"{name},bqml_to_suvbw_factor,patient_weight_kg,dose_for_suv_bq\nA-1,0.00025,70,1\nA-2,,70.0,350000000\n"
    factors, problems = read_factors(tmp_path, text + "A-3,,70,\n")
    assert factors == pytest.approx({"A-1": 0.00025, "A-2": 0.0002})
    assert problems == []


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ("0,,", "bqml_to_suvbw_factor '0', which is not used"),
        ("inf,70,350e6", "bqml_to_suvbw_factor 'inf', which is not used"),
        ("often,,", "bqml_to_suvbw_factor 'often', which is not used"),
        (",700,350e6", "patient_weight_kg '700', which is not used"),
        (",70,0", "dose_for_suv_bq '0', which is not used"),
    ],
)
def test_an_impossible_factor_is_named(tmp_path: Path, cells: str, message: str) -> None:
    header = "pid,bqml_to_suvbw_factor,patient_weight_kg,dose_for_suv_bq"
    assert read_factors(tmp_path, f"{header}\nA-1,{cells}\n") == ({}, [("warning", "A-1", message)])


def test_unknown_and_doubled_patients_and_broken_rows(tmp_path: Path) -> None:
    factors, problems = read_factors(
        tmp_path, "pid,bqml_to_suvbw_factor\nA-1,0.1\nA-1,0.1\nB-9,0.1\nB-8,0.2\nA-2\n,0.1\nA-3,0.3\n"
    )
    assert {patient for patient in factors if patient.startswith("A")} == {"A-1", "A-3"}
    assert problems == [
        ("error", "A-1", "rows 2 and 3"),
        ("error", "A-2", "row 6 has 1 cells"),
        ("error", "(row 7)", "row 7 has no PatientID"),
        ("warning", "", "2 patients who are not in the release: B-9, B-8"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"^suv\.csv: not found, expected a table of SUV factors$"),
        ("", r"^suv\.csv: not a readable table \(no header in row 1\), expected a CSV file in UTF-8$"),
        ("pid,patient_weight_kg\nA-1,70\n", r"^suv\.csv: columns pid, patient_weight_kg, expected PatientID and "),
        ("name,bqml_to_suvbw_factor\nA-1,1\n", r"^suv\.csv: columns name, bqml_to_suvbw_factor, expected PatientID "),
    ],
    ids=["no file", "empty", "no dose", "no ID"],
)
def test_unusable_tables(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "suv.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_suv_factors(tmp_path / "suv.csv", ReleaseTable("suv.csv"), set())


def make_scan(tiny_release: Release, scale: float) -> tuple[Volume, Volume]:
    """Return CT and PET of a phantom, with the PET's values times `scale`."""
    patient = tiny_release.add("A-1")
    pet = tiny_release.read(patient, "__PT")
    return tiny_release.read(patient, "__CT"), Volume(pet.array * np.float32(scale), pet.geometry)


@pytest.mark.parametrize("ratio_to_truth", [0.1, 0.6, 1.6, 10.0, 1e6])
def test_a_factor_far_from_the_bodys_estimate_is_not_applied(tiny_release: Release, ratio_to_truth: float) -> None:
    """Factors ten times too high or low are not applied, nor is a factor of a dose in MBq instead of Bq."""
    ct, pet = make_scan(tiny_release, BQ_PER_SUV)
    factor = ratio_to_truth / BQ_PER_SUV
    scaled, finding = scale_by_factor(pet, ct, factor, "PET")
    assert finding is not None
    if 0.5 < ratio_to_truth < 2:
        assert np.allclose(scaled.array, pet.array * factor)
        assert finding.action == f"scaled by its factor {factor:.4g}"
    else:
        assert scaled is pet
        assert "times the scale that muscle and fat suggest" in finding.found
        assert finding.action == "not applied"


def test_without_a_ct_only_the_highest_value_counts(tiny_release: Release) -> None:
    _, pet = make_scan(tiny_release, BQ_PER_SUV)
    assert scale_by_factor(pet, None, 1 / BQ_PER_SUV, "PET")[0] is not pet
    same, finding = scale_by_factor(pet, None, 1.0, "PET")
    assert same is pet
    assert finding is not None
    assert "gives a highest SUV of" in finding.found


def test_a_pet_in_suv_keeps_its_values(tiny_release: Release) -> None:
    ct, pet = make_scan(tiny_release, 1.0)
    same, finding = scale_by_factor(pet, ct, 1 / BQ_PER_SUV, "PET")
    assert same is pet
    assert str(finding).endswith("already SUV, expected Bq/ml; factor 0.0002 not applied")
    assert scale_by_factor(pet, ct, None, "PET") == (pet, None)


PATIENTS = ("CHUM-001", "CHUM-002", "MDA-001", "MDA-002", "MDA-003")
IN_BQ = ("CHUM-002", "MDA-001", "MDA-003")
FACTORS = "pid,bqml_to_suvbw_factor,patient_weight_kg,dose_for_suv_bq\nCHUM-002,,70,350e6\nMDA-002,0.0002,,\n"


@pytest.fixture
def download(tiny_release: Release, tmp_path: Path) -> Path:
    """Write five patients in the folder of an edition with one algorithm, and their table.

    Three have a PET in Bq/ml. The PET of CHUM-001 is on the CT's grid, the other PETs are not.
    """
    for patient in PATIENTS:
        tiny_release.add(patient)
        if patient in IN_BQ:
            tiny_release.change(patient, "__PT", lambda array: array * np.float32(BQ_PER_SUV))
    ct, pet = tiny_release.read("CHUM-001", "__CT"), tiny_release.read("CHUM-001", "__PT")
    tiny_release.write("CHUM-001", "__PT", Volume(resample(pet, ct.geometry, 0.0), ct.geometry))
    root = tmp_path / "download"
    shutil.copytree(tiny_release.root / "Task 1", root / FOLDER)
    rows = [f"{patient},{patient[:3]},61,1,,,,1.0,1,0,900,T{number % 5},N1" for number, patient in enumerate(PATIENTS)]
    (root / FOLDER / TABLE).write_text("\n".join([HEADER, *rows, ""]))
    (root / FOLDER / "suv.csv").write_text(FACTORS)
    return root


def prepare(download: Path, *more: str) -> int:
    work = download.parent / "work"
    options = ["--release", str(download), "--work", str(work), "--edition", EDITION.name, "--folds", "2"]
    return main(["prepare", *options, "--jobs", "1", "--spacing-mm", "6", "6", "6", "--preset", "short", *more])


def read_prepared_pet(download: Path, patient: str) -> Any:
    raw = download.parent / "work" / "nnunet" / "raw" / DATASET_NAME
    return read_volume(raw / "imagesTr" / f"{patient}_0001.nii.gz").array


def read_problems(download: Path) -> list[tuple[str, str, str]]:
    with (download.parent / "work" / "problems.csv").open() as file:
        return [(row["severity"], row["kind"], row["patient_id"]) for row in csv.DictReader(file)]


@pytest.mark.slow
def test_prepare_with_and_without_factors(download: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By default each of the three patients in Bq/ml is an error, with the table two of them. They are left out or
    estimated.

    A new factor prepares only its patient again. The factor is weight / dose: a dose of 280 instead of 350 MBq makes it
    350 / 280 times as high.
    """
    assert prepare(download, "--check-only") == 1
    assert [row for row in read_problems(download) if row[0] == "error"] == [("error", "suv", p) for p in IN_BQ]
    assert "or its factor in --suv-factors" in " ".join(capsys.readouterr().out.split())

    table = download / FOLDER / "suv.csv"
    options = ("--suv-factors", str(table), "--keep-going")
    assert prepare(download, *options) == 0
    assert read_problems(download) == [
        ("error", "suv", "MDA-001"), ("error", "suv", "MDA-003"), ("warning", "not-counted", "CHUM-001"),
        ("warning", "suv-factor", "CHUM-002"), ("warning", "suv-factor", "MDA-002"),
    ]  # fmt: skip
    assert "3 patients of 2 centres" in capsys.readouterr().out
    record = json.loads((download.parent / "work" / "prepare.json").read_text())
    assert record["left_out"] == ["MDA-001", "MDA-003"]
    assert "scaled by its factor 0.0002" in record["corrections"]["CHUM-002"][0]
    assert np.allclose(read_prepared_pet(download, "CHUM-002"), read_prepared_pet(download, "MDA-002"), atol=0.02)
    assert read_prepared_pet(download, "CHUM-001").mean() == pytest.approx(
        read_prepared_pet(download, "MDA-002").mean(), rel=0.05
    )

    (download.parent / "work" / "splits.json").unlink()
    table.write_text(FACTORS.replace("350e6", "280e6") + "MDA-001,7,,\n")
    assert prepare(download, *options[:2], "--estimate-suv") == 0
    assert [row for row in read_problems(download) if row[1].startswith("suv")] == [
        ("warning", "suv-factor", "CHUM-002"), ("warning", "suv", "MDA-001"), ("warning", "suv-factor", "MDA-001"),
        ("warning", "suv-factor", "MDA-002"), ("warning", "suv", "MDA-003"),
    ]  # fmt: skip
    again = json.loads((download.parent / "work" / "prepare.json").read_text())
    assert (again["counts"]["written"], again["left_out"]) == (3, [])
    assert "from the uptake of" in again["corrections"]["MDA-003"][0]
    warm = read_prepared_pet(download, "MDA-002") > 0.5
    ratio = read_prepared_pet(download, "CHUM-002")[warm] / read_prepared_pet(download, "MDA-002")[warm]
    assert np.allclose(ratio, 350 / 280, rtol=0.01)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("A-1.nii.gz,0.1\n", r"found rows of A-1\.nii\.gz, expected .*; A-1\.nii\.gz differs from A-1 by the ending"),
        ("", "found no row, expected patients of the release, A-1, A-2, A-3"),
    ],
)
def test_a_table_of_no_patient_is_an_error(tmp_path: Path, rows: str, says: str) -> None:
    with pytest.raises(InputError, match=rf"suv\.csv: {says}"):
        read_factors(tmp_path, f"pid,bqml_to_suvbw_factor\n{rows}")


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_cells_are_separated_by_what_the_header_has_most_of(tmp_path: Path, separator: str) -> None:
    """Blanks around a cell and rows without text do not count."""
    rows = (("PatientID", "a"), ("A-1", " 1 "), ("", ""))
    text = "".join(separator.join(f'"{cell}"' for cell in row) + "\r\n" for row in rows)
    (tmp_path / "t.csv").write_text("\ufeff" + text, newline="", encoding="utf-8")
    cells = read_cells(tmp_path / "t.csv")
    assert (cells.columns, cells.rows) == (("PatientID", "a"), ((2, ["A-1", "1"]),))
