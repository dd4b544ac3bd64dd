"""Two rendered patients with a coarse CT matrix: voxels, files, and the command."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from algorithm.heads.measure import clinical_features
from baseline.heads.models.targets import make_targets
from contract import patient
from contract.editions import load_edition
from contract.editions.inputs import CT, EHR
from contract.errors import OutputError
from contract.images import volumes as images
from contract.io.files import read_json, write_json
from contract.patient import parse_ehr
from contract.predictions import read_inputs
from rehearsal.phantoms.centres import CENTRES, find_centre
from rehearsal.phantoms.cli import main
from rehearsal.phantoms.cohort import Activity, CohortOptions, PhantomCase, coarsen_protocol, draw_cases, make_case
from rehearsal.phantoms.lesions import n_stage, t_stage
from rehearsal.phantoms.make import LAYOUTS, make_cohort
from rehearsal.phantoms.rendering import Rendered, render
from rehearsal.phantoms.tables import make_platform_ehr, make_table_row
from tests.file_limit import run_with_file_limit
from tests.signals import reset_signals

CODES = ("CHUS", "MDA")
SOCKETS = load_edition().inputs
FOUR_ANSWERS = str(Path(__file__).parents[2] / "editions" / "four_answers.json")


CODE_CENTRES = [find_centre(code) for code in CODES]


def make_options(layout: str) -> CohortOptions:
    return CohortOptions(seed=8, centres=CODES, layout=layout, field_of_view="head_and_neck", ct_coarsening=8)


@pytest.fixture(scope="module")
def case() -> PhantomCase:
    """Make a head-and-neck patient with radiotherapy data and a primary tumour."""
    cases = (make_case(5, index, CENTRES, "head_and_neck") for index in range(100))
    candidate = next(case for case in cases if case.protocol.dose is not None and case.disease.gtvp_ml > 8)
    return replace(candidate, protocol=coarsen_protocol(candidate.protocol, 4))


@pytest.fixture(scope="module")
def scan(case: PhantomCase) -> Rendered:
    return render(case)


def test_padding_fills_the_corners_only(case: PhantomCase) -> None:
    """Inside the scanner's circle, which touches the edges of the square, lies pi / 4 of a slice."""
    protocol = replace(case.protocol, padding_hu=-3024, planning=None, dose=None)
    ct = render(replace(case, protocol=protocol)).ct.array
    assert (ct == -3024).mean() == pytest.approx(1 - np.pi / 4, abs=0.02)
    assert ct[ct != -3024].min() >= -1024
    assert (ct[:, :3, :3] == -3024).all()


def test_rendering_twice_gives_the_same_voxels(case: PhantomCase, scan: Rendered) -> None:
    again = render(case)
    np.testing.assert_array_equal(again.ct.array, scan.ct.array)
    np.testing.assert_array_equal(again.pet.array, scan.pet.array)
    np.testing.assert_array_equal(again.mask.array, scan.mask.array)


def test_types_labels_and_grids(case: PhantomCase, scan: Rendered) -> None:
    dtypes = [volume.array.dtype for volume in (scan.ct, scan.pet, scan.mask)]
    assert dtypes == [np.dtype(name) for name in ("int16", "float32", "uint8")]
    assert scan.mask.geometry == scan.ct.geometry == case.protocol.ct
    assert set(np.unique(scan.mask.array)) <= {0, 1, 2}
    assert scan.ct.array.min() >= -1024
    assert scan.pet.array.min() >= 0
    assert np.isfinite(scan.pet.array).all()


def test_the_mask_holds_the_planned_tumour(case: PhantomCase, scan: Rendered) -> None:
    """Bone is no tumour, and a voxel is up to 4 x 4 x 5 mm, so the volume may be a quarter off."""
    volume = (scan.mask.array == 1).sum() * scan.mask.geometry.voxel_volume_mm3 / 1000
    assert volume == pytest.approx(case.disease.gtvp_ml, rel=0.25)


def test_tumour_takes_up_more_than_muscle_and_dose_is_highest_there(case: PhantomCase, scan: Rendered) -> None:
    x, y, z = case.frame.to_patient(case.disease.lesions[0].place)
    assert scan.dose is not None
    for volume, low in ((scan.pet, 2.5), (scan.dose, 60.0)):
        geometry = volume.geometry
        k, j, i = (
            round((value - origin) / spacing)
            for value, origin, spacing in zip(
                (z, y, x), geometry.origin_mm[::-1], geometry.spacing_mm[::-1], strict=True
            )
        )
        assert volume.array[k - 2 : k + 3, j - 2 : j + 3, i - 2 : i + 3].max() > low


@pytest.mark.slow
def test_release_layout(tmp_path: Path) -> None:
    patient_ids = list(make_cohort(make_options("release"), 2, tmp_path, jobs=1))
    assert sorted(patient_ids) == sorted(case.patient_id for case in draw_cases(make_options("release"), 2))
    for name in patient_ids:
        ct = images.read_volume(tmp_path / "Task 1" / name / f"{name}__CT.nii.gz")
        mask = images.read_volume(tmp_path / "Task 1" / name / f"{name}.nii.gz")
        assert ct.array.dtype == np.int16
        assert not ct.geometry.find_differences(mask.geometry)
        for task in ("Task 2", "Task 3"):
            copy = tmp_path / task / name / f"{name}__PT.nii.gz"
            assert copy.read_bytes() == (tmp_path / "Task 1" / name / copy.name).read_bytes()
    with (tmp_path / "Task 2" / "HECKTOR_2025_Training_Task_2.csv").open(newline="") as table:
        rows = list(csv.DictReader(table))
    assert [row["PatientID"] for row in rows] == [case.patient_id for case in draw_cases(make_options("release"), 2)]
    assert {"Relapse", "RFS", "Age", "M-stage"} <= set(rows[0])
    assert not any(path.name.startswith(".partial") for path in tmp_path.rglob("*"))


def test_platform_layout_and_resuming(tmp_path: Path) -> None:
    options = make_options("platform")
    first = next(iter(make_cohort(options, 1, tmp_path, jobs=1)))
    ct = images.find_single_image(SOCKETS[CT].path_under(tmp_path / first / "input"))
    written = ct.stat().st_mtime_ns
    patient_ids = list(make_cohort(options, 2, tmp_path, jobs=1))
    assert len(patient_ids) == 2
    assert ct.stat().st_mtime_ns == written
    record = patient.read_ehr(SOCKETS[EHR].path_under(tmp_path / first / "input"), load_edition().clinical)
    assert record.patient.centre == first.split("-")[0]
    inputs = read_inputs(tmp_path / first / "input" / "inputs.json")
    assert {item.slug: item.image_name for item in inputs}[SOCKETS[CT].slug] == f"{first}.mha"
    mask = images.read_volume(tmp_path / "ground_truth" / f"{first}.mha")
    assert not mask.geometry.find_differences(images.read_volume(ct).geometry)
    assert [row["PatientID"] for row in read_rows(tmp_path / "truth" / "truth.csv")] == patient_ids
    with pytest.raises(OutputError, match="found a cohort made with"):
        list(make_cohort(replace(options, seed=9), 2, tmp_path, jobs=1))


def test_balanced_cohort() -> None:
    """HPV positive and negative patients alternate, and at least three of eight relapse; all patients belong to the
    seed.
    """
    options = make_options("platform")
    balanced = replace(options, balanced=True)
    cases = draw_cases(balanced, 16)
    assert [case.outcome.hpv_positive for case in cases] == [True, False] * 8
    for eight in (cases[:8], cases[8:]):
        assert sum(case.outcome.relapse for case in eight) >= 3
    assert cases[:5] == draw_cases(balanced, 5)
    indices = [case.index for case in cases]
    assert len(set(indices)) == 16
    first = draw_cases(options, 1 + max(indices))
    assert cases == [first[index] for index in indices]
    assert balanced.as_json() == {**options.as_json(), "balanced": True}
    assert "balanced" not in options.as_json()


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as table:
        return list(csv.DictReader(table))


@pytest.mark.parametrize("layout", ["release", "platform"])
def test_an_edition_decides_on_sockets_keys_and_columns(tmp_path: Path, layout: str) -> None:
    options = replace(make_options(layout), edition=FOUR_ANSWERS)
    (name,) = make_cohort(options, 1, tmp_path, jobs=1)
    (case,) = draw_cases(options, 1)
    release = tmp_path / "A made-up edition with four answers Training Data"
    folder = release if layout == "release" else tmp_path / "ground_truth"
    (row,) = read_rows(folder / "A_made-up_edition_with_four_answers_Training_Task.csv")
    assert row == {
        "PatientID": name,
        "Site": case.centre.code,
        "Years": str(case.clinical.age_years),
        "HPV": str(int(case.outcome.hpv_positive)),
        "T-stage": t_stage(case.disease),
        "N-stage": n_stage(case.disease),
        "Relapse": str(int(case.outcome.relapse)),
        "RFS": str(case.outcome.rfs_days),
    }
    assert read_json(tmp_path / "truth" / "cohort.json")["edition"] == "four-answers"
    if layout == "release":
        images_of = {role: images.read_volume(release / name / f"{name}{role}.nii.gz") for role in ("__CT", "__PT", "")}
        assert not images_of["__CT"].geometry.find_differences(images_of["__PT"].geometry)
        assert not images_of["__CT"].geometry.find_differences(images_of[""].geometry)
        return
    assert sorted(path.name for path in (tmp_path / name / "input").iterdir()) == [
        "health-record.json", "images", "inputs.json",
    ]  # fmt: skip
    assert read_json(tmp_path / name / "input" / "health-record.json") == {
        "Years": case.clinical.age_years,
        "HPV": int(case.outcome.hpv_positive),
        "Site": case.centre.code,
    }


def test_release_of_2026(tmp_path: Path) -> None:
    """Of the first three patients of this seed one has a PET in Bq/ml."""
    seed = next(
        seed for seed in range(100) if sum(make_case(seed, n, CODE_CENTRES).activity is not None for n in range(3)) == 1
    )
    options = replace(make_options("release"), edition="hecktor2026", seed=seed)
    list(make_cohort(options, 3, tmp_path, jobs=1))
    folder = tmp_path / "HECKTOR 2026 Training Data"
    rows = read_rows(folder / "HECKTOR_2026_Training_Task.csv")
    assert list(rows[0]) == [
        "PatientID", "CenterID", "Age", "Gender", "Tobacco Consumption", "Alcohol Consumption", "Performance Status",
        "Treatment", "HPV Status", "T-stage", "N-stage", "Relapse", "RFS",
    ]  # fmt: skip
    assert {row["Relapse"] for row in rows} <= {"0", "1"}
    assert all(row["RFS"].isdigit() for row in rows)
    cases = draw_cases(options, 3)
    assert [row["T-stage"] for row in rows] == [t_stage(case.disease) or "T0" for case in cases]
    assert [row["N-stage"] for row in rows] == [n_stage(case.disease) for case in cases]
    factors = {row["pid"]: row for row in read_rows(folder / "suv_conversion_tags.csv")}
    for case in cases:
        name = case.patient_id
        ct, pet, mask = (images.read_volume(folder / name / f"{name}{role}.nii.gz") for role in ("__CT", "__PT", ""))
        assert not ct.geometry.find_differences(pet.geometry)
        assert not ct.geometry.find_differences(mask.geometry)
        assert (name in factors) == (pet.array.max() > 500)
    (row,) = factors.values()
    assert list(row) == ["pid", "patient_weight_kg", "dose_for_suv_bq", "bqml_to_suvbw_factor"]
    weight_kg, dose_bq, factor = (float(row[column]) for column in list(row)[1:])
    assert factor == pytest.approx(weight_kg * 1000 / dose_bq)


def test_platform_of_2026_gives_the_factor_of_pets_in_bq_per_ml(tmp_path: Path) -> None:
    """With 80 kg and 200 MBq, SUV 1 is 200e6 Bq / 80,000 g = 2,500 Bq/ml, so the factor is 1 / 2,500; 2025 has only
    SUV.
    """
    case = make_case(8, 0, CENTRES, "head_and_neck")
    case = replace(case, protocol=coarsen_protocol(case.protocol, 8), activity=None)
    in_bq, scan = replace(case, activity=Activity(80.0, 200e6)), render(case)
    for name, phantom, edition in (
        ("SUV", case, "hecktor2026"),
        ("Bq", in_bq, "hecktor2026"),
        ("2025", in_bq, "hecktor2025"),
    ):
        writer = LAYOUTS["platform"](load_edition(edition))
        writer.write_case(tmp_path, replace(phantom, patient_id=name), scan)
    suv, bq, suv_2025 = (
        images.read_volume(next((tmp_path / name / "input" / "images" / "pet").iterdir()))
        for name in ("SUV", "Bq", "2025")
    )
    np.testing.assert_allclose(bq.array / 2500, suv.array, atol=0.5 / 2500 + 1e-6)
    np.testing.assert_array_equal(suv_2025.array, suv.array)
    ct = images.read_volume(next((tmp_path / "SUV" / "input" / "images" / "ct").iterdir()))
    assert ct.geometry.find_differences(suv.geometry)
    factors = [read_json(tmp_path / name / "input" / "ehr.json").get("SUV Factor") for name in ("SUV", "Bq", "2025")]
    assert factors == [None, pytest.approx(1 / 2500), None]


def test_command_passes_its_options_and_counts_one_patient(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[CohortOptions] = []

    def make_nothing(options: CohortOptions, *_: object) -> Iterator[str]:
        requests.append(options)
        return iter(["CHUS-001"])

    monkeypatch.setattr("rehearsal.phantoms.make.make_cohort", make_nothing)
    arguments = ["--patients", "1", "--seed", "8", "--layout", "release", "--output", str(tmp_path)]
    for options in ([], ["--balanced"], ["--head-and-neck-only"]):
        assert main([*arguments, *options]) == 0
    options = [(request.balanced, request.field_of_view) for request in requests]
    assert options == [(False, None), (True, None), (False, "head_and_neck")]
    assert capsys.readouterr().out.startswith("1 patient in ")


def test_a_free_number_is_drawn_from_its_range_and_read_in_training_and_inference(tmp_path: Path) -> None:
    """Weights of 40 patients are between 20 and 300 kg, missing for few, the same in table and `ehr.json`, and a
    feature of the heads.
    """
    content = read_json(Path(FOUR_ANSWERS))
    weight = {"name": "weight_kg", "key": "Body weight", "type": "number", "unit": "kg", "range": [20, 300]}
    write_json(tmp_path / "edition.json", {**content, "clinical": [weight, *content["clinical"]]})
    edition = load_edition(str(tmp_path / "edition.json"))
    (algorithm,) = edition.algorithms
    weights = []
    for case in draw_cases(replace(make_options("release"), edition=str(tmp_path / "edition.json")), 40):
        ehr, row = make_platform_ehr(case, edition), make_table_row(case, edition, algorithm)
        assert ehr.get("Body weight") == row["Body weight"]
        patient = parse_ehr(ehr, "ehr.json", edition.clinical).patient
        assert clinical_features(patient, edition.clinical)["weight_kg"] == row["Body weight"]
        weights.append(row["Body weight"])
    known = [weight for weight in weights if weight is not None]
    assert 34 <= len(known) <= 40
    assert len(set(known)) > 30
    assert 20 <= min(known) < 90
    assert 230 < max(known) <= 300
    assert "weight_kg" in (make_targets(edition)[0].comparators["clinical"].transforms or {})


def test_an_incomplete_image_of_a_release_is_an_error(tmp_path: Path) -> None:
    """ITK does not report that only 100,000 of 432,000 bytes could be written."""
    program = """
from pathlib import Path

import numpy as np

from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from rehearsal.phantoms.make import write_nifti

grid = Geometry((60, 60, 60), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
write_nifti(Path("ct.nii.gz"), Volume(np.zeros(grid.array_shape, np.int16), grid))
"""

    done = run_with_file_limit(program, tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("contract.errors.OutputError: ct.nii.gz: ")
    assert not (tmp_path / "ct.nii.gz").exists()


@pytest.mark.slow
def test_ctrl_c_ends_a_cohort_without_a_trace(tmp_path: Path) -> None:
    """SIGINT reaches the command and its two processes, as from a terminal."""
    options = ["--patients", "4", "--seed", "1", "--layout", "release", "--jobs", "2", "--output"]
    command = [sys.executable, "-m", "hecktor", "phantoms", *options, str(tmp_path / "out")]
    with subprocess.Popen(reset_signals(command), stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        while not (tmp_path / "out").exists() and process.poll() is None:
            time.sleep(0.1)
        time.sleep(1)  # the processes of the pool start
        os.killpg(process.pid, signal.SIGINT)
        stderr = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert stderr.endswith("error: interrupted\n")
