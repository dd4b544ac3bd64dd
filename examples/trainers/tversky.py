"""Tversky loss plus cross-entropy, as in Salehi et al. 2017, arXiv 1706.05721: a missed voxel weighs more."""

from __future__ import annotations

from typing import Any

import torch
from monai.losses.tversky import TverskyLoss
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from torch import nn

FALSE_POSITIVE, FALSE_NEGATIVE = 0.3, 0.7


class PerRegion(nn.Module):
    """A loss of MONAI in place of nnU-Net's Dice, which also gets a mask of ignored voxels; there are none."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, logits: torch.Tensor, labels: torch.Tensor, loss_mask: None = None) -> torch.Tensor:
        del loss_mask
        value: torch.Tensor = self.loss(logits, labels)
        return value


class TverskyTrainer(nnUNetTrainer):  # type: ignore[misc]
    """nnU-Net's trainer with a Tversky loss of the lesions in place of Dice."""

    def _build_loss(self) -> Any:
        built = super()._build_loss()
        one = getattr(built, "loss", built)  # inside nnU-Net's wrapper for outputs at several resolutions
        options = {"alpha": FALSE_POSITIVE, "beta": FALSE_NEGATIVE, "batch": self.configuration_manager.batch_dice}
        one.dc = PerRegion(TverskyLoss(include_background=False, to_onehot_y=True, softmax=True, **options))
        return built
