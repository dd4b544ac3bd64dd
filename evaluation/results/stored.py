"""Teams' results back from the rows of their metrics.json: every metric as a function of the same case weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from contract.errors import HecktorError
from evaluation.editions.profile import TaskProfile
from evaluation.editions.rules import Rules
from evaluation.metrics.overlap import Floats, WeightedMetric
from evaluation.results.metrics_json import TeamMetrics
from evaluation.rows.row import Row
from evaluation.rows.scorers import SCORERS

# Sums over cases in another order differ by rounding alone.
_TOLERANCE: Final = 1e-9


@dataclass(frozen=True)
class StoredTeam:
    """One team's rows that count, their places among the cohort's cases, and its metrics.

    `metrics` take weights (replicates, cases of the cohort); cases that do not count for this team weigh nothing.
    """

    team: str
    rows: tuple[Any, ...]
    places: npt.NDArray[np.intp]
    metrics: Mapping[str, WeightedMetric]


@dataclass(frozen=True)
class StoredCohort:
    """Teams over the same cases, sorted by name, and the rules that they were measured by."""

    cases: tuple[str, ...]
    rules: Rules
    teams: tuple[StoredTeam, ...]


def without_rows(teams: Sequence[TeamMetrics]) -> list[str]:
    """Teams whose metrics.json holds no rows, as `--public` writes it."""
    return [team.team for team in teams if not team.rows]


def stored_cohort(teams: Sequence[TeamMetrics], profile: TaskProfile) -> StoredCohort:
    """The cohort of teams that all have rows.

    Raises:
        HecktorError: rows that cannot be read, of other cases or another reference than the first team's, or that do
            not give a value which the team's own file states.
    """
    rules = _rules(teams[0], profile)
    rows_of = [(team, _restored(team, profile)) for team in teams]
    first, first_rows = rows_of[0]
    for team, rows in rows_of[1:]:
        _check_same_reference(f"{first.team} and {team.team}", first_rows, rows)
    stored = tuple(_stored_team(team, rows, rules, profile) for team, rows in rows_of)
    return StoredCohort(tuple(row.case for row in first_rows), rules, stored)


def _check_same_reference(who: str, first: Sequence[Row], rows: Sequence[Row]) -> None:
    names, others = [row.case for row in first], [row.case for row in rows]
    if names != others:
        odd = sorted(set(names) ^ set(others)) or ["a case that stands twice"]
        raise HecktorError(f"{who}", f"rows of other cases ({odd[0]})", "the same")
    for mine, theirs in zip(first, rows, strict=True):
        if mine.reference != theirs.reference:
            raise HecktorError(f"{who}", f"{mine.case} was measured against different references", "one for all")


def _rules(team: TeamMetrics, profile: TaskProfile) -> Rules:
    options = team.provenance.get("options")
    # Boxes are applied before rows exist, so files written before that rule can still be ranked.
    known = {rule.name for rule in fields(profile.rules)} - {"bounding_box"}
    if not isinstance(options, dict) or not known <= set(options):
        raise HecktorError(f"{team.team}", "its options are not those of the edition", f"{', '.join(sorted(known))}")
    rules: Rules = replace(profile.rules, **{name: options[name] for name in known})
    return rules


def _restored(team: TeamMetrics, profile: TaskProfile) -> list[Any]:
    restore = SCORERS[profile.kind].restore
    try:
        rows = [restore(raw) for raw in team.rows]
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise HecktorError(f"{team.team}", f"`results` cannot be read ({problem})", "one row a case") from None
    return sorted(rows, key=lambda row: str(row.case))


def _stored_team(team: TeamMetrics, rows: Sequence[Any], rules: Rules, profile: TaskProfile) -> StoredTeam:
    skip = rules.missing == "skip"
    places = np.array([n for n, row in enumerate(rows) if not (skip and row.error is not None)], dtype=np.intp)
    counted = tuple(rows[place] for place in places)
    measured = SCORERS[profile.kind].measure(counted, rules).metrics
    metrics = {name: _on_cohort(measured[name], places) for name in profile.metrics if name in measured}
    for name, metric in metrics.items():
        stated, found = team.estimates[name].value, float(metric(np.ones((1, len(rows))))[0])
        if stated is not None and not np.isclose(stated, found, rtol=_TOLERANCE, atol=_TOLERANCE):
            raise HecktorError(f"{team.team}", f"its rows give {name} {found:.6g}, but it states {stated:.6g}")
    return StoredTeam(team.team, counted, places, metrics)


def _on_cohort(metric: WeightedMetric, places: npt.NDArray[np.intp]) -> WeightedMetric:
    def weighted(weights: Floats) -> Floats:
        return metric(weights[:, places])

    return weighted
