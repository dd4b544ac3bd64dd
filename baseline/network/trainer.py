"""nnU-Net's trainer as a plan wants it. Import it once nnU-Net's folders are announced: it imports nnU-Net."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from nnunetv2.training.lr_scheduler.polylr import PolyLRScheduler
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

from algorithm.network.enhance import Enhanced
from algorithm.network.networks import untrained_network
from baseline.network.plans import CONFIGURATIONS, SAVE_EVERY, Plan
from baseline.network.progress.watch import Watcher
from contract.files import atomic_path


class ShortTrainer(nnUNetTrainer):  # type: ignore[misc]
    """nnU-Net's trainer with any network of `algorithm.network.networks`, and in bfloat16 on a CPU that has it.

    The name is that of the folder of results, and older than the presets that are not short.
    """

    plan: Plan
    watcher: Watcher

    def follow(self, plan: Plan, device: torch.device) -> None:
        """Take what the plan says, before anything is initialised."""
        self.plan, self.watcher = plan, Watcher()
        self.num_epochs, self.num_iterations_per_epoch = plan.epochs, plan.iterations
        self.num_val_iterations_per_epoch, self.save_every = plan.validation_iterations, SAVE_EVERY
        self.initial_lr = plan.learning_rate
        # SegResNet answers at one resolution only.
        self.enable_deep_supervision = self.configuration_name != CONFIGURATIONS["segresnet"]
        if device.type == "cpu":  # of processes that share a batch nnU-Net expects a card each
            self.device, self.grad_scaler = device, None

    def configure_rotation_dummyDA_mirroring_and_inital_patch_size(self) -> Any:  # noqa: N802
        """Mirror only along the plan's axes."""
        rotation, dummy_2d, patch, axes = super().configure_rotation_dummyDA_mirroring_and_inital_patch_size()
        axes = tuple(axis for axis in axes if axis in self.plan.mirror_axes)
        self.inference_allowed_mirroring_axes = axes
        return rotation, dummy_2d, patch, axes

    def build_network_architecture(
        self,
        plans_manager: Any,  # noqa: ARG002 - nnU-Net looks for this name
        configuration_manager: Any,
        channels: int,
        classes: int,
        deep_supervision: bool,
    ) -> torch.nn.Module:
        """The network as inference will build it, with nnU-Net's first weights where it has a say."""
        configuration = configuration_manager.configuration
        network = untrained_network(configuration, channels, classes, deep_supervision=deep_supervision)
        inner: Any = network.network if isinstance(network, Enhanced) else network
        if hasattr(inner, "initialize"):
            inner.apply(inner.initialize)
        return network

    def initialize(self) -> None:
        """Once the network is built."""
        super().initialize()
        if self.device.type == "cpu" and torch.ops.mkldnn._is_mkldnn_bf16_supported():
            network = self.network.module if self.is_ddp else self.network
            network.forward = torch.autocast("cpu", torch.bfloat16)(network.forward)
            network.register_forward_hook(_as_float32)

    def set_deep_supervision_enabled(self, enabled: bool) -> None:
        """Where the network has several answers."""
        if self.enable_deep_supervision:
            super().set_deep_supervision_enabled(enabled)

    def configure_optimizers(self) -> Any:
        """The plan's optimiser, and nnU-Net's polynomial."""
        if self.plan.optimiser == "sgd":
            return super().configure_optimizers()
        parameters = self.network.parameters()
        optimiser = torch.optim.AdamW(parameters, lr=self.plan.learning_rate, weight_decay=self.weight_decay)
        return optimiser, PolyLRScheduler(optimiser, self.plan.learning_rate, self.plan.epochs)

    def save_checkpoint(self, filename: str) -> None:
        """nnU-Net's checkpoint, whole or not at all: a final one stands for a trained network, and the latest is all
        that is left of an interrupted one.
        """
        if self.local_rank == 0:
            with atomic_path(Path(filename)) as partial:
                super().save_checkpoint(str(partial))

    def on_epoch_end(self) -> None:
        """nnU-Net's end of an epoch, then the page of the training.

        nnU-Net draws its progress in seaborn's style, which would stay with the process.
        """
        with mpl.rc_context():
            super().on_epoch_end()
        self.watcher.after_epoch(self)

    def plot_network_architecture(self) -> None:
        """Needs a package that is not installed; the plans say the same."""


def _as_float32(_module: Any, _inputs: Any, output: Any) -> Any:
    if isinstance(output, list | tuple):
        return [tensor.float() for tensor in output]
    return output.float()
