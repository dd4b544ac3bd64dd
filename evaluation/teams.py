"""Evaluate many teams at once: a folder of each team's predictions becomes one of each team's metrics.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from contract.errors import HecktorError
from contract.patient import listed
from contract.platform import PREDICTIONS_JSON
from evaluation.editions.profile import TaskProfile
from evaluation.inputs.tables import TABLE_SUFFIXES
from evaluation.pipeline import evaluate_together
from evaluation.request import EvaluationRequest
from evaluation.results.documents import MetricsJson
from evaluation.results.teams import check_folder_names, check_team_names

_OF_A_TEAM: Final = (*TABLE_SUFFIXES, ".zip")
_NOTES: Final = (".md", ".txt")


def evaluate_in_folder(
    request: EvaluationRequest, task: TaskProfile, folder: Path
) -> tuple[dict[str, MetricsJson], dict[str, HecktorError]]:
    """Each team's metrics.json, in `output_dir/TEAM`, and the faults of the teams that have none.

    `folder` holds a folder, table or zip file for each team, by whose name it goes. A folder is one of plain files or,
    with `predictions.json`, a submission in the platform's layout.
    Raises HecktorError: no teams, names that a ranking would refuse, or a ground truth that cannot be used.
    """
    paths = _paths_by_team(folder)
    requests = {}
    for team, path in paths.items():
        output_dir = None if request.output_dir is None else request.output_dir / team
        of_team = replace(request, output_dir=output_dir, predictions=_plain_files(path, task))
        if path.is_dir() and (path / PREDICTIONS_JSON).is_file():
            of_team = replace(of_team, submission=path, predictions=None)
        requests[team] = of_team
    return evaluate_together(requests)


def _paths_by_team(folder: Path) -> dict[str, Path]:
    entries = [path for path in sorted(folder.iterdir()) if path.name[0] != "." and path.suffix.lower() not in _NOTES]
    others = [path.name for path in entries if not path.is_dir() and path.suffix.lower() not in _OF_A_TEAM]
    if others or not entries:
        found = f"found {listed(others) if others else 'nothing'}"
        raise HecktorError(f"--teams {folder.name}", found, "a folder, table or zip file for each team")
    names = [path.name if path.is_dir() else path.stem for path in entries]
    check_folder_names(names)
    check_team_names(names)
    return dict(zip(names, entries, strict=True))


def not_scored(faults: Mapping[str, HecktorError], teams: int) -> HecktorError:
    """The error of some of the teams."""
    found = "; ".join(f"{team}: {fault.message}" for team, fault in faults.items())
    return HecktorError(f"{len(faults)} of {teams} teams could not be scored", found)


def _plain_files(path: Path, task: TaskProfile) -> Path:
    """The path itself or, in a folder for a task without masks, its only table."""
    if task.algorithm.mask is not None or task.has_several_answers or not path.is_dir():
        return path
    tables = [one for one in sorted(path.iterdir()) if one.suffix.lower() in TABLE_SUFFIXES and one.name[0] != "."]
    return tables[0] if len(tables) == 1 else path
