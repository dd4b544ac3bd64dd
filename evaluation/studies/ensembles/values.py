"""Combine several teams' risks by the patients' ranks, since risks of different models share no unit, or classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.stats import rankdata

from contract.editions import Answer
from contract.errors import PredictionError
from evaluation.inputs.ground_truth import check_shared
from evaluation.inputs.plain_files import read_class_table, read_risk_table
from evaluation.inputs.tables import ID_COLUMN, read_table_with
from evaluation.inputs.values import PredictedClass

MEAN_RANK: Final = "mean_rank"
MEDIAN_RANK: Final = "median_rank"
MAJORITY: Final = "majority"
VALUE_METHODS: Final[dict[str, tuple[str, ...]]] = {"risk": (MEAN_RANK, MEDIAN_RANK), "class": (MAJORITY,)}


@dataclass(frozen=True)
class TeamsValues:
    """Patients with a value from any team, sorted; each team's values by patient, and the missing votes."""

    cases: tuple[str, ...]
    by_team: Mapping[str, Mapping[str, Any]]
    without_vote: tuple[Mapping[str, str], ...]


def read_values(tables: Mapping[str, Path], answer: Answer) -> TeamsValues:
    """The risks or classes of each team's table, as `hecktor evaluate` reads them.

    A patient without a usable value, or with two, has no vote of that team.
    """
    read = read_class_table if answer.kind == "class" else read_risk_table
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


def combined_values(
    values: Sequence[Mapping[str, Any]], cases: Sequence[str], method: str, classes: Sequence[Any] = ()
) -> dict[str, Any]:
    """Each patient's combined risk or class; None without any vote.

    `values` are each team's by patient; an absent patient has no vote of that team. `classes` are in the order of the
    declaration.
    """
    if method != MAJORITY:
        return combined_risks(values, cases, method)
    votes = {case: Counter(of_team[case] for of_team in values if case in of_team) for case in cases}
    # Of equal votes the class that the declaration names first.
    return {case: max(classes, key=lambda one: of[one]) if of else None for case, of in votes.items()}


def combined_risks(risks: Sequence[Mapping[str, float]], cases: Sequence[str], method: str) -> dict[str, float | None]:
    """The mean or median over teams of each patient's relative rank, in (0, 1), ordered as the risks (or times).

    A team's relative rank of a patient is (rank - 1/2) / n among the n patients it has a risk for, equal risks
    sharing their mean rank. With a risk for every patient from every team the order is that of the plain ranks. A
    patient without any vote has None.
    Source: the HECKTOR 2021 overview.
    """
    ranks: dict[str, list[float]] = {case: [] for case in cases}
    for of_team in risks:
        known = [case for case in cases if case in of_team]
        values = np.array([of_team[case] for case in known], dtype=np.float64)
        for case, rank in zip(known, rankdata(values), strict=True):
            ranks[case].append((float(rank) - 0.5) / len(known))
    summary = np.median if method == MEDIAN_RANK else np.mean
    return {case: float(summary(of_case)) if of_case else None for case, of_case in ranks.items()}
