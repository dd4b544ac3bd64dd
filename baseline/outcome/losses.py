"""Losses of the outcome network; patients without an outcome do not count."""

from __future__ import annotations

import torch
from torch.nn import functional


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
