"""Plans of full size, the operations of a tile, and packages of random networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from algorithm.network.backbones import build_untrained_network
from algorithm.network.loaded_package import DEFAULT_PACKAGE
from algorithm.network.networks import Networks, iterate_tensors
from algorithm.network.package import PLANS, load_package
from algorithm.network.tiles import list_passes
from benchmarks.device.job import PLAN_NAMES, make_plans, write_random_package
from benchmarks.device.speed import count_tile_flops
from contract import labels
from contract.editions import DEFAULT_EDITION
from contract.io.files import read_json


def make_configuration(name: str, *, quick: bool = False) -> dict[str, Any]:
    plans = make_plans(name, read_json(DEFAULT_PACKAGE / PLANS), quick=quick)
    configuration: dict[str, Any] = plans["configurations"]["3d_fullres"]
    return configuration


@pytest.mark.parametrize(("name", "millions"), [("default", 30.6), ("resenc-m", 101.7)])
def test_plans_are_of_full_size(name: str, millions: float) -> None:
    """nnU-Net's default network of six stages for two channels and three labels has 31 million parameters. Each edge of
    the patch can be halved as often as the strides say.
    """
    configuration = make_configuration(name)
    assert configuration["patch_size"] == [192, 112, 112]
    assert np.prod(configuration["architecture"]["arch_kwargs"]["strides"], axis=0).tolist() == [32, 16, 16]
    with torch.device("meta"):
        network = build_untrained_network(configuration, 2, 3)
    assert sum(tensor.numel() for _, tensor in iterate_tensors(network)) / 1e6 == pytest.approx(millions, abs=0.1)


def test_operations_of_a_tile() -> None:
    """Count for the quick default network: two stages of two convolutions, 4 and 8 features, one decoder stage, 16^3 voxels.

    A convolution of 3^3 costs 2 x 27 x in x out a voxel. Finest stage, 4,096 voxels: 2 -> 4 and 4 -> 4, in the
    decoder 8 -> 4 and 4 -> 4: 54 x (8 + 16 + 32 + 16) = 3,888. Second stage, 512 voxels: 4 -> 8 and 8 -> 8: 54 x
    (32 + 64) = 5,184. Up by 2^3, each of 4,096 voxels from one of 512: 2 x 8 x 4 = 64. Logits: 2 x 4 x 3 = 24.
    """
    expected = 4096 * (3888 + 64 + 24) + 512 * 5184
    assert count_tile_flops(make_configuration("default", quick=True)) == expected


@pytest.mark.parametrize("name", PLAN_NAMES)
def test_a_random_package_segments_hot_voxels_of_the_pet(name: str, tmp_path: Path) -> None:
    """Noise of sd 1 in both channels and a block of 20 in the PET give GTVp there and nowhere else."""
    package = load_package(write_random_package(tmp_path / name, name, DEFAULT_EDITION, quick=True))
    assert len(list_passes(package)) == 4
    data = torch.randn((1, 2, 16, 16, 16), generator=torch.Generator().manual_seed(0)).clip(-2, 2)
    data[0, 1, 4:7, 4:7, 4:7] = 20.0
    with torch.inference_mode():
        segmented = Networks(package).get(1, torch.device("cpu"))(data)[0].argmax(0)
    expected = torch.zeros((16, 16, 16), dtype=torch.long)
    expected[4:7, 4:7, 4:7] = labels.GTVP
    assert torch.equal(segmented, expected)
