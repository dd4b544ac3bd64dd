"""The outcome network's answers as features: the built-in hook that is fitted to outcomes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch

from algorithm.heads.cube import Cube
from algorithm.outcome.network import load_outcome_network
from algorithm.outcome.plan import plan_of

WEIGHTS: Final = "weights.safetensors"


class OutcomeFeatures:
    """Answers of one fold's network, loaded from the folder of its plan and weights, or from a file of version 0.2."""

    def __init__(self, folder: Path, device: str) -> None:
        self._plan = plan_of(folder)
        self.cube = self._plan.voxels, self._plan.spacing_mm
        self.names = dict.fromkeys(self._plan.features, "SD")
        path = folder if folder.is_file() else folder / WEIGHTS
        self._network, self._device = load_outcome_network(self._plan, path).to(device), device

    def measure(self, cube: Cube, clinical: Mapping[str, float | None]) -> dict[str, float]:
        """The answers in units of the standard deviation over the training patients."""
        numbers = [math.nan if (value := clinical.get(name)) is None else value for name in self._plan.clinical]
        image = torch.from_numpy(cube)[None].to(self._device)
        with torch.inference_mode():
            answers = self._network.answers(image, torch.tensor([numbers], device=self._device))[0].cpu()
        return dict(zip(self.names, map(float, answers), strict=True))
