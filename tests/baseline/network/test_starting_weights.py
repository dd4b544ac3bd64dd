"""Tests of starting weights of other channels, parts of networks, and pre-trainings of nnssl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from algorithm.network.backbones import build_untrained_network
from algorithm.network.networks import iterate_tensors
from baseline.network.checkpoint import adapt_stem, find_part, load_starting_weights
from baseline.network.plans import NetworkPlan
from contract.errors import HecktorError
from contract.io.files import write_json
from tests.conftest import tiny_plans, write_manifest

STEM = "encoder.stem.convs.0.conv.weight"


def build_network(channels: int, seed: int, classes: int = 3) -> torch.nn.Module:
    """Build a small ResidualEncoderUNet, nnssl's `ResEncL`."""
    configuration = tiny_plans()["configurations"]["3d_fullres"]
    architecture = configuration["architecture"]
    architecture["network_class_name"] = "dynamic_network_architectures.architectures.unet.ResidualEncoderUNet"
    architecture["arch_kwargs"]["n_blocks_per_stage"] = architecture["arch_kwargs"].pop("n_conv_per_stage")
    torch.manual_seed(seed)
    return build_untrained_network(configuration, channels, classes)


def write_checkpoint(path: Path, weights: dict[str, torch.Tensor], **adaptation: Any) -> Path:
    """Write a checkpoint in nnssl's format."""
    plan = {"architecture_plans": {"arch_class_name": "ResEncL"}, "pretrain_num_input_channels": 1, **adaptation}
    torch.save({"network_weights": weights, "citations": [], "nnssl_adaptation_plan": plan}, path)
    return path


def load_weights(path: Path, **options: Any) -> tuple[torch.nn.Module, str]:
    network = build_network(2, seed=1)
    plan = NetworkPlan(starting_weights=str(path), **options)
    return network, load_starting_weights(network, plan, 0, "seg_layers")


def test_one_channel_is_repeated_over_both_images(tmp_path: Path) -> None:
    """Both images get half of the weights: if they are the same image, the output of the first layer does not change.

    On request the second image starts with zeros.
    """
    source = build_network(1, seed=0)
    network, summary = load_weights(write_checkpoint(tmp_path / "a.pth", source.state_dict()))
    own, image = network.state_dict(), torch.randn(1, 1, 8, 8, 8)
    assert torch.equal(own[STEM], source.state_dict()[STEM].repeat(1, 2, 1, 1, 1) / 2)
    same = network.encoder.stem(image.repeat(1, 2, 1, 1, 1))
    torch.testing.assert_close(same, source.encoder.stem(image))
    assert "first layer of 1 channel repeated over 2 channels" in summary
    zeros, summary = load_weights(tmp_path / "a.pth", starting_stem="zero")
    assert torch.equal(zeros.state_dict()[STEM][:, :1], source.state_dict()[STEM])
    assert not zeros.state_dict()[STEM][:, 1:].any()
    assert "first layer of 1 channel filled with zeros for 2 channels" in summary
    for name, tensor in source.state_dict().items():
        is_random = "seg_layers" in name
        if tensor.shape == own[name].shape:
            assert torch.equal(own[name], tensor) is not is_random, name


def test_more_channels_than_images_do_not_fit(tmp_path: Path) -> None:
    """Two channels do not fit three images either, unless the option asks for zeros."""
    path = write_checkpoint(tmp_path / "a.pth", build_network(3, seed=0).state_dict())
    with pytest.raises(HecktorError, match=rf"a\.pth: {STEM} of shape \(4, 3, 3, 3, 3\) instead of \(4, 2, 3, 3, 3\)"):
        load_weights(path)
    two, three = torch.ones(4, 2, 1, 1, 1), torch.zeros(4, 3, 1, 1, 1)
    assert adapt_stem({"a": two}, "a", three, "repeat")["a"] is two
    assert adapt_stem({"a": two}, "a", three, "zero")["a"][0].flatten().tolist() == [1, 1, 0]


def test_only_the_encoder_of_a_pretraining_inside_another_network(tmp_path: Path) -> None:
    """Contrastive pre-trainings of nnssl, for example, have no decoder."""
    source = build_network(2, seed=0).encoder.state_dict()
    weights = {f"online_encoder.{name}": tensor for name, tensor in source.items()} | {"predictor.0": torch.ones(3)}
    keys = {"key_to_encoder": "online_encoder.stages", "key_to_stem": "online_encoder.stem"}
    path = write_checkpoint(tmp_path / "a.pth", weights, **keys)
    with pytest.raises(HecktorError, match=r"a\.pth: no decoder\."):
        load_weights(path)
    network, summary = load_weights(path, starting_parts=("encoder",))
    assert all(torch.equal(tensor, source[name]) for name, tensor in network.encoder.state_dict().items())
    tensors = len(dict(network.encoder.named_parameters()))
    assert summary == (
        f"starting weights of a.pth: tensors taken: {tensors} of encoder; random at the start: decoder, heads; "
        "not taken: 1 tensors, such as predictor.0"
    )


def test_heads_are_taken_where_asked(tmp_path: Path) -> None:
    """Heads must fit as well: two labels do not fit three."""
    parts = ("encoder", "decoder", "heads")
    source = build_network(2, seed=0)
    network, summary = load_weights(write_checkpoint(tmp_path / "a.pth", source.state_dict()), starting_parts=parts)
    assert all(torch.equal(tensor, source.state_dict()[name]) for name, tensor in network.state_dict().items())
    assert "random" not in summary
    path = write_checkpoint(tmp_path / "b.pth", build_network(2, seed=0, classes=2).state_dict())
    with pytest.raises(HecktorError, match=r"seg_layers\.0\.weight of shape \(2, "):
        load_weights(path, starting_parts=parts)


def write_package(root: Path, source: torch.nn.Module, **changes: Any) -> Path:
    """Write a package of one network with changes to its configuration."""
    plans = tiny_plans()
    plans["configurations"]["3d_fullres"] |= changes
    write_json(root / "plans.json", plans)
    save_file(dict(iterate_tensors(source)), str(root / "fold_0.safetensors"))
    write_manifest(root)
    return root


PET_ONLY = {"channels": [1], "normalization_schemes": ["ZScoreNormalization"]}


def test_heads_of_other_labels_are_refused(tmp_path: Path) -> None:
    """The network's output 1 is GTVn. Without its heads the order of its labels does not matter."""
    source = build_network(2, seed=0)
    path = write_package(tmp_path / "model", source, labels=[0, 2, 1])
    network, _ = load_weights(path)
    assert torch.equal(network.state_dict()[STEM], source.state_dict()[STEM])
    message = "heads of model, whose labels are background, GTVn, GTVp, expected --starting-parts encoder decoder, or"
    with pytest.raises(HecktorError, match=rf"^--starting-parts: {message} labels in the order background, GTVp,"):
        load_weights(path, starting_parts=("encoder", "decoder", "heads"))


def test_filters_of_the_pet_are_not_given_to_the_ct(tmp_path: Path) -> None:
    """Filters of the PET may be repeated over both images, and a training on the PET uses them unchanged."""
    source = build_network(1, seed=0)
    path = write_package(tmp_path / "model", source, **PET_ONLY)
    with pytest.raises(HecktorError, match=r"^--starting-stem: zero for model, a network that sees only the PET, exp"):
        load_weights(path, starting_stem="zero")
    network, _ = load_weights(path)
    assert torch.equal(network.state_dict()[STEM], source.state_dict()[STEM].repeat(1, 2, 1, 1, 1) / 2)
    network = build_network(1, seed=1)
    plan = NetworkPlan(starting_weights=str(path), starting_stem="zero", channels="PET")
    load_starting_weights(network, plan, 0, "seg_layers")
    assert torch.equal(network.state_dict()[STEM], source.state_dict()[STEM])


def test_custom_networks_give_no_starting_weights(tmp_path: Path) -> None:
    """Custom networks store their weights as files of any format in a folder."""
    architecture = {"hook": "my_model", "labels": [0, 1, 2], "returns": "logits", "half_precision": False}
    path = write_package(tmp_path / "model", build_network(2, seed=0), architecture=architecture)
    (path / "networks" / "0").mkdir(parents=True)
    (path / "fold_0.safetensors").rename(path / "networks" / "0" / "weights.bin")
    write_manifest(path, folds=["networks/0"], code={"my_model": "0" * 64})
    with pytest.raises(HecktorError, match=r"^--starting-weights: model: a custom network, expected networks of nnU-N"):
        load_weights(path)


@pytest.mark.parametrize(
    ("output_layers", "parts"),
    [
        ("seg_layers", {STEM: "encoder", "decoder.transpconvs.0.weight": "decoder", "decoder.seg_layers.0.weight": "heads"}),
        ("conv_final", {"convInit.conv.weight": "encoder", "up_layers.0.0.conv1.conv.weight": "decoder",
                        "conv_final.2.conv.weight": "heads"}),
    ],
)  # fmt: skip
def test_parts_of_both_backbones(output_layers: str, parts: dict[str, str]) -> None:
    assert {name: find_part(name, output_layers) for name in parts} == parts
