"""Score submissions of the challenge against the ground truth, and rank teams; loads no network.

The functions are loaded on first use, so that `import evaluation` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaluation.api import LabelScores, MaskScores, evaluate, evaluate_teams, rank, score_masks
    from evaluation.results.board import Leaderboard
    from evaluation.results.documents import MetricsJson

__all__ = [
    "LabelScores",
    "Leaderboard",
    "MaskScores",
    "MetricsJson",
    "evaluate",
    "evaluate_teams",
    "rank",
    "score_masks",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("evaluation.api"), name)
