"""The model of leaderboard.json, and functions that find and read leaderboards and the files of their teams."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from contract import platform
from contract.documents import Document, Text, check_unique
from contract.errors import HecktorError
from contract.io.files import read_json, suggest_folder
from evaluation.results.documents import MAX_METRICS_BYTES, Count, MetricFigures, check_document

LEADERBOARD_JSON: Final = "leaderboard.json"
# Key of the provenance.
WITHOUT_CASES: Final = "without_cases"
_TASK: Final = "task"
_MAX_NAME_LENGTH: Final = 200


def list_leaderboard_folders(results: Path) -> list[tuple[int | None, Path]]:
    """List the folders that contain a leaderboard.json.

    Returns:
        The number and path of each folder `task1`, `task2`, ... that contains one; otherwise None and the folder
        `results` itself.

    Raises:
        HecktorError: There is no leaderboard.
    """
    numbers = sorted(int(path.name[4:]) for path in results.glob(f"{_TASK}*") if path.name[4:].isdecimal())
    numbered = [(number, results / f"{_TASK}{number}") for number in numbers]
    folders = [(number, path) for number, path in numbered if (path / LEADERBOARD_JSON).is_file()]
    if folders:
        return [*folders]
    if not (results / LEADERBOARD_JSON).is_file():
        expected = f"the results of `rank`: {LEADERBOARD_JSON}, or one in {_TASK}1, {_TASK}2, ... for several tasks"
        nearby = suggest_folder(results, lambda path: (path / LEADERBOARD_JSON).is_file())
        problem = f"found no {LEADERBOARD_JSON}{nearby}" if results.is_dir() else "no such folder"
        raise HecktorError(results.absolute().name, problem, expected)
    return [(None, results)]


def describe_file(path: Path) -> str:
    """Return the names of the folder and the file for messages; the files of all teams have the same name."""
    return f"{path.parent.resolve().name}/{path.name}"


def find_metrics_file(folder: Path, team: str, files: Mapping[str, str]) -> Path | None:
    """Find a team's metrics.json: at the path that the leaderboard states, otherwise in a folder of the team's name.

    Args:
        folder: Folder of the leaderboard.
        team: Name of the team.
        files: Path of each team's metrics.json relative to the folder, as the leaderboard states it.
    """
    paths = [folder / team / platform.METRICS_JSON]
    if team in files:
        paths.insert(0, _resolve_folder(folder / files[team]))
    return next((path for path in paths if path.is_file()), None)


def make_paths_relative(board_folder: Path, files: Mapping[str, str]) -> dict[str, str]:
    """Return paths relative to the leaderboard's folder, so that both can be moved together."""
    return {team: os.path.relpath(_resolve_folder(Path(path)), board_folder.resolve()) for team, path in files.items()}


def _resolve_folder(file: Path) -> Path:
    """Resolve the links of the file's folder, so that `..` means the same everywhere."""
    return file.parent.resolve() / file.name


Rank = Annotated[int | float, Field(ge=1)]
Number = int | float


def check_team_name(name: str) -> str:
    """Return the name of a team; raise ValueError if a folder cannot have this name or if it cannot be printed."""
    if name in (".", "..") or set(name) & set("/\\\0"):
        raise ValueError("a name without / and \\, which does not lead to another folder")
    if not name.strip() or len(name) > _MAX_NAME_LENGTH or not name.isprintable():
        raise ValueError(f"a name of 1 to {_MAX_NAME_LENGTH} printable characters (--names)")
    return name


TeamName = Annotated[str, AfterValidator(check_team_name)]


class RankedFigures(MetricFigures):
    """A ranked team's value of a metric and its rank by this metric."""

    rank: Rank


class SchemeFigures(Document):
    """A team's rank under one ranking scheme and the figures behind it."""

    rank: Rank
    rank_sum: Number | None = None
    points: Number | None = None
    mean_rank: Number | None = None
    median_rank: Number | None = None
    mean_case_rank: Number | None = None
    median_case_rank: Number | None = None
    significant_wins: Number | None = None


class RankedEntry(Document):
    """A ranked team."""

    rank: Rank
    team: TeamName
    without_rows: bool = False
    metrics: dict[str, RankedFigures]
    rankings: dict[str, SchemeFigures]


class OutOfCompetitionEntry(Document):
    """An entry out of competition; `place` is the number of ranked teams above it."""

    team: TeamName
    reason: str = ""
    without_rows: bool = False
    metrics: dict[str, MetricFigures]
    place: Count


class IncompleteTeam(Document):
    """A team without a value for the ranked metrics in `without`."""

    team: TeamName
    without: list[str]


class KendallTau(Document):
    """Kendall's tau between bootstrap rankings and the ranking; null if undefined."""

    mean: float | None
    ci95_low: float | None
    ci95_high: float | None
    replicates: Count = 0

    @model_validator(mode="after")
    def _check_completeness(self) -> KendallTau:
        if len({figure is None for figure in (self.mean, self.ci95_low, self.ci95_high)}) > 1:
            raise ValueError("three numbers, or null for all of them")
        return self


class RankCounts(Document):
    """Frequency of each rank of a team in the bootstrap rankings, and the interval of its rank."""

    times_at_rank: dict[Annotated[str, Field(pattern=r"^\d+(\.\d+)?$")], Count]
    mean: float | None = None
    ci95_low: float
    ci95_high: float


class SchemeStability(Document):
    """Stability of one ranking."""

    teams: dict[str, RankCounts]
    kendall_tau: KendallTau


class RankStability(Document):
    """Stability of every scheme and of the ranking by every metric, also by metrics that only have a tau."""

    bootstraps: Annotated[int, Field(ge=1)]
    seed: Count = 0
    redraws: Count = 0
    rankings: dict[str, SchemeStability]
    metrics: dict[str, SchemeStability]


class TeamPair(Document):
    """The test whether the team `team` is better than the team `than`; `without_p` says why there is no p.

    Entries of a second test have their own difference, and no deviation or interval.
    """

    team: str
    than: str
    difference: float | None
    sd: float | None = None
    df: float | None = None
    ci95_low: float | None = None
    ci95_high: float | None = None
    p: float | None
    p_holm: float | None
    without_p: str = ""


class MetricTests(Document):
    """The tests of one metric: the deciding test, and the other tests by name."""

    test: Text
    pairs: list[TeamPair]
    other_tests: dict[str, list[TeamPair]] = Field(default_factory=dict)


class IdenticalAnswers(Document):
    """Teams with the same answers to all cases that at least one of them answers."""

    teams: Annotated[list[str], Field(min_length=2)]
    answer: Text
    cases: Count


BestMedianWorst: TypeAlias = Literal["best", "median", "worst"]
BEST_MEDIAN_WORST: Final[tuple[BestMedianWorst, ...]] = ("best", "median", "worst")


class RunFigures(Document):
    """The figures of one of a team's runs."""

    run: Text
    metrics: dict[str, MetricFigures]


class TeamRuns(Document):
    """A team's runs from best to worst, the chosen one, and by metric the best, median and worst value."""

    chosen: Text
    order: list[RunFigures]
    summary: dict[str, dict[BestMedianWorst, float | None]]


class Leaderboard(Document):
    """The leaderboard of one task: leaderboard.json.

    `files` contains the paths of the teams' metrics.json relative to the leaderboard's folder; results that came from
    no file have no path. `methods` contains the descriptors of each team's method by column.
    """

    task: Text
    edition: Text
    official: Text
    ties: Literal["min", "average", "max", "dense"]
    metrics: Annotated[dict[str, Text], Field(min_length=1)]
    teams: Annotated[list[RankedEntry], Field(min_length=1)]
    out_of_competition: list[OutOfCompetitionEntry]
    incomplete: list[IncompleteTeam]
    stability: RankStability | None
    comparisons: dict[str, MetricTests] | None
    without_stability_because: str = ""
    provenance: dict[str, Any]
    runs: dict[str, TeamRuns]
    files: dict[str, Text]
    methods: dict[str, dict[Text, str]]
    identical_answers: list[IdenticalAnswers]

    @property
    def order(self) -> tuple[str, ...]:
        """The ranked teams from first to last."""
        return tuple(entry.team for entry in self.teams)

    @property
    def ranks(self) -> dict[str, Number]:
        """The rank of each ranked team."""
        return {entry.team: entry.rank for entry in self.teams}

    @property
    def ordered_entries(self) -> list[RankedEntry | OutOfCompetitionEntry]:
        """Teams in official order, with each entry out of competition after the teams above it."""
        entries: list[RankedEntry | OutOfCompetitionEntry] = list(self.teams)
        # Inserted from the last place to the first, so that an insertion does not shift the places that are left.
        for entry in reversed(self.out_of_competition):
            entries.insert(entry.place, entry)
        return entries

    @property
    def names(self) -> list[str]:
        """The ranked teams, the incomplete teams and the entries out of competition."""
        return [entry.team for entries in (self.teams, self.incomplete, self.out_of_competition) for entry in entries]

    @property
    def left_out_cases(self) -> tuple[str, ...]:
        """The cases that `rank --without-case` left out."""
        cases = self.provenance.get(WITHOUT_CASES)
        return tuple(map(str, cases)) if isinstance(cases, list) else ()

    @property
    def official_stability(self) -> SchemeStability | None:
        """The stability of the official ranking, if it was drawn."""
        return None if self.stability is None else self.stability.rankings[self.official]

    def to_dict(self) -> dict[str, Any]:
        """Return the content of leaderboard.json."""
        return self.model_dump(exclude_unset=True)

    @model_validator(mode="after")
    def _check_entries(self) -> Self:
        """Check that names are unique, and that all entries have every metric and the same rankings."""
        check_unique(
            entry.team for entries in (self.teams, self.out_of_competition, self.incomplete) for entry in entries
        )
        entries: list[RankedEntry | OutOfCompetitionEntry] = [*self.teams, *self.out_of_competition]
        if any(entry.metrics.keys() != self.metrics.keys() for entry in entries):
            raise ValueError(f"{', '.join(self.metrics)} in each entry")
        schemes = {self.official, *self.teams[0].rankings}
        if any(entry.rankings.keys() != schemes for entry in self.teams):
            raise ValueError(f"{', '.join(sorted(schemes))} in each team's rankings")
        teams = {entry.team for entry in self.teams}
        if self.stability is not None:
            stability_of = {**self.stability.metrics, **self.stability.rankings}
            if self.official not in self.stability.rankings or not set(self.metrics) <= set(stability_of):
                raise ValueError("the stability of the official ranking and of every metric")
            if any(set(stability.teams) != teams for stability in stability_of.values()):
                raise ValueError("the stability of the ranked teams")
        if self.comparisons is not None:
            if not set(self.metrics) <= set(self.comparisons):
                raise ValueError(f"comparisons of {', '.join(self.metrics)}")
            if any(not {pair.team, pair.than} <= teams for tests in self.comparisons.values() for pair in tests.pairs):
                raise ValueError("comparisons of the ranked teams")
        return self


def read_board(path: Path) -> Leaderboard:
    """Read a leaderboard.json.

    Raises:
        HecktorError: The file does not exist or is not a leaderboard of `hecktor rank`; the message names the place.
    """
    where = describe_file(path)
    board: dict[str, Any] = read_json(path, error=HecktorError, max_bytes=MAX_METRICS_BYTES, name=where)
    document = check_document(board, Leaderboard, where)
    try:
        json.dumps(board, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # which no page can show
        raise HecktorError(where, "half of a surrogate pair in a string", "Unicode") from None
    return document
