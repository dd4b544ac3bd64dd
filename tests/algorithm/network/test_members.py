"""Packages of two networks: each network answers as it would in its own package, within one time limit."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dynamic_network_architectures.architectures.unet import PlainConvUNet
from monai.networks.nets.segresnet import SegResNet
from scipy.ndimage import gaussian_filter
from torch import nn

from algorithm.deadline import Deadline
from algorithm.network import passes as passes_module
from algorithm.network import tiles as tiles_module
from algorithm.network.loaded_package import LoadedPackage
from algorithm.network.networks import Networks
from algorithm.network.package import ModelPackage, load_package
from algorithm.network.passes import Passes
from algorithm.network.tiles import Backend, Pass, list_mirrored_passes
from contract.errors import ModelPackageError
from tests.algorithm.conftest import copy_package
from tests.algorithm.network.conftest import CPU, Tiles, make_noise, predict_logits

U_NET, SEGRESNET = 0, 1  # folds 0 and 2 are the U-Net's, 1 and 3 SegResNet's


@pytest.fixture
def package(pair_package: Path) -> ModelPackage:
    return load_package(pair_package)


@pytest.fixture
def use_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles_module, "cpu_has_bfloat16", lambda: False)


@pytest.mark.usefixtures("use_float32")
def test_segresnets_window_is_a_loop_over_its_own_tiles(package: ModelPackage) -> None:
    """On 40 x 16 x 25 voxels the patch is 24 x 16 x 20, with tiles at most half a patch apart.

    Along z 16 voxels remain behind the first tile: two steps of 8, so 0, 8, 16. Along x 5 voxels remain: one step, 0
    and 5. Weights are a Gaussian whose standard deviation is an eighth of the patch.
    """
    data, patch = make_noise((40, 16, 25)), (24, 16, 20)
    network = Networks(package).get(SEGRESNET, CPU)
    centre = np.zeros(patch)
    centre[12, 8, 10] = 1.0
    weight = gaussian_filter(centre, [n / 8 for n in patch], mode="constant")
    weight = np.maximum(weight, weight[weight > 0].min())
    total, norm = np.zeros((3, 40, 16, 25)), np.zeros((40, 16, 25))
    for z, x in itertools.product((0, 8, 16), (0, 5)):
        tile = (slice(z, z + 24), slice(None), slice(x, x + 20))
        with torch.inference_mode():
            answer = network(torch.from_numpy(data[(slice(None), *tile)][None].copy()))[0].numpy()
        total[(slice(None), *tile)] += answer * weight
        norm[tile] += weight
    logits = predict_logits(package, data, [Pass(SEGRESNET)])
    np.testing.assert_allclose(logits, total / norm, atol=1e-4, rtol=1e-4)


@pytest.mark.usefixtures("use_float32")
def test_two_members_answer_the_mean_of_both(package: ModelPackage, single_packages: dict[str, Path]) -> None:
    """Average all folds and mirrors on a grid that is smaller than one patch and larger than the other along z."""
    data = make_noise((20, 18, 24))
    both = predict_logits(package, data, list_mirrored_passes(4, (2,)))
    separate = [
        predict_logits(load_package(root), data, list_mirrored_passes(2, (2,))) for root in single_packages.values()
    ]
    assert np.abs(separate[0] - separate[1]).max() > 0.1
    np.testing.assert_allclose(both, np.mean(separate, axis=0), atol=1e-5)


def test_a_member_that_cannot_be_built_is_known_at_once(pair_package: Path, tmp_path: Path) -> None:
    """A package fails to load before the first member has answered."""

    def change(plans: dict[str, Any]) -> None:
        plans["configurations"]["segresnet"]["architecture"]["network_class_name"] = "SwinUNETR"

    with pytest.raises(ModelPackageError, match="network 'SwinUNETR'"):
        LoadedPackage(copy_package(pair_package, tmp_path / "package", change), "cpu").load()


# Time and devices, with simulated tiles


def test_a_member_that_is_too_slow_is_left_out_and_the_other_goes_on(make_timed_passes: Callable[..., Passes]) -> None:
    """Ninety of 100 s are usable. SegResNet's tiles take 30 s each, the first pass takes 8 s.

    After SegResNet's second tile two remain, 60 s, but only 22 s: it is given up. Then the U-Net makes a second pass, 8
    s; of the remaining 14 s a third takes 8 s (1.2 x 8 fit), and the 6 s after it are too few for the fourth.
    """
    tiles = Tiles({PlainConvUNet: 1.0, SegResNet: 30.0})
    progress = make_timed_passes(tiles, 100.0).make_all()
    assert (progress.done, tiles.count(PlainConvUNet), tiles.count(SegResNet)) == (3, 3 * 8, 2)


def test_a_member_that_is_faster_is_not_judged_by_the_slower_one(make_timed_passes: Callable[..., Passes]) -> None:
    """Ninety of 100 s are usable. U-Net takes 40 s, SegResNet 4 s, then 46 s remain: too few for 1.2 x 40 s, enough for
    three more of 4 s.

    First come U-Net, SegResNet, U-Net, SegResNet, then the same mirrored.
    """
    tiles = Tiles({PlainConvUNet: 5.0, SegResNet: 1.0})
    progress = make_timed_passes(tiles, 100.0).make_all()
    assert (progress.done, tiles.count(PlainConvUNet), tiles.count(SegResNet)) == (1 + 4, 8, 4 * 4)


def test_a_member_that_is_too_large_does_not_drive_the_other_from_its_device(
    make_timed_passes: Callable[..., Passes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SegResNet runs out of memory everywhere, once on each of two devices; the U-Net stays on the first."""
    devices = (Backend(CPU, CPU), Backend(CPU, CPU))
    used: list[tuple[type, int]] = []

    def slide(
        data: Any, axes: Any, network: nn.Module, patch: Any, backend: Backend, deadline: Deadline
    ) -> tiles_module.PassResult:
        used.append((type(network), next(n for n, known in enumerate(devices) if known is backend)))
        return tiles_module.slide(data, axes, network, patch, backend, deadline)

    monkeypatch.setattr(passes_module, "list_backends", lambda *_: devices)
    monkeypatch.setattr(passes_module, "slide", slide)
    progress = make_timed_passes(
        Tiles({PlainConvUNet: 1.0}, {SegResNet: torch.OutOfMemoryError("CUDA out of memory")}), 600.0
    ).make_all()
    assert progress.done == 4
    assert used == [(PlainConvUNet, 0), (SegResNet, 0), (SegResNet, 1), *[(PlainConvUNet, 0)] * 3]
