"""Losses of the outcome network, each over the patients whose outcome is known."""

from __future__ import annotations

import torch
from torch.nn import functional

from algorithm.outcome.network import interval_log_probabilities


def cox_loss(scores: torch.Tensor, days: torch.Tensor, events: torch.Tensor) -> torch.Tensor:
    """Negative log partial likelihood per event (Cox 1972; ties by Breslow 1974); 0 without an event.

    The risk set of an event is every patient whose follow-up is at least as long.

    Args:
        scores: log partial hazards, shape (patients,).
        days: follow-up.
        events: True for an event, False for censoring.
    """
    if not bool(events.any()):
        return scores.sum() * 0
    at_risk = days[None, :] >= days[events][:, None]
    total = torch.logsumexp(scores[None, :].masked_fill(~at_risk, -torch.inf), dim=1)
    return (total - scores[events]).mean()


def mtlr_loss(outputs: torch.Tensor, days: torch.Tensor, events: torch.Tensor, ends_days: torch.Tensor) -> torch.Tensor:
    """Mean negative log likelihood of multi-task logistic regression (Yu et al., NIPS 2011); 0 without a patient.

    The interval of an event begins after the previous end and includes its own. The event of a censored patient may lie
    in every interval that ends after the follow-up.

    Args:
        outputs: shape (patients, ends), as `interval_log_probabilities` takes them.
        days: follow-up, shape (patients,).
        events: True for an event, False for censoring.
        ends_days: ends of all intervals but the last, ascending.
    """
    if not len(outputs):
        return outputs.sum() * 0
    interval = torch.where(
        events, torch.searchsorted(ends_days, days), torch.searchsorted(ends_days, days, right=True)
    )[:, None]
    numbers = torch.arange(len(ends_days) + 1, device=outputs.device)
    possible = torch.where(events[:, None], numbers == interval, numbers >= interval)
    return -torch.logsumexp(interval_log_probabilities(outputs).masked_fill(~possible, -torch.inf), dim=1).mean()


def class_loss(outputs: torch.Tensor, classes: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Cross-entropy weighted by class; one output is the logit of the second of two classes. 0 without a patient."""
    if not len(classes):
        return outputs.sum() * 0
    logits = torch.cat([torch.zeros_like(outputs), outputs], dim=1) if outputs.shape[1] == 1 else outputs
    return functional.cross_entropy(logits, classes, weight=weights)


def balanced_weights(classes: torch.Tensor, count: int) -> torch.Tensor:
    """Weights by which each of the classes that occur has the same sum; 0 for a class without a patient."""
    sizes = torch.bincount(classes, minlength=count).float()
    return torch.where(sizes > 0, len(classes) / (sizes.clamp(min=1) * (sizes > 0).sum()), torch.zeros_like(sizes))


def mask_loss(logits: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    """Sum of the Dice loss over the batch and the focal loss, of GTVp and GTVn; 0 without a patient with a mask.

    Args:
        logits: shape (patients, 2, z, y, x).
        shares: shares of GTVp and GTVn in each voxel, in the same shape; a half or more is foreground. NaN for a
            patient without a reference mask.
    """
    from monai.losses.dice import DiceFocalLoss  # takes seconds

    known = ~shares.isnan().flatten(1).any(1)
    if not bool(known.any()):
        return logits.sum() * 0
    loss: torch.Tensor = DiceFocalLoss(sigmoid=True, batch=True)(logits[known], (shares[known] >= 0.5).float())
    return loss
