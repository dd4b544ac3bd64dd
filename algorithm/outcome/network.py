"""The outcome network: MONAI's ResNet-18 with clinical values joined before the last layer, and its features hook."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from algorithm.heads.cube import CHANNELS, Cube
from algorithm.outcome.plan import OutcomePlan, OutcomeTask, plan_of
from contract.errors import ModelPackageError

WEIGHTS: Final = "weights.safetensors"
# CT and PET, the first channels of a cube.
_IMAGES: Final = 2
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
        self.channels = _IMAGES if plan.joint else CHANNELS
        stages = [plan.width * 2**stage for stage in range(len(_BLOCKS))]
        self.image = ResNet(
            "basic",
            _BLOCKS,
            stages,
            n_input_channels=self.channels,
            conv1_t_size=3,
            conv1_t_stride=2,
            feed_forward=False,
        )
        self.dropout = nn.Dropout(_DROPOUT)
        self.last = nn.Linear(stages[-1] + len(plan.clinical), sum(task.outputs for task in plan.tasks))
        for name, value in (("fill", 0.0), ("mean", 0.0), ("sd", 1.0)):
            self.register_buffer(f"clinical_{name}", torch.full((len(plan.clinical),), value))
        for name, value in (("mean", 0.0), ("sd", 1.0)):
            self.register_buffer(f"answer_{name}", torch.full((len(plan.features),), value))

    def forward(self, cubes: torch.Tensor, clinical: torch.Tensor) -> torch.Tensor:
        """Raw outputs (patients, outputs) of cubes (patients, channels, z, y, x) and clinical values, NaN if missing.

        Channels beyond those that the network sees are ignored.
        """
        return self.outputs(self.image(cubes[:, : self.channels]), clinical)

    def outputs(self, pooled: torch.Tensor, clinical: torch.Tensor) -> torch.Tensor:
        """Raw outputs of the encoder's pooled features, shape (patients, channels of the last stage)."""
        fill, mean, sd = (cast(torch.Tensor, getattr(self, f"clinical_{name}")) for name in ("fill", "mean", "sd"))
        known = torch.where(torch.isnan(clinical), fill, clinical)
        values = ((known - mean) / sd).clamp(-_CLIP_SD, _CLIP_SD)
        return cast(torch.Tensor, self.last(torch.cat([self.dropout(pooled), values], dim=1)))

    def unscaled(self, outputs: torch.Tensor) -> torch.Tensor:
        """Answers of raw outputs, (patients, features).

        A risk is a log hazard, or minus the expected event-free days up to the last of its intervals' ends. Two classes
        have the logit of the second one, more classes their log probabilities.
        """
        parts = outputs.split([task.outputs for task in self.plan.tasks], dim=1)
        return torch.cat([_answers(task, part) for task, part in zip(self.plan.tasks, parts, strict=True)], dim=1)

    def answers(self, cubes: torch.Tensor, clinical: torch.Tensor) -> torch.Tensor:
        """The features, (patients, features), in standard deviations of the training patients."""
        mean, sd = (cast(torch.Tensor, getattr(self, f"answer_{name}")) for name in ("mean", "sd"))
        return (self.unscaled(self(cubes, clinical)) - mean) / sd


def _answers(task: OutcomeTask, outputs: torch.Tensor) -> torch.Tensor:
    if task.ends_days:
        return -event_free_days(outputs, outputs.new_tensor(task.ends_days))[:, None]
    return functional.log_softmax(outputs, 1) if task.classes else outputs


def interval_log_probabilities(outputs: torch.Tensor) -> torch.Tensor:
    """Logarithm of the probability of an event in each interval, shape (patients, ends + 1).

    `outputs`, shape (patients, ends), are the regressors of multi-task logistic regression (Yu et al., NIPS 2011). The
    score of an interval is the sum of the regressors of its own end and of the later ones, 0 for the last interval.
    """
    scores = outputs.flip(1).cumsum(1).flip(1)
    return functional.log_softmax(torch.cat([scores, torch.zeros_like(scores[:, :1])], dim=1), 1)


def event_free_days(outputs: torch.Tensor, ends_days: torch.Tensor) -> torch.Tensor:
    """Expected days without an event up to the last end, (patients,): the area below the survival curve.

    The curve is 1 on day 0 and linear between the ends.
    """
    survival = 1 - interval_log_probabilities(outputs).exp().cumsum(1)[:, :-1]
    before = torch.cat([torch.ones_like(survival[:, :1]), survival[:, :-1]], dim=1)
    return ((before + survival) / 2 * ends_days.diff(prepend=ends_days.new_zeros(1))).sum(1)


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


class OutcomeFeatures:
    """Answers of one fold's network, loaded from the folder of its plan and weights."""

    def __init__(self, folder: Path, device: str) -> None:
        self._plan = plan_of(folder)
        self.cube = self._plan.voxels, self._plan.spacing_mm
        self.names = dict.fromkeys(self._plan.features, "SD")
        self._network, self._device = load_outcome_network(self._plan, folder / WEIGHTS).to(device), device

    def measure(self, cube: Cube, clinical: Mapping[str, float | None]) -> dict[str, float]:
        """The answers in units of the standard deviation over the training patients."""
        numbers = [math.nan if (value := clinical.get(name)) is None else value for name in self._plan.clinical]
        image = torch.from_numpy(cube)[None].to(self._device)
        with torch.inference_mode():
            answers = self._network.answers(image, torch.tensor([numbers], device=self._device))[0].cpu()
        return dict(zip(self.names, map(float, answers), strict=True))
