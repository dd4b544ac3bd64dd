"""Recompute a team's figures from its rows and compare them with those in its file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

import numpy as np

from contract.errors import HecktorError
from contract.patient import listed
from evaluation.editions.document import MetricProfile
from evaluation.editions.profile import AnswerProfile, TaskProfile, known_metrics, parse_rules
from evaluation.metrics.overlap import WeightedMetric
from evaluation.metrics.rules import Rules
from evaluation.results.documents import check_document
from evaluation.results.metrics_json import TeamMetrics, case_set_digest
from evaluation.results.scored import measured_answer, weighted_sums
from evaluation.rows import CaseRow
from evaluation.rows.scorer import whole_cohort
from evaluation.statistics.bootstrap import Estimate, estimate

# Sums over cases in another order differ by rounding alone.
TOLERANCE: Final = 1e-9
# Of a file that states more.
_MOST_BOOTSTRAPS: Final = 10_000


def is_stated(team: TeamMetrics, name: str, metric: MetricProfile) -> bool:
    """Whether the team's file states this ranked metric, a weighted sum with these weights."""
    sums = team.provenance.get("weighted_sums", {})
    return name in team.estimates and (not metric.terms or sums.get(name) == metric.terms)


def check_ranges(estimates: Mapping[str, Estimate], profile: TaskProfile, source: str) -> None:
    """Check that every known metric and its interval lie within the metric's bounds.

    Raises HecktorError: naming the file, `source`, and the metric.
    """
    known = {name: metric.bounds for name, (_, metric) in known_metrics(profile.answers, profile.edition).items()}
    for name, metric in profile.metrics.items():
        if metric.terms:
            ends = [[weight * end for end in known[term]] for term, weight in metric.terms.items() if weight]
            known[name] = sum(map(min, ends)), sum(map(max, ends))
    for name, one in estimates.items():
        low, high = known.get(name, (-math.inf, math.inf))
        for value in (one.value, one.ci95_low, one.ci95_high):
            if value is not None and not low - TOLERANCE <= value <= high + TOLERANCE:
                limits = f"from {low:g} to {high:g}" if high < math.inf else f"{low:g} or more"
                raise HecktorError(source, f"{name} {value:.6g}", limits)


def with_stated_rules(profile: TaskProfile, team: TeamMetrics) -> TaskProfile:
    """The profile with the rules that the team's file states. Raises HecktorError for those of another edition."""
    options = team.provenance["options"]
    nested = options if profile.has_several_answers else dict.fromkeys(profile.answers, options)
    answers = {name: replace(one, rules=_rules(team, one, nested.get(name))) for name, one in profile.answers.items()}
    return replace(profile, answers=answers)


def _rules(team: TeamMetrics, answer: AnswerProfile, options: Any) -> Rules:
    known = set(type(answer.rules).model_fields)
    if not isinstance(options, dict) or not known <= set(options):
        raise HecktorError(team.source, "its options are not those of the edition", ", ".join(sorted(known)))
    stated = {name: options[name] for name in known}
    return parse_rules(stated, answer.answer.kind, f"{team.source}: provenance.options")


def validate(team: TeamMetrics, profile: TaskProfile) -> TeamMetrics:
    """The team with its rows, and with the figures that the evaluation's own functions take from them.

    `profile` has the rules that the team's file states. Raises HecktorError: a row that cannot be, other cases than
    those of the reference, or a figure of the file that differs from that of its rows; the message names the file and
    the case or metric.
    """
    answers = {name: measured_answer(one, _rows(team, name, profile)) for name, one in profile.answers.items()}
    digest = case_set_digest(row.case for answer in answers.values() for row in answer.rows)
    if digest != team.provenance.get("case_set_sha256"):
        raise HecktorError(team.source, "rows of other cases than case_set_sha256", "one row for each case")
    validated = replace(team, answers=answers, sums=weighted_sums(profile.metrics))
    cases = validated.counted_cases
    measured = validated.metrics_over(cases)
    whole = {name: whole_cohort(metric, len(cases)) for name, metric in measured.items()}
    values = {name: None if math.isnan(value) else value for name, value in whole.items()}
    sums = team.provenance.get("weighted_sums", {})
    found = values | {name: weighted_sum(values, terms) for name, terms in sums.items()}
    names = {*known_metrics(profile.answers, team.source), *found}
    stated = {name: one.value for name, one in team.estimates.items() if name in names}
    check_figures(stated, found, team.source, "its rows give")
    estimates = {name: replace(one, value=values.get(name, one.value)) for name, one in team.estimates.items()}
    ranked = {name: measured[name] for name in profile.metrics if name in measured}
    others = [name for name, metric in profile.metrics.items() if not is_stated(team, name, metric)]
    return replace(validated, estimates=estimates | _estimates(team, others, ranked, len(cases)))


def _estimates(
    team: TeamMetrics, names: Sequence[str], ranked: Mapping[str, WeightedMetric], n_cases: int
) -> dict[str, Estimate]:
    """Ranked metrics that the file does not state, such as a sum with weights of one's own.

    Their intervals come from the draws of the team's own evaluation.
    """
    if not names:
        return {}
    bootstraps = min(int(team.provenance.get("bootstraps", 0)), _MOST_BOOTSTRAPS)
    rng = np.random.default_rng(int(team.provenance.get("seed", 0)))
    found = estimate(ranked, n_cases, bootstraps, rng).by_metric
    return {name: found.get(name, Estimate(None, None, None)) for name in names}


def _rows(team: TeamMetrics, name: str, profile: TaskProfile) -> list[CaseRow]:
    model = profile.answers[name].scorer.row
    rows = team.rows_of(name, several=profile.has_several_answers)
    typed = [check_document(row, model, f"{team.source}, {row['case']}") for row in rows]
    return sorted(cast("list[CaseRow]", typed), key=lambda row: row.case)


def weighted_sum(values: Mapping[str, float | None], terms: Mapping[str, float]) -> float | None:
    """The sum of some of these values by their weights, None if one is undefined."""
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
    return "no value" if value is None else f"{value:.6g}"


def check_same_reference(profile: TaskProfile, teams: Sequence[TeamMetrics]) -> None:
    """Raise HecktorError for rows of other cases, or of another reference, than those of the first team."""
    for other in teams[1:]:
        first = teams[0]
        who = f"{first.team} and {other.team}"
        for name, answer in profile.answers.items():
            pair = first.answers[name].rows, other.answers[name].rows
            odd = sorted(set.symmetric_difference(*({row.case for row in rows} for rows in pair)))
            if odd:
                raise HecktorError(who, f"scored on different cases of {name}: {listed(odd)}", "the same cases")
            reference_of = answer.scorer.reference_of
            for one, two in zip(*pair, strict=True):
                if reference_of(one) != reference_of(two):
                    raise HecktorError(who, f"{one.case} was measured against different references", "one for all")


def identical_answers(teams: Sequence[TeamMetrics]) -> list[dict[str, Any]]:
    """Teams that give equal answers to all of the cases that any of them answers, such as a copied submission.

    Two masks are equal if everything that is counted in them is. Teams without rows are left out.
    """
    groups: list[tuple[str, list[Any], list[str]]] = []
    for team in teams:
        for name, of_team in team.answers.items():
            answers = [None if row.error is not None else row for row in of_team.rows]
            same = next((names for of, other, names in groups if of == name and other == answers), None)
            if same is not None:
                same.append(team.team)
            elif any(answers):
                groups.append((name, answers, [team.team]))
    return [
        {"teams": names, "answer": name, "cases": sum(row is not None for row in answers)}
        for name, answers, names in groups
        if len(names) > 1
    ]
