"""Teams' results restored from the rows of their metrics.json, over one cohort of cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np

from contract.errors import HecktorError
from evaluation.editions.rules import Rules
from evaluation.editions.task import AnswerProfile, TaskProfile
from evaluation.metrics.overlap import Integers, WeightedMetric
from evaluation.results.metrics_json import TeamMetrics
from evaluation.results.scored import metrics_on, places_among, weighted_sums
from evaluation.rows.kinds import CaseRow, scorer_of

# Sums over cases in another order differ by rounding alone.
_TOLERANCE: Final = 1e-9


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
    """Teams over the same cases, sorted by name, and the profile with the rules of their evaluations."""

    cases: tuple[str, ...]
    profile: TaskProfile
    teams: tuple[StoredTeam, ...]


def without_rows(teams: Sequence[TeamMetrics]) -> list[str]:
    """Teams whose metrics.json holds no rows, as `--public` writes it."""
    return [team.team for team in teams if not team.rows]


def stored_cohort(teams: Sequence[TeamMetrics], profile: TaskProfile) -> StoredCohort:
    """The cohort of teams that all have rows.

    Raises:
        HecktorError: rows that cannot be read, of other cases or another reference than the first team's, or that
            contradict a value in the team's own file.
    """
    used = replace(profile, answers=_answers(teams[0], profile))
    rows_of = [(team, _restored(team, used)) for team in teams]
    first, first_rows = rows_of[0]
    for team, rows in rows_of[1:]:
        for answer, of_answer in rows.items():
            _check_same_reference(f"{first.team} and {team.team}", first_rows[answer], of_answer)
    cases = tuple(sorted({row.case for rows in first_rows.values() for row in rows}))
    return StoredCohort(cases, used, tuple(_stored_team(team, rows, cases, used) for team, rows in rows_of))


def _check_same_reference(who: str, first: Sequence[CaseRow], rows: Sequence[CaseRow]) -> None:
    names, others = [row.case for row in first], [row.case for row in rows]
    if names != others:
        odd = sorted(set(names) ^ set(others)) or ["a case that stands twice"]
        raise HecktorError(who, f"rows of other cases ({odd[0]})", "the same")
    for mine, theirs in zip(first, rows, strict=True):
        if mine.reference != theirs.reference:
            raise HecktorError(who, f"{mine.case} was measured against different references", "one for all")


def _answers(team: TeamMetrics, profile: TaskProfile) -> dict[str, AnswerProfile]:
    """The answers with the rules that the team's file states."""
    options = profile.completed(team.provenance.get("options"))
    nested = options if profile.has_several_answers else dict.fromkeys(profile.answers, options)
    stated = nested if isinstance(nested, dict) else {}
    return {
        name: replace(one, rules=_rules(team, one.rules, stated.get(name))) for name, one in profile.answers.items()
    }


def _rules(team: TeamMetrics, rules: Rules, options: Any) -> Rules:
    # Boxes are applied before rows exist, so files written before that rule can still be ranked.
    known = {rule.name for rule in fields(rules)} - {"bounding_box"}
    if not isinstance(options, dict) or not known <= set(options):
        raise HecktorError(team.team, "its options are not those of the edition", ", ".join(sorted(known)))
    stated: Rules = replace(rules, **{name: options[name] for name in known})
    return stated


def _restored(team: TeamMetrics, profile: TaskProfile) -> dict[str, list[CaseRow]]:
    restored = {}
    for name, answer in profile.answers.items():
        restore = scorer_of(answer).restore
        try:
            rows = [restore(raw) for raw in team.rows_of(name, several=profile.has_several_answers)]
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise HecktorError(team.team, f"`results` cannot be read ({problem})", "one row a case") from None
        restored[name] = sorted(rows, key=lambda row: str(row.case))
    return restored


def _stored_team(
    team: TeamMetrics, rows: Mapping[str, Sequence[CaseRow]], cases: Sequence[str], profile: TaskProfile
) -> StoredTeam:
    answers: dict[str, StoredRows] = {}
    measured: dict[str, WeightedMetric] = {}
    for name, one in profile.answers.items():
        skip = one.rules.missing == "skip"
        counted = tuple(row for row in rows[name] if not (skip and row.error is not None))
        places = places_among(cases, counted)
        answers[name] = StoredRows(counted, places)
        measured |= metrics_on(places, len(cases), one, scorer_of(one).measure(counted))
    measured |= weighted_sums(measured, profile.metrics)
    metrics = {name: measured[name] for name in profile.metrics if name in measured}
    _check_stated(team, metrics, len(cases))
    return StoredTeam(team.team, answers, metrics, measured)


def _check_stated(team: TeamMetrics, metrics: Mapping[str, WeightedMetric], n_cases: int) -> None:
    for name, metric in metrics.items():
        stated, value = team.estimates[name].value, float(metric(np.ones((1, n_cases)))[0])
        if stated is not None and not np.isclose(stated, value, rtol=_TOLERANCE, atol=_TOLERANCE):
            raise HecktorError(team.team, f"its rows give {name} {value:.6g}, but it states {stated:.6g}")
