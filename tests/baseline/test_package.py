"""nnU-Net's own planners and trainer make the results that are packaged: the package answers as nnU-Net does."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from algorithm import windows
from algorithm.budget import Budget
from algorithm.cli import main as predict_main
from algorithm.model_package import ModelPackage, load_package
from algorithm.networks import Networks, untrained_network
from algorithm.passes import Passes, plan_passes
from baseline.package_archive import unpack
from contract.errors import run_main
from hecktor.cli import main as hecktor_main

CPU = torch.device("cpu")
DATASET = {
    "channel_names": {"0": "CT", "1": "PET"},
    "labels": {"background": 0, "GTVp": 1, "GTVn": 2},
    "numTraining": 2,
    "file_ending": ".nii.gz",
    "overwrite_image_reader_writer": "SimpleITKIO",
}
CHANNEL = {"mean": 0.0, "std": 400.0, "percentile_00_5": -1000.0, "percentile_99_5": 1000.0}
# Of (z, y, x): the coarsest axis is y, so that nnU-Net puts it first.
SPACING = [6.0, 18.0, 4.5]
TRANSPOSE = [1, 0, 2]
HEAD = {"kind": "test", "intercept": 0.5, "threshold": 0.0, "terms": []}


def write_raw_dataset(folder: Path) -> None:
    """What nnU-Net's planners read: a dataset, its fingerprint, and the names of its images."""
    raw, preprocessed = folder / "raw" / "Dataset001_Tiny", folder / "preprocessed" / "Dataset001_Tiny"
    fingerprint = {
        "spacings": [SPACING] * 2,
        "shapes_after_crop": [[26, 8, 30]] * 2,
        "median_relative_size_after_cropping": 1.0,
        "foreground_intensity_properties_per_channel": {"0": CHANNEL, "1": CHANNEL},
    }
    for path, content in ((raw / "dataset.json", DATASET), (preprocessed / "dataset_fingerprint.json", fingerprint)):
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(content))
    for case, channel in ((case, channel) for case in "ab" for channel in (0, 1)):
        (raw / "imagesTr").mkdir(exist_ok=True)
        (raw / "imagesTr" / f"{case}_000{channel}.nii.gz").touch()


SEGRESNET = {
    "network_class_name": "monai.networks.nets.segresnet.SegResNet",
    "arch_kwargs": {"init_filters": 4, "blocks_down": [1, 2], "blocks_up": [1], "norm": ["INSTANCE", {"affine": True}]},
    "_kw_requires_import": [],
}


def plan(planner: Any, folder: Path) -> Path:
    """Plan by `planner` with a narrow network; beside it, on the same data, a SegResNet."""
    made = planner(1)
    made.UNet_base_num_features = 4
    made.plan_experiment()
    path: Path = folder / "preprocessed" / "Dataset001_Tiny" / f"{made.plans_identifier}.json"
    plans = json.loads(path.read_text())
    plans["configurations"]["3d_segresnet"] = {"inherits_from": "3d_fullres", "architecture": SEGRESNET}
    path.write_text(json.dumps(plans))
    return path


def trainer_of(configuration: str) -> Any:
    """nnU-Net's trainer, which has to be told how to build a SegResNet."""
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

    class SegResNetTrainer(nnUNetTrainer):  # type: ignore[misc]
        @staticmethod
        def build_network_architecture(
            plans_manager: Any,
            configuration_manager: Any,
            num_input_channels: int,
            num_output_channels: int,
            enable_deep_supervision: bool = True,
        ) -> torch.nn.Module:
            return untrained_network(configuration_manager.configuration, num_input_channels, num_output_channels)

    return SegResNetTrainer if configuration == "3d_segresnet" else nnUNetTrainer


def train(plans_path: Path, folds: int, configuration: str = "3d_fullres") -> Path:
    """Let nnU-Net's trainer save what it would begin with."""
    for fold in range(folds):
        torch.manual_seed(fold)
        plans = json.loads(plans_path.read_text())
        data = plans_path.parent / plans["configurations"]["3d_fullres"]["data_identifier"]
        data.mkdir(exist_ok=True)
        (data / "a.b2nd").touch()  # tells nnU-Net how preprocessed images would be stored
        own = plans | {"continue_training": False}
        trainer = trainer_of(configuration)(own, configuration, fold, dict(DATASET), CPU)
        trainer.enable_deep_supervision = configuration == "3d_fullres"
        trainer.initialize()
        with torch.no_grad():
            for parameter in trainer.network.parameters():
                # Weights that float16 holds exactly, so that nothing is lost on the way.
                parameter.add_(torch.randn_like(parameter) * 0.05).copy_(parameter.half().float())
        trainer.inference_allowed_mirroring_axes = (0, 2)
        for key in ("mean_fg_dice", "train_losses"):
            trainer.logger.log(key, np.float32(0.5), 0)
        trainer.save_checkpoint(os.path.join(trainer.output_folder, "checkpoint_final.pth"))  # noqa: PTH118
    results = Path(trainer.output_folder_base)
    shutil.copy(plans_path, results / "plans.json")
    (results / "dataset.json").write_text(json.dumps(DATASET))
    return results


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Results by preset: the default U-Net of two folds; ResEnc-M, ResEnc-L and a SegResNet of one."""
    folder = tmp_path_factory.mktemp("nnunet")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("raw", "preprocessed", "results"):
            patch.setenv(f"nnUNet_{name}", str(folder / name))
        patch.setenv("nnUNet_n_proc_DA", "1")
        patch.setenv("nnUNet_compile", "f")
        from nnunetv2.experiment_planning.experiment_planners import default_experiment_planner
        from nnunetv2.experiment_planning.experiment_planners.residual_unets import residual_encoder_unet_planners

        write_raw_dataset(folder)
        plain = plan(default_experiment_planner.ExperimentPlanner, folder)
        return {
            "plain": train(plain, 2),
            "segresnet": train(plain, 1, "3d_segresnet"),
            "resenc_m": train(plan(residual_encoder_unet_planners.nnUNetPlannerResEncM, folder), 1),
            "resenc_l": train(plan(residual_encoder_unet_planners.nnUNetPlannerResEncL, folder), 1),
        }


@pytest.fixture
def results(trained: dict[str, Path], tmp_path: Path) -> Path:
    """The default U-Net's results, to be changed."""
    return Path(shutil.copytree(trained["plain"], tmp_path / "Dataset001_Tiny" / trained["plain"].name))


def package(results: Path, output: Path, *options: str) -> int:
    heads = () if {"--heads", "--without-heads"} & set(options) else ("--without-heads",)
    return hecktor_main(["package", "--nnunet", str(results), "--output", str(output), *heads, *options])


def package_both(first: Path, second: Path, output: Path) -> int:
    return package(first, output, "--nnunet", str(second))


def nnunet_logits(results: Path, folds: tuple[int, ...], data: np.ndarray) -> np.ndarray:
    """What nnU-Net's predictor makes of (channel, z, y, x), its axes turned there and back as nnU-Net does."""
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
    """Give nnU-Net's predictor MONAI's own network with the trained weights of fold 0: it cannot build it itself."""
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


def our_logits(model: ModelPackage, data: np.ndarray) -> np.ndarray:
    passes = plan_passes(len(model.fold_files), tuple(model.manifest["mirror_axes"]))
    return Passes(data, passes, Networks(model), Budget.start(600), CPU).run().logits


@pytest.mark.parametrize("preset", ["plain", "resenc_m", "resenc_l", "segresnet"])
def test_the_package_answers_as_nnunet_does(
    trained: dict[str, Path], preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All folds and mirrors over several tiles of an image that is no cube, with the coarse axis in the middle.

    Both sides in float32: nnU-Net sums in half precision, and the algorithm may multiply in bfloat16.
    """
    from nnunetv2.inference import predict_from_raw_data

    in_float32 = functools.partial(predict_from_raw_data.compute_gaussian.__wrapped__, dtype=torch.float32)
    monkeypatch.setattr(torch, "half", torch.float32)
    monkeypatch.setattr(predict_from_raw_data, "compute_gaussian", functools.lru_cache(in_float32))
    monkeypatch.setattr(windows, "cpu_has_bfloat16", lambda: False)
    assert package(trained[preset], tmp_path / "model") == 0
    model = load_package(tmp_path / "model")
    data = np.random.default_rng(1).normal(0, 1, (2, 30, 13, 44)).astype(np.float32)
    expected = nnunet_logits(trained[preset], tuple(range(len(model.fold_files))), data)
    found = our_logits(model, data)
    assert np.abs(expected).max() > 0.5
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-4)


def test_axes_and_mirrors_are_those_of_the_patient(
    trained: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """nnU-Net's plans hold y first: (18, 6, 4.5) mm. Its mirror axes 0 and 2 are then y and x of (z, y, x)."""
    plans = json.loads((trained["plain"] / "plans.json").read_text())
    assert plans["transpose_forward"] == TRANSPOSE
    assert plans["configurations"]["3d_fullres"]["spacing"] == [18.0, 6.0, 4.5]
    assert package(trained["plain"], tmp_path / "model") == 0
    assert "note: ZScoreNormalization: the scale is taken from the whole scan" in capsys.readouterr().out
    model = load_package(tmp_path / "model")
    assert model.spacing_mm == (4.5, 18.0, 6.0)
    assert model.configuration["spacing"] == SPACING
    assert model.manifest["mirror_axes"] == [1, 2]
    assert model.plans["transpose_forward"] == [0, 1, 2]
    patch = plans["configurations"]["3d_fullres"]["patch_size"]
    assert model.configuration["patch_size"] == [patch[1], patch[0], patch[2]]


def test_the_archive_is_what_the_platform_unpacks(trained: dict[str, Path], tmp_path: Path) -> None:
    """No folder above the files, no owner, and the same bytes each time."""
    archives = [tmp_path / name / "model.tar.gz" for name in "ab"]
    heads = tmp_path / "heads.json"
    heads.write_text(json.dumps({"rfs": HEAD, "hpv": HEAD}))
    for archive in archives:
        assert package(trained["plain"], archive, "--heads", str(heads), "--name", "mine") == 0
    assert archives[0].read_bytes() == archives[1].read_bytes()
    assert [path.name for path in archives[0].parent.iterdir()] == ["model.tar.gz"]
    with tarfile.open(archives[0]) as tar:
        members = tar.getmembers()
    assert [member.name for member in members if member.isfile()] == [
        "./fold_0.safetensors",
        "./fold_1.safetensors",
        "./heads/hpv.json",
        "./heads/rfs.json",
        "./manifest.json",
        "./plans.json",
    ]
    assert all(member.isfile() or member.isdir() for member in members)
    assert {(member.uid, member.gid, member.uname, member.mtime) for member in members} == {(0, 0, "", 0)}
    unpack(archives[0], tmp_path / "unpacked")
    model = load_package(tmp_path / "unpacked")
    assert model.name == "mine (research; not a medical device)"
    assert sorted(model.heads) == ["hpv", "rfs"]
    assert model.manifest["training"] == {
        "trainer": "nnUNetTrainer",
        "plans": "nnUNetPlans",
        "folds": ["0", "1"],
        "checkpoint": "final",
    }


def test_chosen_folds_and_checkpoint(results: Path, tmp_path: Path) -> None:
    shutil.copy(results / "fold_1" / "checkpoint_final.pth", results / "fold_0" / "checkpoint_best.pth")
    assert package(results, tmp_path / "one", "--folds", "1") == 0
    assert package(results, tmp_path / "best", "--folds", "0", "--checkpoint", "best") == 0
    both = [(tmp_path / name / "fold_0.safetensors").read_bytes() for name in ("one", "best")]
    assert both[0] == both[1]
    (results / "fold_0").rename(results / "fold_all")
    shutil.rmtree(results / "fold_1")
    assert package(results, tmp_path / "all") == 0
    assert load_package(tmp_path / "all").manifest["training"]["folds"] == ["all"]


def test_the_algorithm_runs_it_and_says_what_it_lacks(
    trained: dict[str, Path], tmp_path: Path, case_folder: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert package(trained["resenc_m"], tmp_path / "model") == 0
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
    assert last == "error: manifest.json: no head 'rfs', expected a package with heads: this one segments only"
    assert not list(case_folder.output.rglob("rfs.json"))


# Ensembles


@pytest.mark.parametrize(
    ("second", "configuration"), [("segresnet", "3d_segresnet"), ("resenc_m", "3d_fullres_2")], ids=str
)
def test_an_ensemble_of_two_trainings(
    trained: dict[str, Path], tmp_path: Path, second: str, configuration: str
) -> None:
    """Two folds of the U-Net and one of the other, which follows the U-Net's first: the weights' mean answers.

    ResEnc-M was trained by plans of its own, whose configuration has the U-Net's name: it gets another.
    """
    assert package_both(trained["plain"], trained[second], tmp_path / "both") == 0
    for name in ("plain", second):
        assert package(trained[name], tmp_path / name) == 0
    both, *apart = (load_package(tmp_path / name) for name in ("both", "plain", second))
    assert both.fold_configurations == ("3d_fullres", configuration, "3d_fullres")
    assert list(both.plans["configurations"]) == ["3d_fullres", configuration]
    assert both.manifest["name"] == f"{apart[0].manifest['name']} + {apart[1].manifest['name']}"
    assert [member["folds"] for member in both.manifest["training"]["members"]] == [["0", "1"], ["0"]]
    weights = [path.read_bytes() for one in apart for path in one.fold_files]
    assert [path.read_bytes() for path in both.fold_files] == [weights[0], weights[2], weights[1]]
    data = np.random.default_rng(1).normal(0, 1, (2, 30, 13, 44)).astype(np.float32)
    plain, other = (our_logits(one, data) for one in apart)
    np.testing.assert_allclose(our_logits(both, data), (2 * plain + other) / 3, atol=1e-4)


def test_one_training_given_twice_is_one_member(trained: dict[str, Path], tmp_path: Path) -> None:
    """The same plans and configuration by two trainers would be told apart by nothing but the weights."""
    assert package_both(trained["plain"], trained["plain"], tmp_path / "both") == 0
    both = load_package(tmp_path / "both")
    assert "fold_configurations" not in both.manifest
    assert len(both.fold_files) == 4
    assert both.fold_files[0].read_bytes() == both.fold_files[1].read_bytes()


def test_an_ensemble_is_mirrored_as_all_of_it_was_trained(
    results: Path, trained: dict[str, Path], tmp_path: Path
) -> None:
    """Axes 0 and 2 of the network's grid are y and x of (z, y, x); the other training was mirrored along x alone."""
    for fold in (0, 1):
        edit_checkpoint(lambda content: content.update(inference_allowed_mirroring_axes=(2,)), fold)(results)
    assert package_both(results, trained["resenc_m"], tmp_path / "both") == 0
    assert load_package(tmp_path / "both").manifest["mirror_axes"] == [2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda plans: plans["configurations"]["3d_fullres"].update(spacing=[18.0, 6.0, 4.0]),
            r"plans\.json: spacing \[6\.0, 18\.0, 4\.0\] of '3d_fullres_2', expected \[6\.0, 18\.0, 4\.5\] as of '3d_fullres'",
        ),
        (
            lambda plans: plans["configurations"]["3d_fullres"].update(normalization_schemes=["CTNormalization"] * 2),
            r"plans\.json: normalization_schemes .* of '3d_fullres_2', expected",
        ),
        (
            lambda plans: plans["foreground_intensity_properties_per_channel"]["0"].update(mean=1.0),
            r"_per_channel of '3d_fullres' in 'nnUNetPlans' differ from those in 'nnUNetResEncUNetMPlans', expected net",
        ),
    ],
    ids=["spacing", "normalisation", "intensities"],
)
def test_trainings_that_do_not_go_together(
    results: Path,
    trained: dict[str, Path],
    tmp_path: Path,
    change: Callable[[Any], Any],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    edit("plans.json", change)(results)
    for fold in (0, 1):
        edit_checkpoint(lambda content: change(content["init_args"]["plans"]), fold)(results)
    assert package_both(trained["resenc_m"], results, tmp_path / "out" / "both") == 1
    assert re.search(message, capsys.readouterr().err.splitlines()[-1])
    assert not list((tmp_path / "out").rglob("*"))


# What is refused


def edit(name: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def apply(results: Path) -> None:
        content = json.loads((results / name).read_text())
        change(content)
        (results / name).write_text(json.dumps(content))

    return apply


def edit_plan(**values: Any) -> Callable[[Path], None]:
    return edit("plans.json", lambda plans: plans["configurations"]["3d_fullres"].update(values))


def edit_checkpoint(change: Callable[[Any], Any], fold: int = 0) -> Callable[[Path], None]:
    def apply(results: Path) -> None:
        path = results / f"fold_{fold}" / "checkpoint_final.pth"
        content = torch.load(path, weights_only=False)
        change(content)
        torch.save(content, path)

    return apply


def trained_as(configuration: str, **values: Any) -> Callable[[Path], None]:
    """Both folds say that they were trained by `configuration`, which the plans hold."""

    def apply(results: Path) -> None:
        edit("plans.json", lambda plans: plans["configurations"].setdefault(configuration, {}).update(values))(results)
        for fold in (0, 1):
            edit_checkpoint(lambda content: content["init_args"].update(configuration=configuration), fold)(results)

    return apply


def architecture(**values: Any) -> Callable[[Path], None]:
    return edit("plans.json", lambda plans: plans["configurations"]["3d_fullres"]["architecture"].update(values))


def first_weight(content: Any) -> torch.Tensor:
    tensor: torch.Tensor = next(iter(content["network_weights"].values()))
    return tensor


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no plans": (lambda r: (r / "plans.json").unlink(), r"no plans\.json, expected nnU-Net's results"),
    "no dataset": (lambda r: (r / "dataset.json").unlink(), r"^error: dataset\.json: not found"),
    "plans of another kind": (lambda r: (r / "plans.json").write_text("[]"), r"plans\.json: found a list"),
    "broken plans": (lambda r: (r / "plans.json").write_text("{"), r"plans\.json: not valid JSON"),
    "no folds": (lambda r: [shutil.rmtree(r / f"fold_{k}") for k in (0, 1)], "no fold_<number>"),
    "an unfinished fold": (
        lambda r: (r / "fold_1/checkpoint_final.pth").rename(r / "fold_1/checkpoint_latest.pth"),
        r"fold_1: no checkpoint_final\.pth, found checkpoint_latest\.pth; expected it",
    ),
    "two dimensions": (trained_as("2d"), r"2d has spacing \[6\.0, 4\.5\], expected a network of three dimensions"),
    "a cascade": (
        trained_as("3d_cascade_fullres", inherits_from="3d_fullres", previous_stage="3d_lowres"),
        "3d_cascade_fullres is the second stage of a cascade after '3d_lowres', expected 3d_fullres",
    ),
    "a configuration that is not there": (
        edit_checkpoint(lambda c: c["init_args"].update(configuration="3d_huge")),
        r"plans\.json: not nnU-Net's plans for '3d_huge'",
    ),
    "one channel": (
        edit("dataset.json", lambda d: d.update(channel_names={"0": "CT"})),
        r"dataset\.json: channel_names \{'0': 'CT'\}, expected \{0: 'CT', 1: 'PET'\}",
    ),
    "channels the other way round": (
        edit("dataset.json", lambda d: d.update(channel_names={"0": "PET", "1": "CT"})),
        r"channel_names \{'0': 'PET', '1': 'CT'\}, expected",
    ),
    "labels the other way round": (
        edit("dataset.json", lambda d: d.update(labels={"background": 0, "GTVn": 1, "GTVp": 2})),
        r"dataset\.json: labels .*'GTVn': 1.* expected .*'GTVp': 1, 'GTVn': 2",
    ),
    "one label": (edit("dataset.json", lambda d: d["labels"].pop("GTVn")), r"dataset\.json: labels"),
    "regions": (
        edit("dataset.json", lambda d: d["labels"].update(GTVp=[1, 2])),
        r"labels .* with regions, expected plain labels",
    ),
    "an unknown network": (architecture(network_class_name="a.b.SwinUNETR"), "network 'SwinUNETR', expected one of"),
    "an unknown module": (
        edit(
            "plans.json",
            lambda p: p["configurations"]["3d_fullres"]["architecture"]["arch_kwargs"].update(nonlin="os.system"),
        ),
        r"plans\.json: module 'os\.system', expected one of",
    ),
    "an unknown normalisation": (
        lambda r: (
            [
                edit_plan(normalization_schemes=["CTNormalization", "Mine"])(r),
                *[edit_checkpoint(lambda c: c["init_args"].update(plans={}), fold)(r) for fold in (0, 1)],
            ]
        ),
        "normalisation 'Mine', expected CTNormalization",
    ),
    "normalised within a mask": (
        edit_plan(use_mask_for_norm=[False, True]),
        "use_mask_for_norm is true, expected false",
    ),
    "another preprocessor": (edit_plan(preprocessor_name="Mine"), "preprocessor 'Mine', expected DefaultPreprocessor"),
    "a reader that turns images": (
        edit("plans.json", lambda p: p.update(image_reader_writer="NibabelIOWithReorient")),
        "image_reader_writer 'NibabelIOWithReorient', expected SimpleITKIO or NibabelIO",
    ),
    "another order of axes": (
        edit("plans.json", lambda p: p.update(transpose_forward=[0, 0, 2])),
        r"transpose_forward \[0, 0, 2\], expected 0, 1 and 2",
    ),
    "trained by other plans": (
        edit_plan(spacing=[3.0, 6.0, 4.5]),
        r"fold_0/checkpoint_final\.pth: trained with spacing \[18\.0, 6\.0, 4\.5\], expected \[3\.0",
    ),
    "a fold of another training": (
        edit_checkpoint(lambda c: c.update(inference_allowed_mirroring_axes=None), fold=1),
        r"fold_1/checkpoint_final\.pth: mirror_axes \(\), expected \(0, 2\) as in fold_0",
    ),
    "a tensor too few": (
        edit_checkpoint(lambda c: c["network_weights"].popitem()),
        r"fold_0/checkpoint_final\.pth: decoder\..* is only in the network of plans\.json",
    ),
    "a tensor too many": (
        edit_checkpoint(lambda c: c["network_weights"].update(extra=torch.zeros(1))),
        r"fold_0/checkpoint_final\.pth: extra is only in the weights",
    ),
    "a tensor of another shape": (
        edit_checkpoint(lambda c: c["network_weights"].update({next(iter(c["network_weights"])): torch.zeros(7)})),
        r"fold_0/checkpoint_final\.pth: encoder\..* of shape \(7,\), expected",
    ),
    "a weight beyond float16": (
        edit_checkpoint(lambda c: first_weight(c).fill_(1e6)),
        r"fold_0/checkpoint_final\.pth: encoder\..* NaN, infinity or a number beyond float16",
    ),
    "no checkpoint": (
        lambda r: (r / "fold_0/checkpoint_final.pth").write_bytes(b"no checkpoint"),
        r"fold_0/checkpoint_final\.pth: not a file of torch\.save",
    ),
    "something else in a checkpoint": (
        lambda r: torch.save({"state_dict": {}}, r / "fold_0/checkpoint_final.pth"),
        r"fold_0/checkpoint_final\.pth: no `network_weights`, expected a checkpoint of nnU-Net v2",
    ),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_what_is_refused(case: str, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line that names the file, what was found and what was expected; nothing is written."""
    spoil, message = REFUSED[case]
    spoil(results)
    assert package(results, tmp_path / "out" / "model.tar.gz") == 1
    assert re.search(message, capsys.readouterr().err.splitlines()[-1])
    assert not list((tmp_path / "out").rglob("*"))
