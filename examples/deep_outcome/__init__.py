"""A deep network on the images around the tumour as features: one answer each for RFS and HPV status.

MONAI's ResNet-18, with the clinical variables joined before the last layer. Trained jointly with a segmentation, as
DeepMTS (Meng et al., IEEE JBHI 2022) and the winner of HECKTOR 2025's task 2: from the stages of the encoder a U-Net's
decoder segments GTVp and GTVn, and the network sees CT and PET alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from monai.losses.dice import DiceFocalLoss
from monai.networks.nets.resnet import ResNet
from torch import nn
from torch.nn import functional

# Loss of RFS: `cox`, its partial likelihood, or `mtlr`, multi-task logistic regression, a hazard in discrete time.
LOSS = "cox"
# True learns to segment the tumour as well; False gives the network the masks as two more channels.
JOINT = True
# Channels of the first stage; each later one has twice as many. On a GPU 64, with `cube = (96, 2.0)` and `margin = 8`.
WIDTH = 16
EPOCHS = 40
BATCH = 16
LEARNING_RATE = 1e-3
MOST_ENDS = 8
FILE = "network.pt"
# Less spread than this is none.
LEAST_SD = 1e-3
# CT and PET are the first channels of a cube, the masks the others.
IMAGES = 2


class Network(nn.Module):
    """The network of one fold.

    Buffers hold what the training patients taught besides weights: median, mean and standard deviation of the clinical
    variables, and mean and standard deviation of the answers, by which folds become comparable.
    """

    def __init__(self, clinical: int, ends_days: Sequence[float], width: int, *, joint: bool) -> None:
        super().__init__()
        self.settings = {"clinical": clinical, "ends_days": list(ends_days), "width": width, "joint": joint}
        self.channels = IMAGES if joint else 2 * IMAGES
        stages, blocks = [width * 2**stage for stage in range(4)], [2, 2, 2, 2]
        size: dict[str, Any] = {"conv1_t_size": 3, "conv1_t_stride": 2, "feed_forward": False}
        self.encoder = ResNet("basic", blocks, stages, n_input_channels=self.channels, **size)
        channels = [width, *stages]
        pairs = zip(channels[:0:-1], channels[-2::-1], strict=True)
        self.decoder = nn.ModuleList([_block(deep + skip, skip) for deep, skip in pairs] if joint else [])
        self.masks = nn.Conv3d(width, 2, 1)
        self.dropout = nn.Dropout(0.3)
        self.last = nn.Linear(stages[-1] + clinical, max(1, len(ends_days)) + 1)
        self.register_buffer("ends_days", torch.tensor(ends_days, dtype=torch.float32))
        for name, count in (("clinical", clinical), ("answer", 2)):
            self.register_buffer(f"{name}_fill", torch.zeros(count))
            self.register_buffer(f"{name}_mean", torch.zeros(count))
            self.register_buffer(f"{name}_sd", torch.ones(count))

    def stages(self, cubes: torch.Tensor) -> list[torch.Tensor]:
        """The encoder's outputs, from half the resolution of the cubes (patients, channels, z, y, x) to a 32nd."""
        net = self.encoder
        values = [net.act(net.bn1(net.conv1(cubes[:, : self.channels])))]
        values.append(net.layer1(net.maxpool(values[0])))
        for layer in (net.layer2, net.layer3, net.layer4):
            values.append(layer(values[-1]))
        return values

    def outputs(self, stages: Sequence[torch.Tensor], clinical: torch.Tensor) -> torch.Tensor:
        """Raw outputs (patients, outputs), the last for HPV; `clinical` is NaN where missing."""
        known = torch.where(torch.isnan(clinical), self.get_buffer("clinical_fill"), clinical)
        values = ((known - self.get_buffer("clinical_mean")) / self.get_buffer("clinical_sd")).clamp(-4, 4)
        pooled = self.dropout(stages[-1].mean((2, 3, 4)))
        return torch.as_tensor(self.last(torch.cat([pooled, values], dim=1)))

    def segmented(self, stages: Sequence[torch.Tensor], edge: int) -> torch.Tensor:
        """Logits of GTVp and GTVn, shape (patients, 2, edge, edge, edge)."""
        *skips, values = stages
        for block, skip in zip(self.decoder, reversed(skips), strict=True):
            values = block(torch.cat([_resized(values, skip.shape[2:]), skip], dim=1))
        return _resized(self.masks(values), (edge, edge, edge))

    def answers(self, cubes: torch.Tensor, clinical: torch.Tensor) -> torch.Tensor:
        """Risk and logit of HPV positive, shape (patients, 2), before they are scaled.

        A risk is a log hazard, or minus the expected days without an event up to the last end.
        """
        outputs, ends = self.outputs(self.stages(cubes), clinical), self.get_buffer("ends_days")
        risk = -event_free_days(outputs[:, :-1], ends) if len(ends) else outputs[:, 0]
        return torch.stack([risk, outputs[:, -1]], dim=1)

    def learn_scale(self, name: str, values: torch.Tensor) -> None:
        """Median, mean and standard deviation of each column of `values`; 1 for the last of a constant one."""
        fill = values.nanmedian(0).values.nan_to_num(0.0)
        known = torch.where(torch.isnan(values), fill, values)
        sd = known.std(0, correction=0)
        for part, value in (("fill", fill), ("mean", known.mean(0)), ("sd", torch.where(sd > LEAST_SD, sd, 1.0))):
            self.get_buffer(f"{name}_{part}").copy_(value)


def _block(inputs: int, outputs: int) -> nn.Module:
    convolution = nn.Conv3d(inputs, outputs, 3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm3d(outputs), nn.ReLU())


def _resized(values: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    return functional.interpolate(values, tuple(size), mode="trilinear", align_corners=False)


def log_probabilities(outputs: torch.Tensor) -> torch.Tensor:
    """Logarithm of the probability of an event in each interval, shape (patients, ends + 1).

    `outputs`, (patients, ends), are the regressors of multi-task logistic regression (Yu et al., NIPS 2011): the score
    of an interval is the sum of those of its own end and of the later ones, 0 for the last interval.
    """
    scores = outputs.flip(1).cumsum(1).flip(1)
    return functional.log_softmax(torch.cat([scores, torch.zeros_like(scores[:, :1])], dim=1), 1)


def event_free_days(outputs: torch.Tensor, ends_days: torch.Tensor) -> torch.Tensor:
    """Expected days without an event up to the last end: the area below a curve from 1, linear between the ends."""
    survival = 1 - log_probabilities(outputs).exp().cumsum(1)[:, :-1]
    before = torch.cat([torch.ones_like(survival[:, :1]), survival[:, :-1]], dim=1)
    return ((before + survival) / 2 * ends_days.diff(prepend=ends_days.new_zeros(1))).sum(1)


def interval_ends(days: Sequence[float]) -> list[float]:
    """Ends of all intervals but the last: quantiles of the event times, ascending, at most one for each event."""
    times = np.array([day for day in days if day > 0])
    if not len(times):
        raise ValueError("no training patient with an event after day 0")
    inner = np.linspace(0, 1, min(MOST_ENDS, len(times)) + 2)[1:-1]
    return [float(end) for end in np.unique(np.quantile(times, inner))]


def cox_loss(scores: torch.Tensor, days: torch.Tensor, events: torch.Tensor) -> torch.Tensor:
    """Negative log partial likelihood per event (ties by Breslow), 0 without an event."""
    if not bool(events.any()):
        return scores.sum() * 0
    at_risk = days[None, :] >= days[events][:, None]
    total = torch.logsumexp(scores[None, :].masked_fill(~at_risk, -torch.inf), dim=1)
    return (total - scores[events]).mean()


def mtlr_loss(outputs: torch.Tensor, days: torch.Tensor, events: torch.Tensor, ends_days: torch.Tensor) -> torch.Tensor:
    """Mean negative log likelihood of the intervals in which each event may lie, 0 without a patient.

    An interval includes its end. After censoring the event may lie in any interval that ends later.
    """
    if not len(outputs):
        return outputs.sum() * 0
    own, later = (torch.searchsorted(ends_days, days, right=right)[:, None] for right in (False, True))
    numbers = torch.arange(len(ends_days) + 1, device=outputs.device)
    possible = torch.where(events[:, None], numbers == own, numbers >= later)
    return -torch.logsumexp(log_probabilities(outputs).masked_fill(~possible, -torch.inf), dim=1).mean()


def class_loss(logits: torch.Tensor, positive: torch.Tensor, share: float) -> torch.Tensor:
    """Cross-entropy in which both classes weigh alike, of which `share` is positive; 0 without a patient."""
    if not len(logits):
        return logits.sum() * 0
    weights = torch.where(positive > 0, 0.5 / max(share, LEAST_SD), 0.5 / max(1 - share, LEAST_SD))
    return functional.binary_cross_entropy_with_logits(logits, positive, weight=weights)


def augmented(cubes: torch.Tensor, margin: int) -> torch.Tensor:
    """Shifted and mirrored left to right, with another scale of the PET and another offset of the CT."""
    edge, moved = cubes.shape[-1] - 2 * margin, []
    for cube in cubes:
        z, y, x = torch.randint(0, 2 * margin + 1, (3,)).tolist()
        part = cube[:, z : z + edge, y : y + edge, x : x + edge]
        moved.append(part.flip(-1) if bool(torch.rand(()) < 0.5) else part)
    batch = torch.stack(moved)
    draws = torch.rand(2, len(batch), 1, 1, 1) * 2 - 1
    batch[:, 0] += 0.05 * draws[0]
    batch[:, 1] *= 1 + 0.1 * draws[1]
    return batch


class Features:
    """The answers of one fold's network, in standard deviations of its training patients."""

    names: ClassVar = {"rfs": "SD", "hpv": "SD"}
    cube = (48, 4.0)
    margin = 4

    @classmethod
    def fit(
        cls, folder: Path, device: str, cubes: Any, clinical: pd.DataFrame, outcomes: pd.DataFrame, seed: int
    ) -> None:
        """Train one network. The last epoch's weights are used: nothing is selected on held-out patients."""
        torch.manual_seed(seed)
        risks = outcomes["rfs_event"] == 1
        ends = interval_ends(outcomes.loc[risks, "rfs_days"].tolist()) if LOSS == "mtlr" else []
        values = torch.tensor(clinical.to_numpy(), dtype=torch.float32)
        targets = torch.tensor(outcomes[["rfs_days", "rfs_event", "hpv"]].to_numpy(), dtype=torch.float32)
        network = Network(values.shape[1], ends, WIDTH, joint=JOINT).to(device)
        network.learn_scale("clinical", values)
        optimiser = torch.optim.AdamW(network.parameters(), LEARNING_RATE, weight_decay=1e-2)
        batches = max(1, round(len(cubes) / BATCH))
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, total_steps=EPOCHS * batches)
        positive = float(targets[:, 2].nanmean())
        for _ in range(EPOCHS):
            for batch in torch.randperm(len(cubes)).tensor_split(batches):
                images = augmented(torch.from_numpy(cubes[batch.numpy()]).float(), cls.margin).to(device)
                loss = _loss(network, images, values[batch].to(device), targets[batch].to(device), positive)
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(network.parameters(), 5.0)
                optimiser.step()
                schedule.step()
        network.eval()
        inner, parts = slice(cls.margin, cls.margin + cls.cube[0]), []
        with torch.inference_mode():
            for batch in torch.arange(len(cubes)).split(BATCH):
                images = torch.from_numpy(cubes[batch.numpy()][:, :, inner, inner, inner]).float()
                parts.append(network.answers(images.to(device), values[batch].to(device)))
            network.learn_scale("answer", torch.cat(parts))
        stored = {
            "settings": network.settings,
            "columns": list(clinical.columns),
            "weights": network.cpu().state_dict(),
        }
        torch.save(stored, folder / FILE)

    def __init__(self, folder: Path, device: str) -> None:
        stored = torch.load(folder / FILE, map_location="cpu", weights_only=True)
        self._columns, self._device = stored["columns"], device
        self._network = Network(**stored["settings"])
        self._network.load_state_dict(stored["weights"])
        self._network.to(device).eval()

    def measure(self, cube: np.ndarray, clinical: Mapping[str, float | None]) -> dict[str, float]:
        """The answers to one patient."""
        numbers = [math.nan if (value := clinical.get(name)) is None else value for name in self._columns]
        network = self._network
        with torch.inference_mode():
            image = torch.from_numpy(cube)[None].to(self._device)
            answers = network.answers(image, torch.tensor([numbers], device=self._device))
            scaled = (answers - network.get_buffer("answer_mean")) / network.get_buffer("answer_sd")
        return dict(zip(self.names, scaled[0].tolist(), strict=True))


def _loss(
    network: Network, images: torch.Tensor, clinical: torch.Tensor, targets: torch.Tensor, positive: float
) -> torch.Tensor:
    """Sum of the losses, each over the patients with the outcome."""
    stages, ends = network.stages(images), network.get_buffer("ends_days")
    outputs, (days, events, hpv) = network.outputs(stages, clinical), targets.T
    known = ~events.isnan()
    followed = days[known], events[known] == 1
    risk = outputs[known, :-1]
    total = mtlr_loss(risk, *followed, ends) if len(ends) else cox_loss(risk[:, 0], *followed)
    total = total + class_loss(outputs[~hpv.isnan(), -1], hpv[~hpv.isnan()], positive)
    if network.settings["joint"]:
        masks = (images[:, IMAGES:] >= 0.5).float()
        logits = network.segmented(stages, images.shape[-1])
        total = total + DiceFocalLoss(sigmoid=True, batch=True)(logits, masks)
    return total
