"""Loss, optimiser, patch and first weights that a plan asks for are those of the trainer."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from algorithm.network.networks import build_network, own_tensors
from algorithm.network.package import DEFAULT_PACKAGE, load_package
from baseline.network.nnunet import set_environment
from baseline.network.plans import segresnet, write_plans
from baseline.network.training.segresnet import WarmUpCosine, feature_values, fitting_patch
from baseline.network.training.starting_weights import load_starting_weights
from baseline.work import WorkFolders
from contract.archives import pack
from contract.errors import HecktorError
from contract.files import read_json
from tests.baseline.network.test_nnunet import PLAN
from tests.baseline.network.training.conftest import UNET, MakeTrainer

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
BOTH = replace(PLAN, enhance=())


def test_dice_with_and_without_smoothing(make_trainer: MakeTrainer) -> None:
    """Deep supervision wraps the loss of a U-Net, not that of SegResNet."""
    assert make_trainer(UNET).loss.loss.dc.smooth == 1e-5
    assert make_trainer(replace(UNET, dice_smoothing=False)).loss.loss.dc.smooth == 0
    assert make_trainer(replace(BOTH, dice_smoothing=False), "segresnet").loss.dc.smooth == 0


def test_dice_over_the_batch_or_each_patch(planned: WorkFolders, make_trainer: MakeTrainer) -> None:
    for batch_dice in (True, False):
        plan = replace(UNET, batch_dice=batch_dice)
        set_environment(planned, augmentation_workers=1)  # the planner takes it for threads
        plans = write_plans(plan, planned.preprocessed / "dice.json")
        images = read_json(planned.plans)["configurations"]["3d_fullres"]["data_identifier"]
        plans["configurations"]["3d_fullres"]["data_identifier"] = images  # those that are preprocessed already
        trainer = make_trainer(plan, plans=plans)
        assert trainer.loss.loss.dc.batch_dice is batch_dice


def test_segresnet_has_its_own_optimiser(make_trainer: MakeTrainer) -> None:
    plan = replace(BOTH, optimiser="sgd", learning_rate=0.01, segresnet_recipe="monai", epochs=13)
    trainer = make_trainer(plan, "segresnet")
    assert isinstance(trainer.optimizer, torch.optim.AdamW)
    assert trainer.optimizer.param_groups[0]["weight_decay"] == 1e-5
    trainer.lr_scheduler.step(0)
    assert trainer.optimizer.param_groups[0]["lr"] == pytest.approx(2e-5)
    assert isinstance(make_trainer(plan).optimizer, torch.optim.SGD)


def test_the_schedule_by_hand() -> None:
    """A tenth, then 0.4, 0.7 and 1; of 13 epochs the eighth is in the middle of the ten after the warm-up: a half."""
    schedule = WarmUpCosine(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0), 1.0, 13)
    assert [schedule.rate(epoch) for epoch in (0, 1, 2, 3, 8)] == pytest.approx([0.1, 0.4, 0.7, 1.0, 0.5])
    assert schedule.rate(12) == pytest.approx(0.5 * (1 + math.cos(0.9 * math.pi)))


def test_values_of_a_segresnet_by_hand() -> None:
    """One level more than the finest, patch 4 x 4 x 4 with 64 voxels and 8 filters. At 64 voxels: the first convolution, two
    of the block down, two of the block up: 5 x 8 x 64 = 2560; the output 3 x 64 = 192. At 8 voxels and 16 filters: the
    strided convolution and two blocks of two: 5 x 16 x 8 = 640; the one before upsampling 8 x 8 = 64.
    """
    architecture = segresnet(8, [4, 6, 6])
    assert architecture["arch_kwargs"]["blocks_down"] == [1, 2]
    assert feature_values(architecture, [4, 4, 4], 2) == 2560 + 192 + 640 + 64


def test_a_patch_that_meets_the_memory() -> None:
    """Values are proportional to voxels; half of those of a 32 x 16 x 16 patch fit 16 x 16 x 16, after longest edges."""
    architecture = segresnet(8, [32, 16, 16])
    values = feature_values(architecture, [32, 16, 16], 2)
    target = 8 * (values / 2 * 1.01) / 560e6
    assert fitting_patch(architecture, [32, 16, 16], 2, 2, target) == [16, 16, 16]
    assert fitting_patch(architecture, [32, 16, 16], 2, 2, 2 * target) == [32, 16, 16]
    with pytest.raises(HecktorError, match=r"^--segresnet-memory-gb: found"):
        fitting_patch(architecture, [32, 16, 16], 2, 2, target / 1000)


def test_training_starts_from_a_checkpoint(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    """All tensors of the same network; of a SegResNet none fits."""
    source = make_trainer(UNET)
    path = tmp_path / "checkpoint.pth"
    source.save_checkpoint(str(path))
    trainer = make_trainer(replace(UNET, starting_weights=str(path)), fold=1)
    for name, tensor in source.network.state_dict().items():
        assert torch.equal(trainer.network.state_dict()[name], tensor), name
    other = make_trainer(BOTH, "segresnet").network
    with pytest.raises(HecktorError, match=r"^--starting-weights: no layer of checkpoint\.pth fits"):
        load_starting_weights(other, path, 0)


def test_layers_that_do_not_fit_are_named(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    """One convolution of another size and one tensor that the network lacks."""
    trainer = make_trainer(UNET)
    weights = dict(trainer.network.state_dict())
    name = next(iter(weights))
    weights[name], weights["decoder.extra"] = torch.zeros(1), torch.zeros(1)
    torch.save({"network_weights": weights, "init_args": {}}, tmp_path / "other.pth")
    lines: list[str] = []
    before = trainer.network.state_dict()[name].clone()
    load_starting_weights(trainer.network, tmp_path / "other.pth", 0, lines.append)
    assert torch.equal(trainer.network.state_dict()[name], before)
    assert any(line.startswith(f"starting weights: {name} starts at random: shape (1,), expected") for line in lines)
    assert "starting weights: decoder.extra of the file is not in the network" in lines


def test_a_checkpoint_that_runs_code_is_refused(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    torch.save({"network_weights": {}, "more": Path}, tmp_path / "code.pth")
    with pytest.raises(HecktorError, match="can run code"):
        load_starting_weights(make_trainer(UNET).network, tmp_path / "code.pth", 0)


def test_training_starts_from_a_package(tmp_path: Path) -> None:
    """The shipped package as a folder and as an archive: folds 0 and 1 begin with its two networks, fold 2 again with
    the first.
    """
    package, archive = load_package(DEFAULT_PACKAGE), tmp_path / "model.tar.gz"
    pack(DEFAULT_PACKAGE, archive)
    for fold, path in ((0, DEFAULT_PACKAGE), (1, archive), (2, archive)):
        network = build_network(package)
        lines: list[str] = []
        load_starting_weights(network, path, fold, lines.append)
        own, given = dict(own_tensors(network)), load_file(str(package.fold_files[fold % 2]))
        assert lines == [f"starting weights: {len(own)} of {len(own)} tensors from {path.name}"]
        assert all(torch.equal(own[name], tensor.float()) for name, tensor in given.items())
