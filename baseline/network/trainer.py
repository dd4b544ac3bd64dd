"""nnU-Net's trainer with the options of our plan. Import it after `set_environment`: it imports nnU-Net."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from nnunetv2.training.lr_scheduler.polylr import PolyLRScheduler
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

from algorithm.network.enhance import Enhanced
from algorithm.network.networks import untrained_network
from baseline.network.interruption import SAVE_EVERY
from baseline.network.plans import NetworkPlan
from baseline.network.progress.watch import TrainingPage
from baseline.network.seeding import OrderedAugmenter, seeded_workers
from baseline.network.training.augmentation import absent_pet, with_pet_augmentations
from baseline.network.training.organs import load_with_tumours
from baseline.network.training.segresnet import monai_recipe
from baseline.network.training.starting_weights import load_starting_weights
from baseline.work import CONFIGURATIONS
from contract.files import atomic_path


class ShortTrainer(nnUNetTrainer):  # type: ignore[misc]
    """nnU-Net's trainer for any network of `algorithm.network.networks`; uses bfloat16 on a CPU that supports it.

    The name is part of nnU-Net's results folder and stays for the sake of existing working directories.
    """

    plan: NetworkPlan
    page: TrainingPage
    augmenters: Sequence[OrderedAugmenter] = ()

    def use_plan(self, plan: NetworkPlan, device: torch.device) -> None:
        """Apply the options of the plan; call it before anything is initialised."""
        self.plan, self.page = plan, TrainingPage()
        self.num_epochs, self.num_iterations_per_epoch = plan.epochs, plan.iterations
        self.num_val_iterations_per_epoch, self.save_every = plan.validation_iterations, SAVE_EVERY
        self.initial_lr = plan.learning_rate
        # SegResNet has an output at one resolution only.
        self.enable_deep_supervision = self.configuration_name != CONFIGURATIONS["segresnet"]
        if device.type == "cpu":  # with DDP nnU-Net expects a GPU for each process
            self.device, self.grad_scaler = device, None

    def configure_rotation_dummyDA_mirroring_and_inital_patch_size(self) -> Any:  # noqa: N802
        """Mirror only along the plan's axes."""
        rotation, dummy_2d, patch, axes = super().configure_rotation_dummyDA_mirroring_and_inital_patch_size()
        axes = tuple(axis for axis in axes if axis in self.plan.mirror_axes)
        self.inference_allowed_mirroring_axes = axes
        return rotation, dummy_2d, patch, axes

    def get_training_transforms(self, *args: Any, **options: Any) -> Any:
        """nnU-Net's augmentation with the plan's augmentations of the PET."""
        absent = absent_pet(
            self.configuration_manager.configuration,
            self.plans_manager.foreground_intensity_properties_per_channel,
        )
        return with_pet_augmentations(super().get_training_transforms(*args, **options), self.plan, absent)

    def get_tr_and_val_datasets(self) -> Any:
        """nnU-Net's data sets, whose patches with foreground hold a tumour: organs are in nearly every patch anyway."""
        datasets = super().get_tr_and_val_datasets()
        for dataset in datasets:
            dataset.load_case = partial(load_with_tumours, dataset.load_case)
        return datasets

    def _build_loss(self) -> Any:
        """nnU-Net's loss, with the Dice smoothed or not."""
        loss = super()._build_loss()
        if not self.plan.dice_smoothing:
            (loss.loss if self.enable_deep_supervision else loss).dc.smooth = 0.0
        return loss

    def build_network_architecture(
        self,
        plans_manager: Any,  # noqa: ARG002 - nnU-Net passes it by name
        configuration_manager: Any,
        channels: int,
        classes: int,
        deep_supervision: bool,
    ) -> torch.nn.Module:
        """Build the network as inference does, with nnU-Net's initial weights if it defines them."""
        configuration = configuration_manager.configuration
        network = untrained_network(configuration, channels, classes, deep_supervision=deep_supervision)
        inner: Any = network.network if isinstance(network, Enhanced) else network
        if hasattr(inner, "initialize"):
            inner.apply(inner.initialize)
        return network

    def initialize(self) -> None:
        """Start from the plan's weights, unless a checkpoint follows; bfloat16 on a CPU that supports it."""
        super().initialize()
        if self.plan.starting_weights is not None and not Path(self.output_folder, "checkpoint_latest.pth").is_file():
            network = self.network.module if self.is_ddp else self.network
            path = Path(self.plan.starting_weights)
            load_starting_weights(network, path, self.fold, self.print_to_log_file)
        if self.device.type == "cpu" and torch.ops.mkldnn._is_mkldnn_bf16_supported():
            network = self.network.module if self.is_ddp else self.network
            network.forward = torch.autocast("cpu", torch.bfloat16)(network.forward)
            network.register_forward_hook(_as_float32)

    def get_dataloaders(self) -> Any:
        """nnU-Net's loaders, with seeds of their own for the augmentation workers."""
        with seeded_workers(self.current_epoch) as self.augmenters:
            return super().get_dataloaders()

    def run_training(self) -> None:
        """Train all epochs. However that ends, no augmentation process is left behind."""
        try:
            super().run_training()
        finally:
            for augmenter in self.augmenters:
                augmenter.close()

    def set_deep_supervision_enabled(self, enabled: bool) -> None:
        """Ignored for a network with a single output."""
        if self.enable_deep_supervision:
            super().set_deep_supervision_enabled(enabled)

    def configure_optimizers(self) -> Any:
        """The plan's optimiser with nnU-Net's polynomial schedule, or SegResNet's own recipe."""
        if self.plan.segresnet_recipe == "monai" and self.configuration_name == CONFIGURATIONS["segresnet"]:
            return monai_recipe(self.network, self.plan.epochs)
        if self.plan.optimiser == "sgd":
            return super().configure_optimizers()
        parameters = self.network.parameters()
        optimiser = torch.optim.AdamW(parameters, lr=self.plan.learning_rate, weight_decay=self.weight_decay)
        return optimiser, PolyLRScheduler(optimiser, self.plan.learning_rate, self.plan.epochs)

    def save_checkpoint(self, filename: str) -> None:
        """Write the checkpoint whole or not at all."""
        if self.local_rank == 0:
            with atomic_path(Path(filename)) as partial:
                super().save_checkpoint(str(partial))

    def on_epoch_end(self) -> None:
        """End the epoch, then update the training page."""
        with mpl.rc_context():  # nnU-Net sets seaborn's style for the whole process
            super().on_epoch_end()
        self.page.after_epoch(self)

    def plot_network_architecture(self) -> None:
        """Nothing: nnU-Net's plot needs a package that is not installed."""


def _as_float32(_module: Any, _inputs: Any, output: Any) -> Any:
    if isinstance(output, list | tuple):
        return [tensor.float() for tensor in output]
    return output.float()
