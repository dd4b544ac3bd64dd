"""The request of an evaluation, and the command-line options that several commands share.

`--help` imports this module, so it must load neither NumPy nor SimpleITK.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from contract.editions import DEFAULT_EDITION
from contract.errors import HecktorError
from contract.options import select_algorithm, whole_number
from contract.platform import is_system_name, normalise_unicode
from contract.processes import count_usable_cpus
from evaluation.metrics.rules import MaskRules
from evaluation.statistics import DEFAULT_BOOTSTRAPS, DEFAULT_SEED

if TYPE_CHECKING:
    from evaluation.editions.profile import EvaluationProfile, TaskProfile
    from evaluation.execution import Workers

# The file of boxes in a ground truth that was packed for a phase, because the platform passes no options.
BOUNDING_BOXES: Final = "bounding_boxes.csv"


@dataclass(frozen=True)
class EvaluationRequest:
    """One evaluation of a submission.

    The attributes that are not described here are the arguments of `evaluation.evaluate`.

    Attributes:
        submission: Folder in the platform's layout, with `predictions.json`; unused if there are `predictions`.
        output_dir: Folder for metrics.json; None writes nothing.
        workers: Number of processes that compare masks, or the address of a Dask scheduler.
        rows: Whether metrics.json has rows and the names of cases and centres; the aggregates are the same.
    """

    ground_truth: Path
    submission: Path
    output_dir: Path | None = None
    task: str | None = None
    edition: str = DEFAULT_EDITION
    predictions: Path | None = None
    bounding_boxes: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = DEFAULT_SEED
    bootstraps: int = DEFAULT_BOOTSTRAPS
    workers: Workers = 1
    rows: bool = True


def requires_boxes(task: TaskProfile) -> bool:
    """Return whether the edition scores the task's masks inside bounding boxes."""
    return any(
        isinstance(answer.rules, MaskRules) and answer.rules.bounding_box == "required"
        for answer in task.answers.values()
    )


def find_boxes(task: TaskProfile, ground_truth: Path, bounding_boxes: Path | None) -> Path | None:
    """Return the file of boxes: `bounding_boxes`, or the ground truth's file if the task requires boxes.

    Raises:
        HecktorError: Boxes that the task requires are missing, or the task does not use the boxes.
    """
    rules = next((answer.rules for answer in task.answers.values() if isinstance(answer.rules, MaskRules)), None)
    if bounding_boxes is None and requires_boxes(task):
        if (ground_truth / BOUNDING_BOXES).is_file():
            return ground_truth / BOUNDING_BOXES
        raise HecktorError(
            "--bounding-boxes",
            f"none, but {task.edition} scores inside a bounding box",
            f"a CSV file of boxes (or {BOUNDING_BOXES} in the ground truth), "
            "or --option bounding_box=whole_image to score the whole image",
        )
    if bounding_boxes is not None and rules is None:
        raise HecktorError("--bounding-boxes", f"task {task.algorithm.name} has no masks", "no boxes")
    if bounding_boxes is not None and rules is not None and rules.bounding_box == "whole_image":
        raise HecktorError("--bounding-boxes", "found together with bounding_box=whole_image", "only one of them")
    return bounding_boxes


def find_task(parser: argparse.ArgumentParser, profile: EvaluationProfile, name: str | None) -> TaskProfile:
    """Return the task that `--task` names; exit with status 2 if the edition does not know the task.

    Raises:
        HecktorError: The edition does not score the task.
    """
    select_algorithm(parser, profile.edition.find_algorithm, name)
    return profile.find_task(name)


def add_workers_option(parser: argparse.ArgumentParser) -> None:
    """Add `--workers`, the number of processes that score cases."""
    about = "number of processes that read and compare masks; 0 means 1 (default: %(default)s)"
    parser.add_argument("--workers", type=whole_number(0), default=count_usable_cpus(), help=about)


def add_bootstrap_options(parser: argparse.ArgumentParser) -> None:
    """Add the seed and the number of bootstrap samples."""
    parser.add_argument(
        "--seed", type=whole_number(0), default=DEFAULT_SEED, help="seed of the bootstrap (default: %(default)s)"
    )
    parser.add_argument(
        "--bootstraps",
        type=whole_number(0),
        default=DEFAULT_BOOTSTRAPS,
        help="number of bootstrap samples, 0 for no intervals (default: %(default)s)",
    )


def parse_name_path(text: str) -> tuple[str, Path]:
    """Parse NAME=PATH; raise ArgumentTypeError for any other text."""
    name, _, path = text.partition("=")
    if not name.strip() or not path:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected NAME=PATH")
    return name.strip(), Path(path)


def parse_name_paths(text: str) -> tuple[str, list[Path]]:
    """Parse NAME=PATH,PATH; raise ArgumentTypeError for any other text."""
    name, _, rest = text.partition("=")
    paths = [Path(path) for path in rest.split(",") if path]
    if not name.strip() or not paths:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected NAME=PATH")
    return name.strip(), paths


def parse_team_folders(text: str) -> list[tuple[str, Path]]:
    """Parse TEAM=FOLDER, or a folder with a subfolder for each team; raise ArgumentTypeError for any other text."""
    if "=" in text:
        return [parse_name_path(text)]
    parent = Path(text)
    if not parent.exists():
        return [(parent.name, parent)]  # `require_paths` names the missing folder.
    folders = sorted(path for path in parent.iterdir() if path.is_dir()) if parent.is_dir() else []
    folders = [path for path in folders if not is_system_name(path.name)]
    if not folders:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected TEAM=FOLDER, or a folder with a subfolder per team")
    return [(normalise_unicode(path.name), path) for path in folders]


def join_team_folders(option: str, values: Sequence[Sequence[tuple[str, Path]]]) -> dict[str, Path]:
    """Join the values of a repeated option of type `parse_team_folders`; raise `HecktorError` for a repeated team."""
    pairs = [pair for value in values for pair in value]
    folders = dict(pairs)
    if len(folders) < len(pairs):
        names = [team for team, _ in pairs]
        repeated = next(team for team in names if names.count(team) > 1)
        raise HecktorError(option, f"team {repeated!r} twice", "one folder per team")
    return folders


class StoreResults(argparse.Action):
    """Store the folder of `--results`; a second folder, for which argparse would drop the first, is an error."""

    def __call__(
        self, parser: object, namespace: argparse.Namespace, values: Any, option_string: object = None
    ) -> None:
        """Store the folder in the namespace; raise `argparse.ArgumentError` if there is one already."""
        del parser, option_string
        if getattr(namespace, self.dest) is not None:
            problem = "found two folders, expected one with a folder task1, task2, ... for each task"
            raise argparse.ArgumentError(self, problem)
        setattr(namespace, self.dest, values)
