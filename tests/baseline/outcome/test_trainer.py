"""Training of one outcome network on random cubes, and its losses by hand."""

from __future__ import annotations

import math

import pytest
import torch

from algorithm.outcome.plan import OutcomePlan, OutcomeTask
from baseline.network.plans import OutcomePreset
from baseline.outcome.cohort import OutcomeCohort, OutcomeTarget
from baseline.outcome.trainer import FoldJob, balanced_weights, class_loss, cox_loss, predicted, train_fold
from tests.baseline.prepared import HPV

PLAN = OutcomePlan(voxels=16, spacing_mm=8.0, width=2, clinical=("age",), tasks=(OutcomeTask(answer="hpv"),))
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


# Losses


def test_cox_loss_of_three_patients() -> None:
    """Events on days 1 and 2, censoring on day 3, hazard ratios 2, 1 and 4.

    The first event has all at risk: 2 of 7; the second the last two: 1 of 5. The loss is the mean of log 3.5 and log 5.
    """
    scores = torch.tensor([math.log(2), 0.0, math.log(4)])
    value = cox_loss(scores, torch.tensor([1.0, 2.0, 3.0]), torch.tensor([True, True, False]))
    assert float(value) == pytest.approx((math.log(3.5) + math.log(5)) / 2)


def test_cox_loss_of_tied_events() -> None:
    """Two events on one day and a censored patient on the same day, hazard ratios 1, 3 and 4.

    By Breslow both events have all three at risk: shares 1/8 and 3/8.
    """
    scores = torch.tensor([0.0, math.log(3), math.log(4)])
    value = cox_loss(scores, torch.full((3,), 5.0), torch.tensor([True, True, False]))
    assert float(value) == pytest.approx((math.log(8) + math.log(8 / 3)) / 2)


def test_cox_loss_has_the_gradient_of_the_partial_likelihood() -> None:
    """One event with two equal patients at risk: the derivative is share at risk less 1 for the event, share for the
    other: -1/2 and 1/2; a patient who left before the event has none.
    """
    scores = torch.zeros(3, requires_grad=True)
    cox_loss(scores, torch.tensor([1.0, 2.0, 3.0]), torch.tensor([False, True, False])).backward()
    assert scores.grad is not None
    assert scores.grad.tolist() == pytest.approx([0.0, -0.5, 0.5])


def test_cox_loss_without_an_event_is_zero_with_a_gradient() -> None:
    scores = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = cox_loss(scores, torch.tensor([1.0, 2.0]), torch.tensor([False, False]))
    loss.backward()
    assert float(loss.detach()) == 0
    assert scores.grad is not None
    assert scores.grad.tolist() == [0.0, 0.0]


def test_class_loss_of_two_classes_is_balanced() -> None:
    """Three positives with logit log 3 (probability 3/4) and a negative with logit 0 (probability 1/2).

    Weights: 4 / (2 x 3) for a positive and 4 / (2 x 1) for the negative, so that both classes weigh 2. The loss is
    the mean of log(4/3) and log 2.
    """
    classes = torch.tensor([1, 1, 1, 0])
    weights = balanced_weights(classes, 2)
    assert weights.tolist() == pytest.approx([2.0, 2 / 3])
    outputs = torch.tensor([[math.log(3)]] * 3 + [[0.0]])
    assert float(class_loss(outputs, classes, weights)) == pytest.approx((math.log(4 / 3) + math.log(2)) / 2)


def test_balanced_weights_of_a_class_without_patients() -> None:
    """Two of three classes occur, with 1 and 3 of 4 patients: 4 / (2 x 1) and 4 / (2 x 3)."""
    assert balanced_weights(torch.tensor([0, 2, 2, 2]), 3).tolist() == pytest.approx([2.0, 0.0, 2 / 3])


def test_class_loss_without_a_patient_is_zero() -> None:
    assert float(class_loss(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64), torch.ones(3))) == 0
