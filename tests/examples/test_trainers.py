"""`examples/trainers`: both losses by hand and in training, and a PET that moves relative to the CT."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from batchgeneratorsv2.transforms.utils.compose import ComposeTransforms
from monai.losses.focal_loss import FocalLoss

from tests.baseline.network.conftest import UNET, MakeTrainer, make_trainer, noise_work

__all__ = ["make_trainer", "noise_work"]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

SURE = math.log(18)


def make_named_trainer(make_trainer: MakeTrainer, name: str) -> Any:
    return make_trainer(UNET.with_options(trainer=f"examples.trainers.{name}"))


def make_logits(labels: torch.Tensor) -> torch.Tensor:
    """Make logits of three labels that give the label a probability of 18 / 20 and each other one 1 / 20."""
    return SURE * torch.nn.functional.one_hot(labels[:, 0], 3).movedim(-1, 1).float()


def test_focal_by_hand(make_trainer: MakeTrainer) -> None:
    """Ten voxels with p = 0.9 of their label: (1 - p)^2 x -ln p in its channel and 0 in two others, on average a third."""
    labels = torch.tensor([0, 1, 2, 0, 0, 1, 2, 2, 0, 0]).reshape(1, 1, 10, 1, 1)
    loss = make_named_trainer(make_trainer, "focal:FocalTrainer").loss.loss
    assert isinstance(loss.ce.loss, FocalLoss)
    assert loss.ce(make_logits(labels), labels[:, 0]).item() == pytest.approx(0.01 * -math.log(0.9) / 3, rel=1e-5)


def test_tversky_by_hand(make_trainer: MakeTrainer) -> None:
    """Label 1 has four of eight voxels and label 2 no voxel; p of label 1 is 0.9 in three of the four, 0.05 in the fourth
    and 0.9 in a false one. TP 2.75, FN 1.25, FP 0.9 + 3 x 0.05. Without a voxel of label 2 its index is 0.
    """
    labels = torch.tensor([1, 1, 1, 1, 0, 0, 0, 0]).reshape(1, 1, 8, 1, 1)
    predicted = torch.tensor([1, 1, 1, 0, 1, 0, 0, 0]).reshape(1, 1, 8, 1, 1)
    index = 2.75 / (2.75 + 0.3 * 1.05 + 0.7 * 1.25)
    loss = make_named_trainer(make_trainer, "tversky:TverskyTrainer").loss.loss
    assert loss.dc(make_logits(predicted), labels, loss_mask=None).item() == pytest.approx(
        (1 - index + 1) / 2, abs=1e-4
    )


@pytest.mark.parametrize("name", ["focal:FocalTrainer", "tversky:TverskyTrainer"])
def test_the_network_learns_by_the_loss(make_trainer: MakeTrainer, name: str) -> None:
    """Losses cover all resolutions of the network, and reach its first weights."""
    trainer = make_named_trainer(make_trainer, name)
    outputs = trainer.network(torch.randn(2, 2, 16, 16, 16))
    labels = [torch.randint(0, 3, (2, 1, *output.shape[2:])) for output in outputs]
    trainer.loss(outputs, labels).backward()
    first = next(trainer.network.parameters()).grad
    assert first is not None
    assert torch.isfinite(first).all()
    assert first.abs().sum() > 0


def test_only_the_pet_moves(make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare a certain shift with the same patches without it: CT and reference stay.

    nnU-Net's own augmentation is off, because its draws follow the draws of the shift.
    """
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

    monkeypatch.setattr(nnUNetTrainer, "get_training_transforms", lambda *_, **__: ComposeTransforms([]))
    monkeypatch.setattr("examples.trainers.misaligned.PROBABILITY", 1.0)
    plain, misaligned = (
        draw_batch(make_trainer(UNET)),
        draw_batch(make_named_trainer(make_trainer, "misaligned:MisalignedTrainer")),
    )
    np.testing.assert_array_equal(misaligned["data"][:, 0], plain["data"][:, 0])
    np.testing.assert_array_equal(misaligned["target"], plain["target"])
    pairs = zip(misaligned["data"][:, 1], plain["data"][:, 1], strict=True)
    assert all(not torch.allclose(*pair, atol=0.1) for pair in pairs)


def draw_batch(trainer: Any) -> dict[str, torch.Tensor]:
    """Draw the trainer's batch for one state of the random generator."""
    loader, _ = trainer.get_dataloaders()
    np.random.seed(0)  # noqa: NPY002 - nnU-Net's loaders draw from the global state
    batch: dict[str, torch.Tensor] = next(loader)
    return batch
