"""Sizes of the outcome network and its training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class OutcomePreset:
    """The cube, the network's width and the training of one size."""

    voxels: int
    spacing_mm: float
    width: int
    epochs: int
    batch_size: int
    learning_rate: float = 1e-3
    weight_decay: float = 1e-2


# `full` needs a card, `small` is for a CPU.
OUTCOME_PRESETS: Final = {
    "full": OutcomePreset(voxels=96, spacing_mm=2.0, width=64, epochs=100, batch_size=16),
    "small": OutcomePreset(voxels=48, spacing_mm=4.0, width=16, epochs=40, batch_size=16),
}


def default_size(device: str) -> str:
    """The size to train on `cpu` or `cuda` unless another is asked for."""
    return "small" if device == "cpu" else "full"
