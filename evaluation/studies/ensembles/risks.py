"""Several teams' risks become one, by the patients' ranks: risks of different models share no unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.stats import rankdata

from contract.editions import Answer
from contract.errors import PredictionError
from evaluation.inputs.plain_files import read_risk_table
from evaluation.inputs.tables import ID_COLUMN, read_table_with

RANK_METHODS: Final[dict[str, Callable[[Any], Any]]] = {"mean_rank": np.mean, "median_rank": np.median}


@dataclass(frozen=True)
class TeamsRisks:
    """Patients with a risk from any team, sorted; each team's risks by patient, and the missing votes."""

    cases: tuple[str, ...]
    by_team: Mapping[str, Mapping[str, float]]
    without_vote: tuple[Mapping[str, str], ...]


def read_risks(tables: Mapping[str, Path], answer: Answer) -> TeamsRisks:
    """The risks of each team's table, as `read_risk_table` reads them.

    A patient without a usable risk, or with two, has no vote of that team; `hecktor evaluate` would not count it.

    Raises:
        PredictionError: a table that cannot be used.
    """
    cases = sorted({case for path in tables.values() for case in _patients(path)})
    by_team: dict[str, dict[str, float]] = {}
    problems = []
    for team, path in tables.items():
        risks = by_team.setdefault(team, {})
        for submitted in read_risk_table(path, answer, cases, ()).answers:
            if isinstance(submitted.value, float):
                risks[submitted.case] = submitted.value
            else:
                problems.append({"case": submitted.case, "team": team, "why": submitted.problem or "no risk"})
    return TeamsRisks(tuple(cases), by_team, tuple(problems))


def _patients(path: Path) -> set[str]:
    table = read_table_with(path, {}, PredictionError)
    if ID_COLUMN not in table.header:
        raise PredictionError(table.name, f"no column {ID_COLUMN}", "it and risk")
    return {row[ID_COLUMN].strip() for row in table.rows}


def combined_risks(risks: Sequence[Mapping[str, float]], cases: Sequence[str], method: str) -> dict[str, float | None]:
    """The mean or median over teams of each patient's relative rank, in (0, 1), higher = earlier recurrence.

    `risks` are each team's by patient, higher = earlier recurrence; an absent patient has no vote of that team.
    `method` is a key of `RANK_METHODS`.

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
    summary = RANK_METHODS[method]
    return {case: float(summary(of_case)) if of_case else None for case, of_case in ranks.items()}
