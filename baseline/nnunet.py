"""nnU-Net's own planning, preprocessing and training, in-process and without worker pools.

nnU-Net reads its folders from the environment when it is imported, so every function here sets them first and
imports nnU-Net itself.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from baseline.prepare import DATASET_ID, DATASET_NAME
from contract.files import read_json, write_json

PLANS_NAME = "hecktorPlans"
CONFIGURATION = "3d_fullres"
# More stages than any plan has; nnU-Net takes as many entries as it needs.
_MOST_STAGES = 13


@dataclass(frozen=True)
class Plan:
    """What a plan fixes before nnU-Net plans the rest.

    `memory_gb` is nnU-Net's target for the planner, which decides patch and depth. `epochs` x `iterations` is the
    length of the training of one fold, with AdamW from `learning_rate` on, which in so short a training learns the
    rare GTVn where nnU-Net's SGD is still at its start.
    """

    spacing_mm: tuple[float, float, float] = (3.0, 3.0, 3.0)
    memory_gb: float = 0.3
    base_features: int = 16
    most_features: int = 96
    epochs: int = 45
    iterations: int = 50
    validation_iterations: int = 4
    learning_rate: float = 1e-3
    mirror_axes: tuple[int, ...] = (2,)


@dataclass(frozen=True)
class Folders:
    """nnU-Net's three folders below one working directory."""

    root: Path

    @property
    def raw(self) -> Path:
        """Raw data sets."""
        return self.root / "raw"

    @property
    def preprocessed(self) -> Path:
        """Plans, splits and preprocessed data."""
        return self.root / "preprocessed"

    @property
    def results(self) -> Path:
        """Checkpoints and logs."""
        return self.root / "results"

    @property
    def plans(self) -> Path:
        """The plans file."""
        return self.preprocessed / DATASET_NAME / f"{PLANS_NAME}.json"

    def fold(self, fold: int) -> Path:
        """Where a fold's checkpoints lie."""
        return self.results / DATASET_NAME / f"ShortTrainer__{PLANS_NAME}__{CONFIGURATION}" / f"fold_{fold}"

    def announce(self, augmentation_workers: int) -> None:
        """Tell nnU-Net, which reads the environment when it is imported."""
        for name in ("raw", "preprocessed", "results"):
            folder = self.root / name
            folder.mkdir(parents=True, exist_ok=True)
            os.environ[f"nnUNet_{name}"] = str(folder)
        os.environ["nnUNet_n_proc_DA"] = str(augmentation_workers)  # noqa: SIM112 - nnU-Net's own spelling
        os.environ["nnUNet_compile"] = "f"  # noqa: SIM112


def plan_and_preprocess(folders: Folders, plan: Plan, splits: list[dict[str, list[str]]], jobs: int) -> dict[str, Any]:
    """Fingerprint, plan and preprocess the raw data set; returns the plans."""
    folders.announce(augmentation_workers=1)  # its planner takes this for its number of threads
    from nnunetv2.experiment_planning.dataset_fingerprint.fingerprint_extractor import DatasetFingerprintExtractor
    from nnunetv2.experiment_planning.plan_and_preprocess_api import preprocess_dataset

    if not folders.plans.is_file():
        DatasetFingerprintExtractor(DATASET_ID, jobs, verbose=False).run(overwrite_existing=False)
        _planner(plan).plan_experiment()
        planned = read_json(folders.plans)
        # Lesions are absent from many patches: Dice over the batch is steadier than Dice of each patch.
        planned["configurations"][CONFIGURATION]["batch_dice"] = True
        write_json(folders.plans, planned)
    write_json(folders.preprocessed / DATASET_NAME / "splits_final.json", splits)
    plans: dict[str, Any] = read_json(folders.plans)
    preprocess_dataset(DATASET_ID, PLANS_NAME, (CONFIGURATION,), (jobs,), verbose=False)
    return plans


def train_fold(folders: Folders, plan: Plan, fold: int, device: str, threads: int, seed: int) -> Path:
    """Train one fold, from its last checkpoint where one lies; returns the final checkpoint."""
    final = folders.fold(fold) / "checkpoint_final.pth"
    if final.is_file():
        return final
    # On a CPU the network itself needs the cores; a card waits for whoever augments.
    folders.announce(augmentation_workers=0 if device == "cpu" else threads)
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(seed + fold)
    np.random.seed(seed + fold)  # noqa: NPY002 - nnU-Net's loaders draw from the global state
    latest = folders.fold(fold) / "checkpoint_latest.pth"
    plans = read_json(folders.plans) | {"continue_training": latest.is_file()}
    dataset = read_json(folders.preprocessed / DATASET_NAME / "dataset.json")
    trainer = _trainer_class(plan)(plans, CONFIGURATION, fold, dataset, torch.device(device))
    trainer.num_epochs, trainer.num_iterations_per_epoch = plan.epochs, plan.iterations
    trainer.num_val_iterations_per_epoch, trainer.save_every = plan.validation_iterations, 5
    if latest.is_file():
        trainer.load_checkpoint(str(latest))
    trainer.run_training()
    return final


def _planner(plan: Plan) -> Any:
    from nnunetv2.experiment_planning.experiment_planners.default_experiment_planner import ExperimentPlanner
    from nnunetv2.preprocessing.resampling.resample_torch import resample_torch_fornnunet

    class SmallPlanner(ExperimentPlanner):  # type: ignore[misc]
        """nnU-Net's default planner with a narrower network and torch resampling."""

        def __init__(self) -> None:
            super().__init__(
                DATASET_ID,
                gpu_memory_target_in_gb=plan.memory_gb,
                plans_name=PLANS_NAME,
                overwrite_target_spacing=[float(v) for v in plan.spacing_mm[::-1]],
                suppress_transpose=True,
            )
            self.UNet_base_num_features = plan.base_features
            self.UNet_max_features_3d = plan.most_features
            # One convolution where the grid is finest halves the cost of a step on a CPU.
            self.UNet_blocks_per_stage_encoder = (1, *(2,) * _MOST_STAGES)
            self.UNet_blocks_per_stage_decoder = (1,) * _MOST_STAGES

        def determine_resampling(self, *_: Any, **__: Any) -> Any:
            common = {"force_separate_z": False, "memefficient_seg_resampling": False}
            return (
                resample_torch_fornnunet,
                {"is_seg": False, **common},
                resample_torch_fornnunet,
                {"is_seg": True, **common},
            )

        def determine_segmentation_softmax_export_fn(self, *_: Any, **__: Any) -> Any:
            kwargs = {"is_seg": False, "force_separate_z": False, "memefficient_seg_resampling": False}
            return resample_torch_fornnunet, kwargs

    return SmallPlanner()


def _trainer_class(plan: Plan) -> Any:
    import torch
    from nnunetv2.training.lr_scheduler.polylr import PolyLRScheduler
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

    class ShortTrainer(nnUNetTrainer):  # type: ignore[misc]
        """nnU-Net's trainer, mirrored only where anatomy is symmetric, and in bfloat16 on a CPU that has it."""

        def configure_rotation_dummyDA_mirroring_and_inital_patch_size(self) -> Any:  # noqa: N802
            rotation, dummy_2d, patch, axes = super().configure_rotation_dummyDA_mirroring_and_inital_patch_size()
            axes = tuple(axis for axis in axes if axis in plan.mirror_axes)
            self.inference_allowed_mirroring_axes = axes
            return rotation, dummy_2d, patch, axes

        def initialize(self) -> None:
            super().initialize()
            if self.device.type == "cpu" and torch.ops.mkldnn._is_mkldnn_bf16_supported():
                self.network.forward = torch.autocast("cpu", torch.bfloat16)(self.network.forward)
                self.network.register_forward_hook(_as_float32)

        def configure_optimizers(self) -> Any:
            parameters = self.network.parameters()
            optimiser = torch.optim.AdamW(parameters, lr=plan.learning_rate, weight_decay=self.weight_decay)
            return optimiser, PolyLRScheduler(optimiser, plan.learning_rate, plan.epochs)

        def plot_network_architecture(self) -> None:
            """Needs a package that is not installed; the plans say the same."""

    return ShortTrainer


def _as_float32(_module: Any, _inputs: Any, output: Any) -> Any:
    if isinstance(output, list | tuple):
        return [tensor.float() for tensor in output]
    return output.float()
