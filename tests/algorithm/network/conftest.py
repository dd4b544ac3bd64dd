from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from algorithm.deadline import Deadline
from algorithm.network.networks import Networks
from algorithm.network.package import ModelPackage, load_package
from algorithm.network.passes import Passes
from algorithm.network.tiles import NetworkImage, Pass

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
