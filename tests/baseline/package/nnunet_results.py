"""Results of nnU-Net's own planners and trainer, and the changes that tests of packages make to them."""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from algorithm.deadline import Deadline
from algorithm.network import tiles
from algorithm.network.backbones import build_untrained_network
from algorithm.network.networks import Networks
from algorithm.network.package import ModelPackage
from algorithm.network.passes import Passes
from algorithm.network.tiles import NetworkImage, list_mirrored_passes
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
SEGRESNET = {
    "network_class_name": "monai.networks.nets.segresnet.SegResNet",
    "arch_kwargs": {"init_filters": 4, "blocks_down": [1, 2], "blocks_up": [1], "norm": ["INSTANCE", {"affine": True}]},
    "_kw_requires_import": [],
}


def write_raw_dataset(folder: Path, dataset: dict[str, Any] = DATASET, spacing: Sequence[float] = SPACING) -> None:
    """Write what nnU-Net's planners read: a dataset, its fingerprint, and the names of its images."""
    channels = list(dataset["channel_names"])
    raw, preprocessed = folder / "raw" / "Dataset001_Tiny", folder / "preprocessed" / "Dataset001_Tiny"
    fingerprint = {
        "spacings": [spacing] * 2,
        "shapes_after_crop": [[26, 8, 30]] * 2,
        "median_relative_size_after_cropping": 1.0,
        "foreground_intensity_properties_per_channel": dict.fromkeys(channels, CHANNEL),
    }
    for path, content in ((raw / "dataset.json", dataset), (preprocessed / "dataset_fingerprint.json", fingerprint)):
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(content))
    for case, channel in ((case, channel) for case in "ab" for channel in channels):
        (raw / "imagesTr").mkdir(exist_ok=True)
        (raw / "imagesTr" / f"{case}_000{channel}.nii.gz").touch()


def write_plans(planner: Any, folder: Path) -> Path:
    """Plan a narrow network by `planner`, and add a SegResNet for the same data."""
    experiment = planner(1)
    experiment.UNet_base_num_features = 4
    experiment.plan_experiment()
    path: Path = folder / "preprocessed" / "Dataset001_Tiny" / f"{experiment.plans_identifier}.json"
    plans = json.loads(path.read_text())
    plans["configurations"]["3d_segresnet"] = {"inherits_from": "3d_fullres", "architecture": SEGRESNET}
    path.write_text(json.dumps(plans))
    return path


def find_trainer_class(configuration: str) -> Any:
    """Return nnU-Net's trainer class, or a subclass that can build a SegResNet."""
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
            return build_untrained_network(configuration_manager.configuration, num_input_channels, num_output_channels)

    return SegResNetTrainer if configuration == "3d_segresnet" else nnUNetTrainer


def train(plans_path: Path, folds: int, configuration: str = "3d_fullres", dataset: dict[str, Any] = DATASET) -> Path:
    """Save the checkpoints that nnU-Net's trainer would begin with."""
    for fold in range(folds):
        torch.manual_seed(fold)
        plans = json.loads(plans_path.read_text())
        data = plans_path.parent / plans["configurations"]["3d_fullres"]["data_identifier"]
        data.mkdir(exist_ok=True)
        (data / "a.b2nd").touch()  # tells nnU-Net how preprocessed images would be stored
        own = plans | {"continue_training": False}
        trainer = find_trainer_class(configuration)(own, configuration, fold, dict(dataset), CPU)
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
    (results / "dataset.json").write_text(json.dumps(dataset))
    return results


@contextmanager
def set_nnunet_folders(folder: Path) -> Iterator[None]:
    """Set nnU-Net's folders to folders below `folder`."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("raw", "preprocessed", "results"):
            patch.setenv(f"nnUNet_{name}", str(folder / name))
        patch.setenv("nnUNet_n_proc_DA", "1")
        patch.setenv("nnUNet_compile", "f")
        yield


def train_presets(folder: Path) -> dict[str, Path]:
    """Return results by preset: two folds of the default U-Net, one of ResEnc-M and of a SegResNet."""
    with set_nnunet_folders(folder):
        from nnunetv2.experiment_planning.experiment_planners import default_experiment_planner
        from nnunetv2.experiment_planning.experiment_planners.residual_unets import residual_encoder_unet_planners

        write_raw_dataset(folder)
        plain = write_plans(default_experiment_planner.ExperimentPlanner, folder)
        return {
            "plain": train(plain, 2),
            "segresnet": train(plain, 1, "3d_segresnet"),
            "resenc_m": train(write_plans(residual_encoder_unet_planners.nnUNetPlannerResEncM, folder), 1),
        }


def train_once(folder: Path, dataset: dict[str, Any], spacing: Sequence[float]) -> Path:
    """Return results of the default U-Net with one fold on a data set with this spacing (z, y, x)."""
    with set_nnunet_folders(folder):
        from nnunetv2.experiment_planning.experiment_planners.default_experiment_planner import ExperimentPlanner

        write_raw_dataset(folder, dataset, spacing)
        return train(write_plans(ExperimentPlanner, folder), 1, dataset=dataset)


# Changes to results


def edit(name: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def apply(results: Path) -> None:
        content = json.loads((results / name).read_text())
        change(content)
        (results / name).write_text(json.dumps(content))

    return apply


def edit_plan(**values: Any) -> Callable[[Path], None]:
    """Change values of the configuration, as if the network had been trained with them."""
    return edit_training("plans.json", lambda plans: plans["configurations"]["3d_fullres"].update(values))


def edit_checkpoint(change: Callable[[Any], Any], fold: int = 0) -> Callable[[Path], None]:
    def apply(results: Path) -> None:
        path = results / f"fold_{fold}" / "checkpoint_final.pth"
        content = torch.load(path, weights_only=False)
        change(content)
        torch.save(content, path)

    return apply


def edit_training(file: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    """Change `plans.json` or `dataset.json` and both folds' checkpoints, as if the training had used the changed file."""

    def apply(results: Path) -> None:
        edit(file, change)(results)
        key = {"plans.json": "plans", "dataset.json": "dataset_json"}[file]
        for path in results.glob("fold_*"):
            edit_checkpoint(lambda content: change(content["init_args"][key]), int(path.name[5:]))(results)

    return apply


def edit_dataset(**values: Any) -> Callable[[Path], None]:
    """Change values of `dataset.json`, as if the network had been trained with them."""
    return edit_training("dataset.json", lambda dataset: dataset.update(values))


def use_float32(patch: pytest.MonkeyPatch) -> None:
    """Use float32 on both sides: nnU-Net sums in half precision, and the algorithm may multiply in bfloat16."""
    from nnunetv2.inference import predict_from_raw_data

    in_float32 = functools.partial(predict_from_raw_data.compute_gaussian.__wrapped__, dtype=torch.float32)
    patch.setattr(torch, "half", torch.float32)
    patch.setattr(predict_from_raw_data, "compute_gaussian", functools.lru_cache(in_float32))
    patch.setattr(tiles, "cpu_has_bfloat16", lambda: False)


# Packages of results


def package(results: Path, output: Path, *options: str) -> int:
    heads = () if {"--heads", "--without-heads"} & set(options) else ("--without-heads",)
    return hecktor_main(["package", "--nnunet", str(results), "--output", str(output), *heads, *options])


def package_both(first: Path, second: Path, output: Path) -> int:
    return package(first, output, "--nnunet", str(second))


def compute_logits(model: ModelPackage, data: np.ndarray) -> np.ndarray:
    passes = list_mirrored_passes(len(model.fold_files), tuple(model.manifest.mirror_axes))
    return Passes(NetworkImage.from_channels(data), passes, Networks(model), Deadline(600), CPU).make_all().logits
