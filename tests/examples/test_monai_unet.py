"""`examples/monai_unet`: trained by MONAI's loop, and run in a package as MONAI runs it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from monai.inferers.utils import sliding_window_inference
from monai.transforms import ScaleIntensityRange
from safetensors.torch import load_file, save_file

from algorithm.masks.segmentation import argmax
from algorithm.network.package import ModelPackage, load_package
from algorithm.network.preprocessing import normalise
from algorithm.network.tiles import compute_gaussian, list_passes
from contract.code import Code
from contract.io.files import read_json
from hecktor.cli import main
from rehearsal.submission import pipeline
from rehearsal.submission.pipeline import make_phantoms
from tests.algorithm.network.conftest import predict_logits
from tests.examples.readme import EXAMPLES, make_coarse_phantoms, read_commands, run

CPU = torch.device("cpu")
FOLDER = EXAMPLES / "monai_unet"


@pytest.fixture(scope="module")
def code() -> Code:
    return Code.from_folders([FOLDER])


@pytest.fixture(scope="module")
def package(code: Code, tmp_path_factory: pytest.TempPathFactory) -> ModelPackage:
    """Pack a network with random weights, whose masks are full of small parts."""
    root = tmp_path_factory.mktemp("monai")
    torch.manual_seed(7)
    network = code.find("monai_unet:build_unet", "network")()
    (root / "weights").mkdir()
    save_file(network.state_dict(), root / "weights" / "weights.safetensors")
    command = ["package", "--code", str(FOLDER), "--weights", str(root / "weights"), "--without-heads"]
    assert main([*command, "--output", str(root / "package")]) == 0
    return load_package(root / "package", code)


def load_network(code: Code, package: ModelPackage) -> torch.nn.Module:
    network: torch.nn.Module = code.find("monai_unet:Network", "network")(package.fold_files[0], "cpu").network
    return network


def test_channels_are_the_same_as_from_monais_transforms(code: Code, package: ModelPackage) -> None:
    rng = np.random.default_rng(3)
    ct = rng.uniform(-1100, 900, (5, 6, 7)).astype(np.float32)
    pet = rng.uniform(0, 40, (5, 6, 7)).astype(np.float32)
    windows = code.find("monai_unet:CT_WINDOW", "network"), code.find("monai_unet:PET_WINDOW", "network")
    expected = [
        ScaleIntensityRange(low, high, 0.0, 1.0, clip=True)(channel)
        for (low, high), channel in zip(windows, (ct, pet), strict=True)
    ]
    np.testing.assert_allclose(normalise((ct, pet), package), np.stack(expected), atol=1e-6)


def test_masks_are_the_same_as_from_monais_sliding_window(code: Code, package: ModelPackage) -> None:
    """Compare on one patch, and on 72 voxels, where MONAI's tiles also begin at 0 and 24. MONAI gets nnU-Net's
    Gaussian, since the centre of its own is half a voxel away; float32's rounding remains.
    """
    gaussian = compute_gaussian(
        (48, 48, 48), sigma_scale=1 / 8, value_scaling_factor=10, dtype=torch.float32, device=CPU
    )
    rng, network = np.random.default_rng(4), load_network(code, package)
    for size in ((48, 48, 48), (72, 48, 72)):
        data = rng.random((2, *size), dtype=np.float32)
        with torch.inference_mode():
            inferred = sliding_window_inference(
                torch.from_numpy(data)[None], (48, 48, 48), 1, network, 0.5, roi_weight_map=gaussian
            )
        expected, logits = inferred[0].numpy(), predict_logits(package, data, list_passes(package))
        np.testing.assert_allclose(logits, expected, atol=2e-5)
        assert len(np.unique(expected.argmax(0))) > 1
        highest = np.sort(expected, axis=0)
        clear = highest[-1] - highest[-2] > 1e-4
        np.testing.assert_array_equal(argmax(logits)[clear], expected.argmax(0)[clear])
        assert clear.mean() > 0.99


@pytest.mark.slow
def test_the_commands_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run them on coarse phantoms with one process, five epochs, one head-and-neck phantom and the task `rfs`.

    The last command runs without images, as the README allows; images of custom code are in
    tests/containers/test_code.py. The forest competed for the risk and is in the package if it has skill.
    """
    phantoms, *prepare, training, package, train_all, submission = read_commands("monai_unet")
    make_coarse_phantoms(phantoms, tmp_path / "release", patients=4)
    monkeypatch.setattr(pipeline, "make_phantoms", lambda *arguments: make_phantoms(*arguments[:3], coarsening=8))
    start = submission.index("--images")
    submission = [*submission[:start], "--model-only", *submission[start + 2 :], "--phantom", "head_and_neck"]
    for command in (*prepare, train_all):
        command += ["--jobs", "1"]
    for command in (*prepare, [*training[:-1], "5"], package, train_all, [*submission, "--task", "rfs"]):
        run(command, tmp_path)
    weights = load_file(tmp_path / "weights" / "weights.safetensors")
    assert all(torch.isfinite(tensor).all() for tensor in weights.values())
    manifest = read_json(tmp_path / "package" / "manifest.json")
    (validation,) = (tmp_path / "training").rglob("cross_validation.json")
    assert list(read_json(validation)["custom"]) == ["survival_forest:Head"]
    has_forest = any(name.startswith("heads/rfs/survival_forest.Head/") for name in manifest["files"])
    assert set(manifest["code"]) == {"monai_unet", *(["survival_forest"] if has_forest else [])}
    assert (tmp_path / "submission" / "model.tar.gz").is_file()
    record = read_json(tmp_path / "submission" / "submission.json")
    assert record["images"] == []
    assert "No image archives were made" in (tmp_path / "submission" / "README.md").read_text()
    (rehearsal,) = record["rehearsals"]
    assert (rehearsal["task"], rehearsal["how"]) == ("rfs", "process")
    assert "pass" in rehearsal["cases"][0]["answered"]
