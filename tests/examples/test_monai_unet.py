"""`examples/monai_unet`: trained by MONAI's loop, and run in a package as MONAI runs it."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from monai.inferers.utils import sliding_window_inference
from monai.transforms import ScaleIntensityRange
from monai.utils import set_determinism
from safetensors.torch import load_file, save_file

from algorithm.masks.segmentation import argmax
from algorithm.network.package import ModelPackage, load_package
from algorithm.network.preprocessing import normalise
from algorithm.network.tiles import compute_gaussian, list_passes
from baseline.cli import main as train
from baseline.release.cases import read_cases
from baseline.work import WorkFolders
from contract.code import Code
from contract.io.files import read_json
from hecktor.cli import main
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import CohortOptions
from rehearsal.phantoms.make import make_cohort
from tests.algorithm.network.conftest import predict_logits
from tests.baseline.conftest import make_empty_release
from tests.examples.readme import EXAMPLES, read_commands, run

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


@pytest.fixture
def run_training(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Run `train.py` in this process, then restore what it changed there."""
    modules, seeds = set(sys.modules), (np.random.get_state(), torch.get_rng_state())  # noqa: NPY002
    monkeypatch.setattr(sys, "path", sys.path[:])

    def training(*arguments: object) -> None:
        monkeypatch.setattr(sys, "argv", ["train.py", *map(str, arguments)])
        runpy.run_path(str(FOLDER / "train.py"), run_name="__main__")

    yield training
    for name in {"monai_unet", *sys.modules} - modules:
        if name.partition(".")[0] == "monai_unet":
            sys.modules.pop(name, None)
    set_determinism(None)
    np.random.set_state(seeds[0])  # noqa: NPY002
    torch.set_rng_state(seeds[1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_training_on_phantoms_and_answering_a_case(
    tmp_path: Path, run_training: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    """One epoch of `train.py` changes the weights; packed, they answer a case by a mask on its CT's grid."""
    release = make_empty_release(tmp_path)
    for name in ("CHUM-000", "HMR-001"):
        release.add(name)
    work = WorkFolders(tmp_path / "work")
    prepare = ["--release", str(release.write_tables()), "--work", str(work.root), "--folds", "2", "--jobs", "1"]
    assert train(["prepare", *prepare, "--spacing-mm", "4", "4", "4"]) == 0
    capsys.readouterr()
    run_training(work.raw, tmp_path / "weights", 1)
    assert capsys.readouterr().out.startswith("epoch 1 of 1: loss ")
    weights = load_file(tmp_path / "weights" / "weights.safetensors")
    assert all(torch.isfinite(tensor).all() for tensor in weights.values())
    places = ["--weights", str(tmp_path / "weights"), "--output", str(tmp_path / "model.tar.gz")]
    assert main(["package", "--code", str(FOLDER), *places, "--without-heads"]) == 0
    case = read_cases(work)[0]
    mask = tmp_path / "mask.nii.gz"
    options = ["--ct", str(case.ct), "--pet", str(case.pet), "--device", "cpu", "--output", str(mask)]
    assert main(["predict", "--model", str(tmp_path / "model.tar.gz"), "--code", str(FOLDER), *options]) == 0
    assert mask.is_file()


def check_readme(root: Path, *, images: bool) -> None:
    """Run the README's commands on coarse phantoms with one process, one epoch, one head-and-neck phantom and the task `rfs`.

    Without images, with `--model-only`. The forest competed for the risk and is in the package if it has skill, the
    files to upload exist, and the networks answered the phantom within the time limit.
    """
    phantoms, *prepare, training, package, train_all, submission = read_commands("monai_unet")
    patients, seed = (int(phantoms[phantoms.index(option) + 1]) for option in ("--patients", "--seed"))
    centres = tuple(centre.code for centre in CENTRES)
    options = CohortOptions(seed, centres, "release", "head_and_neck", ct_coarsening=4)
    assert len(list(make_cohort(options, patients, root / "release", jobs=1))) == patients
    submission = [*submission, "--phantom", "head_and_neck", "--task", "rfs"]
    if not images:
        start = submission.index("--images")
        submission[start : start + 2] = ["--model-only"]
    else:
        submission += ["--level", "1"]
    for command in (*prepare, train_all):
        command += ["--jobs", "1"]
    for command in (*prepare, [*training[:-1], "1"], package, train_all, submission):
        run(command, root)
    manifest = read_json(root / "package" / "manifest.json")
    (validation,) = (root / "training").rglob("cross_validation.json")
    assert list(read_json(validation)["custom"]) == ["survival_forest:Head"]
    has_forest = any(name.startswith("heads/rfs/survival_forest.Head/") for name in manifest["files"])
    assert set(manifest["code"]) == {"monai_unet", *(["survival_forest"] if has_forest else [])}
    archives = ["hecktor-rfs.tar.gz"] if images else []
    assert sorted(path.name for path in (root / "submission").glob("*.tar.gz")) == [*archives, "model.tar.gz"]
    record = read_json(root / "submission" / "submission.json")
    sizes = [(root / "submission" / name).stat().st_size for name in archives]
    assert [image["size"] for image in record["images"]] == sizes
    assert all(size > 1e8 for size in sizes)
    (rehearsal,) = record["rehearsals"]
    assert (rehearsal["task"], rehearsal["how"]) == ("rfs", "container" if images else "process")
    assert 0 < rehearsal["longest_s"] < rehearsal["time_limit_s"]
    assert "pass" in rehearsal["cases"][0]["answered"]


@pytest.mark.slow
@pytest.mark.skipif(
    "HECKTOR_REQUIRE_ENGINE" in os.environ, reason="tests/containers/test_examples.py runs these commands with images"
)
def test_the_commands_of_the_readme(tmp_path: Path) -> None:
    check_readme(tmp_path, images=False)
