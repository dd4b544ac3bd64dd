"""leaderboard.json as a model, reading one, and finding those of a report with the files of their teams."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from contract import platform
from contract.documents import Document, Text
from contract.errors import HecktorError
from contract.files import read_json
from evaluation.results.documents import MAX_METRICS_BYTES, Count, MetricFigures, check_document

LEADERBOARD_JSON: Final = "leaderboard.json"
_TASK: Final = "task"
_LONGEST_NAME: Final = 200


def leaderboard_folders(results: Path) -> list[tuple[int | None, Path]]:
    """The numbered folders `task1`, `task2`, ... that hold a leaderboard.json, or else the folder `results` itself.

    Raises HecktorError: no leaderboard.
    """
    numbers = sorted(int(path.name[4:]) for path in results.glob(f"{_TASK}*") if path.name[4:].isdecimal())
    folders = [*((number, results / f"{_TASK}{number}") for number in numbers), (None, results)]
    found = [(number, path) for number, path in folders if (path / LEADERBOARD_JSON).is_file()]
    if not found:
        expected = f"the results of `rank`: {LEADERBOARD_JSON}, or one in {_TASK}1, {_TASK}2, ... for several tasks"
        found_none = f"found no {LEADERBOARD_JSON}" if results.is_dir() else "no such folder"
        raise HecktorError(results.name, found_none, expected)
    return [one for one in found if one[0] is not None] or found


def file_in_folder(path: Path) -> str:
    """The file and its folder, for messages: the files of all teams have one name."""
    return f"{path.parent.resolve().name}/{path.name}"


def metrics_path(folder: Path, team: str, files: Mapping[str, str]) -> Path | None:
    """A team's metrics.json: at the path that the leaderboard in `folder` states, or in the team's folder there."""
    places = [_without_links(folder / files[team])] if team in files else []
    return next((path for path in [*places, folder / team / platform.METRICS_JSON] if path.is_file()), None)


def files_beside(board_folder: Path, files: Mapping[str, str]) -> dict[str, str]:
    """Paths relative to the leaderboard's folder, so that both can be moved together."""
    return {team: os.path.relpath(_without_links(Path(path)), board_folder.resolve()) for team, path in files.items()}


def _without_links(file: Path) -> Path:
    """The path with the links of its folder resolved, so that `..` means the same everywhere; the file may be one."""
    return file.parent.resolve() / file.name


Rank = Annotated[float, Field(ge=1)]


def team_name(name: str) -> str:
    """The name of a team, which is also that of its folder. Raises ValueError if it leads to another or is no text."""
    if name in (".", "..") or set(name) & set("/\\\0"):
        raise ValueError("a name without / and \\, which does not lead to another folder")
    if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        raise ValueError(f"a name of 1 to {_LONGEST_NAME} printable characters (--names)")
    return name


TeamName = Annotated[str, AfterValidator(team_name)]


class RankedFigures(MetricFigures):
    """A ranked team's value of a metric and its rank by this metric alone."""

    rank: Rank


class SchemeFigures(Document):
    """A team's rank under one ranking scheme and the figures behind it."""

    rank: Rank
    rank_sum: float | None = None
    points: float | None = None
    mean_rank: float | None = None
    median_rank: float | None = None


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
    """A team that lacks ranked metrics, which `without` names."""

    team: TeamName
    without: list[str]


class KendallTau(Document):
    """Kendall's tau between bootstrap rankings and the ranking; null if undefined."""

    mean: float | None
    ci95_low: float | None
    ci95_high: float | None
    replicates: Count = 0

    @model_validator(mode="after")
    def _check(self) -> KendallTau:
        if len({figure is None for figure in (self.mean, self.ci95_low, self.ci95_high)}) > 1:
            raise ValueError("three numbers, or null for all of them")
        return self


class RankCounts(Document):
    """How often a team took each rank in the bootstrap rankings, and the interval of its rank."""

    times_at_rank: dict[Annotated[str, Field(pattern=r"^\d+(\.\d+)?$")], Count]
    mean: float | None = None
    ci95_low: float
    ci95_high: float


class SchemeStability(Document):
    """Stability of one ranking."""

    teams: dict[str, RankCounts]
    kendall_tau: KendallTau


class RankStability(Document):
    """Stability of every scheme and every metric alone, also of metrics that have a tau without ranking."""

    bootstraps: Annotated[int, Field(ge=1)]
    seed: Count = 0
    redraws: Count = 0
    rankings: dict[str, SchemeStability]
    metrics: dict[str, SchemeStability]


class TeamPair(Document):
    """The test of whether `team` is better `than` another one; `without_p` says why there is no p.

    Further tests have neither deviation nor interval, and a difference of their own.
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
    """The tests of one metric: the one that decides, and others by name."""

    test: Text
    pairs: list[TeamPair]
    other_tests: dict[str, list[TeamPair]] = Field(default_factory=dict)


class IdenticalAnswers(Document):
    """Teams with the same answers to all of the cases that any of them answers."""

    teams: Annotated[list[str], Field(min_length=2)]
    answer: Text
    cases: Count


class LeaderboardDocument(Document):
    """leaderboard.json of one task.

    `files` holds the path of each team's metrics.json, relative to the leaderboard's folder, as far as results came
    from files; `methods` the descriptors of each team's method by column.
    """

    task: Text
    edition: Text
    official: Text
    ties: Literal["min", "average", "max", "dense"]
    metrics: dict[str, Text]
    teams: list[RankedEntry]
    out_of_competition: list[OutOfCompetitionEntry]
    incomplete: list[IncompleteTeam]
    stability: RankStability | None
    comparisons: dict[str, MetricTests] | None
    without_stability_because: str = ""
    provenance: dict[str, Any]
    runs: dict[str, Any]
    files: dict[str, Text]
    methods: dict[str, dict[Text, str]]
    identical_answers: list[IdenticalAnswers]


def read_board(path: Path) -> dict[str, Any]:
    """The content of a leaderboard.json.

    Raises HecktorError: no such file, or not a leaderboard of `hecktor rank`; the message names the place.
    """
    where = file_in_folder(path)
    board: dict[str, Any] = read_json(path, error=HecktorError, max_bytes=MAX_METRICS_BYTES, name=where)
    document = check_document(board, LeaderboardDocument, where)
    _check_entries(document, where)
    _check_uncertainty(document, where)
    try:
        json.dumps(board, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # which no page can show
        raise HecktorError(where, "half of a surrogate pair in a text", "Unicode") from None
    return board


def _check_entries(board: LeaderboardDocument, where: str) -> None:
    """Names stand once; all teams have every metric and the same rankings."""
    if not board.teams or not board.metrics:
        raise HecktorError(where, "no ranked team or metric", "at least one")
    names = [entry.team for entries in (board.teams, board.out_of_competition, board.incomplete) for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise HecktorError(where, f"team {name!r} twice", "one entry a team")
    for number, entry in enumerate(board.teams):
        place = f"{where}.teams[{number}]"
        _require_keys(entry.metrics, board.metrics, f"{place}.metrics")
        _require_keys(entry.rankings, {board.official, *board.teams[0].rankings}, f"{place}.rankings")
        _require_keys(board.teams[0].rankings, entry.rankings, f"{where}.teams[0].rankings")
    for number, row in enumerate(board.out_of_competition):
        place = f"{where}.out_of_competition[{number}]"
        _require_keys(row.metrics, board.metrics, f"{place}.metrics")
        if row.place > len(board.teams):
            raise HecktorError(f"{place}.place", f"found {row.place}", f"at most {len(board.teams)}")


def _check_uncertainty(board: LeaderboardDocument, where: str) -> None:
    """Stability and comparisons are those of the ranked teams, their metrics and rankings."""
    teams, stability = {entry.team for entry in board.teams}, board.stability
    if stability is not None:
        _require_keys(stability.rankings, [board.official], f"{where}.stability.rankings")
        _require_keys({**stability.metrics, **stability.rankings}, board.metrics, f"{where}.stability.metrics")
        for name, one in [*stability.rankings.items(), *stability.metrics.items()]:
            _require_keys(one.teams, teams, f"{where}.stability, {name}")
            often = max(count for ranks in one.teams.values() for count in (0, *ranks.times_at_rank.values()))
            if often > stability.bootstraps:
                raise HecktorError(f"{where}.stability, {name}", f"a rank {often} times", f"{stability.bootstraps}")
    if board.comparisons is not None:
        _require_keys(board.comparisons, board.metrics, f"{where}.comparisons")
        for name, tests in board.comparisons.items():
            for pair in (pair for pairs in (tests.pairs, *tests.other_tests.values()) for pair in pairs):
                if not {pair.team, pair.than} <= teams:
                    found = f"{pair.team!r} than {pair.than!r}"
                    raise HecktorError(f"{where}.comparisons.{name}", found, "two ranked teams")


def _require_keys(content: Iterable[str], keys: Iterable[str], place: str) -> None:
    absent = sorted(set(keys).difference(content))
    if absent:
        raise HecktorError(place, f"no {absent[0]}", "a value for it")
