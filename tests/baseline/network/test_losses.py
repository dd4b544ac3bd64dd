"""Named losses by hand, in the trainer, and beside a user's own."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

import pytest
import torch
from nnunetv2.training.loss.compound_losses import DC_and_CE_loss
from nnunetv2.training.loss.dice import MemoryEfficientSoftDiceLoss

from baseline.network.nnunet import check_trainer
from baseline.network.plans import LOSSES
from baseline.network.trainer import use_loss
from baseline.work import WorkFolders
from contract.errors import HecktorError
from tests.baseline.network.conftest import UNET, MakeTrainer

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

SURE = math.log(18)


def nnunets(name: str) -> DC_and_CE_loss:
    options = {"batch_dice": True, "smooth": 1e-5, "do_bg": False, "ddp": False}
    loss = DC_and_CE_loss(options, {}, dice_class=MemoryEfficientSoftDiceLoss)
    use_loss(loss, name)
    return loss


def logits_of(labels: torch.Tensor) -> torch.Tensor:
    """Logits of three labels that give the label a probability of 18 / 20 and each other one 1 / 20."""
    return SURE * torch.nn.functional.one_hot(labels[:, 0], 3).movedim(-1, 1).float()


def test_focal_by_hand() -> None:
    """Ten voxels with p = 0.9 of their label: (1 - p)^2 x -ln p in its channel and 0 in two others, on average a third."""
    labels = torch.tensor([0, 1, 2, 0, 0, 1, 2, 2, 0, 0]).reshape(1, 1, 10, 1, 1)
    loss = nnunets("dice-focal")
    assert loss.ce(logits_of(labels), labels[:, 0]).item() == pytest.approx(0.01 * -math.log(0.9) / 3, rel=1e-5)
    plain = nnunets("dice-ce")
    assert plain.ce(logits_of(labels), labels[:, 0]).item() == pytest.approx(-math.log(0.9), rel=1e-5)
    assert type(plain.dc) is type(loss.dc) is MemoryEfficientSoftDiceLoss


def test_top_k_by_hand() -> None:
    """Of 20 voxels the worst two count: those that are answered with another label, p = 1 / 20."""
    labels = torch.zeros((1, 1, 20, 1, 1), dtype=torch.long)
    answered = labels.clone()
    answered[0, 0, [3, 11]] = 1
    assert nnunets("dice-topk").ce(logits_of(answered), labels[:, 0]).item() == pytest.approx(math.log(20), rel=1e-5)


def test_tversky_by_hand() -> None:
    """Eight voxels, of which label 1 has four and label 2 none; p of label 1 is 0.9 in three of the four, 0.05 in the
    fourth and 0.9 in a false one. TP 2.75, FN 1.25, FP 0.9 + 3 x 0.05. Without a voxel of label 2 its index is 0.
    """
    labels = torch.tensor([1, 1, 1, 1, 0, 0, 0, 0]).reshape(1, 1, 8, 1, 1)
    answered = torch.tensor([1, 1, 1, 0, 1, 0, 0, 0]).reshape(1, 1, 8, 1, 1)
    index = 2.75 / (2.75 + 0.3 * 1.05 + 0.7 * 1.25)
    found = nnunets("tversky-ce").dc(logits_of(answered), labels, loss_mask=None).item()
    assert found == pytest.approx((1 - index + 1) / 2, abs=1e-4)


@pytest.mark.parametrize("name", LOSSES)
def test_the_trainer_learns_with_the_plans_loss(make_trainer: MakeTrainer, name: str) -> None:
    """Over all resolutions of the network, with a gradient in each of its weights that the loss reaches."""
    trainer = make_trainer(UNET.changed(loss=name))
    outputs = trainer.network(torch.randn(2, 2, 16, 16, 16))
    labels = [torch.randint(0, 3, (2, 1, *one.shape[2:])) for one in outputs]
    trainer.loss(outputs, labels).backward()
    assert torch.isfinite(trainer.loss(outputs, labels))
    first = next(trainer.network.parameters()).grad
    assert first is not None
    assert first.abs().sum() > 0


OWN = """
from baseline.network.trainer import HecktorTrainer

class Rate(HecktorTrainer):
    pass
"""


def test_a_loss_beside_a_trainer_with_its_own(
    planned: WorkFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trainer that changes something else leaves the plan's loss; one that defines it would ignore the option."""
    (tmp_path / "own_losses.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_losses", raising=False)
    check_trainer(planned, UNET.changed(trainer="own_losses:Rate", loss="dice-focal", no_augmentation=True))
    variant = "nnunetv2.training.nnUNetTrainer.variants.loss.nnUNetTrainerDiceLoss:nnUNetTrainerDiceCELoss_noSmooth"
    check_trainer(planned, UNET.changed(trainer=variant, no_augmentation=True))
    message = rf"^--loss: found with {re.escape(variant)}, which defines _build_loss, expected one of them"
    with pytest.raises(HecktorError, match=message):
        check_trainer(planned, UNET.changed(trainer=variant, loss="dice-focal"))
