"""An evaluation's request, and the check that its bounding boxes are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from contract.editions import DEFAULT_EDITION
from contract.errors import HecktorError
from evaluation.editions.profile import TaskProfile
from evaluation.execution import Workers
from evaluation.metrics.rules import MaskRules
from evaluation.statistics import DEFAULT_BOOTSTRAPS, DEFAULT_SEED

# The boxes in a ground truth that a phase packs: the platform passes no options.
BOUNDING_BOXES: Final = "bounding_boxes.csv"


@dataclass(frozen=True)
class EvaluationRequest:
    """One evaluation of a submission.

    Attributes:
        submission: the platform's folder with `predictions.json`; unused if `predictions` is given.
        output_dir: where metrics.json goes; None writes nothing.
        workers: processes that compare masks, or the address of a Dask scheduler.
        rows: write the rows; without them, and without any name of a case or centre, the aggregates stay the same.

    The others are the arguments of `evaluation.evaluate`.
    """

    ground_truth: Path
    submission: Path
    output_dir: Path | None = None
    task: str | None = None
    edition: str = DEFAULT_EDITION
    predictions: Path | None = None
    bounding_boxes: Path | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    seed: int = DEFAULT_SEED
    bootstraps: int = DEFAULT_BOOTSTRAPS
    workers: Workers = 1
    rows: bool = True


def requires_boxes(task: TaskProfile) -> bool:
    """True if the masks of a task are scored inside boxes that must be given."""
    rules = [answer.rules for answer in task.answers.values()]
    return any(isinstance(one, MaskRules) and one.bounding_box == "required" for one in rules)


def find_boxes(task: TaskProfile, ground_truth: Path, given: Path | None) -> Path | None:
    """The file of boxes: the `given` one or, if the task requires boxes, the one in the ground truth.

    Raises HecktorError: boxes that the task requires and nobody gave, or that it does not use.
    """
    rules = next((answer.rules for answer in task.answers.values() if isinstance(answer.rules, MaskRules)), None)
    if given is None and requires_boxes(task):
        if (ground_truth / BOUNDING_BOXES).is_file():
            return ground_truth / BOUNDING_BOXES
        raise HecktorError(
            "--bounding-boxes",
            f"none, but {task.edition} scores inside a bounding box",
            f"a CSV file of boxes (or {BOUNDING_BOXES} in the ground truth), "
            "or --option bounding_box=whole_image to score the whole image",
        )
    if given is not None and rules is None:
        raise HecktorError("--bounding-boxes", f"task {task.algorithm.name} has no masks", "none")
    if given is not None and rules is not None and rules.bounding_box == "whole_image":
        raise HecktorError("--bounding-boxes", "found together with bounding_box=whole_image", "only one of them")
    return given
