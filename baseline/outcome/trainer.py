"""Train the outcome network of one fold. In its losses patients without an outcome do not count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pandas as pd
import torch
from safetensors.torch import save

from algorithm.heads.cube import CHANNELS
from algorithm.outcome.network import WEIGHTS, OutcomeNetwork
from algorithm.outcome.plan import PLAN, OutcomePlan, OutcomeTask
from baseline.heads.cubes import CubesOf
from baseline.network.plans import OutcomePreset, RiskLoss
from baseline.outcome.cohort import OutcomeCohort, OutcomeTarget, cohort_of, with_intervals
from baseline.outcome.decoder import SegmentationDecoder, encoder_stages
from baseline.outcome.losses import balanced_weights, class_loss, cox_loss, mask_loss, mtlr_loss
from contract.files import write_json

# Answers of a fold with less spread than this are constant.
_LEAST_SD: Final = 1e-3
_PET_SCALE: Final = 0.1
_CT_SHIFT: Final = 0.05
_LARGEST_GRADIENT: Final = 5.0


@dataclass(frozen=True)
class FoldJob:
    """One network to train: its plan and preset, the seed and the device."""

    plan: OutcomePlan
    preset: OutcomePreset
    seed: int
    device: torch.device


@dataclass(frozen=True)
class OutcomeFit:
    """The outcome network's `fit`, with the interface of every fitted hook: writes plan and weights of one fold."""

    plan: OutcomePlan
    preset: OutcomePreset
    threads: int
    loss: RiskLoss = "cox"

    def __call__(
        self, folder: Path, device: str, cubes: CubesOf, clinical: pd.DataFrame, outcomes: pd.DataFrame, seed: int
    ) -> str:
        """Train one fold; returns a line with the first and last loss."""
        torch.set_num_threads(self.threads)
        losses, plan = list[float](), self.plan
        if self.loss == "mtlr":
            plan = with_intervals(plan, outcomes)
        job = FoldJob(plan, self.preset, seed, torch.device(device))
        network = train_fold(cohort_of(plan, cubes, clinical, outcomes), job, losses.append)
        write_json(folder / PLAN, plan.model_dump(mode="json"))
        # `save_file` ignores the umask.
        weights = {name: tensor.cpu().contiguous() for name, tensor in network.state_dict().items()}
        (folder / WEIGHTS).write_bytes(save(weights))
        return f"loss {losses[0]:.3f} to {losses[-1]:.3f}"


def train_fold(
    cohort: OutcomeCohort, job: FoldJob, on_epoch: Callable[[float], object] = lambda _: None
) -> OutcomeNetwork:
    """The network trained on the cohort, in evaluation mode; `on_epoch` gets each epoch's mean loss.

    The last epoch's weights are used: nothing is selected on held-out patients.
    """
    torch.manual_seed(job.seed)
    network = OutcomeNetwork(job.plan).to(job.device)
    decoder = SegmentationDecoder(job.plan.width).to(job.device) if job.plan.joint else None
    _learn_clinical(network, cohort.clinical)
    rng, preset = torch.Generator().manual_seed(job.seed), job.preset
    parameters = [*network.parameters(), *(decoder.parameters() if decoder else ())]
    optimiser = torch.optim.AdamW(parameters, preset.learning_rate, weight_decay=preset.weight_decay)
    patients = len(cohort.cubes)
    steps = preset.epochs * len(list(_batches(patients, preset, rng)))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, preset.learning_rate, total_steps=steps)
    weights = [_class_weights(target).to(job.device) for target in cohort.targets]
    network.train()
    for _ in range(preset.epochs):
        losses = []
        for batch in _batches(patients, preset, rng):
            cubes = _augmented(cohort.cubes_of(batch).to(job.device), cohort.margin, rng)
            clinical = cohort.clinical[batch].to(job.device)
            outputs, of_masks = _outputs(network, decoder, cubes, clinical)
            loss = _loss(outputs, cohort, batch, weights) + of_masks
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, _LARGEST_GRADIENT)
            optimiser.step()
            schedule.step()
            losses.append(float(loss.detach()))
        on_epoch(sum(losses) / len(losses))
    network.eval()
    _learn_scale(network, cohort, job)
    return network


def _batches(patients: int, preset: OutcomePreset, rng: torch.Generator) -> Iterator[torch.Tensor]:
    """The patients in random order, in batches of about the same size, at least two patients each."""
    order = torch.randperm(patients, generator=rng)
    yield from order.tensor_split(max(1, round(patients / preset.batch_size)))


def _outputs(
    network: OutcomeNetwork, decoder: SegmentationDecoder | None, cubes: torch.Tensor, clinical: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The network's outputs and the loss of the decoder's masks, 0 without a decoder.

    With a decoder the last two channels of the cubes are the reference mask.
    """
    if decoder is None:
        return network(cubes, clinical), cubes.new_zeros(())
    stages = encoder_stages(network.image, cubes[:, : network.channels])
    masks = decoder(stages, cubes.shape[-1])
    return network.outputs(stages[-1].mean((2, 3, 4)), clinical), mask_loss(masks, cubes[:, CHANNELS:])


def _loss(
    outputs: torch.Tensor, cohort: OutcomeCohort, batch: torch.Tensor, weights: list[torch.Tensor]
) -> torch.Tensor:
    """Sum of the tasks' losses, each over the patients with its outcome."""
    total = outputs.sum() * 0
    parts = outputs.split([target.task.outputs for target in cohort.targets], dim=1)
    for target, part, weight in zip(cohort.targets, parts, weights, strict=True):
        values = target.values[batch].to(outputs.device)
        known = values >= 0
        if target.is_risk:
            days, events = target.days[batch].to(outputs.device)[known], values[known] == 1
            total = total + _risk_loss(target.task, part[known], days, events)
        else:
            total = total + class_loss(part[known], values[known], weight)
    return total


def _risk_loss(task: OutcomeTask, outputs: torch.Tensor, days: torch.Tensor, events: torch.Tensor) -> torch.Tensor:
    if task.ends_days:
        return mtlr_loss(outputs, days, events, outputs.new_tensor(task.ends_days))
    return cox_loss(outputs[:, 0], days, events)


def _augmented(cubes: torch.Tensor, margin: int, rng: torch.Generator) -> torch.Tensor:
    """Shifted and mirrored left to right, with another scale of the PET and another offset of the CT."""
    edge = cubes.shape[-1] - 2 * margin
    moved = []
    for cube in cubes:
        z, y, x = torch.randint(0, 2 * margin + 1, (3,), generator=rng).tolist()
        part = cube[:, z : z + edge, y : y + edge, x : x + edge]
        moved.append(part.flip(-1) if bool(torch.rand(1, generator=rng) < 0.5) else part)
    batch = torch.stack(moved).float()
    draws = torch.rand(2, len(batch), 1, 1, 1, generator=rng).to(batch.device) * 2 - 1
    batch[:, 0] += _CT_SHIFT * draws[0]
    batch[:, 1] *= 1 + _PET_SCALE * draws[1]
    return batch


def _centred(cubes: torch.Tensor, margin: int) -> torch.Tensor:
    inner = slice(margin, cubes.shape[-1] - margin)
    return cubes[..., inner, inner, inner]


def _class_weights(target: OutcomeTarget) -> torch.Tensor:
    known = target.values[target.values >= 0]
    return torch.zeros(0) if target.is_risk else balanced_weights(known, len(target.task.classes) or 2)


def _learn_clinical(network: OutcomeNetwork, clinical: torch.Tensor) -> None:
    """Median, mean and standard deviation of each clinical value; one that is never known becomes 0."""
    fill = clinical.nanmedian(0).values.nan_to_num(0.0)
    known = torch.where(torch.isnan(clinical), fill, clinical)
    sd = known.std(0, correction=0)
    network.clinical_fill.copy_(fill)  # type: ignore[operator]
    network.clinical_mean.copy_(known.mean(0))  # type: ignore[operator]
    network.clinical_sd.copy_(torch.where(sd > _LEAST_SD, sd, torch.ones_like(sd)))  # type: ignore[operator]


@torch.inference_mode()
def _learn_scale(network: OutcomeNetwork, cohort: OutcomeCohort, job: FoldJob) -> None:
    """Mean and standard deviation of the answers to the training patients."""
    parts = []
    for batch in torch.arange(len(cohort.cubes)).split(job.preset.batch_size):
        cubes = _centred(cohort.cubes_of(batch), cohort.margin).to(job.device).float()
        parts.append(network.unscaled(network(cubes, cohort.clinical[batch].to(job.device))).cpu())
    answers = torch.cat(parts)
    sd = answers.std(0, correction=0)
    network.answer_mean.copy_(answers.mean(0))  # type: ignore[operator]
    network.answer_sd.copy_(torch.where(sd > _LEAST_SD, sd, torch.ones_like(sd)))  # type: ignore[operator]
