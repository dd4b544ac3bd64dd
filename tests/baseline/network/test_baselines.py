"""Networks of one image, of the mean of both, and of single slices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from algorithm.network.backbones import build_untrained_network
from algorithm.network.tiles import list_tiles
from baseline.network.patches import set_environment
from baseline.network.planning import write_plans
from baseline.network.plans import NetworkPlan
from baseline.work import CONFIGURATIONS, WorkFolders
from contract.errors import ModelPackageError
from contract.io.files import read_json
from tests.baseline.network.conftest import UNET, MakeTrainer

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


def make_plans(work: WorkFolders, plan: NetworkPlan) -> dict[str, Any]:
    """Write a plan and return nnU-Net's plans, with the images that are already preprocessed."""
    set_environment(work, augmentation_workers=1)
    plans = write_plans(plan, work.preprocessed / "baseline.json")
    images = read_json(work.plans)["configurations"]["3d_fullres"]["data_identifier"]
    plans["configurations"]["3d_fullres"]["data_identifier"] = images
    return plans


def build_network(plans: dict[str, Any], channels: int = 2) -> torch.nn.Module:
    torch.manual_seed(0)
    return build_untrained_network(plans["configurations"]["3d_fullres"], channels, 3).eval()


@torch.inference_mode()
def test_a_network_sees_one_image_or_the_mean(noise_work: WorkFolders) -> None:
    """Networks of one channel ignore the other image, and networks of the mean depend only on the sum."""
    image = torch.randn(1, 2, 16, 16, 16)
    same_sum = torch.stack([image[:, 0] + 1, image[:, 1] - 1], dim=1)
    for sees, unseen in (("CT", 1), ("PET", 0), ("mean", None)):
        network = build_network(make_plans(noise_work, UNET.with_options(channels=sees)))
        assert next(network.parameters()).shape[1] == 1
        answer = network(image)
        changed = same_sum if unseen is None else image.clone()
        if unseen is not None:
            changed[:, unseen] += torch.randn(1)
        torch.testing.assert_close(network(changed), answer, atol=1e-4, rtol=1e-4)
        assert not torch.allclose(network(image + 1 + torch.randn_like(image)), answer, atol=1e-4)


def test_all_backbones_see_the_plans_channels(noise_work: WorkFolders) -> None:
    configurations = make_plans(noise_work, UNET.with_options(channels="PET", backbones=("unet", "segresnet")))[
        "configurations"
    ]
    assert {configurations[name]["architecture"]["sees"] for name in CONFIGURATIONS.values()} == {"PET"}
    assert "sees" not in make_plans(noise_work, UNET)["configurations"]["3d_fullres"]["architecture"]


def test_other_channels_are_refused(noise_work: WorkFolders) -> None:
    plans = make_plans(noise_work, UNET)
    plans["configurations"]["3d_fullres"]["architecture"]["sees"] = "MR"
    with pytest.raises(ModelPackageError, match=r"^plans\.json: sees 'MR'"):
        build_network(plans)


@torch.inference_mode()
def test_a_network_of_slices_sees_one_at_a_time(noise_work: WorkFolders) -> None:
    """nnU-Net plans the patch of 16 x 16 voxels. Another slice changes nothing, and the output equals the output of
    nnU-Net's 2D network with the same weights.
    """
    plans = make_plans(noise_work, UNET.with_options(dimensions=2))
    slices, flat = plans["configurations"]["3d_fullres"], plans["configurations"]["2d"]
    assert slices["patch_size"] == [1, *flat["patch_size"]] == [1, 16, 16]
    assert slices["spacing"] == [3.0, 3.0, 3.0]
    from nnunetv2.utilities.get_network_from_plans import get_network_from_plans

    network = build_network(plans)
    architecture = flat["architecture"]
    names = architecture["network_class_name"], architecture["arch_kwargs"], architecture["_kw_requires_import"]
    reference = get_network_from_plans(*names, 2, 3, deep_supervision=False).eval()
    weights = {name: tensor.squeeze(2) if tensor.ndim == 5 else tensor for name, tensor in network.state_dict().items()}
    reference.load_state_dict(weights)
    image = torch.randn(1, 2, 1, 16, 16)
    torch.testing.assert_close(network(image)[:, :, 0], reference(image[:, :, 0]), atol=1e-5, rtol=1e-5)


def test_slices_are_tiles_once_each() -> None:
    """Tiles begin at each slice once; a step of half a voxel would place each inner slice twice."""
    tiles = list_tiles((5, 16, 24), (1, 16, 16))
    assert [tile[0].start for tile in tiles if tile[2].start == 0] == [0, 1, 2, 3, 4]
    assert sorted({tile[2].start for tile in tiles}) == [0, 8]


@pytest.mark.usefixtures("without_plots")
@pytest.mark.parametrize(
    "changes", [{"channels": "PET"}, {"channels": "mean"}, {"dimensions": 2, "trainer": "nnUNetTrainerNoDA"}]
)
def test_baselines_are_trained(make_trainer: MakeTrainer, noise_work: WorkFolders, changes: dict[str, Any]) -> None:
    """Training for one step changes the weights, and the checkpoint fits the network that inference builds."""
    plan = UNET.with_options(**changes)
    plans = make_plans(noise_work, plan)
    trainer = make_trainer(plan, plans=plans)
    before = next(trainer.network.parameters()).detach().clone()
    trainer.run_training()
    assert not torch.equal(before, next(trainer.network.parameters()))
    build_network(plans).load_state_dict(trainer.network.state_dict())
    for path in Path(trainer.output_folder).glob("checkpoint_*.pth"):
        path.unlink()
