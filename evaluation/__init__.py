"""Score submissions of the challenge against the ground truth, and rank teams, without torch, MONAI or nnU-Net.

The order of an evaluation:

1. `cli` or `api` makes an `options.EvaluationRequest`; `teams` makes one for each team of a folder.
2. `pipeline` follows the remaining steps:
3. `editions` gives the task's metrics, rules and ranking.
4. `inputs` reads the references and the submissions.
5. `rows` compares each case, in the processes of `execution`.
6. `metrics` computes the metrics of a cohort of rows, and `statistics` their intervals.
7. `results` builds, writes and reads metrics.json.
8. `ranking` ranks the teams' results.

The public functions are loaded on first use, so that `import evaluation` stays light.
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
