"""Training of one outcome network on random cubes, and its losses by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from algorithm.outcome.features import OutcomeFeatures
from algorithm.outcome.plan import OutcomePlan, OutcomeTask
from baseline.heads.cubes import CubesOf
from baseline.network.plans import OutcomePreset
from baseline.outcome.trainer import OutcomeFit, balanced_weights, class_loss, cox_loss

PLAN = OutcomePlan(voxels=16, spacing_mm=8.0, width=2, clinical=("age",), tasks=(OutcomeTask(answer="hpv"),))
PRESET = OutcomePreset(voxels=16, spacing_mm=8.0, width=2, epochs=1, batch_size=4)


def test_a_fit_writes_what_the_hook_measures_with(tmp_path: Path) -> None:
    """Four patients, half of them positive; their answers are standardised: mean 0, SD 1."""
    cubes = np.random.default_rng(0).random((4, 4, 18, 18, 18)).astype(np.float16)
    ids = ["a", "b", "c", "d"]
    clinical = pd.DataFrame({"age": [60.0, np.nan, 70.0, 50.0]}, ids)
    outcomes = pd.DataFrame({"hpv": [0.0, 1.0, 0.0, 1.0], "rfs_days": 1.0, "rfs_event": np.nan}, ids)
    line = OutcomeFit(PLAN, PRESET, 1)(tmp_path, "cpu", CubesOf(cubes, np.arange(4)), clinical, outcomes, 0)
    assert line.startswith("loss ")
    hook = OutcomeFeatures(tmp_path, "cpu")
    assert hook.cube == (16, 8.0)
    inner = cubes[:, :, 1:17, 1:17, 1:17].astype(np.float32)
    rows = [hook.measure(cube, {"age": age}) for cube, age in zip(inner, (60.0, None, 70.0, 50.0), strict=True)]
    values = np.array([row["outcome_hpv"] for row in rows])
    assert values.mean() == pytest.approx(0, abs=1e-4)
    assert values.std() == pytest.approx(1, abs=1e-3)


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
