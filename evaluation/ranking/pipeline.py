"""Rank teams: load and check their results, choose the best of several runs, and make the leaderboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from contract.editions import DEFAULT_EDITION
from contract.errors import HecktorError
from contract.io.files import read_json
from evaluation.editions.profile import load_profile, with_ranking
from evaluation.ranking import DEFAULT_RANKINGS
from evaluation.ranking.leaderboard import leaderboard
from evaluation.ranking.out_of_competition import (
    MEAN_OF_TEAMS,
    OutOfCompetitionSource,
    entry_of_metrics,
    is_of_observers,
    observers_entry,
)
from evaluation.ranking.printed import WITHOUT_ROWS, read_methods, read_printed
from evaluation.ranking.rank import rank_teams, values_of
from evaluation.ranking.stored_rows import WITHOUT_CASES, leave_out_cases
from evaluation.results.board import BEST_MEDIAN_WORST, BestMedianWorst, Leaderboard, RunFigures, TeamRuns
from evaluation.results.documents import MAX_METRICS_BYTES, MetricFigures, MetricsJson
from evaluation.results.metrics_json import parse_metrics, source_of
from evaluation.results.task import TaskResults
from evaluation.results.teams import Source, check_folder_names, check_team_names, load_teams
from evaluation.results.validation import identical_answers


@dataclass(frozen=True)
class RankingRequest:
    """One ranking.

    Attributes:
        teams: name and metrics.json, or its content, of each team.
        runs: name of a team and the metrics.json of each of its runs, of which the best counts.
        out_of_competition: entries that are shown without a rank.
        table: a CSV file of printed values, in place of teams, runs and entries out of competition.
        methods: a CSV file of descriptors of the teams' methods, which stand beside their scores.

        without_case: cases that are left out of every figure.

    The others are the arguments of `evaluation.rank`.
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
    without_case: Sequence[str] = ()


def rank_results(request: RankingRequest) -> Leaderboard:
    """The leaderboard of the results.

    Raises HecktorError: results that cannot be used or compared, naming the file or what differs.
    """
    board = _rank_files(request) if request.table is None else _rank_printed(request, request.table)
    methods = {} if request.methods is None else read_methods(request.methods, board.names)
    return board.model_copy(update={"methods": methods})


def _rank_files(request: RankingRequest) -> Leaderboard:
    mean = [MEAN_OF_TEAMS] * request.mean
    names = [name for name, _ in (*request.teams, *request.runs)]
    names += [one.team for one in request.out_of_competition]
    check_team_names([*names, *mean])
    check_folder_names(names)
    observers, outside = _read_out_of_competition(request.out_of_competition)
    outside_files = [(one.team, one.source) for one in request.out_of_competition if one.team in outside]
    runs = {team: _named_runs(team, paths) for team, paths in request.runs}
    of_runs = [(name, path) for named in runs.values() for name, (_, path) in named.items()]
    sources = [*request.teams, *of_runs, *outside.items()]
    loaded = load_teams(sources, task=request.task, edition=request.edition, without_rows=request.without_rows)
    loaded = replace(loaded, profile=with_ranking(loaded.profile, request.official, request.ties, "rank"))
    loaded = leave_out_cases(loaded, request.without_case)
    chosen = {team: _ordered(loaded, {key: name for key, (name, _) in named.items()}) for team, named in runs.items()}
    counted = {**{name: name for name, _ in request.teams}, **{chosen[team][0]: team for team in runs}}
    ranked = loaded.select(counted)
    entries = [
        observers_entry(one, observers[one.team], loaded) if one.team in observers else entry_of_metrics(one, loaded)
        for one in request.out_of_competition
    ]
    board = leaderboard(ranked, request.bootstraps, request.seed, out_of_competition=entries, mean=request.mean)
    files = {name: path for name, path in (*request.teams, *outside_files) if isinstance(path, Path)}
    files |= {team: runs[team][order[0]][1] for team, order in chosen.items()}
    shown = loaded.select({**counted, **{name: name for name in outside}})
    added: dict[str, Any] = {
        "runs": {team: _team_runs(loaded, order, runs[team]) for team, order in chosen.items()},
        "files": {name: str(path.absolute()) for name, path in files.items()},
        "identical_answers": identical_answers(shown.answers),
    }
    if request.without_case:
        # The files state figures of all cases, by which a report would check the leaderboard.
        added["files"] = {}
        added["provenance"] = {**board.provenance, WITHOUT_CASES: sorted(set(request.without_case))}
    return board.model_copy(update=added)


def _rank_printed(request: RankingRequest, table: Path) -> Leaderboard:
    """The leaderboard of a table of printed values; an option that needs rows is refused."""
    needs_rows = {
        "metrics.json": request.teams,
        "--runs": request.runs,
        "--out-of-competition": request.out_of_competition,
        "--without-rows": request.without_rows,
        "--without-case": request.without_case,
        "--seed": request.seed is not None,
        "--bootstraps": request.bootstraps != DEFAULT_RANKINGS,
    }
    for name, given in needs_rows.items():
        if given:
            raise HecktorError("--table", f"together with {name}", "printed values alone, which have no per-case rows")
    profile = load_profile(request.edition or DEFAULT_EDITION).task(request.task)
    teams, entries, origin = read_printed(table, with_ranking(profile, request.official, request.ties, "rank"))
    names = [*teams.teams, *(entry.team for entry in entries)]
    check_team_names([*names, *[MEAN_OF_TEAMS] * request.mean])
    check_folder_names(names)
    board = leaderboard(teams, 0, out_of_competition=entries, mean=request.mean)
    ends = {"without_stability_because": WITHOUT_ROWS, "provenance": {**board.provenance, **origin}}
    return board.model_copy(update=ends)


def _read_out_of_competition(
    sources: Sequence[OutOfCompetitionSource],
) -> tuple[dict[str, Mapping[str, Any]], dict[str, tuple[MetricsJson, str]]]:
    """The contents of each observers.json among the entries, and the others with their names in messages, by name."""
    observers, metrics = {}, {}
    for one in sources:
        content: Any = one.source
        if isinstance(content, Path):
            content = read_json(content, error=HecktorError, max_bytes=MAX_METRICS_BYTES, name=one.where)
        if is_of_observers(content):
            observers[one.team] = content
        else:
            metrics[one.team] = parse_metrics(content, one.where), source_of(one.where, one.team)
    return observers, metrics


def _named_runs(team: str, paths: Sequence[Path]) -> dict[str, tuple[str, Path]]:
    """The name and path of each run of a team, by a name among all teams."""
    # Equal runs are ordered by name; the numbers keep the order of the files.
    digits = len(str(len(paths)))
    names = [f"{number:0{digits}d} {path.resolve().parent.name}/{path.name}" for number, path in enumerate(paths, 1)]
    return {f"{team}, run {name}": (name, path) for name, path in zip(names, paths, strict=True)}


def _ordered(loaded: TaskResults, runs: Mapping[str, str]) -> list[str]:
    """A team's runs from best to worst by the official ranking of the team's own runs; of equal runs the first one.

    `runs` are their names by those in `loaded`. Runs without a value for every ranked metric come last; if all lack
    one, the first run stands for the team, incomplete.
    Source: HECKTOR 2021, which ranked a team's five runs by the Borda count of the edition.
    """
    own, key_of = loaded.select(runs), {name: key for key, name in runs.items()}
    ranked, profile = own.ranked, own.profile
    places = rank_teams(ranked, values_of(own), profile.metrics, profile.ranking).order if ranked else ()
    return [key_of[run] for run in (*(ranked[index] for index in places), *own.incomplete)]


def _team_runs(loaded: TaskResults, order: Sequence[str], runs: Mapping[str, tuple[str, Path]]) -> TeamRuns:
    """The run that counts, the values of all runs, the best first, and the best, median and worst of each metric."""
    summary = {
        name: summarised([loaded.value(key, name) for key in order], higher_is_better=metric.higher_is_better)
        for name, metric in loaded.profile.metrics.items()
    }
    of_runs = [RunFigures(run=runs[key][0], metrics=_plain(loaded.teams[key].aggregates)) for key in order]
    return TeamRuns(chosen=runs[order[0]][0], order=of_runs, summary=summary)


def _plain(figures: Mapping[str, MetricFigures]) -> dict[str, MetricFigures]:
    """The figures without the half of their intervals, which the platform alone asks for."""
    return {name: MetricFigures.of(*one.figures) for name, one in figures.items()}


def summarised(values: Sequence[float | None], *, higher_is_better: bool) -> dict[BestMedianWorst, float | None]:
    """The best, median and worst of the values of a team's runs, null without any or where infinite.

    Of an even number the median is the mean of the middle two. Source: HECKTOR 2021, five runs.
    """
    known = sorted((value for value in values if value is not None), reverse=higher_is_better)
    figures = (known[0], float(np.median(known)), known[-1]) if known else (None, None, None)
    finite = (float(one) if one is not None and np.isfinite(one) else None for one in figures)
    return dict(zip(BEST_MEDIAN_WORST, finite, strict=True))
