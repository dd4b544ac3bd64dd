"""`hecktor predict --ct FILE --pet FILE --output MASK` gives the same answers as the platform's layout."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk

from algorithm.cli import main
from contract.archives import pack
from contract.images.volumes import read_volume, to_sitk, write_volume
from tests.algorithm.edition import SEGMENTATION

CT, PET = "B7_0000.nii.gz", "B7_0001.nii.gz"


def run(package: Path, *options: str | Path) -> int:
    return main([*map(str, options), "--model", str(package), "--device", "cpu"])


@pytest.fixture
def image_folder(case_folder: Any, tmp_path: Path, root_logger: None) -> Path:
    """Write the case with nnU-Net's names, and in the platform's layout."""
    case = case_folder.write()
    write_volume(tmp_path / "images" / CT, case.ct)
    write_volume(tmp_path / "images" / PET, case.pet)
    return tmp_path / "images"


def test_the_mask_is_the_same_as_in_the_platforms_layout(
    case_folder: Any, image_folder: Path, tiny_package: Path, tmp_path: Path
) -> None:
    """The two inputs differ only in their files' formats."""
    assert run(tiny_package, "--task", "1", "--input", case_folder.input, "--output", case_folder.output) == 0
    expected = read_volume(SEGMENTATION.answers[0].socket.path_under(case_folder.output) / "output.mha")
    output = tmp_path / "masks" / "mask.nii.gz"
    files = ("--ct", image_folder / CT, "--pet", image_folder / PET, "--ehr", case_folder.ehr_path)
    assert run(tiny_package, *files, "--output", output) == 0
    mask = read_volume(output)
    assert expected.array.any()
    np.testing.assert_array_equal(mask.array, expected.array)
    assert mask.array.dtype == np.uint8
    assert mask.geometry.find_differences(case_folder.ct.geometry) == []
    assert list(output.parent.iterdir()) == [output]


@pytest.mark.parametrize(("suffix", "by_name"), [(".nii", False), (".mhd", True)])
def test_formats_of_plain_images(
    image_folder: Path, tiny_package: Path, tmp_path: Path, suffix: str, by_name: bool
) -> None:
    """Pixels of `.mhd` are in a `.raw` file. The mask is the same as from `.mha` images."""
    for name in (CT, PET):
        image = to_sitk(read_volume(image_folder / name))
        for other_suffix in (suffix, ".mha"):
            sitk.WriteImage(image, str(image_folder / name.replace(".nii.gz", other_suffix)), useCompression=False)
    ct, pet = (image_folder / name.replace(".nii.gz", suffix) for name in (CT, PET))
    assert ct.with_suffix(".raw").exists() == (suffix == ".mhd")
    options = () if by_name else ("--pet", pet)
    assert run(tiny_package, "--ct", ct, *options, "--output", tmp_path / "mask.nii") == 0
    assert run(tiny_package, "--ct", ct.with_suffix(".mha"), "--output", tmp_path / "expected.nii") == 0
    assert read_volume(tmp_path / "mask.nii").array.any()
    assert (tmp_path / "mask.nii").read_bytes() == (tmp_path / "expected.nii").read_bytes()


def test_absent_clinical_variables_are_a_warning_for_a_mask(
    case_folder: Any, image_folder: Path, tiny_package: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    expected = "*** WARNING *** ehr.json: absent, expected the clinical variables; continuing without clinical variabl"
    case_folder.ehr_path.unlink()
    run(tiny_package, "--ct", image_folder / CT, "--output", tmp_path / "mask.mha")
    assert expected in capfd.readouterr().err
    run(tiny_package, "--task", "1", "--input", case_folder.input, "--output", case_folder.output)
    assert expected in capfd.readouterr().err


def test_a_packed_model_gives_the_same_mask_and_its_folder_is_removed(
    image_folder: Path, tiny_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    pack(tiny_package, tmp_path / "model.tar.gz")
    for model, name in ((tiny_package, "folder.mha"), (tmp_path / "model.tar.gz", "archive.mha")):
        run(model, "--ct", image_folder / CT, "--output", tmp_path / name)
    assert (tmp_path / "archive.mha").read_bytes() == (tmp_path / "folder.mha").read_bytes()
    assert list(scratch.iterdir()) == []
