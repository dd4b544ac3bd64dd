"""Find the results, scans and masks of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from contract import platform
from contract.editions import DEFAULT_EDITION, Algorithm, Edition
from contract.editions.declaration import CT, PET
from contract.errors import GroundTruthError, HecktorError
from contract.files import read_json
from contract.images.volumes import find_single_image, image_suffix, list_images
from evaluation.editions import known_profiles
from evaluation.editions.profile import load_declaration, load_profile
from evaluation.editions.schemes import Lexicographic, RankingProfile
from evaluation.inputs.ground_truth import case_of, read_mask_folder
from evaluation.inputs.tables import number, read_table
from evaluation.results.board import read_board
from evaluation.results.documents import MAX_METRICS_BYTES
from evaluation.results.layout import LEADERBOARD_JSON, leaderboard_folders, metrics_path, predictions_folder
from evaluation.results.metrics_json import TeamMetrics
from evaluation.results.teams import load_teams

GROUND_TRUTH: Final = "ground_truth"
SCANS_CSV: Final = "baselines.csv"
DECIDING: Final = "deciding"
_RELEASE_MARKS: Final = {"ct": "__CT", "pet": "__PT", "mask": ""}


@dataclass(frozen=True)
class TaskResults:
    """One task's leaderboard (plain data) and each team's metrics, in the leaderboard's order.

    To a leaderboard that is read from a file, `deciding` adds the metrics that decide its official ranking.

    `prefixes` of the metrics' names are by answer; a task with one answer has none. `unranked_entries` holds the
    metrics of those that have a metrics.json of their own beside the teams', `scans` figures of the scans by case and
    name, if `study baselines` has measured them.
    """

    task: Algorithm
    board: Mapping[str, Any]
    teams: Sequence[TeamMetrics]
    prefixes: Mapping[str, str] = field(default_factory=dict)
    unranked_entries: Sequence[TeamMetrics] = ()
    scans: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def rows_of(self, team: TeamMetrics, answer: str) -> list[Mapping[str, Any]]:
        """A team's rows of one answer."""
        return team.rows_of(answer, several=len(self.task.answers) > 1)

    @property
    def centres(self) -> dict[str, str]:
        """The centre of each case; files of older versions and public ones do not tell it."""
        blocks = [(str(name), block) for team in self.teams for name, block in team.centres.items()]
        return {str(case): centre for centre, block in blocks for case in block.get("names", ())}


@dataclass(frozen=True)
class PatientFiles:
    """CT, PET (SUV) and reference mask of one patient; `predictions` holds the mask of each team that has one."""

    case: str
    ct: Path
    pet: Path
    reference: Path
    predictions: Mapping[str, Path] = field(default_factory=dict)


def edition_of_results(results_dir: Path | None, name: str | None) -> Edition:
    """The edition of this name; without a name that of the first leaderboard, if it is one of the package.

    Without results, or for results of an edition that is not in the package, the default edition.

    Raises:
        HecktorError: no leaderboard, an unreadable one, or no edition of this name.
    """
    if name is None and results_dir is not None:
        _, folder = leaderboard_folders(results_dir)[0]
        board = read_json(folder / LEADERBOARD_JSON, error=HecktorError, max_bytes=MAX_METRICS_BYTES)
        stated = board.get("edition") if isinstance(board, dict) else None
        name = stated if stated in known_profiles() else None
    return load_declaration(name or DEFAULT_EDITION)


def find_results(results_dir: Path, edition: Edition) -> list[TaskResults]:
    """Results below `task1/`, `task2/`, ...: `leaderboard.json`, and `metrics.json` in a folder for each team.

    Without these folders the leaderboard may lie in `results_dir` itself or in any folder there, and the teams' folders
    beside it or in `results_dir` (`evaluation.results.layout`).

    A leaderboard names the task that it belongs to, so that two folders may hold the same task: HNTS-MRG 2024 has the
    segmentation before and during therapy, HECKTOR 2021 two tasks of survival.

    `baselines.csv` of `hecktor study baselines` beside them gives SUVmax and field of view.

    Raises:
        HecktorError: no task, a leaderboard or table that cannot be read, or a team without valid metrics.
    """
    scans = read_scans(results_dir / SCANS_CSV) if (results_dir / SCANS_CSV).is_file() else {}
    results: dict[int, TaskResults] = {}
    for place, folder in leaderboard_folders(results_dir):
        one = replace(_task_results(folder, results_dir, place, edition), scans=scans)
        if one.task.number in results:
            expected = "one, or folders task1, task2, ... for them"
            raise HecktorError(results_dir.name, f"found two leaderboards of task {one.task.name}", expected)
        results[one.task.number] = one
    return [results[number] for number in sorted(results)]


def read_scans(path: Path) -> dict[str, dict[str, float]]:
    """The numbers of a table with a column `case`, by case and column. Raises HecktorError for any other table."""
    table = read_table(path, HecktorError)
    if "case" not in table.header:
        raise HecktorError(table.name, "no column `case`", "the baselines.csv of `hecktor study baselines`")
    scans = {}
    columns = [name for name in table.header if name != "case"]
    for index, row in enumerate(table.rows):
        where = table.where(index)
        numbers = {name: number(row[name], f"{where}: {name}", "a number", HecktorError) for name in columns}
        scans[row["case"]] = {name: value for name, value in numbers.items() if value is not None}
    return scans


def _task_results(folder: Path, results_dir: Path, place: int | None, edition: Edition) -> TaskResults:
    board = read_board(folder / LEADERBOARD_JSON)
    task = _task_of(board, f"{folder.name}/{LEADERBOARD_JSON}", place, edition)
    names = _names([*board["teams"], *board["unranked"]])
    paths = {name: _metrics_path(folder, results_dir, name) for name in names}
    unranked = {name: metrics_path(folder, results_dir, name) for name in _names(board["unranked_entries"])}
    paths |= {name: path for name, path in unranked.items() if path is not None}
    loaded = load_teams(paths, task=task.name, own_profile=edition.evaluation_profile)
    board[DECIDING] = deciding_metrics(board["official"], loaded.profile.ranking)
    teams, entries = loaded.teams[: len(names)], loaded.teams[len(names) :]
    prefixes = {}
    if len(task.answers) > 1:
        answers = load_profile(edition.evaluation_profile).task(task.name).answers
        prefixes = {name: profile.prefix for name, profile in answers.items()}
    return TaskResults(task, board, teams, prefixes, entries)


def _names(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    return [str(entry["team"]) for entry in entries]


def _task_of(board: Mapping[str, Any], where: str, place: int | None, edition: Edition) -> Algorithm:
    """The task that the leaderboard names, under the folder's number if it has one."""
    known = {task.name: task for task in edition.algorithms}
    name = str(board.get("task"))
    if name not in known:
        raise HecktorError(where, f"task {name[:40]!r}", f"one of {', '.join(known)} (--edition)")
    return known[name] if place is None else known[name].numbered(place)


def deciding_metrics(official: str, ranking: RankingProfile) -> list[str]:
    """The metrics that decide a ranking, without those that only break ties; none for an unknown ranking."""
    scheme = ranking.schemes.get(official)
    while isinstance(scheme, Lexicographic):
        scheme = scheme.parts[0]
    if scheme is None:
        return []
    return list(ranking.model_copy(update={"official": official, "schemes": {official: scheme}}).official_metrics)


def _metrics_path(folder: Path, results_dir: Path, team: str) -> Path:
    path = metrics_path(folder, results_dir, team)
    if path is None:
        wanted = f"{team}/{platform.METRICS_JSON}"
        raise HecktorError(
            f"{folder.name}/{LEADERBOARD_JSON}", f"ranks {team!r} without its metrics", f"{wanted} beside it"
        )
    return path


def team_names(results: Sequence[TaskResults]) -> list[str]:
    """Every team once, in the order of first appearance."""
    return list(dict.fromkeys(team.team for result in results for team in result.teams))


def find_masks(
    results_dir: Path, edition: Edition, teams: Sequence[str], given: Mapping[str, Path]
) -> dict[str, dict[str, Path]]:
    """Predicted masks by team and case: from the folders `given`, else those of a rehearsal.

    These are in `<task>/<team>/predictions`, or for a task with several answers in the mask's folder there; without
    such a folder, wherever the team's folder lies. The task is the edition's first one with a mask.

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
        folder = given.get(team) or predictions_folder(results_dir, task.number, team) / of_answer
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


def find_scans(cohort: Path, edition: Edition) -> list[PatientFiles]:
    """Every case of a cohort, sorted.

    The cohort has the platform's layout as `find_patients` reads it, or the release's: `<case>/<case>__CT.nii.gz`,
    `<case>/<case>__PT.nii.gz` and `<case>/<case>.nii.gz`.

    Raises:
        GroundTruthError: no case, or a case that lacks one of the three.
    """
    if (cohort / GROUND_TRUTH).is_dir():
        return find_patients(cohort, edition)
    folders = sorted(path for path in cohort.iterdir() if path.is_dir()) if cohort.is_dir() else []
    cases = [_released(folder) for folder in folders if _of_release(folder)]
    if not cases:
        wanted = f"{GROUND_TRUTH}/<case>.mha beside <case>/input, or <case>/<case>__CT, __PT and mask"
        raise GroundTruthError(cohort.name, "no case found", wanted)
    return cases


def _of_release(folder: Path) -> dict[str, Path]:
    by_stem = {path.name[: -len(image_suffix(path) or "")]: path for path in list_images(folder)}
    stems = {kind: f"{folder.name}{mark}" for kind, mark in _RELEASE_MARKS.items()}
    return {kind: by_stem[stem] for kind, stem in stems.items() if stem in by_stem}


def _released(folder: Path) -> PatientFiles:
    paths = _of_release(folder)
    absent = sorted(set(_RELEASE_MARKS) - set(paths))
    if absent:
        raise GroundTruthError(folder.name, f"no {' and no '.join(absent)}", "CT, PET and mask")
    return PatientFiles(folder.name, paths["ct"], paths["pet"], paths["mask"])
