"""SegResNet's own patch, optimiser and schedule, which nnU-Net's plans do not know."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import nn

from algorithm.network.networks import untrained_network
from contract.errors import HecktorError

# MONAI's Auto3DSeg trains SegResNet with these.
LEARNING_RATE: Final = 2e-4
WEIGHT_DECAY: Final = 1e-5
_WARM_UP_EPOCHS: Final = 3
_WARM_UP_FROM: Final = 0.1
# nnU-Net's planner takes a network with this many values in its feature maps to need 8 GB at a batch of 2.
_VALUES: Final = 560_000_000
_GB: Final = 8.0
_BATCH: Final = 2


class WarmUpCosine:
    """Learning rate by epoch: a linear rise from a tenth over three epochs, then half a cosine down to 0."""

    def __init__(self, optimiser: torch.optim.Optimizer, learning_rate: float, epochs: int) -> None:
        self.optimiser, self.learning_rate, self.epochs = optimiser, learning_rate, epochs

    def rate(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        if epoch < _WARM_UP_EPOCHS:
            return self.learning_rate * (_WARM_UP_FROM + (1 - _WARM_UP_FROM) * epoch / _WARM_UP_EPOCHS)
        progress = (epoch - _WARM_UP_EPOCHS) / max(1, self.epochs - _WARM_UP_EPOCHS)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))

    def step(self, epoch: int) -> None:
        """Set the learning rate; nnU-Net's trainer calls this at the start of each epoch."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.rate(epoch)


def monai_recipe(network: nn.Module, epochs: int) -> tuple[torch.optim.Optimizer, WarmUpCosine]:
    """Optimiser and schedule of MONAI's Auto3DSeg."""
    optimiser = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    return optimiser, WarmUpCosine(optimiser, LEARNING_RATE, epochs)


def fitting_patch(
    architecture: Mapping[str, Any], patch: Sequence[int], batch: int, channels: int, memory_gb: float
) -> list[int]:
    """The patch (z, y, x), made smaller along its longest edges until a batch of SegResNet meets the memory target.

    The estimate is nnU-Net's own for U-Nets: the number of values in all feature maps, against a measured network.

    Raises:
        HecktorError: not even the smallest patch meets it.
    """
    multiple = 2 ** (len(architecture["arch_kwargs"]["blocks_down"]) - 1)
    edges, most = [int(edge) for edge in patch], _VALUES * memory_gb / _GB * _BATCH / batch
    while feature_values(architecture, edges, channels) > most:
        longest = edges.index(max(edges))
        if edges[longest] <= 2 * multiple:
            raise HecktorError("--segresnet-memory-gb", f"found {memory_gb:g}", f"more for a batch of {batch}")
        edges[longest] -= multiple
    return edges


def feature_values(architecture: Mapping[str, Any], patch: Sequence[int], channels: int) -> int:
    """Values in the outputs of all convolutions for one patch."""
    total = 0

    def count(_module: nn.Module, _inputs: Any, output: torch.Tensor) -> None:
        nonlocal total
        total += output.numel()

    with torch.device("meta"):  # shapes without memory
        network = untrained_network({"architecture": architecture, "patch_size": list(patch)}, channels, 3)
        for module in network.modules():
            if isinstance(module, nn.Conv3d):
                module.register_forward_hook(count)
        network(torch.zeros(1, channels, *patch))
    return total
