"""Evaluate many teams at once: a folder of each team's predictions becomes one of each team's metrics.json."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from contract.errors import Finding, HecktorError, printable
from contract.patient import format_names
from contract.platform import PREDICTIONS_JSON, compose, is_added_by_system, is_system_name
from evaluation.editions.profile import TaskProfile
from evaluation.inputs.tables import TABLE_SUFFIXES
from evaluation.options import EvaluationRequest
from evaluation.pipeline import evaluate_submissions
from evaluation.results.documents import MetricsJson, remove_earlier
from evaluation.results.teams import check_folder_names

_OF_A_TEAM: Final = (*TABLE_SUFFIXES, ".zip")
_NOTES: Final = (".md", ".txt")
_EXPECTED: Final = "a folder, table or zip file for each team"


def evaluate_team_folder(
    request: EvaluationRequest, task: TaskProfile, folder: Path
) -> tuple[dict[str, MetricsJson], dict[str, HecktorError]]:
    """Return each team's metrics.json, written to `output_dir/TEAM`, and the faults of the other teams.

    `folder` holds a folder, table or zip file for each team, by whose name it goes. A folder is one of plain files or,
    with `predictions.json`, a submission in the platform's layout. Any other entry is a fault of its own; hidden files
    and notes are named in a warning.
    Raises HecktorError: no entry, or a ground truth that cannot be used.
    """
    paths, faults = _paths_by_team(folder)
    for name in {*faults, *(Path(fault).stem for fault in faults)} - paths.keys():
        if request.output_dir is not None:
            with suppress(HecktorError):  # of another task, which must stay
                remove_earlier(request.output_dir / name, task.algorithm.name)
    requests = {}
    for team, path in paths.items():
        output_dir = None if request.output_dir is None else request.output_dir / team
        try:
            of_team = replace(request, output_dir=output_dir, predictions=_plain_files(path, task))
            if path.is_dir() and (path / PREDICTIONS_JSON).is_file():
                of_team = replace(of_team, submission=path, predictions=None)
        except OSError as problem:
            faults[team] = HecktorError(path.name, f"cannot be read ({problem.strerror})", "a readable folder")
        else:
            requests[team] = of_team
    if not requests:
        return {}, faults
    reports, not_evaluated = evaluate_submissions(requests)
    return reports, {**faults, **not_evaluated}


def _paths_by_team(folder: Path) -> tuple[dict[str, Path], dict[str, HecktorError]]:
    """Return the entry of each team, and the faults of all other entries, by their names."""
    what = f"--teams {folder.name}"
    paths_of: dict[str, list[Path]] = {}
    faults: dict[str, HecktorError] = {}
    left_out = []
    for path in sorted(folder.iterdir()):
        if is_added_by_system(path.name):
            continue
        if path.name.startswith(".") or (path.suffix.lower() in _NOTES and not path.is_dir()):
            left_out.append(path.name)
        elif path.is_dir() or path.suffix.lower() in _OF_A_TEAM:
            paths_of.setdefault(compose(path.name if path.is_dir() else path.stem), []).append(path)
        else:
            faults[path.name] = HecktorError(what, f"found {path.name}", _EXPECTED)
    if left_out:
        finding = Finding(
            what, f"found {format_names(left_out, 10)}", _EXPECTED, "hidden files and notes are not scored"
        )
        sys.stderr.write(f"warning: {printable(str(finding))}\n")
    if not paths_of and not faults:
        raise HecktorError(what, "found nothing", _EXPECTED)
    for team, paths in paths_of.items():
        try:
            check_folder_names([team])
        except HecktorError as fault:
            faults[team] = fault
        if len(paths) > 1:
            names = " and ".join(path.name for path in paths)
            faults[team] = HecktorError(what, f"team {team!r} appears twice: {names}", "one of them")
    return {team: paths[0] for team, paths in paths_of.items() if team not in faults}, faults


def make_teams_error(faults: Mapping[str, HecktorError], teams: int) -> HecktorError:
    """Make the error of some of the teams."""
    reasons = "; ".join(f"{team:.60}: {fault.message}" for team, fault in faults.items())
    return HecktorError(f"{len(faults)} of {teams} teams could not be scored", reasons)


def _plain_files(path: Path, task: TaskProfile) -> Path:
    """The path itself or, in a folder for a task without masks, its only table."""
    if task.algorithm.mask_spec is not None or task.has_several_answers or not path.is_dir():
        return path
    files = [file for file in sorted(path.iterdir()) if not is_system_name(file.name)]
    tables = [file for file in files if file.suffix.lower() in TABLE_SUFFIXES]
    return tables[0] if len(tables) == 1 else path
