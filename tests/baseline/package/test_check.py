"""Tests of `hecktor check-model`: the Dice between a packaged model's masks and masks of `nnUNetv2_predict`."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm.network import tiles
from algorithm.network.loaded_package import DEFAULT_PACKAGE
from algorithm.predictor import Predictor
from baseline.package.check import compute_dice, main
from contract import labels
from contract.errors import HecktorError
from contract.images.volumes import Volume, read_header, read_volume, write_mask, write_volume
from contract.io.files import read_json, write_json
from contract.packages import make_file_entry
from tests.algorithm.edition import EDITION
from tests.algorithm.test_exactness import KINDS, predict_by_nnunet, write_scanned_case
from tests.conftest import CaseFolder

DATASET = {
    "channel_names": {"0": "CT", "1": "PET"},
    "labels": {"background": 0, "GTVp": 1, "GTVn": 2},
    "file_ending": ".nii.gz",
}


def test_dice_of_masks() -> None:
    """Masks of two voxels and one voxel share one voxel: 2 * 1 / 3."""
    first, second = np.array([True, True, False]), np.array([True, False, False])
    assert compute_dice(first, second) == pytest.approx(2 / 3)
    assert compute_dice(first, ~first) == 0
    assert compute_dice(first & ~first, second & ~second) is None


@pytest.fixture(scope="module")
def whole_scan(tiny_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write images of the case A with nnU-Net's names, and the model's own mask as if nnU-Net had written it.

    The scan is longer than the region of head and neck, and nnU-Net segments all of it.
    """
    root = tmp_path_factory.mktemp("check")
    images, masks, case = root / "imagesTs", root / "masks", CaseFolder(root)
    for number, volume in enumerate((case.ct, case.pet)):
        x, y, z = volume.geometry.size
        whole = Volume(np.tile(volume.array, (4, 1, 1)), replace(volume.geometry, size=(x, y, 4 * z)))
        write_volume(images / f"A_{number:04}.nii.gz", whole)
    whole_mask, region_mask = (
        Predictor(tiny_package, device="cpu", whole_scan=whole_scan).predict_files(images / "A_0000.nii.gz").mask
        for whole_scan in (True, False)
    )
    assert whole_mask is not None
    assert (whole_mask != region_mask).any()
    write_mask(masks / "A.nii.gz", whole_mask, read_header(images / "A_0000.nii.gz").geometry)
    write_json(masks / "dataset.json", DATASET)
    return root


@pytest.fixture
def folders(whole_scan: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Copy images and masks, which tests may change."""
    images, masks = (shutil.copytree(whole_scan / name, tmp_path / name) for name in ("imagesTs", "masks"))
    return Path(images), Path(masks)


def run_check(package: Path, folders: tuple[Path, Path], *options: str) -> int:
    images, masks = folders
    words = ["--package", str(package), "--cases", str(images), "--nnunet-masks", str(masks), "--device", "cpu"]
    return main([*words, *options])


def test_equal_masks(
    tiny_package: Path, folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str], root_logger: None
) -> None:
    assert run_check(tiny_package, folders) == 0
    header, row, summary = capsys.readouterr().out.splitlines()
    assert header.split() == ["case", "GTVp", "GTVn"]
    assert row.split()[0] == "A"
    assert {*row.split()[1:]} <= {"1.0000", "-"}
    assert summary.startswith("lowest Dice 1.0000: ")
    assert summary.endswith(" of A; cases: 1")


def test_another_mask_gives_the_reasons(
    tiny_package: Path, folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = folders[1] / "A.nii.gz"
    mask = read_volume(path)
    write_mask(path, np.roll(mask.array, 3, axis=0), mask.geometry)
    assert run_check(tiny_package, folders) == 1
    output = capsys.readouterr().out
    assert "A Dice below 0.99 has one of these reasons:" in output
    assert float(output.split("lowest Dice ")[1].partition(":")[0]) < 0.99


def test_the_numbers_are_the_data_sets(
    tiny_package: Path, folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Masks agree with a training that has PET before CT and GTVn as label 1."""
    images, masks = folders
    for old, new in (("A_0000", "swap"), ("A_0001", "A_0000"), ("swap", "A_0001")):
        (images / f"{old}.nii.gz").rename(images / f"{new}.nii.gz")
    mask = read_volume(masks / "A.nii.gz")
    write_mask(masks / "A.nii.gz", np.array([0, 2, 1], np.uint8)[mask.array], mask.geometry)
    numbers = {"channel_names": {"0": "PET", "1": "CT"}, "labels": {"background": 0, "GTVn": 1, "GTVp": 2}}
    write_json(masks / "dataset.json", DATASET | numbers)
    assert run_check(tiny_package, folders) == 0
    names = {"channel_names": {"0": "pt", "1": "x-ray"}, "labels": {"background": 0, "nodes": 1, "primary": 2}}
    write_json(masks / "dataset.json", DATASET | names)
    assert run_check(tiny_package, folders, "--channels", "PET=0,CT=1", "--labels", "GTVn=1,GTVp=2") == 0
    assert capsys.readouterr().out.count("lowest Dice 1.0000") == 2


def test_folders_that_cannot_be_compared_are_named(
    tiny_package: Path, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    images, masks = folders
    path = masks / "A.nii.gz"
    mask = read_volume(path)

    def read_error() -> str:
        with pytest.raises(HecktorError) as error:
            run_check(tiny_package, folders)
        return str(error.value)

    write_mask(path, mask.array[1:], mask.geometry.crop((0, 0, 1), (24, 24, 79)))
    assert read_error().startswith(
        "A.nii.gz: size (24, 24, 79) against (24, 24, 80), expected the grid of A_0000.nii.gz"
    )
    write_mask(path, mask.array * 0, mask.geometry)
    (masks / "dataset.json").rename(tmp_path / "dataset.json")
    assert read_error().startswith("--nnunet-masks: no dataset.json in ")
    (tmp_path / "dataset.json").rename(masks / "dataset.json")
    write_mask(masks / "A.mha", mask.array, mask.geometry)
    assert read_error().startswith("--nnunet-masks: A.mha and A.nii.gz, expected A.nii.gz for each case")
    (masks / "A.mha").unlink()
    path.unlink()
    assert read_error() == "--nnunet-masks: no mask of A, expected A.nii.gz for each case of --cases"
    shutil.rmtree(images)
    write_volume(images / "A.nii.gz", Volume(mask.array, mask.geometry))
    assert read_error().startswith("--cases: no cases in ")


def test_a_training_without_the_ct(tiny_package: Path, folders: tuple[Path, Path]) -> None:
    write_json(folders[1] / "dataset.json", DATASET | {"channel_names": {"0": "PET"}})
    with pytest.raises(HecktorError, match="images of a training that sees only the PET, expected a training with"):
        run_check(tiny_package, folders)


@pytest.mark.slow
def test_a_packaged_model_agrees_with_nnunets_predictor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], record_property: Any
) -> None:
    """Packaged as a stock training of whole scans, the first shipped network agrees with nnU-Net's own predictor.

    The scan ends 19 mm above the region of head and neck, so nnU-Net's tiles are only the tiles of the whole scan.
    """
    case, model = write_scanned_case(tmp_path / "case", (76, 76, 110), 2.5), tmp_path / "model"
    shutil.copytree(DEFAULT_PACKAGE, model)
    plans, manifest = read_json(model / "plans.json"), read_json(model / "manifest.json")
    for kind in KINDS:
        plans["configurations"][manifest["configuration"]] |= {
            f"resampling_fn_{kind}": "resample_torch_fornnunet",
            f"resampling_fn_{kind}_kwargs": {"is_seg": kind == "seg"},
        }
    write_json(model / "plans.json", plans)
    manifest["files"]["plans.json"] = make_file_entry(model / "plans.json")
    for fold in manifest["folds"][1:]:
        del manifest["files"][fold]
    changes = {"average": "logits", "resampling": "nnunet", "normalised_over": "scan", "folds": manifest["folds"][:1]}
    write_json(model / "manifest.json", manifest | changes)
    monkeypatch.setattr(tiles, "cpu_has_bfloat16", lambda: False)
    images, masks = tmp_path / "imagesTs", tmp_path / "masks"
    images.mkdir()
    for number, name in enumerate(("ct", "pet")):
        path = next(EDITION.inputs[name].path_under(case).glob("*.mha"))
        shutil.copy(path, images / f"A_{number:04}.mha")
    write_mask(masks / "A.mha", predict_by_nnunet(case, model), read_volume(images / "A_0000.mha").geometry)
    write_json(masks / "dataset.json", DATASET)
    assert run_check(model, (images, masks)) == 0
    row = capsys.readouterr().out.splitlines()[-2].split()  # nnU-Net prints, too
    for name, dice in zip(labels.LESIONS, row[1:], strict=True):
        record_property(name, dice)
        assert float(dice) >= 0.995
