"""Tests of the presets as nnU-Net plans them, of a second network on the same data, and of digests that distinguish
plans.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from algorithm.network.backbones import BACKBONES, build_untrained_network
from baseline.cli import make_parser
from baseline.network.patches import set_environment
from baseline.network.planning import digest_contents, write_plans
from baseline.network.plans import PRESETS, NetworkPlan, describe_differences, read_plan, store_plan
from baseline.steps import make_plan, make_prepare_options
from baseline.work import CONFIGURATIONS, WorkFolders
from contract.errors import HecktorError, InputError
from contract.io.files import PHANTOM_MARKER, write_json
from tests.baseline.package import nnunet_results
from tests.baseline.package.nnunet_results import CHANNEL

DATASET = nnunet_results.DATASET | {"numTraining": 100}
BOTH = NetworkPlan(backbones=("unet", "segresnet"))


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkFolders:
    """Write the files that nnU-Net's planners read, for a hundred patients of 64 x 64 x 48 voxels at 3 mm."""
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


def plan_configurations(work: WorkFolders, plan: NetworkPlan) -> dict[str, Any]:
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
    """Edges of 64 voxels are halved four times before they are shorter than nnU-Net's minimum of four, edges of 48
    three times: five stages, whose features double up to the maximum. All presets have room for the whole image as
    their patch.
    """
    plan = PRESETS[preset].with_options(spacing_mm=(3.0, 3.0, 3.0))
    assert PRESETS[preset].spacing_mm == ((3.0,) * 3 if preset == "short" else (1.0,) * 3)
    assert plan.memory_gb == memory_gb
    own = plan_configurations(work, plan)["3d_fullres"]
    assert own["architecture"]["network_class_name"].rsplit(".", 1)[-1] == network
    arguments = own["architecture"]["arch_kwargs"]
    assert arguments["features_per_stage"] == features
    assert {name: arguments[name] for name in blocks} == blocks
    assert arguments["strides"] == [[1, 1, 1], [2, 2, 2], [2, 2, 2], [2, 2, 2], [1, 2, 2]]
    assert (own["patch_size"], own["spacing"]) == ([48, 64, 64], [3.0, 3.0, 3.0])
    assert own["resampling_fn_data"] == own["resampling_fn_probabilities"] == "resample_torch_fornnunet"
    assert own["batch_dice"] is True
    pet = "ZScoreNormalization" if preset == "nnunet" else "CTNormalization"
    assert own["normalization_schemes"] == ["CTNormalization", pet]


def test_the_pet_has_the_constants_of_the_data_set_without_limits(work: WorkFolders) -> None:
    """nnU-Net's plan is kept for the CT, with the scale of images, and for networks of MR."""
    plans = write_plans(NetworkPlan(), work.plans)
    intensities = plans["foreground_intensity_properties_per_channel"]
    assert intensities == {"0": CHANNEL, "1": CHANNEL | {"percentile_00_5": -1e6, "percentile_99_5": 1e6}}
    assert {tuple(own["normalization_schemes"]) for own in plans["configurations"].values()} == {
        ("CTNormalization",) * 2
    }
    stock = {"0": CHANNEL, "1": CHANNEL}
    plans = write_plans(NetworkPlan(pet_scale="image"), work.plans)
    assert plans["configurations"]["3d_fullres"]["normalization_schemes"] == ["CTNormalization", "ZScoreNormalization"]
    assert plans["foreground_intensity_properties_per_channel"] == stock
    (work.raw / "dataset.json").write_text(json.dumps(DATASET | {"channel_names": {"0": "mr_during", "1": "mask"}}))
    plans = write_plans(NetworkPlan(), work.plans)
    assert plans["configurations"]["3d_fullres"]["normalization_schemes"] == ["ZScoreNormalization"] * 2
    assert plans["foreground_intensity_properties_per_channel"] == stock


def test_options_override_nnunets_plan(work: WorkFolders) -> None:
    plan = PRESETS["nnunet"].with_options(
        spacing_mm=(3.0, 3.0, 3.0), batch_size=7, batch_dice=True, most_features=100, memory_gb=0.1
    )
    own = plan_configurations(work, plan)["3d_fullres"]
    assert (own["batch_size"], own["batch_dice"]) == (7, True)
    assert max(own["architecture"]["arch_kwargs"]["features_per_stage"]) == 100
    assert own["patch_size"] != [48, 64, 64]


def test_two_backbones_on_the_same_data(work: WorkFolders) -> None:
    """48 = 2^4 x 3: the patch could be halved four times, and SegResNet's four resolutions need three. Both networks
    return the patch's shape, and the second configuration differs only in its network.
    """
    plan = NetworkPlan(base_features=4, most_features=8, backbones=("unet", "segresnet"))
    configurations = plan_configurations(work, plan)
    segresnet = configurations[CONFIGURATIONS["segresnet"]]
    assert set(segresnet) == {"inherits_from", "architecture"}
    assert segresnet["inherits_from"] == "3d_fullres"
    assert segresnet["architecture"]["arch_kwargs"]["blocks_down"] == [1, 2, 2, 4]
    for configuration in (configurations["3d_fullres"], configurations["3d_fullres"] | segresnet):
        network = build_untrained_network(configuration, 2, 3).eval()
        with torch.inference_mode():
            assert network(torch.zeros(1, 2, 16, 16, 16)).shape == (1, 3, 16, 16, 16)


def test_segresnet_is_as_deep_as_the_patch_allows() -> None:
    """128, 96 and 160 can be halved three times, 28 = 4 x 7 twice, and 6 = 2 x 3 once."""
    design = BACKBONES["segresnet"].design
    assert design is not None
    for patch, down, up in (
        ([128, 96, 160], [1, 2, 2, 4], [1, 1, 1]), ([28, 64, 64], [1, 2, 2], [1, 1]), ([64, 6, 64], [1, 2], [1]),
    ):  # fmt: skip
        arguments = design(8, patch)["arch_kwargs"]
        assert (arguments["blocks_down"], arguments["blocks_up"]) == (down, up)
    with pytest.raises(HecktorError, match=r"^--backbones segresnet: the planned patch is \[7, 8, 8\]"):
        design(8, [7, 8, 8])


def test_a_package_names_no_folder() -> None:
    assert NetworkPlan(starting_weights="/home/me/a.pth").to_record()["starting_weights"] == "a.pth"


def test_any_option_makes_another_plan_and_is_stored(tmp_path: Path) -> None:
    """Starting weights count only by their digest."""
    plan, full = NetworkPlan(), dict(PRESETS["nnunet"])
    changes = {name: value for name, value in full.items() if value != getattr(plan, name)}
    changes |= {
        "batch_size": 2, "backbones": ("segresnet",), "pet_dropout": 0.1, "channels": "PET", "dimensions": 2,
        "trainer": "mine:Trainer", "starting_weights_digest": "digest", "starting_parts": ("encoder",),
        "starting_stem": "zero", "batch_dice": None,
    }  # fmt: skip
    assert changes.keys() == full.keys() - {"starting_weights"}
    plans = [plan, *(plan.with_options(**{name: value}) for name, value in changes.items())]
    assert len({json.dumps(plan.identity(), sort_keys=True) for plan in plans}) == len(plans)
    for number, plan in enumerate(plans):
        work = WorkFolders(tmp_path / str(number))
        store_plan(work, "any", plan)
        assert read_plan(work) == plan
    assert NetworkPlan(starting_weights="/a.pth").identity() == NetworkPlan().identity()


def test_an_older_plan_has_the_scale_of_each_image(tmp_path: Path) -> None:
    """Plans from before `pet_scale` were made by nnU-Net's planner, which normalises the PET image by image."""
    work = WorkFolders(tmp_path)
    options = {name: value for name, value in PRESETS["short"].model_dump(mode="json").items() if name != "pet_scale"}
    write_json(work.plan_json, {"key": "a", "plan": options})
    older = read_plan(work)
    assert older == NetworkPlan(pet_scale="image")
    assert older.to_record()["pet_scale"] == "image"
    assert describe_differences(older, NetworkPlan()) == "pet_scale image, now fixed"


def test_a_damaged_plan_is_named(tmp_path: Path) -> None:
    work = WorkFolders(tmp_path)
    write_json(work.plan_json, {"key": "a", "plan": {"enhance": []}})
    with pytest.raises(HecktorError, match=r"^plan\.json\.plan\.enhance: found \[\], expected no such key"):
        read_plan(work)


def test_starting_weights_count_by_their_contents(tmp_path: Path) -> None:
    """Other content of the same size and an additional file change the digest; a copy elsewhere with another time does
    not.
    """
    package = tmp_path / "package"
    package.mkdir()
    digests = []
    for name, content in (("a", "1"), ("a", "2"), ("b", "1")):
        (package / name).write_text(content)
        digests.append(digest_contents(package))
    assert len(set(digests)) == 3
    assert digest_contents(Path(shutil.copytree(package, tmp_path / "copy"))) == digests[-1]
    copied = Path(shutil.copy(package / "a", tmp_path / "other.pth"))
    os.utime(copied, (1, 1))
    assert digest_contents(copied) == digest_contents(package / "a")
    with pytest.raises(InputError, match=r"weights\.pth: not found"):
        digest_contents(tmp_path / "weights.pth")


def test_defaults_of_prepare() -> None:
    """The help states the defaults of `prepare` itself, since it does not import its options."""
    options = make_prepare_options(make_parser().parse_args(["prepare", "--work", "w", "--release", "r"]))
    assert all(getattr(options, field.name) == field.default for field in fields(options) if field.name != "release")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", NetworkPlan()),
        ("--preset nnunet", PRESETS["nnunet"]),
        ("--epochs 3 --preset resenc-l --batch-size 4", PRESETS["resenc-l"].with_options(epochs=3, batch_size=4)),
        ("--mirror-axes 2 0 0", NetworkPlan(mirror_axes=(0, 2))),
        ("--preset nnunet --mirror-axes", PRESETS["nnunet"].with_options(mirror_axes=())),
        ("--backbones segresnet unet", BOTH),
        ("--dimensions 2 --channels PET", NetworkPlan(dimensions=2, channels="PET")),
        ("--trainer nnUNetTrainerNoDA", NetworkPlan(trainer="nnUNetTrainerNoDA", learning_rate=None)),
        ("--trainer mine:Trainer --learning-rate 0.1", NetworkPlan(trainer="mine:Trainer", learning_rate=0.1)),
        (
            "--starting-weights /b.pth --starting-parts decoder encoder --starting-stem zero",
            NetworkPlan(starting_weights="/b.pth", starting_parts=("encoder", "decoder"), starting_stem="zero"),
        ),
    ],
)
def test_plans_from_the_command_line(words: str, expected: NetworkPlan, tmp_path: Path) -> None:
    """Patients have no marker of phantoms: a plan for them is the same if the preset is named, and an error otherwise."""
    phantoms, patients = tmp_path / "phantoms", tmp_path / "release"
    patients.mkdir()
    write_json(phantoms / PHANTOM_MARKER, {})
    arguments = make_parser().parse_args(["plan", "--work", "w", *words.split()])
    assert make_plan(arguments, str(phantoms)) == expected
    if "--preset" in words:
        assert make_plan(arguments, str(patients)) == expected
    else:
        message = (
            r"^--preset: not given, and release contains no phantoms, expected nnunet, resenc-m or resenc-l \(short,"
        )
        with pytest.raises(HecktorError, match=message):
            make_plan(arguments, str(patients))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--channels PET --pet-dropout 0.1", r"^--pet-dropout: found with --channels PET, expected one of them$"),
        ("--starting-parts encoder", r"^--starting-parts: found without --starting-weights, expected both$"),
        ("--dimensions 2 --backbones unet segresnet", r"^--backbones: found with --dimensions 2, expected one of"),
    ],
)
def test_options_without_effect(words: str, message: str) -> None:
    with pytest.raises(HecktorError, match=message):
        make_plan(make_parser().parse_args(["plan", "--work", "w", "--preset", "short", *words.split()]), "release")
