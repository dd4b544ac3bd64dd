"""Tversky loss plus cross-entropy (Salehi et al. 2017, arXiv 1706.05721).

Missed voxels weigh more than false positives.
"""

from __future__ import annotations

from typing import Any

import torch
from monai.losses.tversky import TverskyLoss
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from torch import nn

FALSE_POSITIVE_WEIGHT = 0.3
FALSE_NEGATIVE_WEIGHT = 0.7


class RegionLoss(nn.Module):
    """Adapter of a MONAI loss to the interface of nnU-Net's Dice loss.

    `loss_mask` is unused, because HECKTOR's labels have no ignored voxels.
    """

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, logits: torch.Tensor, labels: torch.Tensor, loss_mask: None = None) -> torch.Tensor:
        del loss_mask
        value: torch.Tensor = self.loss(logits, labels)
        return value


class TverskyTrainer(nnUNetTrainer):  # type: ignore[misc]
    """nnU-Net's trainer with a Tversky loss of the lesions instead of Dice."""

    def _build_loss(self) -> Any:
        loss = super()._build_loss()
        # With deep supervision nnU-Net wraps the loss.
        inner_loss = getattr(loss, "loss", loss)
        tversky = TverskyLoss(
            include_background=False,
            to_onehot_y=True,
            softmax=True,
            alpha=FALSE_POSITIVE_WEIGHT,
            beta=FALSE_NEGATIVE_WEIGHT,
            batch=self.configuration_manager.batch_dice,
        )
        inner_loss.dc = RegionLoss(tversky)
        return loss
