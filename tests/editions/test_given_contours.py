"""An edition whose risk has contours as an input, as in task 3 of HECKTOR 2021: phantoms, answers and scores."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk

from contract.images.volumes import read_volume
from contract.io.files import read_json, write_json
from hecktor.cli import main
from rehearsal.phantoms.cohort import CohortOptions
from rehearsal.phantoms.make import make_cohort
from tests.conftest import head_json, write_manifest
from tests.editions.contours_edition import make_contours_edition


def run_hecktor(*arguments: object) -> None:
    assert main([str(argument) for argument in arguments]) == 0


@pytest.fixture(scope="module")
def edition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("edition") / "contours.json"
    write_json(path, make_contours_edition())
    return path


@pytest.fixture(scope="module")
def cohort(edition: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("contours") / "cohort"
    options = CohortOptions(4, ("CHUM", "MDA"), "platform", "head_and_neck", ct_coarsening=2, edition=str(edition))
    assert len(list(make_cohort(options, 2, folder, 1))) == 2
    return folder


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory, tiny_package: Path) -> Path:
    """Write a package on a grid of 3 mm, whose risk is a hundredth of the primary's volume in ml."""
    root = tmp_path_factory.mktemp("package") / "model"
    shutil.copytree(tiny_package, root)
    shutil.rmtree(root / "heads")
    plans = read_json(root / "plans.json")
    plans["configurations"]["3d_fullres"]["spacing"] = [3.0, 3.0, 3.0]
    write_json(root / "plans.json", plans)
    head = head_json(("gtvp_volume_ml", 1.0)) | {"intercepts": [0.0]}
    head["terms"][0]["sd"] = 100.0
    write_json(root / "heads" / "rfs.json", head)
    write_manifest(root, edition="hecktor2021_contours")
    return root


def predict(edition: Path, case: Path, package: Path, output: Path) -> tuple[float, dict[str, Any]]:
    record = output.with_suffix(".json")
    options = ["--edition", edition, "--task", "rfs", "--model", package, "--device", "cpu", "--record", record]
    run_hecktor("predict", "--input", case / "input", "--output", output, *options)
    return json.loads((output / "rfs.json").read_text()), read_json(record)


def test_the_contours_are_an_input_and_give_the_volume(
    edition: Path, cohort: Path, package: Path, tmp_path: Path
) -> None:
    """Phantoms pass the reference as the contours. No network answers; the platform's listing names the socket; and
    the rules of 2021 score the answers as its task 3: the larger primary recurs first, C-index 1.
    """
    risks = {}
    for path in sorted(cohort.glob("*/input")):
        case, contours = path.parent, list((path / "images" / "expert-contours").iterdir())
        reference = read_volume(cohort / "ground_truth" / f"{case.name}.mha")
        assert len(contours) == 1
        np.testing.assert_array_equal(read_volume(contours[0]).array, reference.array)
        assert "expert-contours" in {entry["socket"]["slug"] for entry in read_json(path / "inputs.json")}
        risk, record = predict(edition, case, package, tmp_path / case.name)
        volume_ml = float((reference.array == 1).sum()) * reference.geometry.voxel_volume_mm3 / 1000
        assert record["lesions"]["GTVp"]["volume_ml"] == pytest.approx(volume_ml, rel=0.15)
        assert risk == pytest.approx(record["lesions"]["GTVp"]["volume_ml"] / 100, abs=1e-3)
        assert (record["segmented_by"], record["passes_done"], record["fallbacks"]) == ("contours", 0, [])
        risks[case.name] = risk
    table = tmp_path / "risks.csv"
    table.write_text("\n".join(["PatientID,Prediction", *(f"{name},{risk}" for name, risk in risks.items())]) + "\n")
    first, last = sorted(risks, key=lambda name: -risks[name])
    truth = tmp_path / "truth.csv"
    truth.write_text(f"PatientID,RFS,Relapse\n{first},100,1\n{last},200,0\n")
    run_hecktor(
        "evaluate", "--edition", edition, "--task", 3, "--predictions", table, "--ground-truth", truth,
        "--workers", 0, "--output", tmp_path / "scored",
    )  # fmt: skip
    assert read_json(tmp_path / "scored" / "metrics.json")["aggregates"]["c_index"]["value"] == 1.0


def test_a_case_without_contours_or_with_others_is_refused(
    edition: Path, cohort: Path, package: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    case = Path(shutil.copytree(next(cohort.glob("*/input")).parent, tmp_path / "case"))
    (mask,) = (case / "input" / "images" / "expert-contours").iterdir()
    plain = [next((case / "input" / "images" / name).iterdir()) for name in ("ct", "pet")]
    options = ["predict", "--edition", edition, "--model", package, "--task", "rfs", "--output", tmp_path / "out"]

    def read_error(*arguments: object) -> str:
        capfd.readouterr()
        assert main([str(argument) for argument in (*options, *arguments)]) == 1
        return capfd.readouterr().err.splitlines()[-1]

    image = sitk.ReadImage(str(mask))
    sitk.WriteImage(image[:, :, :-1], str(mask))
    off_grid = rf"{mask.name}: not on the CT's grid \(.*\), expected contours on the CT's grid"
    assert re.fullmatch(f"error: {off_grid}", read_error("--input", case / "input"))
    sitk.WriteImage(image * 3, str(mask))
    expected = "expected 0 background, 1 GTVp, 2 GTVn"
    assert read_error("--input", case / "input") == f"error: {mask.name}: label 3, {expected}"
    mask.unlink()
    assert "expert-contours" in read_error("--input", case / "input")
    files = ["--ct", plain[0], "--pet", plain[1], "--ehr", case / "input" / "ehr.json"]
    assert read_error(*files).startswith("error: contours: not given, expected a mask of the lesions")
