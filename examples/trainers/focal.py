"""Dice plus focal loss (Lin et al. 2017, arXiv 1708.02002): confident voxels count less than in cross-entropy."""

from __future__ import annotations

from typing import Any

import torch
from monai.losses.focal_loss import FocalLoss
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from torch import nn

GAMMA = 2.0


class VoxelLoss(nn.Module):
    """Adapter of a MONAI loss to the interface of nnU-Net's cross-entropy: labels without a channel axis."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = self.loss(logits, labels[:, None])
        return value


class FocalTrainer(nnUNetTrainer):  # type: ignore[misc]
    """nnU-Net's trainer with a focal loss of all labels instead of cross-entropy."""

    def _build_loss(self) -> Any:
        loss = super()._build_loss()
        # With deep supervision nnU-Net wraps the loss.
        inner_loss = getattr(loss, "loss", loss)
        inner_loss.ce = VoxelLoss(FocalLoss(to_onehot_y=True, use_softmax=True, gamma=GAMMA))
        return loss
