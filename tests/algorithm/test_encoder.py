"""Deep features: pooled as derived by hand and as a naive loop does, within the time, and into an answer."""

from __future__ import annotations

import copy
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from algorithm.heads.features.deep import is_deep, named
from torch import nn

from algorithm import encoder
from algorithm.budget import Budget
from algorithm.case.read import Case
from algorithm.encoder import MOST_TILES, deep_features, deepest_maps, lesion_tiles, pooled_features
from algorithm.masks.segmentation import Segmentation
from algorithm.network.enhance import Enhanced
from algorithm.network.networks import Networks, build_network, untrained_network
from algorithm.network.package import load_package
from contract import sockets
from contract.files import read_json, write_json
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from contract.patient import Patient

CPU = torch.device("cpu")


class Halved(nn.Module):
    """A stand-in whose encoder gives the tile itself and, last, the means of its blocks of 2 x 2 x 2."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.tiles: list[torch.Tensor] = []

    def encoder(self, tile: torch.Tensor) -> list[torch.Tensor]:
        self.tiles.append(tile)
        return [tile, nn.functional.avg_pool3d(tile, 2)]


def test_cells_count_by_how_much_of_them_is_lesion() -> None:
    """A row of four voxels in x, the rest 0: cells hold the means of 8 voxels, 8 and 16 in the two cells below.

    Voxels 64 and 128 in cells (0, 0, 0) and (0, 0, 1); lesion: two voxels of the first cell, one of the second. So the
    mean over the three lesion voxels is (2 x 8 + 1 x 16) / 3 = 32 / 3. The second channel is minus the first.
    """
    image = np.zeros((1, 4, 4, 4), np.float32)
    image[0, 0, 0, 0], image[0, 0, 0, 2] = 64, 128
    lesion = np.zeros((4, 4, 4), bool)
    lesion[0, 0, :3] = True
    found = pooled_features(np.concatenate([image, -image]), lesion, Halved(), (4, 4, 4))
    assert found is not None
    assert found == pytest.approx([32 / 3, -32 / 3])


def test_without_a_lesion_or_with_numbers_that_are_none() -> None:
    image = np.ones((1, 4, 4, 4), np.float32)
    lesion = np.zeros((4, 4, 4), bool)
    assert pooled_features(image, lesion, Halved(), (4, 4, 4)) is None
    lesion[1, 1, 1] = True
    assert pooled_features(image * np.float32("nan"), lesion, Halved(), (4, 4, 4)) is None


def naive(image: np.ndarray, lesion: np.ndarray, patch: int) -> np.ndarray:
    """Voxel by voxel: each lesion voxel counts with the mean of the block it is in, of the tile that holds it."""
    values = []
    for box, part in lesion_tiles(lesion, (patch,) * 3):
        tile = image[(slice(None), *box)]
        for z, y, x in np.argwhere(part):
            block = tuple(slice(at // 2 * 2, at // 2 * 2 + 2) for at in (z, y, x))
            values.append(tile[(slice(None), *block)].mean((1, 2, 3)))
    return np.mean(values, axis=0)


@pytest.mark.parametrize("seed", range(4))
def test_against_a_naive_loop(seed: int) -> None:
    """Random lesions on a grid of several tiles."""
    rng = np.random.default_rng(seed)
    image = rng.normal(size=(3, 20, 14, 16)).astype(np.float32)
    lesion = rng.random((20, 14, 16)) < 0.02
    found = pooled_features(image, lesion, Halved(), (6, 6, 6))
    assert found is not None
    assert found == pytest.approx(naive(image, lesion, 6), abs=1e-5)


def test_a_grid_smaller_than_the_patch_is_padded() -> None:
    """Two voxels along each axis in a patch of four: one voxel of zeros on either side, so each cell of 2^3 voxels
    holds one voxel of the image."""
    image = np.full((1, 2, 2, 2), 8, np.float32)
    network = Halved()
    found = pooled_features(image, np.ones((2, 2, 2), bool), network, (4, 4, 4))
    assert found is not None
    assert found == pytest.approx([1.0])
    assert network.tiles[0].shape == (1, 1, 4, 4, 4)


def test_tiles_lie_around_the_largest_lesions_and_count_no_voxel_twice() -> None:
    """The lesion of 3 voxels first, around its middle voxel 8; the lone voxel at 13 lies beyond 8 - 4 to 8 + 4 and
    gets a tile that ends with the grid; the one at 9 lies in the first tile."""
    lesion = np.zeros((16, 8, 8), bool)
    lesion[6:9, 4, 4] = lesion[10, 4, 4] = lesion[13, 4, 4] = True
    (first, part), (second, rest) = lesion_tiles(lesion, (8, 8, 8))
    assert first == (slice(3, 11), slice(0, 8), slice(0, 8))
    assert part.sum() == 4
    assert second == (slice(8, 16), slice(0, 8), slice(0, 8))
    assert np.argwhere(rest).tolist() == [[5, 4, 4]]


def test_there_are_never_more_tiles_than_stated() -> None:
    lesion = np.zeros((80, 4, 4), bool)
    lesion[::8] = True
    tiles = lesion_tiles(lesion, (4, 4, 4))
    assert len(tiles) == MOST_TILES
    assert lesion_tiles(np.zeros((4, 4, 4), bool), (4, 4, 4)) == []


def test_the_middle_of_a_ring_is_a_voxel_of_it() -> None:
    """A ring wider than the patch: a tile around its empty middle would hold nothing of it."""
    lesion = np.zeros((4, 40, 40), bool)
    lesion[2, 2:38, 2:38] = True
    lesion[2, 4:36, 4:36] = False
    assert all(part.any() for _, part in lesion_tiles(lesion, (4, 4, 4)))


def test_every_kind_of_network_has_a_last_stage(tiny_package: Path, segresnet: dict[str, Any]) -> None:
    """nnU-Net's U-Net: 8 channels at half the resolution. SegResNet of 8 filters and three resolutions: 8 x 2^2 at a
    quarter. Functions of the CT go in as the network itself sees them."""
    package = load_package(tiny_package)
    tile = torch.randn(1, 2, 16, 16, 16)
    assert deepest_maps(build_network(package), tile).shape == (1, 8, 8, 8, 8)
    configuration = copy.deepcopy(dict(package.configuration))
    configuration["architecture"] |= {"enhance": ["ct_square"]}
    enhanced = untrained_network(configuration, 2, 3)
    assert isinstance(enhanced, Enhanced)
    seen: list[torch.Tensor] = []
    enhanced.network.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    enhanced(tile)
    inner: Any = enhanced.network
    torch.testing.assert_close(deepest_maps(enhanced, tile), inner.encoder(seen[0])[-1])
    configuration["architecture"] = segresnet
    assert deepest_maps(untrained_network(configuration, 2, 3), tile).shape == (1, 32, 4, 4, 4)


@pytest.fixture
def networks(tiny_package: Path) -> Networks:
    return Networks(load_package(tiny_package))


def found_in(shape: tuple[int, int, int] = (24, 20, 20)) -> tuple[Case, Segmentation]:
    rng = np.random.default_rng(0)
    z, y, x = shape
    grid = Geometry((x, y, z), (9.0, 9.0, 9.0), (0.0, 0.0, 0.0))
    ct, pet = rng.normal(0, 100, shape).astype(np.float32), rng.random(shape).astype(np.float32)
    mask = np.zeros(shape, np.uint8)
    mask[3:6, 9:12, 9:12], mask[21, 10, 10] = 1, 2
    case = Case(Volume(ct.astype(np.int16), grid), Volume(pet, grid), Patient())
    return case, Segmentation.from_mask(mask, ct, pet, grid)


def test_features_of_a_real_network_are_named_and_repeatable(networks: Networks) -> None:
    case, found = found_in()
    first = deep_features(case, found, networks, Budget.start(100), CPU)
    assert list(first) == [f"encoder_{channel:03d}" for channel in range(8)]
    assert all(isinstance(value, float) and np.isfinite(value) for value in first.values())
    networks.of(1, CPU)  # another fold was asked for in between
    assert deep_features(case, found, networks, Budget.start(100), CPU) == first


def test_too_little_time_is_said_and_is_no_error(networks: Networks, caplog: pytest.LogCaptureFixture) -> None:
    """A clock that goes on by 40 s each time it is asked: of 100 s, 10 in reserve, two tiles do not fit."""
    case, found = found_in()
    now = iter(range(0, 10_000, 40))
    with caplog.at_level(logging.WARNING):
        assert deep_features(case, found, networks, Budget.start(100, clock=lambda: float(next(now))), CPU) == {}
        assert deep_features(case, found, networks, Budget.start(100, spent_s=95), CPU) == {}
    first, second = caplog.messages
    assert first.startswith("*** WARNING *** no encoder features:")
    assert second == "*** WARNING *** no encoder features: no time left"


def test_a_device_that_fails_is_said_and_a_bug_is_not_hidden(
    networks: Networks, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, found = found_in()

    def failing(problem: Exception) -> Callable[..., None]:
        def fail(*_: object) -> None:
            raise problem

        return fail

    monkeypatch.setattr(encoder, "deepest_maps", failing(RuntimeError("CUDA error: device lost\nmore")))
    with caplog.at_level(logging.WARNING):
        assert deep_features(case, found, networks, Budget.start(100), CPU) == {}
    assert caplog.messages == ["*** WARNING *** no encoder features: cpu failed (CUDA error: device lost)"]
    assert networks.device is None
    monkeypatch.setattr(encoder, "deepest_maps", failing(RuntimeError("shapes do not fit")))
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        deep_features(case, found, networks, Budget.start(100), CPU)


def test_names_of_channels() -> None:
    assert named([1.5, 2]) == {"encoder_000": 1.5, "encoder_001": 2.0}
    assert is_deep("encoder_017")
    assert not is_deep("suv_max")


def packaged(source: Path, target: Path, weight: float, sign: Callable[..., None]) -> Path:
    """The tiny package with an RFS head of two channels, filled with 100."""
    package = Path(shutil.copytree(source, target))
    head = read_json(package / "heads" / "rfs.json")
    term = {"transform": "identity", "fill": 2.0, "mean": 0.0, "sd": 1.0, "weight": weight}
    head["terms"] = [{**term, "feature": "encoder_001"}, {**term, "feature": "encoder_006"}]
    write_json(package / "heads" / "rfs.json", head)
    sign(package)
    return package


def test_a_head_that_asks_for_them_is_answered_with_them(
    predict: Any,
    case_folder: Any,
    tiny_package: Path,
    tmp_path: Path,
    sign_package: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The head is 0.5 + 0.1 a + 0.1 b of channels 1 and 6: what `deep_features` gave, or the fill 2, so 0.9."""
    case_folder.write()
    asked: list[dict[str, float | None]] = []
    real = encoder.deep_features
    monkeypatch.setattr(encoder, "deep_features", lambda *given: asked.append(real(*given)) or asked[-1])
    package = packaged(tiny_package, tmp_path / "package", 0.1, sign_package)
    risk = sockets.RFS_RISK.path_under(tmp_path / "output")
    answer = predict("rfs", model=package)
    assert answer.status == 0
    assert len(asked) == 1
    a, b = asked[0]["encoder_001"], asked[0]["encoder_006"]
    assert a is not None
    assert b is not None
    assert read_json(risk) == pytest.approx(0.5 + 0.1 * a + 0.1 * b)
    assert "encode" in answer.lines[-1]
    assert not any("missing, " in line and "encoder" in line for line in answer.lines)
    assert predict("hpv", model=package).status == 0  # its head asks for none
    assert len(asked) == 1
    monkeypatch.setattr(encoder, "deep_features", lambda *_: {})
    answer = predict("rfs", model=package)
    assert read_json(risk) == pytest.approx(0.9)
    (line,) = [line for line in answer.lines if "encoder" in line]
    assert line.endswith("rfs: 2 encoder features are missing, their training medians count")
