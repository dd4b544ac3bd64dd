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


def planned_as(work: WorkFolders, plan: NetworkPlan) -> dict[str, Any]:
    """nnU-Net's plans of a plan, with the images that are preprocessed already."""
    set_environment(work, augmentation_workers=1)
    plans = write_plans(plan, work.preprocessed / "baseline.json")
    images = read_json(work.plans)["configurations"]["3d_fullres"]["data_identifier"]
    plans["configurations"]["3d_fullres"]["data_identifier"] = images
    return plans


def network_of(plans: dict[str, Any], channels: int = 2) -> torch.nn.Module:
    torch.manual_seed(0)
    return build_untrained_network(plans["configurations"]["3d_fullres"], channels, 3).eval()


@torch.inference_mode()
def test_a_network_sees_one_image_or_the_mean(planned: WorkFolders) -> None:
    """The first layer has one channel. An image that is not seen changes nothing; of the mean only the sum counts."""
    image = torch.randn(1, 2, 16, 16, 16)
    other = torch.stack([image[:, 0] + 1, image[:, 1] - 1], dim=1)
    for sees, unseen in (("CT", 1), ("PET", 0), ("mean", None)):
        network = network_of(planned_as(planned, UNET.with_options(channels=sees)))
        assert next(network.parameters()).shape[1] == 1
        answer = network(image)
        changed = other if unseen is None else image.clone()
        if unseen is not None:
            changed[:, unseen] += torch.randn(1)
        torch.testing.assert_close(network(changed), answer, atol=1e-4, rtol=1e-4)
        assert not torch.allclose(network(image + 1 + torch.randn_like(image)), answer, atol=1e-4)


def test_all_backbones_see_the_plans_channels(planned: WorkFolders) -> None:
    configurations = planned_as(planned, UNET.with_options(channels="PET", backbones=("unet", "segresnet")))[
        "configurations"
    ]
    assert {configurations[name]["architecture"]["sees"] for name in CONFIGURATIONS.values()} == {"PET"}
    assert "sees" not in planned_as(planned, UNET)["configurations"]["3d_fullres"]["architecture"]


def test_other_channels_are_refused(planned: WorkFolders) -> None:
    plans = planned_as(planned, UNET)
    plans["configurations"]["3d_fullres"]["architecture"]["sees"] = "MR"
    with pytest.raises(ModelPackageError, match=r"^plans\.json: sees 'MR'"):
        network_of(plans)


@torch.inference_mode()
def test_a_network_of_slices_sees_one_at_a_time(planned: WorkFolders) -> None:
    """nnU-Net plans the patch of 16 x 16 voxels. Another slice changes nothing, and the answer is that of nnU-Net's own
    2D network with the same weights.
    """
    plans = planned_as(planned, UNET.with_options(dimensions=2))
    own, flat = plans["configurations"]["3d_fullres"], plans["configurations"]["2d"]
    assert own["patch_size"] == [1, *flat["patch_size"]] == [1, 16, 16]
    assert own["spacing"] == [3.0, 3.0, 3.0]
    from nnunetv2.utilities.get_network_from_plans import get_network_from_plans

    network = network_of(plans)
    architecture = flat["architecture"]
    names = architecture["network_class_name"], architecture["arch_kwargs"], architecture["_kw_requires_import"]
    theirs = get_network_from_plans(*names, 2, 3, deep_supervision=False).eval()
    weights = {name: one.squeeze(2) if one.ndim == 5 else one for name, one in network.state_dict().items()}
    theirs.load_state_dict(weights)
    image = torch.randn(1, 2, 1, 16, 16)
    torch.testing.assert_close(network(image)[:, :, 0], theirs(image[:, :, 0]), atol=1e-5, rtol=1e-5)


def test_slices_are_tiles_once_each() -> None:
    """A step of half a voxel would place each inner slice twice."""
    tiles = list_tiles((5, 16, 24), (1, 16, 16))
    assert [tile[0].start for tile in tiles if tile[2].start == 0] == [0, 1, 2, 3, 4]
    assert sorted({tile[2].start for tile in tiles}) == [0, 8]


@pytest.mark.parametrize(
    "changes", [{"channels": "PET"}, {"channels": "mean"}, {"dimensions": 2, "trainer": "nnUNetTrainerNoDA"}]
)
def test_baselines_are_trained(make_trainer: MakeTrainer, planned: WorkFolders, changes: dict[str, Any]) -> None:
    """One step of each; the checkpoint fits the network that inference builds."""
    plan = UNET.with_options(**changes)
    plans = planned_as(planned, plan)
    trainer = make_trainer(plan, plans=plans)
    before = next(trainer.network.parameters()).detach().clone()
    trainer.run_training()
    assert not torch.equal(before, next(trainer.network.parameters()))
    network_of(plans).load_state_dict(trainer.network.state_dict())
    for path in Path(trainer.output_folder).glob("checkpoint_*.pth"):
        path.unlink()
