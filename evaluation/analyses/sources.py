"""Find the results, scans and masks of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from contract import platform
from contract.editions import Algorithm, Edition
from contract.editions.declaration import CT, PET
from contract.errors import GroundTruthError, HecktorError
from contract.files import read_json
from contract.images.volumes import find_single_image, list_images
from evaluation.editions.profile import load_profile
from evaluation.inputs.ground_truth import case_of, read_mask_folder
from evaluation.ranking.cli import LEADERBOARD_JSON
from evaluation.results.metrics_json import MAX_METRICS_BYTES, TeamMetrics, read_metrics

GROUND_TRUTH: Final = "ground_truth"


@dataclass(frozen=True)
class TaskResults:
    """One task's leaderboard (plain data) and each team's metrics, in the leaderboard's order.

    `prefixes` of the metrics' names are by answer; a task with one answer has none.
    """

    task: Algorithm
    board: Mapping[str, Any]
    teams: Sequence[TeamMetrics]
    prefixes: Mapping[str, str] = field(default_factory=dict)

    def rows_of(self, team: TeamMetrics, answer: str) -> list[Mapping[str, Any]]:
        """A team's rows of one answer."""
        return team.rows_of(answer, several=len(self.task.answers) > 1)


@dataclass(frozen=True)
class PatientFiles:
    """CT, PET (SUV) and reference mask of one patient; `predictions` holds the mask of each team that has one."""

    case: str
    ct: Path
    pet: Path
    reference: Path
    predictions: Mapping[str, Path] = field(default_factory=dict)


def find_results(results_dir: Path, edition: Edition) -> list[TaskResults]:
    """Results below `task1/`, `task2/`, ...: `leaderboard.json`, and `metrics.json` in a folder for each team.

    Raises HecktorError if there is no task at all, or for a leaderboard that names a team without metrics.
    """
    folders = [(task, results_dir / f"task{task.number}") for task in edition.algorithms]
    results = [
        _task_results(task, folder, edition) for task, folder in folders if (folder / LEADERBOARD_JSON).is_file()
    ]
    if not results:
        raise HecktorError(results_dir.name, f"found no task1/{LEADERBOARD_JSON}", "the results of `rank`")
    return results


def _task_results(task: Algorithm, folder: Path, edition: Edition) -> TaskResults:
    board = read_json(folder / LEADERBOARD_JSON, error=HecktorError, max_bytes=MAX_METRICS_BYTES)
    if not isinstance(board, dict) or not isinstance(board.get("teams"), list) or "unranked" not in board:
        raise HecktorError(f"{folder.name}/{LEADERBOARD_JSON}", "expected a leaderboard of `hecktor rank`")
    names = [str(entry["team"]) for entry in [*board["teams"], *board["unranked"]]]
    teams = [read_metrics(folder / name / platform.METRICS_JSON, name) for name in names]
    prefixes = {}
    if len(task.answers) > 1:
        answers = load_profile(edition.evaluation_profile).task(task.name).answers
        prefixes = {name: profile.prefix for name, profile in answers.items()}
    return TaskResults(task, board, teams, prefixes)


def team_names(results: Sequence[TaskResults]) -> list[str]:
    """Every team once, in the order of first appearance."""
    return list(dict.fromkeys(team.team for result in results for team in result.teams))


def find_masks(
    results_dir: Path, edition: Edition, teams: Sequence[str], given: Mapping[str, Path]
) -> dict[str, dict[str, Path]]:
    """Predicted masks by team and case: from the folders `given`, else those of a rehearsal.

    These are in `<task>/<team>/predictions`, or for a task with several answers in the mask's folder there. The task is
    the edition's first one with a mask.

    Raises:
        HecktorError: a given folder does not exist, or belongs to a team without results.
    """
    unknown = sorted(set(given) - set(teams))
    if unknown:
        raise HecktorError("--masks", f"unknown team {unknown[0]!r}", f"one of {', '.join(teams)}")
    task = next((task for task in edition.algorithms if task.mask), edition.algorithms[0])
    of_answer = task.mask.name if task.mask is not None and len(task.answers) > 1 else ""
    masks: dict[str, dict[str, Path]] = {}
    for team in teams:
        folder = given.get(team, results_dir / f"task{task.number}" / team / "predictions" / of_answer)
        if folder.is_dir():
            masks[team] = {case_of(path.name): path for path in list_images(folder)}
        elif team in given:
            raise HecktorError("--masks", f"no folder {folder.name!r} for team {team!r}")
    return masks


def find_patients(
    cohort_dir: Path, edition: Edition, masks: Mapping[str, Mapping[str, Path]] = MappingProxyType({})
) -> list[PatientFiles]:
    """Patients of a cohort in the platform's layout: `<case>/input/...` and `ground_truth/<case>.mha`, sorted.

    Raises GroundTruthError without ground truth, or for a patient without exactly one CT and one PET.
    """
    patients = []
    for case, reference in read_mask_folder(cohort_dir / GROUND_TRUTH).targets.items():
        folders = (edition.inputs[scan].path_under(cohort_dir / case / "input") for scan in (CT, PET))
        ct, pet = (find_single_image(folder, error=GroundTruthError) for folder in folders)
        predictions = {team: by_case[case] for team, by_case in masks.items() if case in by_case}
        patients.append(PatientFiles(case, ct, pet, reference, predictions))
    return patients
