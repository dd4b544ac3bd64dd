"""A whole study: the case equals the volumes in DICOM, and is written whole or not at all."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from pydicom import dcmread
from pydicom.dataset import Dataset

from contract.errors import OutputError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from tests.convert.conftest import Convert, refuse
from tests.convert.studies import (
    CT_GRID,
    PET_GRID,
    StudyFolder,
    compress,
    make_ct_volume,
    make_pet_volume,
    shuffle_names,
)


def compute_pet_tolerance(suv: np.ndarray) -> np.ndarray:
    """Return half a step of each slice's slope (its maximum / 32767), and float32's rounding."""
    return suv.max(axis=(1, 2), keepdims=True) / 32767 / 2 + 1e-5


def test_case_equals_the_volumes_behind_the_files(study: StudyFolder, convert: Convert) -> None:
    study.add_ct_and_pet()
    converted = convert()
    ct, pet = converted.read_image("ct"), converted.read_image("pet")
    assert ct.array.dtype == np.int16
    assert pet.array.dtype == np.float32
    np.testing.assert_array_equal(ct.array, make_ct_volume().array)
    assert (np.abs(pet.array - make_pet_volume().array) <= compute_pet_tolerance(make_pet_volume().array)).all()
    assert (ct.geometry, pet.geometry) == (CT_GRID, PET_GRID)
    assert converted.case.findings == ()
    assert converted.case.ignored == ()


def test_platform_layout(study: StudyFolder, convert: Convert) -> None:
    study.add_ct_and_pet()
    folder = convert().folder
    assert json.loads((folder / "ehr.json").read_text()) == {"Age": 61.0, "Gender": 1}
    entries = json.loads((folder / "inputs.json").read_text())
    assert [entry["socket"]["slug"] for entry in entries] == ["ct-image", "pet-image", "ehr"]
    assert [entry["image"]["name"] for entry in entries[:2]] == ["CHUM-001.mha"] * 2
    ct, pet = (entry["image"]["pk"] for entry in entries[:2])
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()) == [
        "ehr.json",
        f"images/ct/{ct}.mha",
        f"images/pet/{pet}.mha",
        "inputs.json",
    ]


@pytest.mark.parametrize(
    ("syntax", "signed"),
    [
        ("RLELossless", True),
        ("JPEGLosslessProcess14_1", False),
        ("JPEGLosslessProcess14", True),
        ("JPEGLSLossless", True),
        ("JPEG2000Lossless", True),
    ],
)
def test_compressed_pixels(study: StudyFolder, convert: Convert, syntax: str, signed: bool) -> None:
    ct_files = study.add_ct(signed=signed)
    pet_files = study.add_pet()
    compress(ct_files + pet_files, syntax)
    assert dcmread(ct_files[0]).file_meta.TransferSyntaxUID.is_compressed
    converted = convert()
    np.testing.assert_array_equal(converted.read_image("ct").array, make_ct_volume().array)
    pet = converted.read_image("pet").array
    assert (np.abs(pet - make_pet_volume().array) <= compute_pet_tolerance(make_pet_volume().array)).all()


def test_order_follows_positions_not_names_or_instance_numbers(study: StudyFolder, convert: Convert) -> None:
    def misnumber(dataset: Dataset, index: int) -> None:
        dataset.InstanceNumber = (index * 7) % 9

    shuffle_names(study.add_ct(edit=misnumber))
    shuffle_names(study.add_pet())
    converted = convert()
    np.testing.assert_array_equal(converted.read_image("ct").array, make_ct_volume().array)
    assert converted.read_image("ct").geometry == CT_GRID
    assert converted.read_image("pet").geometry == PET_GRID


def test_output_folder_in_use(study: StudyFolder, convert: Convert, tmp_path: Path) -> None:
    study.add_ct_and_pet()
    (tmp_path / "CHUM-001").mkdir()
    convert()  # an empty folder is free
    before = sorted((tmp_path / "CHUM-001").rglob("*"))
    with pytest.raises(OutputError, match="exists and is not empty"):
        convert()
    assert sorted((tmp_path / "CHUM-001").rglob("*")) == before


def test_pet_of_another_region(study: StudyFolder, convert: Convert) -> None:
    study.add_ct()
    far = Geometry(PET_GRID.size, PET_GRID.spacing_mm, (-18.0, -22.0, 900.0))
    study.add_pet(Volume(make_pet_volume().array, far))
    refuse(convert, "PET: does not overlap the CT")


def test_case_in_a_cohort_has_the_name_of_the_patient(study: StudyFolder, tmp_path: Path) -> None:
    """`hecktor rehearse` reads PATIENT/input."""
    from convert import ConvertRequest, convert_dicom

    study.add_ct_and_pet()
    folder = tmp_path / "cohort" / "MDA-007" / "input"
    convert_dicom(ConvertRequest(study.root, folder))
    assert json.loads((folder / "inputs.json").read_text())[0]["image"]["name"] == "MDA-007.mha"


def test_the_example_of_the_page_runs(
    study: StudyFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study.add_ct_and_pet()
    study.root.rename(study.root.with_name("STUDY"))
    monkeypatch.chdir(study.root.parent)
    page = Path(__file__).parents[2] / "docs" / "formats.md"
    for example in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(example, {})
    assert capsys.readouterr().out.startswith("(0.000296075")
    assert (study.root.parent / "CASE" / "inputs.json").is_file()
