"""Find the results and masks of a report, and check that these masks were scored."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from contract import labels, platform
from contract.editions import DEFAULT_EDITION
from contract.errors import GroundTruthError, HecktorError, PredictionError
from contract.images.volumes import Volume
from contract.patient import format_names
from contract.predictions import parse_case
from evaluation.editions.profile import EvaluationProfile, TaskProfile, load_profile
from evaluation.inputs.mask_files import list_masks
from evaluation.metrics.masks import LABELS
from evaluation.metrics.overlap import MM3_PER_ML
from evaluation.results.board import (
    LEADERBOARD_JSON,
    Leaderboard,
    describe_file,
    find_metrics_file,
    list_leaderboard_folders,
    read_board,
)
from evaluation.results.documents import (
    IN_BOX,
    METRICS_FORMAT,
    CaseCounts,
    MetricFigures,
    MetricsJson,
    Provenance,
)
from evaluation.results.metrics_json import describe_source, read_metrics
from evaluation.results.task import TaskResults
from evaluation.results.teams import OWN_EDITION, find_profile, validate_teams
from evaluation.results.validation import check_figures, find_identical_answers
from reporting.analyses.scans import PatientFiles, read_scans

SCANS_CSV: Final = "baselines.csv"
# Column of the volume of GTVp.
VOLUME_ML: Final = "gtvp_volume_ml"


def load_results_profile(results_dir: Path | None, name: str | None) -> EvaluationProfile:
    """Load the edition that the first leaderboard names or contains. Without results, load the default edition.

    Raises:
        HecktorError: There is no readable leaderboard, or `name` is another edition than the leaderboard's.
    """
    if results_dir is None:
        return load_profile(name or DEFAULT_EDITION)
    path = list_leaderboard_folders(results_dir)[0][1] / LEADERBOARD_JSON
    board, where = read_board(path), describe_file(path)
    own = board.provenance.get(OWN_EDITION)
    profile = find_profile(board.edition, own, name, where)
    if profile.edition.name != board.edition:
        raise HecktorError("--edition", f"found {profile.edition.name}", f"{board.edition}, which {where} states")
    return profile


def find_results(results_dir: Path, profile: EvaluationProfile, *, same_rules: bool = False) -> list[TaskResults]:
    """Read the results of each task: `leaderboard.json` in the folder itself, or in `task1/`, `task2/`, ...

    The leaderboard's `files` name each team's metrics.json; otherwise it is in a folder with the team's name next to
    the leaderboard. A leaderboard names its task, so two folders may contain the same task: HNTS-MRG 2024 has the
    segmentation before and during therapy, HECKTOR 2021 two tasks of survival. If no team has a metrics.json, the
    leaderboard is not checked. `baselines.csv` of `hecktor study baselines` gives SUVmax. `validate_teams` explains
    `same_rules`.

    Raises:
        HecktorError: There is no leaderboard, a file cannot be read, a team has no valid metrics, or its values differ
            from the ranked values.
    """
    scans = read_scans(results_dir / SCANS_CSV) if (results_dir / SCANS_CSV).is_file() else {}
    folders = list_leaderboard_folders(results_dir)
    return add_scans([_read_task(folder, number, profile, same_rules) for number, folder in folders], scans)


def add_scans(results: Sequence[TaskResults], scans: Mapping[str, Mapping[str, float]]) -> list[TaskResults]:
    """Add the figures of the scans to each task whose references have the volumes of the table.

    Raises:
        HecktorError: There are tasks with masks, but no task has the volumes of the table.
    """
    mismatch_by_task = {
        task.key: _find_volume_mismatch(task, task.task.mask_spec.name, scans)
        for task in results
        if task.task.mask_spec is not None
    }
    if mismatch_by_task and all(mismatch_by_task.values()):
        raise HecktorError(SCANS_CSV, *next(iter(mismatch_by_task.values())))
    return [task if mismatch_by_task.get(task.key) else replace(task, scans=scans) for task in results]


def _find_volume_mismatch(results: TaskResults, mask: str, scans: Mapping[str, Mapping[str, float]]) -> tuple[str, ...]:
    """Describe the first case whose GTVp has another volume than the scored one. The result is empty if all agree.

    Teams that were scored in bounding boxes are not compared, because boxes cut masks.
    """
    if not scans:
        return ()
    teams = [team for team, metrics in results.teams.items() if IN_BOX not in metrics.provenance.options]
    rows = [row for team in teams for row in results.get_rows(team, mask)]
    for row in rows:
        volume = scans.get(row["case"], {}).get(VOLUME_ML)
        scored = row["gtvp_reference_mm3"] / MM3_PER_ML
        if volume is not None and not math.isclose(volume, scored, rel_tol=1e-3, abs_tol=1e-3):
            expected = f"the {scored:.4g} ml that were scored; is this another cohort?"
            return f"GTVp of {row['case']} {volume:.4g} ml", expected
    return ()


def _read_task(folder: Path, number: int | None, profile: EvaluationProfile, same_rules: bool) -> TaskResults:
    """Read the results of one task; `number` is the number in the folder's name, None if it has no number."""
    board = read_board(folder / LEADERBOARD_JSON)
    where = f"{folder.name}/{LEADERBOARD_JSON}"
    if board.task not in {task.name for task in profile.edition.algorithms}:
        known = ", ".join(task.name for task in profile.edition.algorithms)
        raise HecktorError(where, f"task {board.task[:40]!r}", f"one of {known} (--edition)")
    rules = profile.find_task(board.task)
    if number is not None:
        rules = replace(rules, algorithm=rules.algorithm.with_number(number))
    paths = {name: path for name in board.names if (path := find_metrics_file(folder, name, board.files))}
    if not paths:
        return _create_results(board, rules)
    names = [*board.order, *(entry.team for entry in board.incomplete)]
    for name in names:
        if name not in paths:
            expected = board.files.get(name, f"{name}/{platform.METRICS_JSON} next to it")
            raise HecktorError(where, f"ranks {name!r} without its metrics", expected)
    sources = {name: describe_source(describe_file(path), name) for name, path in paths.items()}
    read = {name: (read_metrics(paths[name], name), source) for name, source in sources.items()}
    loaded = validate_teams(rules, read, same_rules=same_rules)
    for entry in (entry for entry in board.ordered_entries if entry.team in paths):
        ranked = {name: figures.figure() for name, figures in entry.metrics.items()}
        stored = {name: loaded.value(entry.team, name) for name in loaded.teams[entry.team].aggregates}
        # Different figures may belong to another team.
        check_figures(ranked, stored, where, f"{sources[entry.team]} gives", owner=f" of {entry.team}")
    board = board.model_copy(update={"identical_answers": find_identical_answers(loaded.answers)})
    return replace(
        loaded,
        teams={name: loaded.teams[name] for name in names},
        leaderboard=board,
        out_of_competition={name: metrics for name, metrics in loaded.teams.items() if name not in names},
        folders={name: path.parent for name, path in paths.items()},
    )


def _create_results(board: Leaderboard, profile: TaskProfile) -> TaskResults:
    """Create the results of a leaderboard without metrics.json files: ranked teams with the metrics that rank."""
    version = board.provenance.get("version") or ""
    origin = Provenance(format=METRICS_FORMAT, version=version, task=board.task, edition=board.edition, options={})
    teams = {}
    for entry in board.teams:
        figures = {name: MetricFigures.from_values(*metric.figures) for name, metric in entry.metrics.items()}
        teams[entry.team] = MetricsJson(aggregates=figures, cases=CaseCounts(), warnings=[], provenance=origin)
    return TaskResults(profile, teams, leaderboard=board)


def list_teams(results: Iterable[TaskResults]) -> list[str]:
    """List every team once, in the order of first appearance."""
    return list(dict.fromkeys(team for result in results for team in result.teams))


def list_entries(results: Sequence[TaskResults]) -> list[str]:
    """List every team, then every entry without a rank."""
    entries = [entry.team for result in results for entry in result.board.out_of_competition]
    return list(dict.fromkeys([*list_teams(results), *entries]))


def find_mask_task(results: Sequence[TaskResults]) -> TaskResults | None:
    """Find the first task with masks; a page draws the cases of this task."""
    return next((task for task in results if task.task.mask_spec is not None), None)


def list_scored(scans: Sequence[PatientFiles], results: Sequence[TaskResults]) -> list[PatientFiles]:
    """List the cases of a cohort that the results contain, or all cases if no team has rows.

    Raises:
        HecktorError: The results contain no case of the cohort.
    """
    cases = {case for task in results for case in task.scored_cases}
    chosen = [files for files in scans if not cases or files.case in cases]
    if not chosen:
        actual = f"none of the scored cases, but {format_names([files.case for files in scans])}"
        raise HecktorError("--cohort", actual, f"the cohort of {format_names(sorted(cases))}")
    return chosen


def find_masks(
    results: TaskResults | None, teams: Sequence[str], mask_folders: Mapping[str, Path]
) -> dict[str, dict[str, Path]]:
    """Find predicted masks by team and case.

    They are in the team's folder of `mask_folders`, otherwise in `predictions` next to the team's metrics.json. A task
    with several answers has a folder for the mask in `predictions`.

    Raises:
        HecktorError: A folder of `mask_folders` does not exist, or belongs to a team without results.
    """
    unknown = sorted(set(mask_folders) - set(teams))
    if unknown:
        raise HecktorError("--masks", f"unknown team {unknown[0]!r}", f"one of {', '.join(teams)}")
    absent = next((team for team, folder in mask_folders.items() if not folder.is_dir()), None)
    if absent is not None:
        raise HecktorError("--masks", f"no folder {mask_folders[absent].name!r} for team {absent!r}")
    folders = {**({} if results is None else results.prediction_folders), **mask_folders}
    masks = {
        team: {parse_case(path.name): path for path in list_masks(folders[team]).masks}
        for team in teams
        if team in folders
    }
    # A folder that the user named is kept even if it has no mask, so that the caller can report it.
    return {team: by_case for team, by_case in masks.items() if by_case or team in mask_folders}


def select_case_masks(masks: Mapping[str, Mapping[str, Path]], case: str) -> dict[str, Path]:
    """Select each team's mask of one case. Teams without a mask are left out."""
    return {team: by_case[case] for team, by_case in masks.items() if case in by_case}


def require_cases(option: str, cases: Collection[str], cohort: Collection[str]) -> None:
    """Raise HecktorError if none of the files that an option names belongs to a case of the cohort."""
    if not set(cases) & set(cohort):
        raise HecktorError(option, "no file of a case of the cohort", f"files of {', '.join(list(cohort)[:3])}")


def describe_absent_masks(
    results: TaskResults | None, masks: Mapping[str, Mapping[str, Path]], cases: Collection[str]
) -> str:
    """Name the scored teams without a mask of these cases in one line, which is empty if all teams have masks."""
    teams = [] if results is None else list(results.teams)
    without_mask = [team for team in teams if not set(masks.get(team, ())) & set(cases)]
    return (
        f"no masks of {', '.join(without_mask)}, whose contours are not shown (--masks TEAM=FOLDER)"
        if without_mask
        else ""
    )


NOT_COMPARED: Final = "the results contain no rows, so it cannot be checked whether these are the scored patients"


@dataclass(frozen=True)
class ScoredMasks:
    """Rows of one case by team.

    `geometry` is the rule for masks on other grids. `in_box` says that boxes were scored, so that the rows do not count
    voxels outside the box.
    """

    rows: Mapping[str, Mapping[str, Any]]
    geometry: str
    in_box: bool

    def check_reference(self, mask: Volume, file: str) -> None:
        """Raise GroundTruthError if this is not the reference that was scored."""
        difference = self._find_difference(mask.array, next(iter(self.rows.values())), "reference")
        if difference:
            raise GroundTruthError(file, *difference)

    def check_prediction(self, team: str, mask: npt.NDArray[Any], file: str) -> None:
        """Raise PredictionError if this is not the mask of the team that was scored. A team without rows passes."""
        row = self.rows.get(team, {})
        if row.get("error") is not None:
            raise PredictionError(file, "a readable mask", f"none, since it was scored as unusable ({row['error']})")
        difference = self._find_difference(mask, row, "predicted") if row else ()
        if difference:
            raise PredictionError(file, *difference)

    def _find_difference(self, mask: npt.NDArray[Any], row: Mapping[str, Any], part: str) -> tuple[str, ...]:
        """Describe the first label with another number of voxels than the scored one; return () if all agree."""
        for name, label in LABELS.items():
            count = int(np.count_nonzero(mask == label))
            scored = row[f"{name}_{part}_voxels"]
            if count < scored or (count > scored and not self.in_box):
                hint = "is this another cohort?" if part == "reference" else "is this another run?"
                actual = f"{count} voxel{'s' * (count != 1)} of {labels.NAMES[label]}"
                return actual, f"the {scored} that were scored; {hint}"
        return ()


def collect_scored_masks(results: TaskResults | None) -> dict[str, ScoredMasks]:
    """Collect the scored rows of masks by case. The result is empty if the results contain no masks or no rows."""
    if results is None or results.task.mask_spec is None:
        return {}
    name = results.task.mask_spec.name
    by_case: dict[str, dict[str, Mapping[str, Any]]] = {}
    for team in results.all_results:
        for row in results.get_rows(team, name):
            by_case.setdefault(row["case"], {})[team] = row
    geometry = results.get_options(next(iter(results.teams)), name).get("geometry", "exact")
    in_box = any(IN_BOX in metrics.provenance.options for metrics in results.teams.values())
    return {case: ScoredMasks(rows, geometry, in_box) for case, rows in by_case.items()}
