"""Rank teams: load and check their results, choose the best of several runs, and make the leaderboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, cast

import numpy as np

from contract.editions import DEFAULT_EDITION
from contract.errors import HecktorError
from contract.io.files import read_json
from evaluation.editions.profile import load_profile, with_ranking
from evaluation.ranking import DEFAULT_RANKINGS
from evaluation.ranking.leaderboard import build_leaderboard, order_teams
from evaluation.ranking.out_of_competition import (
    MEAN_OF_TEAMS,
    OutOfCompetitionSource,
    UnrankedEntry,
    is_observers_document,
    make_metrics_entry,
    make_observers_entry,
)
from evaluation.ranking.printed import WITHOUT_ROWS, read_methods, read_printed
from evaluation.ranking.stored_rows import leave_out_cases
from evaluation.results.board import (
    BEST_MEDIAN_WORST,
    WITHOUT_CASES,
    BestMedianWorst,
    Leaderboard,
    RunFigures,
    TeamRuns,
)
from evaluation.results.documents import MAX_METRICS_BYTES, MetricFigures
from evaluation.results.metrics_json import describe_source, parse_metrics
from evaluation.results.task import TaskResults
from evaluation.results.teams import Source, check_folder_names, check_team_names, load_teams
from evaluation.results.validation import find_identical_answers


@dataclass(frozen=True)
class RankingRequest:
    """One ranking.

    Attributes:
        teams: Name and metrics.json, or its content, of each team.
        runs: Name of a team and the metrics.json of each of its runs; the best run counts.
        out_of_competition: Entries that are shown without a rank.
        table: CSV file of printed values, in place of teams, runs and entries out of competition.
        methods: CSV file of descriptors of the teams' methods, which are shown next to the scores.
        without_cases: Cases that are left out of every figure.

    The other fields are the arguments of `evaluation.rank`.
    """

    teams: Sequence[tuple[str, Source]]
    runs: Sequence[tuple[str, Sequence[Path]]] = ()
    out_of_competition: Sequence[OutOfCompetitionSource] = ()
    table: Path | None = None
    methods: Path | None = None
    task: str | None = None
    edition: str | None = None
    official: str | None = None
    ties: str | None = None
    bootstraps: int = DEFAULT_RANKINGS
    seed: int | None = None
    without_rows: bool = False
    mean: bool = False
    without_cases: Sequence[str] = ()


class Role(Enum):
    """The role of a result in a ranking."""

    TEAM = "team"
    RUN = "run"
    OUT_OF_COMPETITION = "out of competition"
    OBSERVERS = "observers"


@dataclass(frozen=True)
class Entry:
    """A result of a ranking.

    Attributes:
        role: Whether the result ranks, is one of several runs, or is shown without a rank.
        key: Name among all results; differs from the team's name for a run.
        team: Name on the leaderboard.
        content: The metrics.json, or the content of an observers.json.
        path: The file, None for a result that came from no file.
        run: Name of a run; empty for other roles.
        outside: Source of an entry out of competition or of observers; None for other roles.
    """

    role: Role
    key: str
    team: str
    content: Source
    path: Path | None
    run: str = ""
    outside: OutOfCompetitionSource | None = None


def rank_results(request: RankingRequest) -> Leaderboard:
    """Return the leaderboard of the results.

    Raises:
        HecktorError: Results cannot be used or compared; the message names the file or the difference.
    """
    board = _rank_files(request) if request.table is None else _rank_printed(request, request.table)
    methods = {} if request.methods is None else read_methods(request.methods, board.names)
    return board.model_copy(update={"methods": methods})


def _rank_files(request: RankingRequest) -> Leaderboard:
    names = [name for name, _ in (*request.teams, *request.runs)]
    names += [source.team for source in request.out_of_competition]
    check_team_names([*names, *[MEAN_OF_TEAMS] * request.mean])
    check_folder_names(names)
    entries = _list_entries(request)
    sources = [(entry.key, entry.content) for entry in entries if entry.role is not Role.OBSERVERS]
    loaded = load_teams(sources, task=request.task, edition=request.edition, without_rows=request.without_rows)
    loaded = replace(loaded, profile=with_ranking(loaded.profile, request.official, request.ties, "rank"))
    loaded = leave_out_cases(loaded, request.without_cases)
    runs_of = {
        team: _order_runs(
            loaded, [entry for entry in entries if entry.team == team and entry.role is Role.RUN], request
        )
        for team, _ in request.runs
    }
    teams = [entry for entry in entries if entry.role is Role.TEAM]
    best_runs = [runs[0] for runs in runs_of.values()]
    outside = [entry for entry in entries if entry.role is Role.OUT_OF_COMPETITION]
    team_of = {entry.key: entry.team for entry in (*teams, *best_runs)}
    board = build_leaderboard(
        loaded.select(team_of),
        request.bootstraps,
        request.seed,
        out_of_competition=[
            _make_unranked(entry, entry.outside, loaded) for entry in entries if entry.outside is not None
        ],
        mean=request.mean,
    )
    shown = loaded.select({**team_of, **{entry.key: entry.team for entry in outside}})
    added: dict[str, Any] = {
        "runs": {team: _summarise_runs(loaded, runs) for team, runs in runs_of.items()},
        "files": {
            entry.team: str(entry.path.absolute()) for entry in (*teams, *outside, *best_runs) if entry.path is not None
        },
        "identical_answers": find_identical_answers(shown.answers),
    }
    if request.without_cases:
        # The files state figures of all cases, and a report would check the leaderboard against them.
        added["files"] = {}
        added["provenance"] = {**board.provenance, WITHOUT_CASES: sorted(set(request.without_cases))}
    return board.model_copy(update=added)


def _list_entries(request: RankingRequest) -> list[Entry]:
    """List teams, runs and entries out of competition; raise `HecktorError` if such an entry cannot be read."""
    entries = [
        Entry(Role.TEAM, team, team, source, source if isinstance(source, Path) else None)
        for team, source in request.teams
    ]
    for team, paths in request.runs:
        # Equal runs are ordered by name; the numbers keep the order of the files.
        digits = len(str(len(paths)))
        for number, path in enumerate(paths, 1):
            run = f"{number:0{digits}d} {path.resolve().parent.name}/{path.name}"
            entries.append(Entry(Role.RUN, f"{team}, run {run}", team, path, path, run=run))
    return [*entries, *(_read_out_of_competition(source) for source in request.out_of_competition)]


def _read_out_of_competition(source: OutOfCompetitionSource) -> Entry:
    """Read an observers.json or a metrics.json; raise `HecktorError` if it is neither."""
    content: Any = source.source
    path = content if isinstance(content, Path) else None
    if path is not None:
        content = read_json(path, error=HecktorError, max_bytes=MAX_METRICS_BYTES, name=source.where)
    if is_observers_document(content):
        return Entry(Role.OBSERVERS, source.team, source.team, content, path, outside=source)
    metrics = parse_metrics(content, source.where), describe_source(source.where, source.team)
    return Entry(Role.OUT_OF_COMPETITION, source.team, source.team, metrics, path, outside=source)


def _make_unranked(entry: Entry, source: OutOfCompetitionSource, loaded: TaskResults) -> UnrankedEntry:
    if entry.role is Role.OBSERVERS:
        return make_observers_entry(source, cast("Mapping[str, Any]", entry.content), loaded)
    return make_metrics_entry(source, loaded)


def _rank_printed(request: RankingRequest, table: Path) -> Leaderboard:
    """Return the leaderboard of a table of printed values; raise `HecktorError` for an option that needs rows."""
    needs_rows = {
        "metrics.json": request.teams,
        "--runs": request.runs,
        "--out-of-competition": request.out_of_competition,
        "--without-rows": request.without_rows,
        "--without-case": request.without_cases,
        "--seed": request.seed is not None,
        "--bootstraps": request.bootstraps != DEFAULT_RANKINGS,
    }
    for name, is_set in needs_rows.items():
        if is_set:
            raise HecktorError("--table", f"together with {name}", "only printed values, which have no per-case rows")
    profile = load_profile(request.edition or DEFAULT_EDITION).find_task(request.task)
    teams, entries, origin = read_printed(table, with_ranking(profile, request.official, request.ties, "rank"))
    names = [*teams.teams, *(entry.team for entry in entries)]
    check_team_names([*names, *[MEAN_OF_TEAMS] * request.mean])
    check_folder_names(names)
    board = build_leaderboard(teams, 0, out_of_competition=entries, mean=request.mean)
    changed = {"without_stability_because": WITHOUT_ROWS, "provenance": {**board.provenance, **origin}}
    return board.model_copy(update=changed)


def _order_runs(loaded: TaskResults, runs: Sequence[Entry], request: RankingRequest) -> list[Entry]:
    """Order a team's runs from best to worst by the official ranking of these runs; equal runs keep their order.

    Runs without a value for every ranked metric come last. If no run has all values, the first run counts as the team's
    incomplete result.
    Source: HECKTOR 2021, which ranked a team's five runs by the Borda count of the edition.
    """
    results = loaded.select({entry.key: entry.run for entry in runs})
    ranked = results.ranked
    order: list[str] = []
    if ranked:
        order = order_teams(results.select(ranked), request.bootstraps, request.seed)
    entry_of = {entry.run: entry for entry in runs}
    return [entry_of[run] for run in (*order, *results.incomplete)]


def _summarise_runs(loaded: TaskResults, runs: Sequence[Entry]) -> TeamRuns:
    """Return the run that counts, the values of all runs, and the best, median and worst value of each metric.

    `runs` are ordered from best to worst.
    """
    summary = {
        name: summarise_values(
            [loaded.value(entry.key, name) for entry in runs], higher_is_better=metric.higher_is_better
        )
        for name, metric in loaded.profile.metrics.items()
    }
    order = [
        RunFigures(run=entry.run, metrics=_remove_half_widths(loaded.teams[entry.key].aggregates)) for entry in runs
    ]
    return TeamRuns(chosen=runs[0].run, order=order, summary=summary)


def _remove_half_widths(figures: Mapping[str, MetricFigures]) -> dict[str, MetricFigures]:
    """Return the figures without half of their intervals, which only the platform needs."""
    return {name: MetricFigures.from_values(*metric.figures) for name, metric in figures.items()}


def summarise_values(values: Sequence[float | None], *, higher_is_better: bool) -> dict[BestMedianWorst, float | None]:
    """Return the best, median and worst value of a team's runs; null if no run has a value, or for an infinite value.

    The median of an even number of values is the mean of the middle two. Source: HECKTOR 2021, five runs.
    """
    known = sorted((value for value in values if value is not None), reverse=higher_is_better)
    if not known:
        return dict.fromkeys(BEST_MEDIAN_WORST)
    figures = (known[0], float(np.median(known)), known[-1])
    finite = (float(figure) if np.isfinite(figure) else None for figure in figures)
    return dict(zip(BEST_MEDIAN_WORST, finite, strict=True))
