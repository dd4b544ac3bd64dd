"""Cubes, clinical values and outcomes of the training patients as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
import torch

from algorithm.heads.measure import clinical_names
from algorithm.outcome.plan import OutcomePlan, OutcomeTask
from baseline.heads.cubes import CubesOf
from baseline.network.plans import OutcomePreset
from baseline.release.cases import ReleaseCase, head_answers
from baseline.release.splits import Splits
from contract.editions import Answer, Edition
from contract.errors import HecktorError

# Margin of a cube as a fraction of its edge.
_MARGIN: Final = 1 / 12
# Patients with an event, or of the rarer class, in the training part of each fold.
LEAST_SCARCE: Final = 2
# Maximum number of MTLR's interval ends.
_MOST_ENDS: Final = 8


@dataclass(frozen=True)
class OutcomeTarget:
    """Outcomes of one answer: class numbers, or 1 for an event with the follow-up in days; -1 is missing."""

    task: OutcomeTask
    is_risk: bool
    values: torch.Tensor
    days: torch.Tensor


@dataclass(frozen=True)
class OutcomeCohort:
    """Training patients of one fold; cubes are wider than the plan's by `margin` on each side."""

    cubes: CubesOf
    margin: int
    clinical: torch.Tensor
    targets: tuple[OutcomeTarget, ...]

    def cubes_of(self, patients: torch.Tensor) -> torch.Tensor:
        """Cubes of the patients with these numbers."""
        return torch.from_numpy(self.cubes[patients.numpy()])


def plan_outcome(
    edition: Edition, cases: Sequence[ReleaseCase], splits: Splits, preset: OutcomePreset, *, joint: bool = False
) -> tuple[OutcomePlan | None, dict[str, str]]:
    """The plan with all answers that can be learnt, None without one, and the reason for each that cannot."""
    why_not: dict[str, str] = {}
    tasks = []
    for answer in head_answers(edition):
        scarce = min(_scarce(answer, cases, set(fold)) for fold in splits.folds)
        if scarce < LEAST_SCARCE:
            what = "with an event" if answer.kind == "risk" else "outside the most frequent class"
            found = f"{scarce} training patients {what} in a fold"
            why_not[answer.name] = f"{found}, expected at least {LEAST_SCARCE}"
        else:
            tasks.append(_task(answer))
    clinical = clinical_names(edition.clinical)
    if not tasks:
        return None, why_not
    plan = OutcomePlan(
        voxels=preset.voxels,
        spacing_mm=preset.spacing_mm,
        width=preset.width,
        clinical=clinical,
        tasks=tuple(tasks),
        joint=joint,
    )
    return plan, why_not


def cohort_of(plan: OutcomePlan, cubes: CubesOf, clinical: pd.DataFrame, outcomes: pd.DataFrame) -> OutcomeCohort:
    """The cohort of a fit, from the arguments that every fitted hook gets."""
    values = torch.tensor(clinical[list(plan.clinical)].to_numpy(np.float64), dtype=torch.float32)
    return OutcomeCohort(cubes, margin_of(plan), values, tuple(_target(task, outcomes) for task in plan.tasks))


def with_intervals(plan: OutcomePlan, outcomes: pd.DataFrame) -> OutcomePlan:
    """The plan with the intervals of multi-task logistic regression for each risk.

    Their ends are quantiles of the event times in `outcomes`, at most eight and at most one for each event.

    Raises:
        HecktorError: no event after day 0.
    """
    tasks = tuple(_with_intervals(task, outcomes) for task in plan.tasks)
    return plan.model_copy(update={"tasks": tasks})


def _with_intervals(task: OutcomeTask, outcomes: pd.DataFrame) -> OutcomeTask:
    event, days = f"{task.answer}_event", f"{task.answer}_days"
    if event not in outcomes:
        return task
    times = outcomes.loc[(outcomes[event] == 1) & (outcomes[days] > 0), days].to_numpy(np.float64)
    if not len(times):
        found = "no training patient with an event after day 0"
        raise HecktorError(f"outcome network: {task.answer}", found, "some for `--loss mtlr`")
    inner = np.linspace(0, 1, min(_MOST_ENDS, len(times)) + 2)[1:-1]
    return task.model_copy(update={"ends_days": tuple(np.unique(np.quantile(times, inner)).tolist())})


def margin_of(plan: OutcomePlan) -> int:
    """Margin in voxels around the cube, within which training shifts it."""
    return round(plan.voxels * _MARGIN)


def _task(answer: Answer) -> OutcomeTask:
    several = answer.kind == "class" and not answer.is_binary
    return OutcomeTask(answer=answer.name, classes=tuple(map(str, answer.classes)) if several else ())


def _scarce(answer: Answer, cases: Sequence[ReleaseCase], held_out: set[str]) -> int:
    """Training patients with an event, or outside the most frequent class."""
    known = [case.outcome(answer) for case in cases if case.has(answer) and case.patient_id not in held_out]
    if answer.kind == "risk":
        return sum(map(bool, known))
    return len(known) - max((known.count(value) for value in answer.classes), default=0)


def _target(task: OutcomeTask, outcomes: pd.DataFrame) -> OutcomeTarget:
    is_risk = f"{task.answer}_event" in outcomes
    values = outcomes[f"{task.answer}_event" if is_risk else task.answer].fillna(-1)
    days = outcomes[f"{task.answer}_days"].fillna(0) if is_risk else 0 * values
    return OutcomeTarget(
        task, is_risk, torch.tensor(values.to_numpy(np.int64)), torch.tensor(days.to_numpy(np.float32))
    )
