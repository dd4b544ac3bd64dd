"""Losses of the outcome network by hand and by an enumeration."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from baseline.outcome.losses import balanced_weights, class_loss, cox_loss, mask_loss, mtlr_loss


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


def test_mtlr_loss_of_equal_intervals() -> None:
    """Outputs of 0 give the intervals up to day 10, up to 20 and later a third each.

    An event on day 10 lies in the first one, on days 11 and 25 in one of the others: log 3 each. Censoring on day 10
    leaves the two later intervals, log 1.5; on day 9 all, 0; on day 20 the last one, log 3.
    """
    days = torch.tensor([10.0, 11.0, 25.0, 10.0, 9.0, 20.0])
    events = torch.tensor([True, True, True, False, False, False])
    value = mtlr_loss(torch.zeros(6, 2), days, events, torch.tensor([10.0, 20.0]))
    assert float(value) == pytest.approx((4 * math.log(3) + math.log(1.5)) / 6)


@pytest.mark.parametrize("seed", range(5))
def test_mtlr_loss_is_that_of_all_sequences(seed: int) -> None:
    """A sequence says for each end whether the event was before; once it was, it stays so. Its weight is the product of
    exp(output) over the ends where it was. The likelihood of a patient is the share of the sequences that fit.
    """
    rng = np.random.default_rng(seed)
    ends, outputs = np.array([3.0, 5.0, 8.0]), rng.normal(size=(12, 3))
    days, events = rng.integers(1, 11, 12).astype(float), rng.random(12) < 0.5
    logs = []
    for row, day, event in zip(outputs, days, events, strict=True):
        fits, every = 0.0, 0.0
        for first in range(4):  # the first end after the event
            weight = math.exp(sum(row[first:]))
            every += weight
            lower, upper = [0.0, *ends, math.inf][first : first + 2]
            fits += weight if (lower < day <= upper if event else upper > day) else 0.0
        logs.append(math.log(fits / every))
    tensors = (torch.tensor(one, dtype=torch.float32) for one in (outputs, days))
    value = mtlr_loss(*tensors, torch.tensor(events), torch.tensor(ends, dtype=torch.float32))
    assert float(value) == pytest.approx(-np.mean(logs), rel=1e-5)


def test_mtlr_loss_without_a_patient_is_zero() -> None:
    nobody = torch.zeros(0)
    assert float(mtlr_loss(torch.zeros(0, 2), nobody, nobody > 0, torch.tensor([1.0, 2.0]))) == 0


def test_mask_loss_of_one_voxel_in_eight() -> None:
    """Logits of 0 are probabilities of a half. Dice: 1 - 2 x 0.5 / (8 x 0.5 + 1) = 0.8 for both lesions; the focal loss
    with gamma 2 is 0.5 squared x log 2 in each voxel. A patient without a reference does not count.
    """
    shares = torch.zeros(2, 2, 2, 2, 2)
    shares[0, :, 0, 0, 0] = 0.6
    shares[0, :, 1, 1, 1] = 0.4
    shares[1] = torch.nan
    assert float(mask_loss(torch.zeros_like(shares), shares)) == pytest.approx(0.8 + 0.25 * math.log(2), abs=1e-4)
    assert float(mask_loss(torch.zeros(1, 2, 2, 2, 2), shares[1:])) == 0
