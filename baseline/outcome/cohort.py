"""Cubes, clinical values and outcomes of the training patients as tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from algorithm.heads.measure import clinical_features, clinical_names
from algorithm.outcome.measure import tumour_cube
from algorithm.outcome.plan import OutcomePlan, OutcomeTask
from algorithm.region.grids import resample_mask
from baseline.cache import map_items
from baseline.network.plans import OutcomePreset
from baseline.release.cases import ReleaseCase, head_answers
from baseline.release.data_set import CHANNELS, image_path
from baseline.release.splits import Splits
from baseline.work import WorkFolders
from contract.editions import Answer, Edition
from contract.images.volumes import read_volume

_Cubes = npt.NDArray[np.float16]
# Voxels around the cube from which a shifted one is cut in training, as a share of its edge.
_MARGIN: Final = 1 / 12
# Patients with an event, or of the rarer class, in the training part of each fold.
LEAST_SCARCE: Final = 2


@dataclass(frozen=True)
class OutcomeTarget:
    """Outcomes of one answer: class numbers, or 1 for an event with the follow-up in days; -1 is missing."""

    answer: Answer
    task: OutcomeTask
    values: torch.Tensor
    days: torch.Tensor

    @property
    def is_risk(self) -> bool:
        return self.answer.kind == "risk"


@dataclass(frozen=True)
class OutcomeCohort:
    """Patients with a tumour and a PET in one order; cubes are wider than the plan's by `margin` on each side."""

    ids: tuple[str, ...]
    cubes: torch.Tensor
    margin: int
    clinical: torch.Tensor
    targets: tuple[OutcomeTarget, ...]


def plan_outcome(
    edition: Edition, cases: Sequence[ReleaseCase], splits: Splits, preset: OutcomePreset
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
        voxels=preset.voxels, spacing_mm=preset.spacing_mm, width=preset.width, clinical=clinical, tasks=tuple(tasks)
    )
    return plan, why_not


def read_cohort(
    work: WorkFolders, cases: Sequence[ReleaseCase], edition: Edition, plan: OutcomePlan, jobs: int
) -> OutcomeCohort:
    """Cut the cubes of all patients from prepared images and out-of-fold masks; `jobs` is the number of processes.

    Patients without a tumour in the mask or without a PET are left out.
    """
    margin = round(plan.voxels * _MARGIN)
    cut = partial(_cube, work=work, voxels=plan.voxels + 2 * margin, spacing_mm=plan.spacing_mm)
    usable, cubes = _all_cubes(cut, cases, jobs)
    rows = [clinical_features(case.patient, edition.clinical) for case in usable]
    table = [[np.nan if (value := row[name]) is None else value for name in plan.clinical] for row in rows]
    answers = {answer.name: answer for answer in head_answers(edition)}
    return OutcomeCohort(
        tuple(case.patient_id for case in usable),
        torch.from_numpy(cubes),
        margin,
        torch.tensor(table, dtype=torch.float32).reshape(len(usable), len(plan.clinical)),
        tuple(_target(answers[task.answer], task, usable) for task in plan.tasks),
    )


def _task(answer: Answer) -> OutcomeTask:
    several = answer.kind == "class" and not answer.is_binary
    return OutcomeTask(answer=answer.name, classes=tuple(map(str, answer.classes)) if several else ())


def _scarce(answer: Answer, cases: Sequence[ReleaseCase], held_out: set[str]) -> int:
    """Training patients with an event, or outside the most frequent class."""
    known = [case.outcome(answer) for case in cases if case.has(answer) and case.patient_id not in held_out]
    if answer.kind == "risk":
        return sum(map(bool, known))
    return len(known) - max((known.count(value) for value in answer.classes), default=0)


def _all_cubes(
    cut: Callable[[ReleaseCase], tuple[str, _Cubes | None]], cases: Sequence[ReleaseCase], jobs: int
) -> tuple[list[ReleaseCase], _Cubes]:
    """The patients with a cube in the order of `cases`, and their cubes in one array, filled without a second copy."""
    rows = {case.patient_id: row for row, case in enumerate(cases)}
    cubes, filled = np.zeros(0, np.float16), set[int]()
    for name, cube in map_items(cut, cases, jobs, "cut cubes"):
        if cube is not None:
            if not filled:
                cubes = np.empty((len(cases), *cube.shape), np.float16)
            cubes[rows[name]] = cube
            filled.add(rows[name])
    for target, row in enumerate(sorted(filled)):
        if target != row:
            cubes[target] = cubes[row]
    return [cases[row] for row in sorted(filled)], cubes[: len(filled)]


def _cube(case: ReleaseCase, work: WorkFolders, voxels: int, spacing_mm: float) -> tuple[str, _Cubes | None]:
    ct, pet = (read_volume(image_path(work.raw, case, number), "float32") for number in range(len(CHANNELS)))
    if not pet.array.any():
        return case.patient_id, None
    mask = resample_mask(read_volume(work.mask(case.patient_id), np.uint8), ct.geometry)
    cube = tumour_cube(mask, ct.array, pet.array, ct.geometry, voxels, spacing_mm)
    return case.patient_id, None if cube is None else cube.astype(np.float16)


def _target(answer: Answer, task: OutcomeTask, cases: Sequence[ReleaseCase]) -> OutcomeTarget:
    def value(case: ReleaseCase) -> int:
        if not case.has(answer):
            return -1
        return int(case.outcome(answer)) if answer.kind == "risk" else answer.classes.index(case.outcome(answer))

    def follow_up(outcomes: Mapping[str, object]) -> float:
        return float(str(outcomes.get(answer.columns["time"], 0.0))) if answer.kind == "risk" else 0.0

    values, days = [value(case) for case in cases], [follow_up(case.outcomes) for case in cases]
    return OutcomeTarget(answer, task, torch.tensor(values), torch.tensor(days))
