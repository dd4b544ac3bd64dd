"""nnU-Net's trainer as a plan wants it."""

from __future__ import annotations

from typing import Any, Final

from baseline.plans import Plan

# Epochs between two checkpoints: what an interruption can lose.
SAVE_EVERY: Final = 5


def trainer_class(plan: Plan) -> Any:
    """A trainer for `plan`; nnU-Net's folders must have been announced."""
    import torch
    from nnunetv2.training.lr_scheduler.polylr import PolyLRScheduler
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

    class ShortTrainer(nnUNetTrainer):  # type: ignore[misc]
        """nnU-Net's trainer, mirrored only where anatomy is symmetric, and in bfloat16 on a CPU that has it.

        The name is that of the folder of results, and older than the presets that are not short.
        """

        def __init__(self, plans: Any, configuration: str, fold: int, dataset_json: Any, device: torch.device) -> None:
            super().__init__(plans, configuration, fold, dataset_json, device)
            self.num_epochs, self.num_iterations_per_epoch = plan.epochs, plan.iterations
            self.num_val_iterations_per_epoch, self.save_every = plan.validation_iterations, SAVE_EVERY
            self.initial_lr = plan.learning_rate

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
            if plan.optimiser == "sgd":
                return super().configure_optimizers()
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
