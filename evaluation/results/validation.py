"""Recompute a team's figures from its rows and compare them with those in its file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from contract.errors import HecktorError
from contract.patient import format_names
from evaluation.editions.document import MetricProfile
from evaluation.editions.profile import AnswerProfile, TaskProfile, find_metrics, parse_rules
from evaluation.metrics.overlap import WeightedMetric
from evaluation.metrics.rules import Rules
from evaluation.results.board import IdenticalAnswers
from evaluation.results.documents import MetricFigures, MetricsJson, Provenance
from evaluation.results.metrics_json import compute_case_digest, make_aggregates
from evaluation.results.scored import (
    MeasuredAnswer,
    join_metrics,
    list_counted_cases,
    measure_answer,
    select_weighted_sums,
)
from evaluation.rows.scorer import compute_cohort_value
from evaluation.rows.table import RowTable
from evaluation.statistics.bootstrap import Estimate, estimate

# Sums over cases in another order differ only by rounding.
TOLERANCE: Final = 1e-9
# Of a file that states more.
_MOST_BOOTSTRAPS: Final = 10_000


def states_metric(metrics: MetricsJson, name: str, metric: MetricProfile) -> bool:
    """Return whether a team's file states this ranked metric, a weighted sum with these weights."""
    sums = metrics.provenance.weighted_sums
    return name in metrics.aggregates and (not metric.terms or sums.get(name) == metric.terms)


def check_ranges(figures: Mapping[str, MetricFigures], profile: TaskProfile, source: str) -> None:
    """Check that every known metric and its interval lie within the metric's bounds.

    Raises HecktorError: naming the file, `source`, and the metric.
    """
    known = {name: measured.metric.bounds for name, measured in find_metrics(profile.answers, profile.edition).items()}
    for name, metric in profile.metrics.items():
        if metric.terms:
            ends = [[weight * end for end in known[term]] for term, weight in metric.terms.items() if weight]
            known[name] = sum(map(min, ends)), sum(map(max, ends))
    for name, one in figures.items():
        low, high = known.get(name, (-math.inf, math.inf))
        for value in one.figures:
            if value is not None and not low - TOLERANCE <= value <= high + TOLERANCE:
                limits = f"from {low:g} to {high:g}" if high < math.inf else f"{low:g} or more"
                raise HecktorError(source, f"{name} {value:z.6g}", limits)


def with_stated_rules(profile: TaskProfile, options: Mapping[str, Any], source: str) -> TaskProfile:
    """Return the profile with the rules that a team's file, `source`, states.

    Raises HecktorError: rules of another edition.
    """
    nested = options if profile.has_several_answers else dict.fromkeys(profile.answers, options)
    answers = {name: replace(one, rules=_rules(one, nested.get(name), source)) for name, one in profile.answers.items()}
    return replace(profile, answers=answers)


def _rules(answer: AnswerProfile, options: Any, source: str) -> Rules:
    known = set(type(answer.rules).model_fields)
    if not isinstance(options, dict) or not known <= set(options):
        raise HecktorError(source, "its options are not those of the edition", ", ".join(sorted(known)))
    stated = {name: options[name] for name in known}
    return parse_rules(stated, answer.answer.kind, f"{source}: provenance.options")


def validate_metrics(
    metrics: MetricsJson, profile: TaskProfile, source: str
) -> tuple[MetricsJson, dict[str, MeasuredAnswer]]:
    """Return a team's metrics.json with figures computed again from its rows, and these rows.

    `profile` has the rules that the file, `source`, states. Raises HecktorError: a row that cannot be, other cases than
    those of the reference, or a figure of the file that differs from that of its rows; the message names the file and
    the case or metric.
    """
    answers = {
        name: measure_answer(answer, _read_table(metrics, name, profile, source))
        for name, answer in profile.answers.items()
    }
    digest = compute_case_digest(case for answer in answers.values() for case in answer.table.cases)
    if digest != metrics.provenance.case_set_sha256:
        raise HecktorError(source, "rows of other cases than case_set_sha256", "one row for each case")
    cases = list_counted_cases(answers.values())
    measured = join_metrics(cases, answers.values(), select_weighted_sums(profile.metrics))
    whole = {name: compute_cohort_value(metric, len(cases)) for name, metric in measured.items()}
    values = {name: None if math.isnan(value) else value for name, value in whole.items()}
    found = values | {
        name: compute_weighted_sum(values, terms) for name, terms in metrics.provenance.weighted_sums.items()
    }
    names = {*find_metrics(profile.answers, source), *found}
    stated = {name: one.figure() for name, one in metrics.aggregates.items() if name in names}
    check_figures(stated, found, source, "its rows give")
    # Of the rows to the last digit; sums in another order differ by rounding.
    exact = {
        name: MetricFigures.from_values(values.get(name, one.figure()), *one.figures[1:])
        for name, one in metrics.aggregates.items()
    }
    ranked = {name: measured[name] for name in profile.metrics if name in measured}
    others = [name for name, metric in profile.metrics.items() if not states_metric(metrics, name, metric)]
    figures = {**exact, **_own_figures(metrics.provenance, others, ranked, len(cases))}
    return metrics.model_copy(update={"aggregates": figures}), answers


def _own_figures(
    provenance: Provenance, names: Sequence[str], ranked: Mapping[str, WeightedMetric], n_cases: int
) -> dict[str, MetricFigures]:
    """Compute ranked metrics that the file does not state, such as a sum with custom weights.

    Their intervals come from the draws of the team's own evaluation.
    """
    if not names:
        return {}
    bootstraps = min(provenance.bootstraps, _MOST_BOOTSTRAPS)
    found = estimate(ranked, n_cases, bootstraps, np.random.default_rng(provenance.seed)).by_metric
    return make_aggregates({name: found.get(name, Estimate(None, None, None)) for name in names})


def _read_table(metrics: MetricsJson, name: str, profile: TaskProfile, source: str) -> RowTable:
    """Read the rows of an answer; raise `HecktorError` for a malformed row."""
    several = profile.has_several_answers
    for row in metrics.results:
        if several and not isinstance(row.get(name, {}), dict):
            raise HecktorError(f"{source}, {row['case']}", f"{name} is no object", "the row of the answer")
    return profile.answers[name].scorer.read_table(metrics.rows_of(name, several=several), source)


def compute_weighted_sum(values: Mapping[str, float | None], terms: Mapping[str, float]) -> float | None:
    """Return the sum of some of these values by their weights, None if a value is undefined."""
    known = [weight * value for name, weight in terms.items() if (value := values.get(name)) is not None]
    return sum(known) if len(known) == len(terms) else None


def check_figures(
    stated: Mapping[str, float | None], found: Mapping[str, float | None], where: str, origin: str, of: str = ""
) -> None:
    """Raise HecktorError for a figure (`of` a team) that a file, `where`, states and that its `origin` contradicts."""
    for name, value in stated.items():
        other = found.get(name)
        if value is None or other is None:
            equal = value is other
        else:
            equal = math.isclose(value, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        if not equal:
            told = f"states {name}{of} {_shown(value)}, but {origin} {_shown(other)}"
            raise HecktorError(where, told, "figures of one evaluation; run it again")


def _shown(value: float | None) -> str:
    return "no value" if value is None else f"{value:z.6g}"


def check_same_reference(answers: Mapping[str, Mapping[str, MeasuredAnswer]]) -> None:
    """Raise HecktorError for rows of other cases, or of another reference, than those of the first team."""
    for team, of_team in list(answers.items())[1:]:
        first, of_first = next(iter(answers.items()))
        who = f"{first} and {team}"
        for name, answer in of_team.items():
            cases = answer.table.cases
            odd = sorted({*of_first[name].table.cases} ^ {*cases})
            if odd:
                raise HecktorError(who, f"scored on different cases of {name}: {format_names(odd)}", "the same cases")
            scorer = answer.profile.scorer
            references = [scorer.list_references(table) for table in (of_first[name].table, answer.table)]
            for case, expected, reference in zip(cases, *references, strict=True):
                if reference != expected:
                    raise HecktorError(who, f"{case} was measured against different references", "one for all")


@dataclass(frozen=True)
class _TeamsWithTable:
    """Teams that have the same rows of an answer, not counting cases with an error."""

    answer: str
    table: RowTable
    teams: list[str]


def find_identical_answers(answers: Mapping[str, Mapping[str, MeasuredAnswer]]) -> list[IdenticalAnswers]:
    """Find teams that give equal answers to all of the cases that any of them answers, such as a copied submission.

    Two masks are equal if everything that is counted in them is. Teams without rows are left out.
    """
    groups: list[_TeamsWithTable] = []
    for team, team_answers in answers.items():
        for name, answer in team_answers.items():
            table = answer.table.select([error is None for error in answer.table.errors])
            group = next((group for group in groups if group.answer == name and group.table == table), None)
            if group is not None:
                group.teams.append(team)
            elif table.cases:
                groups.append(_TeamsWithTable(name, table, [team]))
    return [
        IdenticalAnswers(teams=group.teams, answer=group.answer, cases=len(group.table.cases))
        for group in groups
        if len(group.teams) > 1
    ]
