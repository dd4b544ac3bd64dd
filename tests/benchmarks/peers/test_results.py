"""The results folder holds the package's network, and nnU-Net can read the patient."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
import torch
from nnunetv2.inference import predict_from_raw_data
from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor
from nnunetv2.inference.sliding_window_prediction import compute_gaussian

from algorithm.deadline import Deadline
from algorithm.network import windows
from algorithm.network.images import MemberImage
from algorithm.network.networks import Networks
from algorithm.network.package import DEFAULT_PACKAGE, PLANS, ModelPackage, load_package
from algorithm.network.passes import Passes, planned_passes
from algorithm.region.localise import Region
from benchmarks.peers.nnunet import predict_command
from benchmarks.peers.results import FILE_ENDING, dice, nnunet_input, results_folder
from contract.files import read_json, write_json
from contract.images.geometry import Geometry
from contract.images.volumes import write_mask

CPU = torch.device("cpu")


@pytest.fixture
def package(tiny_package: Path, tmp_path: Path, sign_package: Callable[..., None]) -> ModelPackage:
    """The tiny package with the keys of the plans that nnU-Net needs, taken from the shipped package."""
    root = copytree(tiny_package, tmp_path / "package")
    plans = read_json(root / PLANS)
    shipped = read_json(DEFAULT_PACKAGE / PLANS)["configurations"]["3d_fullres"]
    configuration = plans["configurations"]["3d_fullres"]
    plans["configurations"]["3d_fullres"] = {**shipped, **configuration}
    write_json(root / PLANS, plans)
    sign_package(root)
    return load_package(root)


@pytest.fixture
def in_float32(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both sides in float32: nnU-Net sums in half precision, and the algorithm may multiply in bfloat16."""
    monkeypatch.setattr(windows, "cpu_has_bfloat16", lambda: False)
    monkeypatch.setattr(torch, "half", torch.float32)
    monkeypatch.setattr(
        predict_from_raw_data, "compute_gaussian", functools.partial(compute_gaussian, dtype=torch.float32)
    )
    yield
    compute_gaussian.cache_clear()


def predictor(folder: Path, folds: tuple[int, ...]) -> Any:
    loaded = nnUNetPredictor(device=CPU, perform_everything_on_device=False, allow_tqdm=False)
    loaded.initialize_from_trained_model_folder(str(folder), folds)
    return loaded


@pytest.mark.usefixtures("in_float32")
def test_nnunet_computes_the_same_logits(package: ModelPackage, tmp_path: Path) -> None:
    """All folds and mirrors, on noise larger than a patch along one axis and smaller along another."""
    results = results_folder(package, tmp_path / "results")
    data = np.random.default_rng(0).normal(0, 1, (2, 25, 16, 11)).astype(np.float32)
    theirs = predictor(results.folder, (0, 1)).predict_logits_from_preprocessed_data(torch.from_numpy(data))
    ours = Passes(MemberImage.of(data), planned_passes(package), Networks(package), Deadline(600), CPU).run()
    assert ours.done == 4
    np.testing.assert_allclose(ours.logits, np.asarray(theirs), atol=2e-5, rtol=1e-4)


def test_nnunet_does_not_mirror_if_the_package_does_not(
    package: ModelPackage, tmp_path: Path, sign_package: Callable[..., None]
) -> None:
    sign_package(package.root, mirror_axes=[])
    results = results_folder(load_package(package.root), tmp_path / "results")
    assert predictor(results.folder, (0,)).allowed_mirroring_axes is None


def test_nnunet_reads_the_patient_with_both_channels_on_the_cts_grid(
    package: ModelPackage, case_folder: Any, tmp_path: Path
) -> None:
    """The CT is unchanged; the PET is 12 at its hot spot and 0 outside the cylinder."""
    case = case_folder.write()
    nnunet_input(case.input, tmp_path / "nnunet", "patient")
    reader = predictor(results_folder(package, tmp_path / "results").folder, (0,)).plans_manager
    files = [str(tmp_path / "nnunet" / f"patient_000{channel}{FILE_ENDING}") for channel in (0, 1)]
    images, properties = reader.image_reader_writer_class().read_images(files)
    np.testing.assert_array_equal(images[0], case.ct.array)
    assert images[1].shape == case.ct.array.shape
    assert 9.0 < images[1].max() <= 12.0
    assert images[1].min() == 0.0
    assert list(properties["spacing"]) == [9.0, 8.0, 8.0]


def test_the_command_has_all_folds_and_nnunets_own_step(package: ModelPackage, tmp_path: Path) -> None:
    command = predict_command(results_folder(package, tmp_path / "results"), Path("in"), Path("out"), 1)
    assert command[command.index("-f") + 1 :][:2] == ["0", "1"]
    assert command[command.index("-step_size") + 1] == "0.5"
    assert command[command.index("-npp") + 1] == command[command.index("-nps") + 1] == "1"
    assert "--disable_tta" not in command


def test_dice_of_each_label(tmp_path: Path) -> None:
    """GTVp: 4 and 2 voxels, 2 of them common: 2 x 2 / 6. Neither mask has GTVn.

    A region from x = 0 to 4 mm holds 3 and 1 of these voxels, 1 common: 2 / 4. Those at 0 mm lie on its face.
    """
    first, second = np.zeros((2, 2, 4), np.uint8), np.zeros((2, 2, 4), np.uint8)
    first[0, 0, :], second[0, 0, :2] = 1, 1
    grid = Geometry((4, 2, 2), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    paths = (tmp_path / "a.mha", tmp_path / "b.mha")
    for path, mask in zip(paths, (first, second), strict=True):
        write_mask(path, mask, grid)
    assert sitk.ReadImage(str(paths[0])).GetSize() == (4, 2, 2)
    assert dice(*paths) == {"GTVp": pytest.approx(2 / 3), "GTVn": None}
    assert dice(*paths, Region((0.0, -1.0, -1.0), (4.0, 2.0, 2.0), "test"))["GTVp"] == pytest.approx(1 / 2)
