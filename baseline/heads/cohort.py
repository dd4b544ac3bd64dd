"""Patients whose outcome is known, with features and outcomes, in one order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from algorithm.heads.measure import Features
from baseline.release.cases import ReleaseCase, event_key
from contract.editions import Answer

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Outcomes:
    """Outcomes of a cohort, shape (patients,).

    `values` are class numbers; for a risk 1 is an event and 0 censoring, and `times_days` is the follow-up. A class
    has no times.
    """

    values: Numbers
    times_days: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def positive(self) -> Flags:
        """True for an event, or for the second of two classes."""
        return np.asarray(self.values == 1)

    def pick(self, numbers: Numbers) -> Outcomes:
        """The outcomes with these indices."""
        return Outcomes(self.values[numbers], self.times_days[numbers] if self.times_days.size else self.times_days)


@dataclass(frozen=True)
class HeadCohort:
    """Patients in one order: IDs, centre codes, features (None is missing) and outcomes."""

    ids: tuple[str, ...]
    centres: tuple[str, ...]
    rows: tuple[Features, ...]
    outcomes: Outcomes

    def pick(self, numbers: Numbers) -> HeadCohort:
        """The patients with these indices, in their order."""
        return HeadCohort(
            tuple(self.ids[n] for n in numbers),
            tuple(self.centres[n] for n in numbers),
            tuple(self.rows[n] for n in numbers),
            self.outcomes.pick(numbers),
        )

    def values(self, features: Sequence[str]) -> Floats:
        """Features as columns, shape (patients, features); NaN is missing."""
        table = [[np.nan if row.get(name) is None else row[name] for name in features] for row in self.rows]
        return np.asarray(table, dtype=np.float64).reshape(len(self.rows), len(features))


def outcomes_of(answer: Answer, cases: Sequence[ReleaseCase]) -> Outcomes:
    """Outcomes of patients for whom every column of the answer is known."""
    rows = [{event_key(answer): case.outcome(answer)} for case in cases]
    if answer.kind == "risk":
        days = [case.outcomes[answer.columns["time"]] for case in cases]
        rows = [row | {f"{answer.name}_days": number} for row, number in zip(rows, days, strict=True)]
    return outcomes_in(answer, rows)


def outcome_rows(answer: Answer, outcomes: Outcomes) -> list[dict[str, Any]]:
    """The outcomes as records of `cross_validation.json`, one for each patient."""
    if answer.kind == "risk":
        pairs = zip(outcomes.times_days.tolist(), outcomes.positive.tolist(), strict=True)
        return [{f"{answer.name}_days": days, event_key(answer): event} for days, event in pairs]
    return [{answer.name: answer.classes[value]} for value in outcomes.values]


def outcomes_in(answer: Answer, rows: Sequence[Mapping[str, Any]]) -> Outcomes:
    """The outcomes in the records that `outcome_rows` made."""
    if answer.kind == "risk":
        times = np.array([row[f"{answer.name}_days"] for row in rows], dtype=np.float64)
        return Outcomes(np.array([int(row[event_key(answer)]) for row in rows], dtype=np.int64), times)
    return Outcomes(np.array([answer.classes.index(row[answer.name]) for row in rows], dtype=np.int64))


def centre_aliases(cases: Sequence[ReleaseCase]) -> dict[str, str]:
    """The most frequent name in the tables for each centre code, as an `ehr.json` would give it.

    Heads are harmonised by the codes in the IDs; without the alias the table's name of the same centre would be
    unknown. A name that two centres share, or that is another centre's code, is ambiguous and left out.
    """
    written: dict[str, Counter[str]] = {case.centre: Counter() for case in cases}
    for case in cases:
        if case.patient.centre is not None:
            written[case.centre][case.patient.centre] += 1
    usual = {code: names.most_common(1)[0][0] for code, names in written.items() if names}
    shared = Counter(usual.values())
    return {code: name for code, name in usual.items() if shared[name] == 1 and name not in written}
