"""Evaluate many teams at once: a folder with the predictions of each team gives a metrics.json for each team."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from contract.errors import Finding, HecktorError, replace_unprintable
from contract.patient import format_names
from contract.platform import PREDICTIONS_JSON, is_added_by_system, is_system_name, normalise_unicode
from evaluation.editions.profile import TaskProfile
from evaluation.inputs.tables import TABLE_SUFFIXES
from evaluation.options import EvaluationRequest
from evaluation.pipeline import TeamReports, evaluate_submissions
from evaluation.results.documents import remove_earlier_metrics
from evaluation.results.teams import check_folder_names

_TEAM_SUFFIXES: Final = (*TABLE_SUFFIXES, ".zip")
_NOTE_SUFFIXES: Final = (".md", ".txt")
_EXPECTED: Final = "a folder, table or zip file for each team"


def evaluate_team_folder(request: EvaluationRequest, task: TaskProfile, folder: Path) -> TeamReports:
    """Evaluate each team of a folder; each metrics.json is written to `output_dir/TEAM`.

    Args:
        request: The request that is the same for all teams.
        task: Task that is scored.
        folder: Has a folder, table or zip file for each team, with the team's name. A team's folder contains plain
            files or, with `predictions.json`, a submission in the platform's layout. Hidden files and notes are named
            in a warning; any other entry is a separate error.

    Raises:
        HecktorError: The folder does not exist or has no entry, or the ground truth cannot be used.
    """
    if not folder.is_dir():
        raise HecktorError(f"--teams {folder.name}", "a file" if folder.exists() else "no such folder", "a folder")
    entries = _find_entries(folder)
    errors = dict(entries.errors)
    for name in {*errors, *(Path(error).stem for error in errors)} - entries.paths.keys():
        if request.output_dir is not None:
            with suppress(HecktorError):  # A metrics.json of another task must stay.
                remove_earlier_metrics(request.output_dir / name, task.algorithm.name)
    requests = {}
    for team, path in entries.paths.items():
        try:
            requests[team] = _make_request(request, task, team, path)
        except OSError as problem:
            errors[team] = HecktorError(path.name, f"cannot be read ({problem.strerror})", "a readable folder")
    if not requests:
        return TeamReports({}, errors)
    evaluated = evaluate_submissions(requests)
    return TeamReports(evaluated.reports, {**errors, **evaluated.errors})


@dataclass(frozen=True)
class _TeamEntries:
    """Path of each team, and the error of each other entry, by name."""

    paths: dict[str, Path]
    errors: dict[str, HecktorError]


def _find_entries(folder: Path) -> _TeamEntries:
    what = f"--teams {folder.name}"
    paths_of: dict[str, list[Path]] = {}
    errors: dict[str, HecktorError] = {}
    notes = []
    for path in sorted(folder.iterdir()):
        if is_added_by_system(path.name):
            continue
        if path.name.startswith(".") or (path.suffix.lower() in _NOTE_SUFFIXES and not path.is_dir()):
            notes.append(path.name)
        elif path.is_dir() or path.suffix.lower() in _TEAM_SUFFIXES:
            paths_of.setdefault(normalise_unicode(path.name if path.is_dir() else path.stem), []).append(path)
        else:
            errors[path.name] = HecktorError(what, f"found {path.name}", _EXPECTED)
    if notes:
        finding = Finding(what, f"found {format_names(notes, 10)}", _EXPECTED, "hidden files and notes are not scored")
        sys.stderr.write(f"warning: {replace_unprintable(str(finding))}\n")
    if not paths_of and not errors:
        raise HecktorError(what, "found nothing", _EXPECTED)
    for team, paths in paths_of.items():
        try:
            check_folder_names([team])
        except HecktorError as error:
            errors[team] = error
        if len(paths) > 1:
            names = " and ".join(path.name for path in paths)
            errors[team] = HecktorError(what, f"team {team!r} appears twice: {names}", "one of them")
    return _TeamEntries({team: paths[0] for team, paths in paths_of.items() if team not in errors}, errors)


def _make_request(request: EvaluationRequest, task: TaskProfile, team: str, path: Path) -> EvaluationRequest:
    output_dir = None if request.output_dir is None else request.output_dir / team
    if path.is_dir() and (path / PREDICTIONS_JSON).is_file():
        return replace(request, output_dir=output_dir, submission=path, predictions=None)
    return replace(request, output_dir=output_dir, predictions=_find_predictions(path, task))


def _find_predictions(path: Path, task: TaskProfile) -> Path:
    """Return the only table of a folder for a task without masks, `path` itself in all other cases."""
    if task.algorithm.mask_spec is not None or task.has_several_answers or not path.is_dir():
        return path
    files = [file for file in sorted(path.iterdir()) if not is_system_name(file.name)]
    tables = [file for file in files if file.suffix.lower() in TABLE_SUFFIXES]
    return tables[0] if len(tables) == 1 else path
