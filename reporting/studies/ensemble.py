"""`hecktor study ensemble`: combine the teams' answers into submissions that `hecktor evaluate` scores."""

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
from evaluation.inputs.ground_truth import check_cases_overlap
from evaluation.inputs.plain_files import list_value_columns, read_class_table, read_risk_table
from evaluation.inputs.submission import PredictedClass, Submission
from evaluation.inputs.tables import ID_COLUMN, read_table_with
from evaluation.options import add_workers_option, parse_name_path
from evaluation.results.board import read_board
from reporting.studies.outputs import (
    StudyResult,
    Table,
    add_answer_options,
    collect_named_inputs,
    find_answer,
    measure_cases,
    write_table,
)
from reporting.studies.votes import METHODS, combine_case, find_cases

MEAN_RANK: Final = "mean_rank"
MEDIAN_RANK: Final = "median_rank"
MAJORITY: Final = "majority"
VALUE_METHODS: Final[dict[str, tuple[str, ...]]] = {"risk": (MEAN_RANK, MEDIAN_RANK), "class": (MAJORITY,)}
ALL: Final = "all"

# Teams of each ensemble by its name.
Selections = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class TeamsValues:
    """Patients with a value from any team, sorted; each team's values by patient, and the missing votes."""

    cases: tuple[str, ...]
    by_team: Mapping[str, Mapping[str, Any]]
    without_vote: tuple[Mapping[str, str], ...]


def read_values(tables: Mapping[str, Path], answer: AnswerSpec) -> TeamsValues:
    """Read the risks or classes of each team's table as `hecktor evaluate` reads them.

    A team has no vote on a patient without a usable value, or with two values.
    """
    patients_by_team = {team: _read_patients(path) for team, path in tables.items()}
    check_cases_overlap(patients_by_team)
    cases = sorted({case for patients in patients_by_team.values() for case in patients})
    by_team: dict[str, dict[str, Any]] = {team: {} for team in tables}
    problems = []
    for team, path in tables.items():
        for submitted in _read_submission(path, answer, cases).answers:
            value = submitted.value
            if value is None:
                problems.append({"case": submitted.case, "team": team, "why": submitted.problem or "no value"})
            else:
                by_team[team][submitted.case] = value.value if isinstance(value, PredictedClass) else value
    return TeamsValues(tuple(cases), by_team, tuple(problems))


def _read_submission(path: Path, answer: AnswerSpec, cases: Collection[str]) -> Submission:
    if answer.kind == "class":
        return read_class_table(path, answer, cases, ())
    return read_risk_table(path, answer, answer.direction, cases, ())


def _read_patients(path: Path) -> set[str]:
    table = read_table_with(path, {}, PredictionError)
    if ID_COLUMN not in table.header:
        raise PredictionError(table.name, f"no column {ID_COLUMN}", f"a column {ID_COLUMN} and a column of answers")
    return {row[ID_COLUMN].strip() for row in table.rows}


def combine_values(
    values: Sequence[Mapping[str, Any]], cases: Sequence[str], method: str, classes: Sequence[Any] = ()
) -> dict[str, Any]:
    """Return each patient's combined risk or class; None for a patient without votes.

    Args:
        values: Each team's values by patient; a team has no vote on an absent patient.
        cases: The patients.
        method: `MAJORITY`, `MEAN_RANK` or `MEDIAN_RANK`.
        classes: The classes in the order of the declaration. The first one wins if several have equally many votes.
    """
    if method != MAJORITY:
        return combine_risks(values, cases, method)
    combined: dict[str, Any] = {}
    for case in cases:
        votes = Counter(team_values[case] for team_values in values if case in team_values)
        combined[case] = max(classes, key=lambda value: votes[value]) if votes else None
    return combined


def combine_risks(risks: Sequence[Mapping[str, float]], cases: Sequence[str], method: str) -> dict[str, float | None]:
    """Return the mean or median over teams of each patient's relative rank; None for a patient without votes.

    Relative ranks are in (0, 1) and ordered as the risks (or times). A team's relative rank of a patient is
    (rank - 1/2) / n among the n patients for which the team has a risk; equal risks share their mean rank. If every
    team has a risk for every patient, the order is the order of the plain ranks.
    Source: the HECKTOR 2021 overview.
    """
    from scipy.stats import rankdata  # slow to import; --help does not need it

    ranks: dict[str, list[float]] = {case: [] for case in cases}
    for team_risks in risks:
        known = [case for case in cases if case in team_risks]
        values = np.array([team_risks[case] for case in known], dtype=np.float64)
        for case, rank in zip(known, rankdata(values), strict=True):
            ranks[case].append((float(rank) - 0.5) / len(known))
    summarise = np.median if method == MEDIAN_RANK else np.mean
    return {case: float(summarise(case_ranks)) if case_ranks else None for case, case_ranks in ranks.items()}


def run_ensemble(parser: argparse.ArgumentParser, options: argparse.Namespace) -> StudyResult:
    """Combine the teams' answers and write every ensemble as a submission."""
    teams = collect_named_inputs(options.teams, "team", min_count=2)
    task, answer = find_answer(parser, options)
    selections = _select_teams(teams, options)
    # Masks are written one by one; the JSON file is written last, as the sign that all of them are complete.
    (options.output / "ensemble.json").unlink(missing_ok=True)
    if answer.kind == "mask":
        content, table = _combine_masks(teams, selections, options)
    else:
        content, table = _combine_tables(teams, selections, options, answer)
    for problem in content["without_vote"]:
        sys.stderr.write(f"warning: {problem['case']}, {problem['team']}: {problem['why']}\n")
    content = {
        "task": task.name,
        "answer": answer.name,
        "teams": list(teams),
        "selections": {name: list(members) for name, members in selections.items()},
        **content,
    }
    summary = "".join(f"ensemble: {options.output / name}\n" for name in content["ensembles"])
    return StudyResult(content, table, summary)


def _select_teams(teams: Mapping[str, Path], options: argparse.Namespace) -> Selections:
    """Return all teams and, if there is a leaderboard, its best teams."""
    selections = {ALL: tuple(teams)}
    if options.leaderboard is None:
        return selections
    best = read_board(options.leaderboard).order[: options.top]
    absent = [team for team in best if team not in teams]
    if absent:
        raise HecktorError(options.leaderboard.name, f"its best teams include {absent[0]!r}, whose answers are missing")
    if len(best) < max(options.top, 2):
        raise HecktorError(f"--top {options.top}", f"found {len(best)} teams in the leaderboard", "at least two")
    return {**selections, f"top{options.top}": best}


def _combine_masks(
    teams: Mapping[str, Path], selections: Selections, options: argparse.Namespace
) -> tuple[dict[str, Any], Table]:
    """Write the masks of every ensemble.

    Returns:
        The content of ensemble.json, and the table with a line for each written mask.
    """
    cases = find_cases(teams, options.ground_truth, selections, options.output)
    rows = measure_cases(combine_case, cases, options.workers, action="combined its masks")
    content = {
        "methods": list(METHODS),
        "ensembles": _name_ensembles(selections, METHODS),
        "cases": len(rows),
        "without_vote": [problem for row in rows for problem in row.without_vote],
        "not_written": [{"case": row.case, "ensemble": name} for row in rows for name in row.not_written],
    }
    return content, [dict(line) for row in rows for line in row.lines]


def _combine_tables(
    teams: Mapping[str, Path], selections: Selections, options: argparse.Namespace, answer: AnswerSpec
) -> tuple[dict[str, Any], Table]:
    """Write the table of every ensemble; return the content of the JSON file and the table of all ensembles."""
    if options.ground_truth is not None:
        raise HecktorError("--ground-truth", "only masks need it", "none for risks and classes")
    values = read_values(teams, answer)
    methods = VALUE_METHODS[answer.kind]
    column = list_value_columns(answer)[0]
    not_written: list[dict[str, str]] = []
    lines: list[dict[str, Any]] = [{"PatientID": case} for case in values.cases]
    for selection, members in selections.items():
        for method in methods:
            ensemble = f"{selection}_{method}"
            votes = [values.by_team[team] for team in members]
            combined = combine_values(votes, values.cases, method, answer.classes)
            table = [{"PatientID": case, column: value} for case, value in combined.items() if value is not None]
            write_table(options.output / f"{ensemble}.csv", table)
            for line in lines:
                line[ensemble] = combined[line["PatientID"]]
            absent = [case for case, value in combined.items() if value is None]
            not_written += [{"case": case, "ensemble": f"{ensemble}.csv"} for case in absent]
    content = {
        "methods": list(methods),
        "ensembles": [f"{ensemble}.csv" for ensemble in _name_ensembles(selections, methods)],
        "cases": len(values.cases),
        "without_vote": list(values.without_vote),
        "not_written": not_written,
    }
    return content, lines


def _name_ensembles(selections: Mapping[str, Any], methods: Iterable[str]) -> list[str]:
    return [f"{selection}_{method}" for selection in selections for method in methods]


def add_ensemble_options(parser: argparse.ArgumentParser) -> None:
    """Add the task, the teams and the leaderboard."""
    add_answer_options(parser)
    add = parser.add_argument
    teams = "a team's folder of masks, or its CSV table of risks or classes"
    add("teams", type=parse_name_path, nargs="+", metavar="TEAM=PATH", help=teams)
    truth = "folder of reference masks, which define the cases and grids (only for masks)"
    add("--ground-truth", type=Path, help=truth)
    add("--leaderboard", type=Path, help="leaderboard.json; its best teams are also combined separately")
    add(
        "--top",
        type=whole_number(2),
        default=5,
        help="number of best teams to combine separately (default: %(default)s)",
    )
    add_workers_option(parser)
