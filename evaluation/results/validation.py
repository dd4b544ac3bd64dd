"""Validate a team's results: restore the rows, compute the metrics again and compare them with the stated values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from contract.errors import HecktorError
from contract.patient import listed
from evaluation.editions.document import MetricProfile
from evaluation.editions.profile import AnswerProfile, TaskProfile, known_metrics, parse_rules
from evaluation.metrics.overlap import WeightedMetric
from evaluation.metrics.rules import Rules, is_counted
from evaluation.results.metrics_json import TeamMetrics, case_set_digest
from evaluation.results.scored import metrics_over
from evaluation.rows import CaseRow
from evaluation.rows.scorer import RawRow, RowMetrics, whole_cohort
from evaluation.statistics.bootstrap import Estimate

# Sums over cases in another order differ by rounding alone.
TOLERANCE: Final = 1e-9


@dataclass(frozen=True)
class ValidatedTeam:
    """A team's rows by answer, sorted by case, and their metrics; `counted` are the rows that enter the metrics.

    `profile` has the rules of the team's evaluation.
    """

    team: TeamMetrics
    profile: TaskProfile
    rows: Mapping[str, Sequence[CaseRow]]
    counted: Mapping[str, Sequence[CaseRow]]
    measurements: Mapping[str, RowMetrics]

    def metrics_over(self, cases: Sequence[str]) -> dict[str, WeightedMetric]:
        """All metrics as functions of the weights of these cases, which hold the team's own, weighted sums included."""
        answers = self.profile.answers.items()
        measured = [(one, self.counted[name], self.measurements[name]) for name, one in answers]
        return metrics_over(cases, measured, self.profile.metrics)


def stated_metrics(team: TeamMetrics, profile: TaskProfile) -> dict[str, MetricProfile]:
    """The ranked metrics, weighted sums with the weights that the team's file states.

    A file of the profile's own edition has the profile's weights. Of another edition's file, sums are left out whose
    weights it does not state, or whose terms are not measured.
    """
    sums = team.provenance.get("weighted_sums", {})
    known = known_metrics(profile.answers, profile.edition)
    is_own = team.provenance.get("edition") == profile.edition
    metrics = {}
    for name, metric in profile.metrics.items():
        if is_own or not metric.terms:
            metrics[name] = metric
        elif name in sums and set(sums[name]) <= set(known):
            metrics[name] = replace(metric, terms=sums[name])
    return metrics


def check_ranges(estimates: Mapping[str, Estimate], profile: TaskProfile, source: str) -> None:
    """Check that every known metric, with its interval, lies where its formula can lead.

    Raises HecktorError: naming the file, `source`, and the metric.
    """
    known = {name: metric.bounds for name, (_, metric) in known_metrics(profile.answers, profile.edition).items()}
    for name, metric in profile.metrics.items():
        if metric.terms:
            ends = [[weight * end for end in known[term]] for term, weight in metric.terms.items() if weight]
            known[name] = sum(map(min, ends)), sum(map(max, ends))
    for name, estimate in estimates.items():
        low, high = known.get(name, (-math.inf, math.inf))
        for value in (estimate.value, estimate.ci95_low, estimate.ci95_high):
            if value is not None and not low - TOLERANCE <= value <= high + TOLERANCE:
                limits = f"from {low:g} to {high:g}" if high < math.inf else f"{low:g} or more"
                raise HecktorError(source, f"{name} {value:.6g}", limits)


def validate(team: TeamMetrics, profile: TaskProfile) -> ValidatedTeam:
    """Restore a team's rows and compare their metrics with those that the team's file states.

    Raises HecktorError: a row that cannot be, other cases than those of the reference, or a value that does not follow
    from the rows; the message names the file and the case or metric.
    """
    used = replace(profile, answers=_answers(team, profile))
    rows = {name: _restored(team, name, used) for name in used.answers}
    digest = case_set_digest(row.case for of_answer in rows.values() for row in of_answer)
    if digest != team.provenance.get("case_set_sha256"):
        raise HecktorError(team.source, "rows of other cases than case_set_sha256", "one row for each case")
    counted = {
        name: tuple(row for row in of_answer if is_counted(row.error, used.answers[name].rules.missing))
        for name, of_answer in rows.items()
    }
    measurements = {name: used.answers[name].scorer.measure(counted[name]) for name in rows}
    checked = ValidatedTeam(team, used, rows, counted, measurements)
    _check_stated(replace(checked, profile=replace(used, metrics=stated_metrics(team, profile))))
    return checked


def _answers(team: TeamMetrics, profile: TaskProfile) -> dict[str, AnswerProfile]:
    """The answers with the rules that the team's file states."""
    options = team.provenance["options"]
    nested = options if profile.has_several_answers else dict.fromkeys(profile.answers, options)
    return {name: replace(one, rules=_rules(team, one, nested.get(name))) for name, one in profile.answers.items()}


def _rules(team: TeamMetrics, answer: AnswerProfile, options: Any) -> Rules:
    known = set(type(answer.rules).model_fields)
    if not isinstance(options, dict) or not known <= set(options):
        raise HecktorError(team.source, "its options are not those of the edition", ", ".join(sorted(known)))
    stated = {name: options[name] for name in known}
    return parse_rules(stated, answer.answer.kind, f"{team.source}: provenance.options")


def _restored(team: TeamMetrics, name: str, profile: TaskProfile) -> list[CaseRow]:
    restore = profile.answers[name].scorer.restore
    raw = team.rows_of(name, several=profile.has_several_answers)
    return sorted((restore(RawRow(row, f"{team.source}, {row['case']}")) for row in raw), key=lambda row: str(row.case))


def _check_stated(validated: ValidatedTeam) -> None:
    team, rows = validated.team, validated.counted
    cases = sorted({row.case for of_answer in rows.values() for row in of_answer})
    measured = validated.metrics_over(cases)
    for name in known_metrics(validated.profile.answers, team.source):
        if name not in measured and name in team.estimates and team.estimates[name].value is not None:
            raise HecktorError(team.source, f"states {name}, for which its rows lack the data", "rows with it")
    for name in (name for name in measured if name in team.estimates):
        stated, value = team.estimates[name].value, whole_cohort(measured[name], len(cases))
        if not _agree(stated, value):
            raise HecktorError(team.source, f"its rows give {name} {_shown(value)}, but it states {_shown(stated)}")


def _agree(stated: float | None, value: float) -> bool:
    if stated is None or math.isnan(value):
        return stated is None and math.isnan(value)
    return math.isclose(stated, value, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _shown(value: float | None) -> str:
    return "no value" if value is None or math.isnan(value) else f"{value:.6g}"


def check_same_reference(teams: Sequence[ValidatedTeam]) -> None:
    """Raise HecktorError for rows of other cases, or of another reference, than those of the first team."""
    for other in teams[1:]:
        first = teams[0]
        who = f"{first.team.team} and {other.team.team}"
        for name, answer in first.profile.answers.items():
            pair = first.rows[name], other.rows[name]
            odd = sorted(set.symmetric_difference(*({row.case for row in rows} for rows in pair)))
            if odd:
                raise HecktorError(who, f"scored on different cases of {name}: {listed(odd)}", "the same cases")
            reference_of = answer.scorer.reference_of
            for one, two in zip(*pair, strict=True):
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
