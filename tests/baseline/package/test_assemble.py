"""Packages of results of nnU-Net's own planners and trainer return the same logits as nnU-Net."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from algorithm.cli import main as predict_main
from algorithm.network.package import load_package
from contract.archives import unpack
from contract.errors import run_main
from contract.packages import PostprocessingRules
from tests.baseline.package.nnunet_results import CPU, DATASET, TRANSPOSE, compute_logits, package, use_float32
from tests.baseline.postprocessing.patients import make_record_json
from tests.conftest import head_json

HEAD = head_json(threshold=0.0)


def compute_nnunet_logits(results: Path, folds: tuple[int, ...], data: np.ndarray) -> np.ndarray:
    """Compute the logits of nnU-Net's predictor for an image (channel, z, y, x), whose axes are turned as nnU-Net does
    and turned back.
    """
    from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor

    predictor = nnUNetPredictor(perform_everything_on_device=False, device=CPU, allow_tqdm=False)
    if "3d_segresnet" in results.name:
        prepare_segresnet(predictor, results)
    else:
        predictor.initialize_from_trained_model_folder(str(results), folds)
    forward = [0, *(1 + axis for axis in TRANSPOSE)]
    logits = predictor.predict_logits_from_preprocessed_data(torch.from_numpy(data.transpose(forward).copy()))
    return np.asarray(logits.float().numpy().transpose(np.argsort(forward)))


def prepare_segresnet(predictor: Any, results: Path) -> None:
    """Give nnU-Net's predictor MONAI's network with the trained weights of fold 0, which it cannot build itself."""
    from monai.networks.nets.segresnet import SegResNet
    from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

    checkpoint = torch.load(results / "fold_0" / "checkpoint_final.pth", weights_only=False)
    network = SegResNet(3, 4, 2, 3, norm=("INSTANCE", {"affine": True}), blocks_down=(1, 2), blocks_up=(1,))
    network.load_state_dict(checkpoint["network_weights"])
    plans = PlansManager(checkpoint["init_args"]["plans"])
    configuration = plans.get_configuration("3d_segresnet")
    predictor.manual_initialization(
        network, plans, configuration, [network.state_dict()], DATASET, "nnUNetTrainer", (0, 2)
    )


@pytest.mark.parametrize("preset", ["plain", "resenc_m", "segresnet"])
def test_the_package_answers_as_nnunet_does(
    training_results: dict[str, Path], preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All folds and mirrors run over several tiles of an image that is no cube, with the coarse axis in the middle."""
    use_float32(monkeypatch)
    assert package(training_results[preset], tmp_path / "model") == 0
    model = load_package(tmp_path / "model")
    data = np.random.default_rng(1).normal(0, 1, (2, 30, 13, 44)).astype(np.float32)
    expected = compute_nnunet_logits(training_results[preset], tuple(range(len(model.fold_files))), data)
    logits = compute_logits(model, data)
    assert np.abs(expected).max() > 0.5
    np.testing.assert_allclose(logits, expected, atol=1e-4, rtol=1e-4)


def test_axes_and_mirrors_are_the_patients(
    training_results: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """nnU-Net's plans hold y first: (18, 6, 4.5) mm. Its mirror axes 0 and 2 are then y and x of (z, y, x)."""
    plans = json.loads((training_results["plain"] / "plans.json").read_text())
    assert plans["transpose_forward"] == TRANSPOSE
    assert plans["configurations"]["3d_fullres"]["spacing"] == [18.0, 6.0, 4.5]
    assert package(training_results["plain"], tmp_path / "model") == 0
    assert "note: ZScoreNormalization: normalised over the whole scan" in capsys.readouterr().out
    model = load_package(tmp_path / "model")
    assert model.spacing_mm == (4.5, 18.0, 6.0)
    assert model.configuration["spacing"] == [18.0, 6.0, 4.5]
    assert model.manifest.mirror_axes == [1, 2]
    assert model.manifest.resampling == "nnunet"
    assert model.manifest.average == "logits"
    assert model.axes_of(0) == tuple(TRANSPOSE)
    assert list(model.patch_of(0)) == plans["configurations"]["3d_fullres"]["patch_size"]
    assert package(training_results["plain"], tmp_path / "prepared", "--normalised-over", "region") == 0
    assert load_package(tmp_path / "prepared").manifest.resampling == "grid"  # images of `hecktor train prepare`


def test_the_archive_is_what_the_platform_unpacks(training_results: dict[str, Path], tmp_path: Path) -> None:
    """Archives have no folder above the files, no owner, and the same bytes each time."""
    archives = [tmp_path / name / "model.tar.gz" for name in "ab"]
    heads = tmp_path / "heads.json"
    heads.write_text(json.dumps({"rfs": HEAD, "hpv": HEAD}))
    for archive in archives:
        assert package(training_results["plain"], archive, "--heads", str(heads), "--name", "mine") == 0
    assert archives[0].read_bytes() == archives[1].read_bytes()
    assert [path.name for path in archives[0].parent.iterdir()] == ["model.tar.gz"]
    with tarfile.open(archives[0]) as tar:
        members = tar.getmembers()
    names = (
        "fold_0.safetensors",
        "fold_1.safetensors",
        "heads/hpv.json",
        "heads/rfs.json",
        "manifest.json",
        "plans.json",
    )
    assert [member.name for member in members if member.isfile()] == [f"./{name}" for name in names]
    assert all(member.isfile() or member.isdir() for member in members)
    assert {(member.uid, member.gid, member.uname, member.mtime) for member in members} == {(0, 0, "", 0)}
    unpack(archives[0], tmp_path / "unpacked")
    model = load_package(tmp_path / "unpacked")
    assert (model.manifest.name, model.manifest.purpose) == ("mine", "research; not a medical device")
    assert model.manifest.edition == "hecktor2025"
    assert sorted(model.heads) == ["hpv", "rfs"]
    training = {"trainer": "nnUNetTrainer", "plans": "nnUNetPlans", "folds": ["0", "1"], "checkpoint": "final"}
    assert model.manifest.training == training


def test_chosen_folds_and_checkpoint(results: Path, tmp_path: Path) -> None:
    shutil.copy(results / "fold_1" / "checkpoint_final.pth", results / "fold_0" / "checkpoint_best.pth")
    assert package(results, tmp_path / "one", "--folds", "1") == 0
    assert package(results, tmp_path / "best", "--folds", "0", "--checkpoint", "best") == 0
    both = [(tmp_path / name / "fold_0.safetensors").read_bytes() for name in ("one", "best")]
    assert both[0] == both[1]
    (results / "fold_0").rename(results / "fold_all")
    shutil.rmtree(results / "fold_1")
    assert package(results, tmp_path / "all", "--edition", "hecktor2026") == 0
    manifest = load_package(tmp_path / "all").manifest
    assert (manifest.training["folds"], manifest.edition) == (["all"], "hecktor2026")


def test_rules_on_lesions_come_from_postprocessing_json(
    training_results: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rules come from the file of `hecktor train postprocess` or from a plain object of rules. Without rules the
    manifest has no key.
    """
    rules = {"gtvn_volume_ml": 0.5, "largest_gtvp_only": True}
    contents = {"whole": make_record_json(rules), "plain": rules, "none": make_record_json({}, "no gain")}
    for name, content in contents.items():
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(content))
        assert package(training_results["plain"], tmp_path / name, "--postprocessing", str(file)) == 0
        manifest = load_package(tmp_path / name).manifest
        assert manifest.postprocessing == (None if name == "none" else PostprocessingRules(**rules))
    file.write_text(json.dumps(make_record_json({"gtvn_volume_ml": -1})))
    assert package(training_results["plain"], tmp_path / "damaged", "--postprocessing", str(file)) == 1
    assert "none.json.rules.gtvn_volume_ml: found -1, expected a number of at least 0.0" in capsys.readouterr().err


@pytest.mark.usefixtures("root_logger")
def test_the_algorithm_runs_it_and_says_what_it_lacks(
    training_results: dict[str, Path], tmp_path: Path, case_folder: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert package(training_results["resenc_m"], tmp_path / "model") == 0
    case_folder.write()
    places = [
        "--input",
        str(case_folder.input),
        "--output",
        str(case_folder.output),
        "--model",
        str(tmp_path / "model"),
    ]
    assert run_main(predict_main, ["--task", "segmentation", "--device", "cpu", *places]) == 0
    assert list(case_folder.output.rglob("output.mha"))
    assert run_main(predict_main, ["--task", "rfs", "--device", "cpu", *places]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "error: manifest.json: no head 'rfs', expected a package with heads: this package only segments"
    assert not list(case_folder.output.rglob("rfs.json"))
