"""Options that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from contract.errors import HecktorError
from contract.options import find_algorithm, whole_number
from contract.platform import compose, is_system_name
from contract.processes import usable_cpus
from evaluation.statistics import DEFAULT_BOOTSTRAPS, DEFAULT_SEED

if TYPE_CHECKING:  # these modules load SimpleITK, which `--help` does not need
    from evaluation.editions.profile import EvaluationProfile, TaskProfile


def parse_name_path(text: str) -> tuple[str, Path]:
    """Read NAME=PATH; argparse.ArgumentTypeError for any other text."""
    name, _, path = text.partition("=")
    if not name.strip() or not path:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected NAME=PATH")
    return name.strip(), Path(path)


def parse_name_paths(text: str) -> tuple[str, list[Path]]:
    """Read NAME=PATH,PATH; argparse.ArgumentTypeError for any other text."""
    name, _, rest = text.partition("=")
    paths = [Path(path) for path in rest.split(",") if path]
    if not name.strip() or not paths:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected NAME=PATH")
    return name.strip(), paths


def parse_team_folders(text: str) -> list[tuple[str, Path]]:
    """Read TEAM=FOLDER, or a folder that holds one folder for each team; argparse.ArgumentTypeError for other texts."""
    if "=" in text:
        return [parse_name_path(text)]
    parent = Path(text)
    if not parent.exists():
        return [(parent.name, parent)]  # for `require_paths`
    folders = sorted(path for path in parent.iterdir() if path.is_dir()) if parent.is_dir() else []
    folders = [path for path in folders if not is_system_name(path.name)]
    if not folders:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected TEAM=FOLDER, or a folder with a subfolder per team")
    return [(compose(path.name), path) for path in folders]


def join_team_folders(option: str, values: Sequence[Sequence[tuple[str, Path]]]) -> dict[str, Path]:
    """Join the values of a repeated option of type `parse_team_folders`. Raises HecktorError for a team given twice."""
    pairs = [pair for value in values for pair in value]
    folders = dict(pairs)
    if len(folders) < len(pairs):
        names = [team for team, _ in pairs]
        twice = next(team for team in names if names.count(team) > 1)
        raise HecktorError(option, f"team {twice!r} twice", "one folder a team")
    return folders


def find_task(parser: argparse.ArgumentParser, profile: EvaluationProfile, name: str | None) -> TaskProfile:
    """The task that `--task` names; a task that the edition does not know ends with exit status 2.

    Raises HecktorError: the edition does not score the task.
    """
    find_algorithm(parser, profile.edition.algorithm, name)
    return profile.task(name)


def add_workers_option(parser: argparse.ArgumentParser) -> None:
    """Add `--workers`, the number of processes that score cases."""
    about = "number of processes that read and compare masks; 0 means 1 (default: %(default)s)"
    parser.add_argument("--workers", type=whole_number(0), default=usable_cpus(), help=about)


def add_bootstrap_options(parser: argparse.ArgumentParser) -> None:
    """Add the seed and the number of bootstrap replicates."""
    parser.add_argument(
        "--seed", type=whole_number(0), default=DEFAULT_SEED, help="seed of the bootstrap (default: %(default)s)"
    )
    parser.add_argument(
        "--bootstraps",
        type=whole_number(0),
        default=DEFAULT_BOOTSTRAPS,
        help="number of bootstrap samples, 0 for no intervals (default: %(default)s)",
    )
