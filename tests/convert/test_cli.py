"""`hecktor convert dicom`: summary, errors in one line, and a phantom through DICOM into the algorithm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from contract.images.volumes import find_single_image, read_volume
from hecktor import cli
from rehearsal import make_phantom
from tests.convert.studies import HOUR_FACTOR, StudyFolder, compress, make_rectangle, shuffle_names

AN_HOUR_BEFORE = (
    "Bq/ml, dose 370 MBq, weight 75 kg, 60.0 min from injection to SeriesTime (START), half-life 6586.2 s, "
    "dose at the scan 253.3 MBq"
)
WITHOUT_LIBRARIES = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))
from hecktor.cli import main
sys.exit(main(["convert", "dicom", "--input", ".", "--output", "y"]))
"""


def test_summary(study: StudyFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = study.add_ct()
    study.add_pet(tracer={"RadionuclideTotalDose": "370"})
    study.add_structures(
        paths, {"GTVp": [make_rectangle((4, 8), (5, 8), 3)], "Mandible": [make_rectangle((1, 2), (1, 2), 3)]}
    )
    (study.root / "notes.txt").touch()
    assert cli.main(["convert", "dicom", "--input", str(study.root), "--output", str(tmp_path / "case")]) == 0
    output = capsys.readouterr()
    assert output.out.splitlines() == [
        "CT   20 x 16 x 9 voxels of 2 x 3 x 4 mm",
        "PET  10 x 12 x 6 voxels of 4 x 4 x 6 mm, highest SUV 14.99",
        f"SUV  factor 0.000296075: {AN_HOUR_BEFORE}",
        "EHR  Age 61.0, Gender 1 (DICOM contains only age, sex and weight)",
        "mask GTVp: GTVp, 20 voxels",
        "mask GTVn: no structure of that name; --gtvn NAME chooses one",
        "mask other structures, not used: Mandible",
        "ignored: 1 file: not a DICOM object, or DICOMDIR (notes.txt)",
        f"written: {tmp_path / 'case'}",
    ]
    assert output.err == (
        "warning: PT/IM0010.dcm: found RadionuclideTotalDose (0018,1074) 370, expected a dose in Bq; assumed to be in MBq\n"
    )


def test_options(study: StudyFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = study.add_ct(description="soft")
    study.add_ct(description="bone")
    study.add_pet(description="first")
    study.add_pet(description="second")
    study.add_structures(paths, {"T": [make_rectangle((4, 8), (5, 8), 3)], "N": [make_rectangle((1, 2), (1, 2), 3)]})
    options = [
        "--ct-series",
        "soft",
        "--pet-series",
        "second",
        "--gtvp",
        "T",
        "--gtvn",
        "N",
        "--edition",
        "hecktor2025",
    ]
    output = ["--output", str(tmp_path / "case")]
    assert cli.main(["convert", "dicom", "--input", str(study.root), *output, *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("mask")] == ["mask GTVp: T, 20 voxels", "mask GTVn: N, 4 voxels"]


def test_an_empty_structure_has_its_own_line(
    study: StudyFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study.add_structures(study.add_ct_and_pet(), {"GTVp": [make_rectangle((4, 8), (5, 8), 3)], "GTVn": []})
    assert cli.main(["convert", "dicom", "--input", str(study.root), "--output", str(tmp_path / "case")]) == 0
    assert "mask GTVn: GTVn without a closed contour" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("modules", "problem"),
    [("pydicom,gdcm", "pydicom and python-gdcm are not installed"), ("gdcm", "python-gdcm is not installed")],
)
def test_without_the_extra(modules: str, problem: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LIBRARIES, modules], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == f"error: reading DICOM: {problem}, expected the extra `dicom`: pip install 'hecktor[dicom]'\n"


@pytest.mark.slow
def test_phantom_through_dicom_into_the_algorithm(study: StudyFolder, tmp_path: Path) -> None:
    """Through DICOM, compressed and in disorder, a phantom keeps its voxels and gives a mask."""
    phantom = make_phantom(294, ct_coarsening=8)
    ct_files, pet_files = study.add_ct(phantom.ct, signed=True), study.add_pet(phantom.pet)
    compress(ct_files, "JPEG2000Lossless")
    compress(pet_files, "JPEGLosslessProcess14_1")
    shuffle_names(ct_files + pet_files)
    case, output = tmp_path / "case", tmp_path / "output"
    assert cli.main(["convert", "dicom", "--input", str(study.root), "--output", str(case)]) == 0

    ct = read_volume(find_single_image(case / "images" / "ct"))
    pet = read_volume(find_single_image(case / "images" / "pet"))
    np.testing.assert_array_equal(ct.array, phantom.ct.array)
    assert ct.geometry.find_differences(phantom.ct.geometry) == []
    assert pet.geometry.find_differences(phantom.pet.geometry) == []
    steps = phantom.pet.array.max(axis=(1, 2), keepdims=True) / 32767
    assert (np.abs(pet.array - phantom.pet.array) <= 0.51 * np.maximum(steps, HOUR_FACTOR)).all()

    predict = ["predict", "--task", "segmentation", "--method", "threshold"]
    assert cli.main([*predict, "--input", str(case), "--output", str(output)]) == 0
    mask = read_volume(output / "images" / "tumor-lymph-node-segmentation" / "output.mha")
    assert mask.geometry.find_differences(phantom.ct.geometry) == []
    assert set(np.unique(mask.array)) >= {0, 1}
