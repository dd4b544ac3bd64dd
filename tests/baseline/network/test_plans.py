"""Presets as nnU-Net plans them, a second network on the same data, and digests that distinguish plans."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from algorithm.network.networks import untrained_network
from baseline.arguments import parser, plan_of
from baseline.cli import _STEPS
from baseline.network.nnunet import set_environment
from baseline.network.plans import ENHANCEMENTS, PRESETS, NetworkPlan, segresnet, write_plans
from baseline.work import CONFIGURATIONS, WorkFolders
from contract.errors import HecktorError

DATASET = {
    "channel_names": {"0": "CT", "1": "PET"},
    "labels": {"background": 0, "GTVp": 1, "GTVn": 2},
    "numTraining": 100,
    "file_ending": ".nii.gz",
    "overwrite_image_reader_writer": "SimpleITKIO",
}
BOTH = NetworkPlan(backbones=("unet", "segresnet"))
CHANNEL = {"mean": 0.0, "std": 400.0, "percentile_00_5": -1000.0, "percentile_99_5": 1000.0}


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkFolders:
    """The files that nnU-Net's planners read, for a hundred patients of 64 x 64 x 48 voxels at 3 mm."""
    for name in ("raw", "preprocessed", "results", "n_proc_DA", "compile"):
        monkeypatch.setenv(f"nnUNet_{name}", "")  # so that the test restores them
    work = WorkFolders(tmp_path)
    set_environment(work, augmentation_workers=1)
    fingerprint = {
        "spacings": [[3.0, 3.0, 3.0]] * 2,
        "shapes_after_crop": [[48, 64, 64]] * 2,
        "median_relative_size_after_cropping": 1.0,
        "foreground_intensity_properties_per_channel": {"0": CHANNEL, "1": CHANNEL},
    }
    raw = work.raw
    (raw / "imagesTr").mkdir(parents=True)
    (raw / "dataset.json").write_text(json.dumps(DATASET))
    for channel in (0, 1):
        (raw / "imagesTr" / f"a_000{channel}.nii.gz").touch()
    work.plans.parent.mkdir(parents=True)
    (work.plans.parent / "dataset_fingerprint.json").write_text(json.dumps(fingerprint))
    return work


def planned(work: WorkFolders, plan: NetworkPlan) -> dict[str, Any]:
    return write_plans(plan, work.plans)["configurations"]


@pytest.mark.parametrize(
    ("preset", "network", "features", "blocks", "memory_gb"),
    [
        ("short", "PlainConvUNet", [16, 32, 64, 96, 96], {"n_conv_per_stage": [1, 2, 2, 2, 2]}, 0.3),
        ("nnunet", "PlainConvUNet", [32, 64, 128, 256, 320], {"n_conv_per_stage": [2, 2, 2, 2, 2]}, 8.0),
        ("resenc-m", "ResidualEncoderUNet", [32, 64, 128, 256, 320], {"n_blocks_per_stage": [1, 3, 4, 6, 6]}, 8.0),
        ("resenc-l", "ResidualEncoderUNet", [32, 64, 128, 256, 320], {"n_blocks_per_stage": [1, 3, 4, 6, 6]}, 24.0),
    ],
)
def test_presets(
    work: WorkFolders, preset: str, network: str, features: list[int], blocks: dict[str, Any], memory_gb: float
) -> None:
    """64 voxels are halved four times before fewer than nnU-Net's least edge of four are left, 48 three times: five
    stages, whose features double up to the most. All presets have room for the whole image as their patch.
    """
    plan = replace(PRESETS[preset], spacing_mm=(3.0, 3.0, 3.0))
    assert PRESETS[preset].spacing_mm == ((3.0,) * 3 if preset == "short" else (1.0,) * 3)
    assert plan.memory_gb == memory_gb
    own = planned(work, plan)["3d_fullres"]
    assert own["architecture"]["network_class_name"].rsplit(".", 1)[-1] == network
    arguments = own["architecture"]["arch_kwargs"]
    assert arguments["features_per_stage"] == features
    assert {name: arguments[name] for name in blocks} == blocks
    assert arguments["strides"] == [[1, 1, 1], [2, 2, 2], [2, 2, 2], [2, 2, 2], [1, 2, 2]]
    assert (own["patch_size"], own["spacing"]) == ([48, 64, 64], [3.0, 3.0, 3.0])
    assert own["resampling_fn_data"] == own["resampling_fn_probabilities"] == "resample_torch_fornnunet"
    assert own["batch_dice"] is (preset == "short")


def test_options_override_nnunets_plan(work: WorkFolders) -> None:
    plan = replace(
        PRESETS["nnunet"], spacing_mm=(3.0, 3.0, 3.0), batch_size=7, batch_dice=True, most_features=100, memory_gb=0.1
    )
    own = planned(work, plan)["3d_fullres"]
    assert (own["batch_size"], own["batch_dice"]) == (7, True)
    assert max(own["architecture"]["arch_kwargs"]["features_per_stage"]) == 100
    assert own["patch_size"] != [48, 64, 64]


def test_two_backbones_on_the_same_data(work: WorkFolders) -> None:
    """48 = 2^4 x 3: the patch could be halved four times, and SegResNet's four resolutions need three. Both networks
    answer with the patch's shape, and the second configuration has nothing of its own but the network.
    """
    plan = NetworkPlan(base_features=4, most_features=8, backbones=("unet", "segresnet"), enhance=("ct_square",))
    found = planned(work, plan)
    other = found[CONFIGURATIONS["segresnet"]]
    assert set(other) == {"inherits_from", "architecture"}
    assert other["inherits_from"] == "3d_fullres"
    assert other["architecture"]["arch_kwargs"]["blocks_down"] == [1, 2, 2, 4]
    for configuration in (found["3d_fullres"], found["3d_fullres"] | other):
        assert configuration["architecture"]["enhance"] == ["ct_square"]
        network = untrained_network(configuration, 2, 3).eval()
        with torch.inference_mode():
            assert network(torch.zeros(1, 2, 16, 16, 16)).shape == (1, 3, 16, 16, 16)


@pytest.mark.parametrize(
    ("patch", "down", "up"),
    [([128, 96, 160], [1, 2, 2, 4], [1, 1, 1]), ([28, 64, 64], [1, 2, 2], [1, 1]), ([64, 6, 64], [1, 2], [1])],
)
def test_segresnet_is_as_deep_as_the_patch_allows(patch: list[int], down: list[int], up: list[int]) -> None:
    """28 = 4 x 7 is halved twice, 6 = 2 x 3 once."""
    arguments = segresnet(8, patch)["arch_kwargs"]
    assert (arguments["blocks_down"], arguments["blocks_up"]) == (down, up)


def test_segresnet_of_an_odd_patch() -> None:
    with pytest.raises(HecktorError, match=r"^--backbones segresnet: the planned patch is \[7, 8, 8\], expected even"):
        segresnet(8, [7, 8, 8])


KNOBS: dict[str, Any] = {
    "misalign": 0.1, "misalign_by": (10.0, 4.0), "pet_dropout": 0.1, "pet_normalisation": "fixed",
    "dice_smoothing": False, "inputs": "digest",
}  # fmt: skip


def test_segresnets_options_count_where_it_is_trained() -> None:
    """The presets set them for a network that few train."""
    assert (
        replace(NetworkPlan(), segresnet_recipe="monai", segresnet_memory_gb=8.0).identity() == NetworkPlan().identity()
    )


def test_a_package_names_no_folder() -> None:
    record = NetworkPlan(starting_weights="/home/me/a.pth", organs="/home/me/organs").record()
    assert (record["starting_weights"], record["organs"]) == ("a.pth", "organs")


def test_fixed_normalisation_of_the_pet(work: WorkFolders) -> None:
    """nnU-Net takes the data set's foreground values for CT alone; its z-score remains the default for PET."""
    schemes = "normalization_schemes"
    assert planned(work, NetworkPlan())["3d_fullres"][schemes] == ["CTNormalization", "ZScoreNormalization"]
    fixed = planned(work, NetworkPlan(pet_normalisation="fixed"))["3d_fullres"]
    assert fixed[schemes] == ["CTNormalization", "CTNormalization"]


def test_a_smaller_patch_for_segresnet(work: WorkFolders) -> None:
    found = planned(work, replace(BOTH, segresnet_memory_gb=0.1))[CONFIGURATIONS["segresnet"]]
    assert found["patch_size"] != [48, 64, 64]
    assert all(edge % 8 == 0 for edge in found["patch_size"])
    assert "patch_size" not in planned(work, replace(BOTH, segresnet_memory_gb=80.0))[CONFIGURATIONS["segresnet"]]


def test_the_identity_of_a_plan() -> None:
    """Any option makes another plan, files by their digest alone. Those that `short` leaves alone are not in the
    identity, so that it stays what it was before they could be chosen.
    """
    assert NetworkPlan().identity() == {
        "spacing_mm": (3.0, 3.0, 3.0), "memory_gb": 0.3, "base_features": 16, "most_features": 96, "epochs": 45,
        "iterations": 50, "validation_iterations": 4, "learning_rate": 1e-3, "mirror_axes": (2,),
    }  # fmt: skip
    others = [
        replace(NetworkPlan(), **{name: value})
        for name, value in asdict(PRESETS["nnunet"]).items()
        if value != asdict(NetworkPlan())[name] and not name.startswith("segresnet")
    ]
    others += [replace(BOTH, segresnet_recipe="monai"), replace(BOTH, segresnet_memory_gb=8.0)]
    others += [NetworkPlan(**{name: value}) for name, value in KNOBS.items()]
    others += [
        NetworkPlan(batch_size=2),
        NetworkPlan(backbones=("segresnet",)),
        NetworkPlan(enhance=("ct_square",)),
        NetworkPlan(),
    ]
    assert NetworkPlan(starting_weights="/a.pth", organs="/organs").identity() == NetworkPlan().identity()
    identities = [json.dumps(plan.identity(), sort_keys=True) for plan in others]
    assert len(set(identities)) == len(others)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", NetworkPlan()),
        ("--preset nnunet", PRESETS["nnunet"]),
        ("--epochs 3 --preset resenc-l --batch-size 4", replace(PRESETS["resenc-l"], epochs=3, batch_size=4)),
        ("--optimiser sgd --learning-rate 0.1", NetworkPlan(optimiser="sgd", learning_rate=0.1)),
        ("--mirror-axes 2 0 0", NetworkPlan(mirror_axes=(0, 2))),
        ("--preset nnunet --mirror-axes", replace(PRESETS["nnunet"], mirror_axes=())),
        ("--backbones segresnet unet --enhance ct_cube_root ct_square", replace(BOTH, enhance=ENHANCEMENTS)),
        ("--misalign --pet-dropout 0.2", NetworkPlan(misalign=0.1, pet_dropout=0.2)),
        ("--misalign 0.3 --misalign-by 2 4", NetworkPlan(misalign=0.3, misalign_by=(2.0, 4.0))),
        ("--pet-normalisation fixed --batch-dice off", NetworkPlan(pet_normalisation="fixed", batch_dice=False)),
        ("--no-dice-smoothing --segresnet-recipe monai", NetworkPlan(dice_smoothing=False, segresnet_recipe="monai")),
        ("--segresnet-memory-gb 4 --batch-dice on", NetworkPlan(segresnet_memory_gb=4.0)),
        ("--organs /a --starting-weights /b.pth", NetworkPlan(organs="/a", starting_weights="/b.pth")),
    ],
)
def test_plans_from_the_command_line(words: str, expected: NetworkPlan) -> None:
    assert plan_of(parser(_STEPS).parse_args(["plan", "--work", "w", *words.split()])) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--misalign --misalign-by 5 0.9", r"^--misalign-by: found a shift of 0\.9 voxels, expected a whole number$"),
        ("--misalign-by 5 4", r"^--misalign-by: found without --misalign, expected both$"),
        ("--misalign 0 --misalign-by 5 4", r"^--misalign-by: found without --misalign"),
    ],
)
def test_limits_of_the_misalignment_without_effect(words: str, message: str) -> None:
    with pytest.raises(HecktorError, match=message):
        plan_of(parser(_STEPS).parse_args(["plan", "--work", "w", *words.split()]))
