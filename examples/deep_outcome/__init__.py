"""A deep network on the images around the tumour, whose predictions of RFS and HPV status are features for the heads.

The network is MONAI's ResNet-18; the clinical variables are concatenated with its output before the last layer. It also
learns to segment, like DeepMTS (Meng et al., IEEE JBHI 2022) and the winner of HECKTOR 2025's task 2: the decoder of a
U-Net segments GTVp and GTVn from the stages of the encoder, and the network sees only CT and PET.
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

# Loss for RFS: "cox" is Cox's partial likelihood; "mtlr" is multi-task logistic regression, a model in discrete time.
LOSS = "cox"
# If True, the network also learns to segment the tumour; if False, the masks are two additional input channels.
JOINT = True
# Channels of the first stage; the number doubles from stage to stage. These values are for a CPU. On a GPU use 64
# channels, 100 epochs, `cube = (96, 2.0)` and `margin = 8`.
WIDTH = 16
EPOCHS = 40
BATCH = 16
LEARNING_RATE = 1e-3
# Maximum number of MTLR's interval ends.
MAX_ENDS = 8
FILE = "network.pt"
# Variables with a smaller standard deviation count as constant.
MIN_SD = 1e-3
# Minimum fraction of a class, so that the weights of the classes stay finite.
MIN_CLASS_FRACTION = 1e-3
# A cube has the channels CT, PET, mask of GTVp and mask of GTVn; the first two are images.
IMAGE_CHANNELS = 2


class Network(nn.Module):
    """The network of one fold.

    Its buffers contain statistics of the training patients: median, mean and standard deviation of the clinical
    variables, and mean and standard deviation of the predictions. They make the networks of several folds comparable.

    Args:
        clinical: Number of clinical variables.
        ends_days: Ends of MTLR's intervals; empty for the Cox loss.
        width: Channels of the first stage.
        joint: Whether the network also segments the tumour.
    """

    def __init__(self, clinical: int, ends_days: Sequence[float], width: int, *, joint: bool) -> None:
        super().__init__()
        self.settings = {"clinical": clinical, "ends_days": list(ends_days), "width": width, "joint": joint}
        self.channels = IMAGE_CHANNELS if joint else 2 * IMAGE_CHANNELS
        widths = [width * 2**stage for stage in range(4)]
        self.encoder = ResNet(
            "basic",
            [2, 2, 2, 2],
            widths,
            n_input_channels=self.channels,
            conv1_t_size=3,
            conv1_t_stride=2,
            feed_forward=False,
        )
        channels = [width, *widths]
        pairs = zip(channels[:0:-1], channels[-2::-1], strict=True)
        self.decoder = nn.ModuleList([_build_block(deep + skip, skip) for deep, skip in pairs] if joint else [])
        self.masks = nn.Conv3d(width, 2, 1)
        self.dropout = nn.Dropout(0.3)
        self.last = nn.Linear(widths[-1] + clinical, max(1, len(ends_days)) + 1)
        self.register_buffer("ends_days", torch.tensor(ends_days, dtype=torch.float32))
        for name, count in (("clinical", clinical), ("answer", 2)):
            self.register_buffer(f"{name}_fill", torch.zeros(count))
            self.register_buffer(f"{name}_mean", torch.zeros(count))
            self.register_buffer(f"{name}_sd", torch.ones(count))

    def encode(self, cubes: torch.Tensor) -> list[torch.Tensor]:
        """Compute the stages of the encoder, from 1/2 to 1/32 of the cubes' resolution.

        `cubes` has the shape (patients, channels, z, y, x).
        """
        net = self.encoder
        values = [net.act(net.bn1(net.conv1(cubes[:, : self.channels])))]
        values.append(net.layer1(net.maxpool(values[0])))
        for layer in (net.layer2, net.layer3, net.layer4):
            values.append(layer(values[-1]))
        return values

    def predict(self, stages: Sequence[torch.Tensor], clinical: torch.Tensor) -> torch.Tensor:
        """Compute the raw outputs (patients, outputs); the last output is the logit of HPV positive.

        Missing values of `clinical` are NaN.
        """
        known = torch.where(torch.isnan(clinical), self.get_buffer("clinical_fill"), clinical)
        values = ((known - self.get_buffer("clinical_mean")) / self.get_buffer("clinical_sd")).clamp(-4, 4)
        pooled = self.dropout(stages[-1].mean((2, 3, 4)))
        return torch.as_tensor(self.last(torch.cat([pooled, values], dim=1)))

    def segment(self, stages: Sequence[torch.Tensor], edge: int) -> torch.Tensor:
        """Compute the logits of GTVp and GTVn, shape (patients, 2, edge, edge, edge)."""
        *skips, values = stages
        for block, skip in zip(self.decoder, reversed(skips), strict=True):
            values = block(torch.cat([_resize(values, skip.shape[2:]), skip], dim=1))
        return _resize(self.masks(values), (edge, edge, edge))

    def compute_answers(self, cubes: torch.Tensor, clinical: torch.Tensor) -> torch.Tensor:
        """Compute the risk and the logit of HPV positive, shape (patients, 2), before they are scaled.

        The risk is a log hazard; with MTLR it is minus the expected days without an event up to the last interval end.
        """
        outputs = self.predict(self.encode(cubes), clinical)
        ends = self.get_buffer("ends_days")
        risk = -event_free_days(outputs[:, :-1], ends) if len(ends) else outputs[:, 0]
        return torch.stack([risk, outputs[:, -1]], dim=1)

    def learn_scale(self, name: str, values: torch.Tensor) -> None:
        """Store median, mean and standard deviation of the columns of `values`.

        The standard deviation of a constant column is stored as 1.
        """
        fill = values.nanmedian(0).values.nan_to_num(0.0)
        known = torch.where(torch.isnan(values), fill, values)
        sd = known.std(0, correction=0)
        self.get_buffer(f"{name}_fill").copy_(fill)
        self.get_buffer(f"{name}_mean").copy_(known.mean(0))
        self.get_buffer(f"{name}_sd").copy_(torch.where(sd > MIN_SD, sd, 1.0))


def _build_block(inputs: int, outputs: int) -> nn.Module:
    convolution = nn.Conv3d(inputs, outputs, 3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm3d(outputs), nn.ReLU())


def _resize(values: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    return functional.interpolate(values, tuple(size), mode="trilinear", align_corners=False)


def log_probabilities(outputs: torch.Tensor) -> torch.Tensor:
    """Compute the log probability of an event in each interval, shape (patients, ends + 1).

    `outputs` (patients, ends) are the regressors of multi-task logistic regression (Yu et al., NIPS 2011). The score of
    an interval is the sum of the regressors of its own end and of all later ends; the last interval has the score 0.
    """
    scores = outputs.flip(1).cumsum(1).flip(1)
    return functional.log_softmax(torch.cat([scores, torch.zeros_like(scores[:, :1])], dim=1), 1)


def event_free_days(outputs: torch.Tensor, ends_days: torch.Tensor) -> torch.Tensor:
    """Compute the expected days without an event up to the last interval end.

    This is the area under the survival curve, which starts at 1 and is linear between the ends.
    """
    survival = 1 - log_probabilities(outputs).exp().cumsum(1)[:, :-1]
    before = torch.cat([torch.ones_like(survival[:, :1]), survival[:, :-1]], dim=1)
    return ((before + survival) / 2 * ends_days.diff(prepend=ends_days.new_zeros(1))).sum(1)


def compute_interval_ends(days: Sequence[float]) -> list[float]:
    """Compute the interval ends: quantiles of the event times, in ascending order.

    There are at most as many ends as events. The last interval is open, so it has no end.
    """
    times = np.array([day for day in days if day > 0])
    if not len(times):
        raise ValueError("no training patient with an event after day 0")
    inner = np.linspace(0, 1, min(MAX_ENDS, len(times)) + 2)[1:-1]
    return [float(end) for end in np.unique(np.quantile(times, inner))]


def cox_loss(scores: torch.Tensor, days: torch.Tensor, events: torch.Tensor) -> torch.Tensor:
    """Compute the negative log partial likelihood per event, with Breslow's method for ties; 0 without an event."""
    if not bool(events.any()):
        return scores.sum() * 0
    at_risk = days[None, :] >= days[events][:, None]
    total = torch.logsumexp(scores[None, :].masked_fill(~at_risk, -torch.inf), dim=1)
    return (total - scores[events]).mean()


def mtlr_loss(outputs: torch.Tensor, days: torch.Tensor, events: torch.Tensor, ends_days: torch.Tensor) -> torch.Tensor:
    """Compute the mean negative log likelihood; 0 without a patient.

    The likelihood of a patient is the probability of all intervals that may contain the event. An interval includes its
    end. The event of a censored patient may lie in any interval that ends after the censoring.
    """
    if not len(outputs):
        return outputs.sum() * 0
    event_interval = torch.searchsorted(ends_days, days, right=False)[:, None]
    first_possible = torch.searchsorted(ends_days, days, right=True)[:, None]
    numbers = torch.arange(len(ends_days) + 1, device=outputs.device)
    possible = torch.where(events[:, None], numbers == event_interval, numbers >= first_possible)
    return -torch.logsumexp(log_probabilities(outputs).masked_fill(~possible, -torch.inf), dim=1).mean()


def class_loss(logits: torch.Tensor, positive: torch.Tensor, positive_fraction: float) -> torch.Tensor:
    """Compute the cross-entropy with the same weight for both classes; 0 without a patient.

    `positive_fraction` is the fraction of HPV positive patients among the training patients with a known status.
    """
    if not len(logits):
        return logits.sum() * 0
    positive_weight = 0.5 / max(positive_fraction, MIN_CLASS_FRACTION)
    negative_weight = 0.5 / max(1 - positive_fraction, MIN_CLASS_FRACTION)
    weights = torch.where(positive > 0, positive_weight, negative_weight)
    return functional.binary_cross_entropy_with_logits(logits, positive, weight=weights)


def augment(cubes: torch.Tensor, margin: int) -> torch.Tensor:
    """Shift and mirror the cubes, scale the PET and add an offset to the CT, all at random.

    `cubes` (patients, channels, z, y, x) have `margin` additional voxels on each side; the result has no margin.
    """
    edge = cubes.shape[-1] - 2 * margin
    parts = []
    for cube in cubes:
        z, y, x = torch.randint(0, 2 * margin + 1, (3,)).tolist()
        part = cube[:, z : z + edge, y : y + edge, x : x + edge]
        parts.append(part.flip(-1) if bool(torch.rand(()) < 0.5) else part)
    batch = torch.stack(parts)
    draws = torch.rand(2, len(batch), 1, 1, 1) * 2 - 1
    batch[:, 0] += 0.05 * draws[0]
    batch[:, 1] *= 1 + 0.1 * draws[1]
    return batch


class Features:
    """The predictions of one fold's network, standardised by the predictions for its training patients.

    Attributes:
        names: Name and unit of each feature.
        cube: Number of voxels per side of the cube, and their size in mm.
        margin: Number of additional voxels on each side of the training cubes, which `augment` uses for shifts.
    """

    names: ClassVar = {"rfs": "SD", "hpv": "SD"}
    cube = (48, 4.0)
    margin = 4

    @classmethod
    def fit(
        cls, folder: Path, device: str, cubes: Any, clinical: pd.DataFrame, outcomes: pd.DataFrame, seed: int
    ) -> None:
        """Train the network of one fold and write it into `folder`.

        The weights of the last epoch are used, so that nothing is selected on held-out patients.

        Args:
            folder: Folder for the files of the network.
            device: Device for the training, such as "cuda".
            cubes: Cubes of the training patients with a margin, array (patients, channels, z, y, x).
            clinical: Clinical variables, one row for each patient; NaN for a missing value.
            outcomes: Columns `rfs_days`, `rfs_event` and `hpv`, one row for each patient; NaN for a missing outcome.
            seed: Seed of all random numbers.
        """
        torch.manual_seed(seed)
        has_event = outcomes["rfs_event"] == 1
        ends = compute_interval_ends(outcomes.loc[has_event, "rfs_days"].tolist()) if LOSS == "mtlr" else []
        values = torch.tensor(clinical.to_numpy(), dtype=torch.float32)
        targets = torch.tensor(outcomes[["rfs_days", "rfs_event", "hpv"]].to_numpy(), dtype=torch.float32)
        network = Network(values.shape[1], ends, WIDTH, joint=JOINT).to(device)
        network.learn_scale("clinical", values)
        cls._train(network, cubes, values.to(device), targets.to(device))
        cls._learn_answer_scale(network, cubes, values.to(device))
        stored = {
            "settings": network.settings,
            "columns": list(clinical.columns),
            "weights": network.cpu().state_dict(),
        }
        torch.save(stored, folder / FILE)

    @classmethod
    def _train(cls, network: Network, cubes: Any, values: torch.Tensor, targets: torch.Tensor) -> None:
        """Train the network; `values` are the clinical variables, `targets` the columns days, event and HPV status."""
        optimiser = torch.optim.AdamW(network.parameters(), LEARNING_RATE, weight_decay=1e-2)
        batches = max(1, round(len(cubes) / BATCH))
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, total_steps=EPOCHS * batches)
        positive_fraction = float(targets[:, 2].nanmean())
        for _ in range(EPOCHS):
            for batch in torch.randperm(len(cubes)).tensor_split(batches):
                images = augment(torch.from_numpy(cubes[batch.numpy()]).float(), cls.margin).to(values.device)
                loss = _compute_loss(network, images, values[batch], targets[batch], positive_fraction)
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(network.parameters(), 5.0)
                optimiser.step()
                schedule.step()

    @classmethod
    def _learn_answer_scale(cls, network: Network, cubes: Any, values: torch.Tensor) -> None:
        """Store mean and standard deviation of the predictions for the training patients."""
        network.eval()
        inner = slice(cls.margin, cls.margin + cls.cube[0])
        answers = []
        with torch.inference_mode():
            for batch in torch.arange(len(cubes)).split(BATCH):
                images = torch.from_numpy(cubes[batch.numpy()][:, :, inner, inner, inner]).float()
                answers.append(network.compute_answers(images.to(values.device), values[batch]))
            network.learn_scale("answer", torch.cat(answers))

    def __init__(self, folder: Path, device: str) -> None:
        """Load the network that `fit` wrote into `folder`."""
        stored = torch.load(folder / FILE, map_location="cpu", weights_only=True)
        self._columns = stored["columns"]
        self._device = device
        self._network = Network(**stored["settings"])
        self._network.load_state_dict(stored["weights"])
        self._network.to(device).eval()

    def measure(self, cube: np.ndarray, clinical: Mapping[str, float | None]) -> dict[str, float]:
        """Compute the features of one patient.

        Args:
            cube: Cube without a margin, array (channels, z, y, x).
            clinical: Clinical variables by name; a missing value is None or absent.

        Returns:
            The risk and the logit of HPV positive, standardised; a higher risk means an earlier event.
        """
        values = [clinical.get(name) for name in self._columns]
        numbers = [math.nan if value is None else value for value in values]
        network = self._network
        with torch.inference_mode():
            image = torch.from_numpy(cube)[None].to(self._device)
            answers = network.compute_answers(image, torch.tensor([numbers], device=self._device))
            scaled = (answers - network.get_buffer("answer_mean")) / network.get_buffer("answer_sd")
        return dict(zip(self.names, scaled[0].tolist(), strict=True))


def _compute_loss(
    network: Network, images: torch.Tensor, clinical: torch.Tensor, targets: torch.Tensor, positive_fraction: float
) -> torch.Tensor:
    """Compute the sum of the losses; a patient whose outcome is missing does not count in the loss of this outcome."""
    stages = network.encode(images)
    outputs = network.predict(stages, clinical)
    days, events, hpv = targets.T
    has_rfs = ~events.isnan()
    has_hpv = ~hpv.isnan()
    ends = network.get_buffer("ends_days")
    risk = outputs[has_rfs, :-1]
    if len(ends):
        total = mtlr_loss(risk, days[has_rfs], events[has_rfs] == 1, ends)
    else:
        total = cox_loss(risk[:, 0], days[has_rfs], events[has_rfs] == 1)
    total = total + class_loss(outputs[has_hpv, -1], hpv[has_hpv], positive_fraction)
    if network.settings["joint"]:
        masks = (images[:, IMAGE_CHANNELS:] >= 0.5).float()
        logits = network.segment(stages, images.shape[-1])
        total = total + DiceFocalLoss(sigmoid=True, batch=True)(logits, masks)
    return total
