"""`hecktor study ensemble`: the teams' answers combined into submissions that `hecktor evaluate` scores."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from contract.editions import AnswerSpec
from contract.errors import HecktorError, PredictionError
from contract.options import whole_number
from evaluation.inputs.ground_truth import check_shared
from evaluation.inputs.plain_files import list_value_columns, read_class_table, read_risk_table
from evaluation.inputs.submission import PredictedClass, Submission
from evaluation.inputs.tables import ID_COLUMN, read_table_with
from evaluation.options import add_workers_option, parse_name_path
from evaluation.results.board import read_board
from reporting.studies.outputs import (
    StudyResult,
    Table,
    add_answer_options,
    by_name,
    find_answer,
    measure_cases,
    write_table,
)
from reporting.studies.votes import METHODS, combine_case, find_cases

MEAN_RANK: Final = "mean_rank"
MEDIAN_RANK: Final = "median_rank"
MAJORITY: Final = "majority"
VALUE_METHODS: Final[dict[str, tuple[str, ...]]] = {"risk": (MEAN_RANK, MEDIAN_RANK), "class": (MAJORITY,)}


def _read_risks(path: Path, answer: AnswerSpec, cases: Collection[str], not_evaluated: Collection[str]) -> Submission:
    return read_risk_table(path, answer, answer.direction, cases, not_evaluated)


@dataclass(frozen=True)
class TeamsValues:
    """Patients with a value from any team, sorted; each team's values by patient, and the missing votes."""

    cases: tuple[str, ...]
    by_team: Mapping[str, Mapping[str, Any]]
    without_vote: tuple[Mapping[str, str], ...]


def read_values(tables: Mapping[str, Path], answer: AnswerSpec) -> TeamsValues:
    """The risks or classes of each team's table, as `hecktor evaluate` reads them.

    A patient without a usable value, or with two, has no vote of that team.
    """
    read = read_class_table if answer.kind == "class" else _read_risks
    patients = {team: _patients(path) for team, path in tables.items()}
    check_shared(patients)
    cases = sorted({case for of_team in patients.values() for case in of_team})
    by_team: dict[str, dict[str, Any]] = {}
    problems = []
    for team, path in tables.items():
        values = by_team.setdefault(team, {})
        for submitted in read(path, answer, cases, ()).answers:
            if submitted.value is None:
                problems.append({"case": submitted.case, "team": team, "why": submitted.problem or "no value"})
            else:
                value = submitted.value
                values[submitted.case] = value.value if isinstance(value, PredictedClass) else value
    return TeamsValues(tuple(cases), by_team, tuple(problems))


def _patients(path: Path) -> set[str]:
    table = read_table_with(path, {}, PredictionError)
    if ID_COLUMN not in table.header:
        raise PredictionError(table.name, f"no column {ID_COLUMN}", "it and the answers")
    return {row[ID_COLUMN].strip() for row in table.rows}


def combine_values(
    values: Sequence[Mapping[str, Any]], cases: Sequence[str], method: str, classes: Sequence[Any] = ()
) -> dict[str, Any]:
    """Each patient's combined risk or class; None without any vote.

    `values` are each team's by patient; an absent patient has no vote of that team. `classes` are in the order of the
    declaration.
    """
    if method != MAJORITY:
        return combine_risks(values, cases, method)
    votes = {case: Counter(of_team[case] for of_team in values if case in of_team) for case in cases}
    # Of equal votes the class that the declaration names first.
    return {case: max(classes, key=lambda one: of[one]) if of else None for case, of in votes.items()}


def combine_risks(risks: Sequence[Mapping[str, float]], cases: Sequence[str], method: str) -> dict[str, float | None]:
    """The mean or median over teams of each patient's relative rank, in (0, 1), ordered as the risks (or times).

    A team's relative rank of a patient is (rank - 1/2) / n among the n patients it has a risk for, equal risks
    sharing their mean rank. With a risk for every patient from every team the order is that of the plain ranks. A
    patient without any vote has None.
    Source: the HECKTOR 2021 overview.
    """
    from scipy.stats import rankdata  # takes seconds, which --help would wait for

    ranks: dict[str, list[float]] = {case: [] for case in cases}
    for of_team in risks:
        known = [case for case in cases if case in of_team]
        values = np.array([of_team[case] for case in known], dtype=np.float64)
        for case, rank in zip(known, rankdata(values), strict=True):
            ranks[case].append((float(rank) - 0.5) / len(known))
    summary = np.median if method == MEDIAN_RANK else np.mean
    return {case: float(summary(of_case)) if of_case else None for case, of_case in ranks.items()}


ALL: Final = "all"
Selections = Mapping[str, tuple[str, ...]]


def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> StudyResult:
    """Combine the teams' answers and write every ensemble as a submission."""
    teams = by_name(options.teams, "team", 2)
    task, answer = find_answer(parser, options)
    selections = _selections(teams, options)
    # Masks are written one by one; the JSON file is written last, as the sign that all of them are complete.
    (options.output / "ensemble.json").unlink(missing_ok=True)
    if answer.kind == "mask":
        content, table = _of_masks(teams, selections, options)
    else:
        content, table = _of_values(teams, selections, options, answer)
    for problem in content["without_vote"]:
        sys.stderr.write(f"warning: {problem['case']}, {problem['team']}: {problem['why']}\n")
    about: dict[str, Any] = {"task": task.name, "answer": answer.name, "teams": list(teams)}
    about["selections"] = {name: list(of) for name, of in selections.items()}
    summary = "".join(f"ensemble: {options.output / name}\n" for name in content["ensembles"])
    return StudyResult({**about, **content}, table, summary)


def _selections(teams: Mapping[str, Path], options: argparse.Namespace) -> Selections:
    """All teams, and the first teams of the leaderboard if one is given."""
    selections = {ALL: tuple(teams)}
    if options.leaderboard is None:
        return selections
    best = read_board(options.leaderboard).order[: options.top]
    absent = [team for team in best if team not in teams]
    if absent:
        raise HecktorError(options.leaderboard.name, f"no answers of {absent[0]!r} given, which is among its first")
    if len(best) < max(options.top, 2):
        raise HecktorError(f"--top {options.top}", f"{len(best)} teams taken of the leaderboard", "at least two")
    return {**selections, f"top{options.top}": best}


def _of_masks(
    teams: Mapping[str, Path], selections: Selections, options: argparse.Namespace
) -> tuple[dict[str, Any], Table]:
    cases = find_cases(teams, options.ground_truth, selections, options.output)
    rows = measure_cases(combine_case, cases, options.workers, "combined it")
    content = {
        "methods": list(METHODS),
        "ensembles": _ensembles(selections, METHODS),
        "cases": len(rows),
        "without_vote": [problem for row in rows for problem in row.without_vote],
        "not_written": [{"case": row.case, "ensemble": name} for row in rows for name in row.not_written],
    }
    return content, [dict(line) for row in rows for line in row.lines]


def _of_values(
    teams: Mapping[str, Path], selections: Selections, options: argparse.Namespace, answer: AnswerSpec
) -> tuple[dict[str, Any], Table]:
    if options.ground_truth is not None:
        raise HecktorError("--ground-truth", "only masks need it", "none for risks and classes")
    values, methods = read_values(teams, answer), VALUE_METHODS[answer.kind]
    column = list_value_columns(answer)[0]
    content: dict[str, Any] = {
        "methods": list(methods),
        "ensembles": [f"{name}.csv" for name in _ensembles(selections, methods)],
        "cases": len(values.cases),
        "without_vote": list(values.without_vote),
        "not_written": [],
    }
    lines: list[dict[str, Any]] = [{"PatientID": case} for case in values.cases]
    for selection, members in selections.items():
        for method in methods:
            votes = [values.by_team[team] for team in members]
            combined = combine_values(votes, values.cases, method, answer.classes)
            table = [{"PatientID": case, column: value} for case, value in combined.items() if value is not None]
            write_table(options.output / f"{selection}_{method}.csv", table)
            for line in lines:
                line[f"{selection}_{method}"] = combined[line["PatientID"]]
            absent = [case for case, value in combined.items() if value is None]
            content["not_written"] += [{"case": case, "ensemble": f"{selection}_{method}.csv"} for case in absent]
    return content, lines


def _ensembles(selections: Mapping[str, Any], methods: Iterable[str]) -> list[str]:
    return [f"{selection}_{method}" for selection in selections for method in methods]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the task, the teams and the leaderboard."""
    add_answer_options(parser)
    add = parser.add_argument
    teams = "a team's folder of masks, or its CSV table of risks or classes"
    add("teams", type=parse_name_path, nargs="+", metavar="TEAM=PATH", help=teams)
    truth = "folder of reference masks, which define the cases and grids (task 1)"
    add("--ground-truth", type=Path, help=truth)
    add("--leaderboard", type=Path, help="leaderboard.json; its first teams are also combined separately")
    add("--top", type=whole_number(2), default=5, help="number of first teams (default: %(default)s)")
    add_workers_option(parser)
