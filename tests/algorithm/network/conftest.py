from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from algorithm.deadline import Deadline
from algorithm.network import tiles as tiles_module
from algorithm.network.networks import Networks
from algorithm.network.package import ModelPackage, load_package
from algorithm.network.passes import Passes
from algorithm.network.tiles import NetworkImage, Pass, list_mirrored_passes

CPU = torch.device("cpu")


@pytest.fixture
def package(tiny_package: Path) -> ModelPackage:
    return load_package(tiny_package)


def make_noise(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Draw two channels of standard normal noise."""
    return np.random.default_rng(seed).normal(0, 1, (2, *shape)).astype(np.float32)


def predict_logits(package: ModelPackage, data: np.ndarray, passes: Sequence[Pass]) -> np.ndarray:
    """Return the logits of all passes on the CPU, without a limit of time."""
    return Passes(NetworkImage.from_channels(data), passes, Networks(package), Deadline(600), CPU).make_all().logits


class Tiles:
    """Simulated tiles, which take time of a simulated clock and answer GTVp.

    Seconds are those of every tile or of the tiles of a class of networks; failures belong to the number of a tile,
    from 1, or to a class.
    """

    def __init__(
        self, seconds: float | Mapping[type, float], failures: Mapping[int | type, Exception] | None = None
    ) -> None:
        self.now, self.seconds, self.failures = 0.0, seconds, failures or {}
        self.run: list[type] = []
        self.on_tile: Callable[[int], None] = lambda _: None

    def clock(self) -> float:
        return self.now

    def count(self, kind: type = nn.Module) -> int:
        return sum(issubclass(network, kind) for network in self.run)

    def __call__(self, network: nn.Module, part: torch.Tensor, axes: tuple[int, ...], *, half: bool) -> torch.Tensor:
        kind = type(network)
        self.run.append(kind)
        self.on_tile(len(self.run))
        for failing in (len(self.run), kind):
            if failing in self.failures:
                raise self.failures[failing]
        self.now += self.seconds[kind] if isinstance(self.seconds, Mapping) else self.seconds
        return torch.tensor([0.0, 5.0, 1.0])[:, None, None, None].expand(3, *part.shape[2:])


@pytest.fixture
def make_timed_passes(package: ModelPackage, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Passes]:
    """Make passes of all folds over 24^3 voxels with simulated tiles.

    The U-Net has 2 x 2 x 2 tiles of 16^3 at a step of a half, SegResNet 1 x 2 x 2 tiles of 24 x 16 x 20.
    """

    def make(tiles: Tiles, limit_s: float | None, stop_after: int | None = None) -> Passes:
        monkeypatch.setattr(tiles_module, "_compute_tile_logits", tiles)
        deadline = Deadline(limit_s, tiles.clock)
        tiles.on_tile = lambda number: deadline.stop() if number == stop_after else None
        image, passes = (
            NetworkImage.from_channels(make_noise((24, 24, 24))),
            list_mirrored_passes(len(package.fold_files), (2,)),
        )
        return Passes(image, passes, Networks(package), deadline, CPU)

    return make
