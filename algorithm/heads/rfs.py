"""Recurrence-free survival: a log partial hazard, higher for earlier recurrence."""

from __future__ import annotations

from algorithm.heads.linear import LinearHead
from algorithm.heads.measure import Features


def rfs_risk(head: LinearHead, features: Features, centre: str | None = None) -> float:
    """The head's linear predictor; a missing variable takes its training median.

    `centre` counts only where the head was harmonised and knows it.
    """
    return head.score(features, centre)
