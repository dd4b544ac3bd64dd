"""Find the results and masks of a report."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from contract import platform
from contract.editions import DEFAULT_EDITION, Algorithm, Edition
from contract.errors import HecktorError
from contract.images.folders import list_masks
from contract.predictions import case_of
from evaluation.analyses.scans import read_scans
from evaluation.editions.document import Lexicographic, RankingProfile
from evaluation.editions.profile import EvaluationProfile, load_profile
from evaluation.metrics.overlap import MM3_PER_ML
from evaluation.results.board import LEADERBOARD_JSON, file_in_folder, leaderboard_folders, metrics_path, read_board
from evaluation.results.documents import FIGURES, IN_BOX, figure_of
from evaluation.results.metrics_json import TeamMetrics, read_metrics
from evaluation.results.teams import OWN_EDITION, comparable_teams, stated_profile
from evaluation.results.validation import check_figures, identical_answers
from evaluation.statistics.bootstrap import Estimate

SCANS_CSV: Final = "baselines.csv"
# Of GTVp, in the table.
VOLUME_ML: Final = "gtvp_volume_ml"
CENTRE: Final = "centre"
DECIDING: Final = "deciding"


@dataclass(frozen=True)
class Grouping:
    """Groups of cases: the group of each case, and by team every metric of each group as metrics.json has centres.

    `title` is the table's column, or "centre".
    """

    title: str
    of_case: Mapping[str, str]
    blocks: Mapping[str, Mapping[str, Any]]

    @property
    def key(self) -> str:
        """Key of the groups in the rows of an analysis."""
        return CENTRE if self.title == CENTRE else "group"

    @property
    def heading(self) -> str:
        """Heading of the groups in tables."""
        return f"{self.title[0].upper()}{self.title[1:]}"

    @property
    def name(self) -> str:
        """Name of the analyses of metrics by group."""
        return "centres" if self.title == CENTRE else f"by-{self.slug}"

    @property
    def slug(self) -> str:
        """The title within a file's name."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") or "group"


@dataclass(frozen=True)
class TaskResults:
    """One task's leaderboard (plain data) and each team's metrics, in the leaderboard's order.

    To a leaderboard that is read from a file, `deciding` adds the metrics that decide its official ranking.

    `prefixes` of the metrics' names are by answer; a task with one answer has none. `out_of_competition` holds the
    metrics of those that have a metrics.json of their own beside the teams', `scans` figures of the scans by case and
    name, if `study baselines` has measured them. `folders` holds the folder of each team's metrics.json, `groups` the
    cases by columns of tables.
    """

    task: Algorithm
    board: Mapping[str, Any]
    teams: Sequence[TeamMetrics]
    prefixes: Mapping[str, str] = field(default_factory=dict)
    out_of_competition: Sequence[TeamMetrics] = ()
    scans: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    folders: Mapping[str, Path] = field(default_factory=dict)
    groups: Sequence[Grouping] = ()

    @property
    def is_alone(self) -> bool:
        """Whether the leaderboard has no metrics.json, by which its values could be checked."""
        return not any(team.cases for team in self.teams)

    @property
    def groupings(self) -> list[Grouping]:
        """The cases by centre, and by columns of tables."""
        blocks = {team.team: team.centres for team in (*self.teams, *self.out_of_competition)}
        return [Grouping(CENTRE, self.centres, blocks), *self.groups]

    @property
    def key(self) -> str:
        """Names the task on a page and in folders; two folders of results may hold tasks of one name."""
        return f"task{self.task.number}"

    @property
    def prediction_folders(self) -> dict[str, Path]:
        """The folders of masks that `rehearse` wrote beside the teams' metrics.json."""
        of_answer = self.task.mask.name if self.task.mask is not None and len(self.task.answers) > 1 else ""
        folders = {team: folder / "predictions" / of_answer for team, folder in self.folders.items()}
        return {team: folder for team, folder in folders.items() if folder.is_dir()}

    def options_of(self, team: TeamMetrics, answer: str) -> Mapping[str, Any]:
        """The rules by which a team's answer was scored."""
        options: Mapping[str, Any] = team.provenance.get("options", {})
        return options.get(answer, {}) if len(self.task.answers) > 1 else options

    def rows_of(self, team: TeamMetrics, answer: str) -> list[Mapping[str, Any]]:
        """A team's rows of one answer."""
        return team.rows_of(answer, several=len(self.task.answers) > 1)

    @property
    def centres(self) -> dict[str, str]:
        """The centre of each case; files without rows do not tell it."""
        blocks = [(str(name), block) for team in self.teams for name, block in team.centres.items()]
        return {str(case): centre for centre, block in blocks for case in block.get("names", ())}


def profile_of_results(results_dir: Path | None, name: str | None) -> EvaluationProfile:
    """The edition that the first leaderboard states, of the package or with its text; without results the default one.

    Raises HecktorError: no leaderboard, an unreadable one, or `name` is another edition than the leaderboard's.
    """
    if results_dir is None:
        return load_profile(name or DEFAULT_EDITION)
    path = leaderboard_folders(results_dir)[0][1] / LEADERBOARD_JSON
    board, where = read_board(path), file_in_folder(path)
    own = board.provenance.get(OWN_EDITION)
    profile = stated_profile({"edition": board.edition, OWN_EDITION: own}, name, where)
    if profile.name != board.edition:
        raise HecktorError("--edition", f"found {profile.name}", f"{board.edition}, which {where} states")
    return profile


def find_results(results_dir: Path, profile: EvaluationProfile) -> list[TaskResults]:
    """The results of each task: `leaderboard.json` in the folder itself, or in `task1/`, `task2/`, ...

    Each team's metrics.json is where the leaderboard says (`files`), or in a folder with the team's name beside it. A
    leaderboard names its task, so that two folders may hold the same task: HNTS-MRG 2024 has the segmentation before
    and during therapy, HECKTOR 2021 two tasks of survival. A leaderboard without any metrics.json stands alone,
    unchecked. `baselines.csv` of `hecktor study baselines` gives SUVmax.

    Raises HecktorError: no leaderboard, a file that cannot be read, or a team without valid metrics or with other
    values than those that were ranked.
    """
    scans = read_scans(results_dir / SCANS_CSV) if (results_dir / SCANS_CSV).is_file() else {}
    folders = leaderboard_folders(results_dir)
    return with_scans([_task_results(folder, place, profile) for place, folder in folders], scans)


def with_scans(results: Sequence[TaskResults], scans: Mapping[str, Mapping[str, float]]) -> list[TaskResults]:
    """The results, with the figures of the scans for each task whose references they were measured in.

    Raises HecktorError: there is a task with masks, but none with the volumes of the table.
    """
    faults = {one.key: _other_volume(one, one.task.mask.name, scans) for one in results if one.task.mask is not None}
    if faults and all(faults.values()):
        raise HecktorError(SCANS_CSV, *next(iter(faults.values())))
    return [one if faults.get(one.key) else replace(one, scans=scans) for one in results]


def _other_volume(results: TaskResults, mask: str, scans: Mapping[str, Mapping[str, float]]) -> tuple[str, ...]:
    """The first case whose GTVp has another volume than the scored one, empty without any; boxes cut masks."""
    teams = [team for team in results.teams if IN_BOX not in team.provenance.get("options", {})]
    for row in (row for team in teams for row in results.rows_of(team, mask)):
        volume, scored = scans.get(row["case"], {}).get(VOLUME_ML), row["gtvp_reference_mm3"] / MM3_PER_ML
        if volume is not None and not math.isclose(volume, scored, rel_tol=1e-3, abs_tol=1e-3):
            expected = f"the {scored:.4g} ml that were scored; is this another cohort?"
            return f"GTVp of {row['case']} {volume:.4g} ml", expected
    return ()


def _task_results(folder: Path, place: int | None, profile: EvaluationProfile) -> TaskResults:
    board, where = read_board(folder / LEADERBOARD_JSON).to_dict(), f"{folder.name}/{LEADERBOARD_JSON}"
    task = _task_of(board, where, place, profile.declaration)
    names = [str(entry["team"]) for entry in (*board["teams"], *board["incomplete"])]
    outside = [str(entry["team"]) for entry in board["out_of_competition"]]
    paths = {name: path for name in (*names, *outside) if (path := metrics_path(folder, name, board["files"]))}
    rules = profile.task(task.name)
    deciding = deciding_metrics(board["official"], rules.ranking)
    board[DECIDING] = [name for name in board["metrics"] if name in deciding]
    if not paths:
        return _of_board_alone(task, board, where)
    for name in names:
        if name not in paths:
            wanted = board["files"].get(name, f"{name}/{platform.METRICS_JSON} beside it")
            raise HecktorError(where, f"ranks {name!r} without its metrics", wanted)
    loaded = comparable_teams(rules, [read_metrics(path, name) for name, path in paths.items()])
    _check_ranked(board, loaded.teams, where)
    board["identical_answers"] = identical_answers(loaded.teams)
    teams, entries = loaded.teams[: len(names)], loaded.teams[len(names) :]
    prefixes = {name: one.prefix for name, one in rules.answers.items()} if rules.has_several_answers else {}
    folders = {name: path.parent for name, path in paths.items()}
    return TaskResults(task, board, teams, prefixes, entries, folders=folders)


def _of_board_alone(task: Algorithm, board: dict[str, Any], where: str) -> TaskResults:
    """The results of a leaderboard without any metrics.json: the ranked teams with the metrics that rank."""
    provenance = {key: value for key, value in board["provenance"].items() if value is not None}
    teams = []
    for entry in board["teams"]:
        figures = entry["metrics"].items()
        estimates = {name: Estimate(*(figure_of(of, part) for part in FIGURES)) for name, of in figures}
        teams.append(TeamMetrics(str(entry["team"]), estimates, (), {}, (), provenance, where))
    return TaskResults(task, board, teams)


def _check_ranked(board: Mapping[str, Any], teams: Sequence[TeamMetrics], where: str) -> None:
    """Raise HecktorError for other figures than those of each metrics.json, such as those of another team."""
    metrics = {team.team: team for team in teams}
    for entry in (*board["teams"], *board["out_of_competition"]):
        if (team := metrics.get(entry["team"])) is not None:
            ranked = {name: figure_of(figures) for name, figures in entry["metrics"].items()}
            found = {name: one.value for name, one in team.estimates.items()}
            check_figures(ranked, found, where, f"{team.source} gives", of=f" of {team.team}")


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


def team_names(results: Sequence[TaskResults]) -> list[str]:
    """Every team once, in the order of first appearance."""
    return list(dict.fromkeys(team.team for result in results for team in result.teams))


def with_out_of_competition(results: Sequence[TaskResults]) -> list[str]:
    """Every team, and after them the entries without a rank."""
    entries = [entry for result in results for entry in result.board.get("out_of_competition", ())]
    return list(dict.fromkeys([*team_names(results), *(str(entry["team"]) for entry in entries)]))


def with_masks(results: Sequence[TaskResults]) -> TaskResults | None:
    """The first task with masks, whose cases a page draws."""
    return next((one for one in results if one.task.mask is not None), None)


def find_masks(
    results: TaskResults | None, teams: Sequence[str], given: Mapping[str, Path]
) -> dict[str, dict[str, Path]]:
    """Predicted masks by team and case: from the folders `given`, else `predictions` beside the team's metrics.json.

    For a task with several answers they are in the mask's folder there. Raises HecktorError: a given folder does not
    exist, or belongs to a team without results.
    """
    unknown = sorted(set(given) - set(teams))
    if unknown:
        raise HecktorError("--masks", f"unknown team {unknown[0]!r}", f"one of {', '.join(teams)}")
    absent = next((team for team, folder in given.items() if not folder.is_dir()), None)
    if absent is not None:
        raise HecktorError("--masks", f"no folder {given[absent].name!r} for team {absent!r}")
    folders = {**({} if results is None else results.prediction_folders), **given}
    masks = {
        team: {case_of(path.name): path for path in list_masks(folders[team]).masks}
        for team in teams
        if team in folders
    }
    return {team: by_case for team, by_case in masks.items() if by_case or team in given}


def masks_of_case(masks: Mapping[str, Mapping[str, Path]], case: str) -> dict[str, Path]:
    """The mask of one case of each team that has one."""
    return {team: by_case[case] for team, by_case in masks.items() if case in by_case}


def require_cases(option: str, cases: Collection[str], cohort: Collection[str]) -> None:
    """Raise HecktorError if none of the files that an option names belongs to a case of the cohort."""
    if not set(cases) & set(cohort):
        raise HecktorError(option, "no file of a case of the cohort", f"files of {', '.join(list(cohort)[:3])}")


def without_masks(results: TaskResults | None, masks: Mapping[str, Mapping[str, Path]], cases: Collection[str]) -> str:
    """A line that names the scored teams without a mask of any of the cases; empty if there is none."""
    teams = [] if results is None else [team.team for team in results.teams]
    lacking = [team for team in teams if not set(masks.get(team, ())) & set(cases)]
    return f"no masks of {', '.join(lacking)}, whose contours are not shown (--masks TEAM=FOLDER)" if lacking else ""
