"""The outcome network: MONAI's ResNet-18 with clinical values joined before the last layer."""

from __future__ import annotations

from pathlib import Path
from typing import Final, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from algorithm.heads.cube import CHANNELS
from algorithm.outcome.plan import OutcomePlan
from contract.errors import ModelPackageError

_BLOCKS: Final = [2, 2, 2, 2]
_DROPOUT: Final = 0.3
_CLIP_SD: Final = 4.0


class OutcomeNetwork(nn.Module):
    """One fold's network.

    Buffers hold what the training patients taught besides weights: median, mean and standard deviation of the clinical
    values, and mean and standard deviation of the answers, by which folds become comparable.
    """

    def __init__(self, plan: OutcomePlan) -> None:
        from monai.networks.nets.resnet import ResNet  # takes seconds, and most packages do not need it

        super().__init__()
        self.plan = plan
        stages = [plan.width * 2**stage for stage in range(len(_BLOCKS))]
        self.image = ResNet(
            "basic", _BLOCKS, stages, n_input_channels=CHANNELS, conv1_t_size=3, conv1_t_stride=2, feed_forward=False
        )
        self.dropout = nn.Dropout(_DROPOUT)
        self.last = nn.Linear(stages[-1] + len(plan.clinical), len(plan.features))
        for name, value in (("fill", 0.0), ("mean", 0.0), ("sd", 1.0)):
            self.register_buffer(f"clinical_{name}", torch.full((len(plan.clinical),), value))
        for name, value in (("mean", 0.0), ("sd", 1.0)):
            self.register_buffer(f"answer_{name}", torch.full((len(plan.features),), value))

    def forward(self, cubes: torch.Tensor, clinical: torch.Tensor) -> torch.Tensor:
        """Raw outputs (patients, features) of cubes (patients, 4, z, y, x) and clinical values, NaN if missing."""
        fill, mean, sd = (cast(torch.Tensor, getattr(self, f"clinical_{name}")) for name in ("fill", "mean", "sd"))
        known = torch.where(torch.isnan(clinical), fill, clinical)
        values = ((known - mean) / sd).clamp(-_CLIP_SD, _CLIP_SD)
        images = self.dropout(self.image(cubes))
        return cast(torch.Tensor, self.last(torch.cat([images, values], dim=1)))

    def unscaled(self, outputs: torch.Tensor) -> torch.Tensor:
        """Answers of raw outputs: log hazard, logit of the second of two classes, log probabilities of more."""
        parts = outputs.split([len(task.features) for task in self.plan.tasks], dim=1)
        pairs = zip(self.plan.tasks, parts, strict=True)
        return torch.cat([functional.log_softmax(part, 1) if task.classes else part for task, part in pairs], dim=1)

    def answers(self, cubes: torch.Tensor, clinical: torch.Tensor) -> torch.Tensor:
        """The features, (patients, features), in standard deviations of the training patients."""
        mean, sd = (cast(torch.Tensor, getattr(self, f"answer_{name}")) for name in ("mean", "sd"))
        return (self.unscaled(self(cubes, clinical)) - mean) / sd


def load_outcome_network(plan: OutcomePlan, path: Path) -> OutcomeNetwork:
    """The network of one fold, in evaluation mode.

    Raises:
        ModelPackageError: not a safetensors file, tensors of another network, or numbers that are not finite.
    """
    try:
        weights = load_file(str(path))
    except SafetensorError as problem:
        raise ModelPackageError(path.name, f"not a safetensors file ({problem})") from None
    except OSError as problem:
        raise ModelPackageError(path.name, f"cannot be read ({problem.strerror or problem})") from None
    network = OutcomeNetwork(plan)
    try:
        network.load_state_dict(weights)
    except RuntimeError as problem:
        found = " ".join(str(problem).split())
        raise ModelPackageError(path.name, f"found {found}", "the weights of the outcome network's plan") from None
    for name, tensor in weights.items():
        if not bool(torch.isfinite(tensor).all()):
            raise ModelPackageError(path.name, f"{name} holds NaN or infinity", "finite weights")
    return network.eval()
