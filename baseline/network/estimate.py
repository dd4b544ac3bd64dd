"""Estimate of the hours and disk space of a training, before it begins."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass, replace
from typing import Final

from baseline.network.nnunet import Machine
from baseline.network.plans import PRESETS, NetworkPlan
from baseline.release.cases import read_cases
from baseline.release.record import read_preparation
from baseline.release.splits import read_splits
from baseline.work import WorkFolders

# nnU-Net's published hours for one fold of 1000 epochs of 250 steps on one A100.
A100_HOURS: Final = {"plain": 9.0, "resenc-m": 12.0, "resenc-l": 35.0}
_STEPS: Final = 1000 * 250
# The preset `short`: 32 minutes for one network on one shared CPU core, 45 epochs of 50 steps.
_SHORT_HOURS: Final = 32 / 60
_SHORT_STEPS: Final = 45 * 50
# The region of head and neck, for which docs/from-download-to-submission.md counts voxels.
REGION_MM: Final = (200.0, 200.0, 310.0)
# 160 phantoms at 3 mm took 762 MB prepared and 463 MB preprocessed.
_RAW_BYTES: Final = 762e6 / (160 * math.prod(REGION_MM) / 27)
_PREPROCESSED_BYTES: Final = 463e6 / (160 * math.prod(REGION_MM) / 27)
# Steps other than the training of networks: 290 s for 16 phantoms at 3 mm on two shared CPU cores; 5 h are expected for
# 680 patients at 1 mm with a card.
_OTHER_S: Final = 25.0
# Final and best checkpoint with the optimiser's state.
_CHECKPOINT_GB: Final = {"shallow": 0.06, "plain": 0.5, "resenc-m": 1.0, "resenc-l": 1.6}
_GB: Final = 1e9
_WEEK_H: Final = 7 * 24


@dataclass(frozen=True)
class TrainingEstimate:
    """The unfinished part of a training.

    Hours of its networks one after the other on the machine, None if only weeks can be said; and GB by kind.
    """

    networks: int
    hours: float | None
    raw_gb: float
    preprocessed_gb: float
    checkpoints_gb: float

    @property
    def disk_gb(self) -> float:
        """Estimated growth of the working directory."""
        return self.raw_gb + self.preprocessed_gb + self.checkpoints_gb


def estimate(plan: NetworkPlan, patients: int, networks: int, machine: Machine) -> TrainingEstimate:
    """Scale published and measured figures to this training; all backbones are taken to cost as much as the U-Net."""
    voxels = patients * math.prod(REGION_MM) / math.prod(plan.spacing_mm)
    raw, preprocessed = (voxels * size / _GB for size in (_RAW_BYTES, _PREPROCESSED_BYTES))
    checkpoints = networks * _CHECKPOINT_GB[plan.network]
    return TrainingEstimate(networks, _hours(plan, networks, machine), raw, preprocessed, checkpoints)


def unfinished_part(
    plan: NetworkPlan, patients: int, folds: int, machine: Machine, work: WorkFolders
) -> TrainingEstimate:
    """The estimate without the networks and images that the working directory already holds."""
    trained = sum(work.final(fold, backbone).is_file() for fold in range(folds) for backbone in plan.backbones)
    left = estimate(plan, patients, folds * len(plan.backbones) - trained, machine)
    if work.prepare_json.is_file() and read_preparation(work).spacing_mm == plan.spacing_mm:
        left = replace(left, raw_gb=0.0, preprocessed_gb=0.0 if work.plan_json.is_file() else left.preprocessed_gb)
    return left


def _hours(plan: NetworkPlan, networks: int, machine: Machine) -> float | None:
    steps = plan.epochs * plan.iterations
    if plan.network == "shallow":
        side_by_side = max(1, min(networks, machine.threads)) if machine.device == "cpu" else 1
        return _SHORT_HOURS * steps / _SHORT_STEPS * math.ceil(networks / side_by_side)
    if machine.device == "cpu":
        return None
    return A100_HOURS[plan.network] * steps / _STEPS * networks / machine.gpus


def as_text(plan: NetworkPlan, patients: int, folds: int, machine: Machine, work: WorkFolders) -> str:
    """The estimate in lines for the console, without what the working directory already holds."""
    left = unfinished_part(plan, patients, folds, machine, work)
    parts = (left.raw_gb, left.preprocessed_gb, left.checkpoints_gb)
    raw, preprocessed, checkpoints = (f"{gigabytes:.2g}" for gigabytes in parts)
    existing = next(path for path in (work.root, *work.root.parents) if path.is_dir())
    free_gb = shutil.disk_usage(existing).free / _GB
    too_small = "" if free_gb > left.disk_gb else ", too little"
    size = f"{left.disk_gb:.3g} GB: prepared images {raw}, preprocessed {preprocessed}, checkpoints {checkpoints}"
    is_begun = left.networks < folds * len(plan.backbones)
    count = f"{left.networks} unfinished networks" if is_begun else f"{left.networks} networks"
    lines = (
        f"estimate for {patients} patients, {count} of {plan.epochs} epochs:",
        f"  training {_time(plan, left, machine)}",
        f"  {other_steps(patients)}",
        f"  disk {size}; {free_gb:.0f} GB are free{too_small}",
        "  how these are estimated: docs/from-download-to-submission.md, Time and disk",
    )
    return "\n".join(lines)


def other_steps(patients: int) -> str:
    """The time of all steps but the training of networks."""
    return f"all other steps {_about(_OTHER_S * patients / 3600)}"


def _about(hours: float) -> str:
    return f"about {hours:.1f} h" if hours >= 0.1 else "under 0.1 h"


def _time(plan: NetworkPlan, left: TrainingEstimate, machine: Machine) -> str:
    if left.hours is None:
        return "takes weeks for each network on a CPU; expected --device cuda, or --preset short"
    if plan.network == "shallow":
        return f"{_about(left.hours)} by figures measured on CPU cores"
    cards = "one A100" if machine.gpus == 1 else f"{machine.gpus} A100s, if they scale perfectly"
    week = ", more than a week" if left.hours > _WEEK_H else ""
    return f"about {left.hours:.0f} h on {cards}{week}"


def estimate_of_prepared(work: WorkFolders, plan: NetworkPlan, jobs: int) -> str:
    """Hours and disk of a plan on the prepared images, on the device that it is meant for: GPU, or CPU for `short`."""
    plan = plan.changed(spacing_mm=read_preparation(work).spacing_mm)
    machine = Machine("cpu" if plan.network == PRESETS["short"].network else "cuda", threads=jobs)
    return as_text(plan, len(read_cases(work)), len(read_splits(work).folds), machine, work)
