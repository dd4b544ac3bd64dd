"""Recompute a team's figures from its rows and compare them with those in its file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

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
    collect_sum_weights,
    join_metrics,
    list_counted_cases,
    measure_answer,
)
from evaluation.rows.scorer import compute_cohort_value
from evaluation.rows.table import RowTable
from evaluation.statistics.bootstrap import Estimate, estimate

# Sums over cases in another order differ only by rounding.
TOLERANCE: Final = 1e-9
# A file may state any number of replicates; more than this many are not drawn.
_MAX_BOOTSTRAPS: Final = 10_000


def states_metric(metrics: MetricsJson, name: str, metric: MetricProfile) -> bool:
    """Return whether a team's file states this ranked metric; a weighted sum must have the same weights."""
    sums = metrics.provenance.weighted_sums
    return name in metrics.aggregates and (not metric.terms or sums.get(name) == metric.terms)


def check_ranges(figures: Mapping[str, MetricFigures], profile: TaskProfile, source: str) -> None:
    """Check that every known metric and its interval lie within the metric's bounds.

    Raises:
        HecktorError: A figure lies outside; the message names the file, `source`, and the metric.
    """
    bounds = {name: measured.metric.bounds for name, measured in find_metrics(profile.answers, profile.edition).items()}
    for name, metric in profile.metrics.items():
        if metric.terms:
            ends = [[weight * end for end in bounds[term]] for term, weight in metric.terms.items() if weight]
            bounds[name] = sum(map(min, ends)), sum(map(max, ends))
    for name, metric_figures in figures.items():
        low, high = bounds.get(name, (-math.inf, math.inf))
        for value in metric_figures.figures:
            if value is not None and not low - TOLERANCE <= value <= high + TOLERANCE:
                limits = f"from {low:g} to {high:g}" if high < math.inf else f"{low:g} or more"
                raise HecktorError(source, f"{name} {value:z.6g}", limits)


def with_stated_rules(profile: TaskProfile, options: Mapping[str, Any], source: str) -> TaskProfile:
    """Return the profile with the rules that a team's file, `source`, states.

    Raises:
        HecktorError: The file does not state all rules of the edition, or a rule has an impossible value.
    """
    options_of = options if profile.has_several_answers else dict.fromkeys(profile.answers, options)
    answers = {
        name: replace(answer, rules=_parse_stated_rules(answer, options_of.get(name), source))
        for name, answer in profile.answers.items()
    }
    return replace(profile, answers=answers)


def _parse_stated_rules(answer: AnswerProfile, options: Any, source: str) -> Rules:
    names = set(type(answer.rules).model_fields)
    if not isinstance(options, dict) or not names <= set(options):
        raise HecktorError(source, "its options are not the options of the edition", ", ".join(sorted(names)))
    stated = {name: options[name] for name in names}
    return parse_rules(stated, answer.answer.kind, f"{source}: provenance.options")


def validate_metrics(
    metrics: MetricsJson, profile: TaskProfile, source: str
) -> tuple[MetricsJson, dict[str, MeasuredAnswer]]:
    """Check a team's metrics.json against its rows.

    Args:
        metrics: Content of the file.
        profile: The task with the rules that the file states.
        source: Name of the file in messages.

    Returns:
        The metrics.json with figures recomputed from the rows, and the rows of each answer.

    Raises:
        HecktorError: A row is impossible, the rows belong to other cases than the file states, or a figure of the file
            differs from the figure of its rows. The message names the file and the case or metric.
    """
    answers = {
        name: measure_answer(answer, _read_table(metrics, name, profile, source))
        for name, answer in profile.answers.items()
    }
    digest = compute_case_digest(case for answer in answers.values() for case in answer.table.cases)
    if digest != metrics.provenance.case_set_sha256:
        raise HecktorError(source, "rows of other cases than case_set_sha256 states", "one row for each case")
    cases = list_counted_cases(answers.values())
    measured = join_metrics(cases, answers.values(), collect_sum_weights(profile.metrics))
    numbers = {name: compute_cohort_value(metric, len(cases)) for name, metric in measured.items()}
    values = {name: None if math.isnan(number) else number for name, number in numbers.items()}
    stated_sums = metrics.provenance.weighted_sums
    computed = values | {name: compute_weighted_sum(values, terms) for name, terms in stated_sums.items()}
    names = {*find_metrics(profile.answers, source), *computed}
    stated = {name: figures.figure() for name, figures in metrics.aggregates.items() if name in names}
    check_figures(stated, computed, source, "its rows give")
    # The computed values replace the stated values, which may differ by the rounding of sums in another order.
    exact = {
        name: MetricFigures.from_values(values.get(name, figures.figure()), *figures.figures[1:])
        for name, figures in metrics.aggregates.items()
    }
    ranked = {name: measured[name] for name in profile.metrics if name in measured}
    not_stated = [name for name, metric in profile.metrics.items() if not states_metric(metrics, name, metric)]
    aggregates = {**exact, **_estimate_metrics(metrics.provenance, not_stated, ranked, len(cases))}
    return metrics.model_copy(update={"aggregates": aggregates}), answers


def _estimate_metrics(
    provenance: Provenance, names: Sequence[str], ranked: Mapping[str, WeightedMetric], n_cases: int
) -> dict[str, MetricFigures]:
    """Compute ranked metrics that the file does not state, such as a sum with custom weights.

    Their intervals come from the draws of the team's own evaluation.
    """
    if not names:
        return {}
    bootstraps = min(provenance.bootstraps, _MAX_BOOTSTRAPS)
    estimates = estimate(ranked, n_cases, bootstraps, provenance.seed).by_metric
    return make_aggregates({name: estimates.get(name, Estimate(None, None, None)) for name in names})


def _read_table(metrics: MetricsJson, name: str, profile: TaskProfile, source: str) -> RowTable:
    """Read the rows of an answer; raise `HecktorError` for a malformed row."""
    several = profile.has_several_answers
    for row in metrics.results if several else ():
        if not isinstance(row.get(name, {}), dict):
            raise HecktorError(f"{source}, {row['case']}", f"{name} is not an object", "the row of the answer")
    return profile.answers[name].scorer.read_table(metrics.get_rows(name, several=several), source)


def compute_weighted_sum(values: Mapping[str, float | None], terms: Mapping[str, float]) -> float | None:
    """Return the sum of weighted values; None if one of its values is undefined or absent."""
    products = []
    for name, weight in terms.items():
        value = values.get(name)
        if value is None:
            return None
        products.append(weight * value)
    return sum(products)


def check_figures(
    stated: Mapping[str, float | None],
    computed: Mapping[str, float | None],
    where: str,
    origin: str,
    owner: str = "",
) -> None:
    """Check that the figures of a file equal other figures.

    Args:
        stated: Figures that the file states.
        computed: Figures that they must equal.
        where: Name of the file in messages.
        origin: Origin of the computed figures in messages, such as "its rows give".
        owner: The end of a figure's name in messages, such as " of TEAM".

    Raises:
        HecktorError: A figure differs.
    """
    for name, value in stated.items():
        expected = computed.get(name)
        if value is None or expected is None:
            is_equal = value is expected
        else:
            is_equal = math.isclose(value, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        if not is_equal:
            problem = f"states {name}{owner} {_format_value(value)}, but {origin} {_format_value(expected)}"
            raise HecktorError(where, problem, "figures of one evaluation; run it again")


def _format_value(value: float | None) -> str:
    return "no value" if value is None else f"{value:z.6g}"


def check_same_reference(answers: Mapping[str, Mapping[str, MeasuredAnswer]]) -> None:
    """Raise HecktorError if a team was scored on other cases or another reference than the first team."""
    for team, team_answers in list(answers.items())[1:]:
        first, first_answers = next(iter(answers.items()))
        both = f"{first} and {team}"
        for name, answer in team_answers.items():
            cases = answer.table.cases
            unmatched = sorted({*first_answers[name].table.cases} ^ {*cases})
            if unmatched:
                problem = f"scored on different cases of {name}: {format_names(unmatched)}"
                raise HecktorError(both, problem, "the same cases")
            scorer = answer.profile.scorer
            references = [scorer.list_references(table) for table in (first_answers[name].table, answer.table)]
            for case, expected, reference in zip(cases, *references, strict=True):
                if reference != expected:
                    raise HecktorError(both, f"{case} was measured against different references", "one reference")


@dataclass(frozen=True)
class _TeamsWithTable:
    """Teams that have the same rows of an answer, not counting cases with an error."""

    answer: str
    table: RowTable
    teams: list[str]


def find_identical_answers(answers: Mapping[str, Mapping[str, MeasuredAnswer]]) -> list[IdenticalAnswers]:
    """Find teams with equal answers, such as a copied submission.

    The answers must be equal for all cases that at least one of the teams answers. Two masks are equal if all of their
    counts are equal. Teams without rows are left out.
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
