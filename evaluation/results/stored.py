"""Teams' results restored from the rows of their metrics.json, over one cohort of cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contract.errors import HecktorError
from contract.patient import listed
from evaluation.editions.task import TaskProfile
from evaluation.metrics.overlap import Integers, WeightedMetric
from evaluation.results.scored import places_among
from evaluation.results.validation import ValidatedTeam


@dataclass(frozen=True)
class StoredRows:
    """One answer's rows that count, and their places among the cohort's cases."""

    rows: tuple[Any, ...]
    places: Integers


@dataclass(frozen=True)
class StoredTeam:
    """One team's rows by answer, its ranked metrics, and all that its rows measure.

    `metrics` take weights (replicates, cases of the cohort); cases that do not count for this team weigh nothing.
    """

    team: str
    answers: Mapping[str, StoredRows]
    metrics: Mapping[str, WeightedMetric]
    measured: Mapping[str, WeightedMetric]


@dataclass(frozen=True)
class StoredCohort:
    """Teams over the same cases, and the profile with the rules of their evaluations.

    `cases` are those that count for any team, sorted: of one team, or of teams that skip the same cases, the cohort of
    their evaluation.
    """

    cases: tuple[str, ...]
    profile: TaskProfile
    teams: tuple[StoredTeam, ...]


def check_same_reference(teams: Sequence[ValidatedTeam]) -> None:
    """Raise HecktorError for rows of other cases, or of another reference, than those of the first team."""
    for other in teams[1:]:
        first = teams[0]
        who = f"{first.team.team} and {other.team.team}"
        for name, answer in first.profile.answers.items():
            mine, theirs = first.rows[name], other.rows[name]
            odd = sorted({row.case for row in mine} ^ {row.case for row in theirs})
            if odd:
                raise HecktorError(who, f"scored on different cases of {name}: {listed(odd)}", "the same cases")
            reference_of = answer.scorer.reference_of
            for one, two in zip(mine, theirs, strict=True):
                if reference_of(one) != reference_of(two):
                    raise HecktorError(who, f"{one.case} was measured against different references", "one for all")


def identical_answers(teams: Sequence[ValidatedTeam]) -> list[dict[str, Any]]:
    """Teams that give equal answers to all of the cases that any of them answers, such as a copied submission.

    Two masks are equal if everything that is counted in them is.
    """
    groups: list[tuple[str, list[Any], list[str]]] = []
    for team in teams:
        for name, rows in team.rows.items():
            answers = [None if row.error is not None else row for row in rows]
            same = next((names for of, other, names in groups if of == name and other == answers), None)
            if same is not None:
                same.append(team.team.team)
            elif any(answers):
                groups.append((name, answers, [team.team.team]))
    return [
        {"teams": names, "answer": name, "cases": sum(row is not None for row in answers)}
        for name, answers, names in groups
        if len(names) > 1
    ]


def stored_cohort(teams: Sequence[ValidatedTeam]) -> StoredCohort:
    """The teams, of which there is at least one, over the union of the cases that count for them."""
    cases = sorted({row.case for team in teams for rows in team.counted.values() for row in rows})
    return StoredCohort(tuple(cases), teams[0].profile, tuple(_stored_team(team, cases) for team in teams))


def _stored_team(team: ValidatedTeam, cases: Sequence[str]) -> StoredTeam:
    answers = {name: StoredRows(tuple(rows), places_among(cases, rows)) for name, rows in team.counted.items()}
    measured = team.metrics_over(cases)
    metrics = {name: measured[name] for name in team.profile.metrics if name in measured}
    return StoredTeam(team.team.team, answers, metrics, measured)
