"""Training of one outcome network on random cubes."""

from __future__ import annotations

import torch

from algorithm.outcome.plan import OutcomePlan, OutcomeTask
from baseline.outcome.cohort import OutcomeCohort, OutcomeTarget
from baseline.outcome.presets import OutcomePreset
from baseline.outcome.trainer import FoldJob, predicted, train_fold
from tests.baseline.prepared import HPV

PLAN = OutcomePlan(16, 8.0, 2, ("age",), (OutcomeTask("hpv"),))
PRESET = OutcomePreset(voxels=16, spacing_mm=8.0, width=2, epochs=1, batch_size=4)


def test_a_fold_without_a_tumour_has_no_answers() -> None:
    """No held-out patient has a cube: zero rows of the plan's one feature. The network answers the others."""
    values = torch.tensor([0, 1, 0, 1])
    target = OutcomeTarget(HPV.answer, PLAN.tasks[0], values, torch.zeros(4))
    cubes = torch.rand(4, 4, 18, 18, 18, generator=torch.Generator().manual_seed(0)).half()
    cohort = OutcomeCohort(("a", "b", "c", "d"), cubes, 1, torch.full((4, 1), 60.0), (target,))
    job = FoldJob(PLAN, PRESET, torch.arange(4), 0, torch.device("cpu"))
    network = train_fold(cohort, job)
    assert predicted(network, cohort, torch.zeros(0, dtype=torch.int64), job).shape == (0, 1)
    assert predicted(network, cohort, torch.arange(3), job).shape == (3, 1)
