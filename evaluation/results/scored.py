"""A scored submission: the rows of each answer, joined by case into one cohort."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from contract.patient import find_centres
from evaluation.editions.document import MetricProfile
from evaluation.editions.profile import AnswerProfile
from evaluation.inputs.ground_truth import Reference
from evaluation.inputs.submission import Submission
from evaluation.metrics.overlap import Integers, WeightedMetric, WeightedSum, extend_to_cohort
from evaluation.metrics.rules import is_counted
from evaluation.rows import CaseRow
from evaluation.rows.scorer import RowMetrics
from evaluation.rows.table import RowTable


@dataclass(frozen=True)
class MeasuredAnswer:
    """One answer of a submission: its rows, sorted by case, the rows that count, and their metrics."""

    profile: AnswerProfile
    table: RowTable
    counted: RowTable
    measurement: RowMetrics


def measure_answer(profile: AnswerProfile, table: RowTable) -> MeasuredAnswer:
    """Return the rows of an answer, the rows that count by its rule for missing cases, and their metrics."""
    counted = table.select([is_counted(error, profile.rules.missing) for error in table.errors])
    return MeasuredAnswer(profile, table, counted, profile.scorer.measure(counted))


def list_counted_cases(answers: Iterable[MeasuredAnswer]) -> tuple[str, ...]:
    """Return the cases that count for any answer, sorted."""
    return tuple(sorted({case for answer in answers for case in answer.counted.cases}))


def select_weighted_sums(ranked: Mapping[str, MetricProfile]) -> dict[str, dict[str, float]]:
    """Return the weights of the terms of each ranked metric that is a weighted sum."""
    return {name: dict(metric.terms) for name, metric in ranked.items() if metric.terms}


@dataclass(frozen=True)
class ScoredAnswer(MeasuredAnswer):
    """One answer with the objects of its rows, its reference and what was submitted."""

    rows: Sequence[CaseRow]
    reference: Reference[Any]
    submission: Submission

    @property
    def counted_rows(self) -> list[CaseRow]:
        """The rows that count."""
        return [row for row in self.rows if is_counted(row.error, self.profile.rules.missing)]


@dataclass(frozen=True)
class ScoredCohort:
    """The answers of a submission over one cohort of cases.

    `cases` are those that count for any answer, sorted. `metrics` carry the answers' prefixes and take weights of
    shape (replicates, cases), so that one draw of cases serves all answers; weighted sums are among them.
    """

    answers: tuple[ScoredAnswer, ...]
    cases: tuple[str, ...]
    metrics: Mapping[str, WeightedMetric]

    @property
    def has_several_answers(self) -> bool:
        """Return whether rows are nested by answer."""
        return len(self.answers) > 1

    def rows_as_json(self) -> list[dict[str, Any]]:
        """One row for each case: the answer's own, or `{"case": ..., "<answer>": {...}}` for several answers."""
        if not self.has_several_answers:
            (answer,) = self.answers
            scorer = answer.profile.scorer
            return [scorer.row_as_json(row) for row in answer.rows]
        joined: dict[str, dict[str, Any]] = {}
        for answer in self.answers:
            scorer = answer.profile.scorer
            for row in answer.rows:
                content = scorer.row_as_json(row)
                del content["case"]
                joined.setdefault(row.case, {"case": row.case})[answer.profile.answer.name] = content
        return [joined[case] for case in sorted(joined)]

    @property
    def unknown(self) -> list[str]:
        """Submitted names that match no case of any answer, sorted; a name that is submitted twice appears twice."""
        counts: Counter[str] = Counter()
        for answer in self.answers:
            counts |= Counter(answer.submission.unknown)
        return sorted(counts.elements())

    @property
    def excluded(self) -> dict[str, tuple[str, ...]]:
        """Cases excluded from a metric for what their masks hold, by reason."""
        return {
            f"{self.reason_prefix(answer)}{why}": cases
            for answer in self.answers
            for why, cases in answer.measurement.excluded.items()
        }

    def reason_prefix(self, answer: ScoredAnswer) -> str:
        """Precedes the reasons why cases of an answer do not count; its metrics' prefix may be empty for several."""
        return f"{answer.profile.answer.name}_" if self.has_several_answers else ""

    @property
    def centres(self) -> dict[str, str]:
        """The centre of each case, as far as known: that of a table before the one in its name."""
        in_tables = {case: centre for answer in self.answers for case, centre in answer.reference.centres.items()}
        return find_centres(self.cases, in_tables)


def join_answers(answers: Sequence[ScoredAnswer], ranked: Mapping[str, MetricProfile]) -> ScoredCohort:
    """Join the answers over the union of the cases that count; `ranked` defines the weighted sums."""
    cases = list_counted_cases(answers)
    return ScoredCohort(tuple(answers), cases, join_metrics(cases, answers, select_weighted_sums(ranked)))


def join_metrics(
    cases: Sequence[str], answers: Iterable[MeasuredAnswer], sums: Mapping[str, Mapping[str, float]]
) -> dict[str, WeightedMetric]:
    """Return the metrics of all answers, under their prefixes, as functions of the weights of these cases.

    The weighted sums are included if all of their terms are measured.
    """
    measured: dict[str, WeightedMetric] = {}
    for answer in answers:
        places = find_places(cases, answer.counted.cases)
        for name, metric in answer.measurement.metrics.items():
            measured[f"{answer.profile.prefix}{name}"] = extend_to_cohort(metric, places, len(cases))
    of_sums = {
        name: WeightedSum([(weight, measured[term]) for term, weight in terms.items()])
        for name, terms in sums.items()
        if set(terms) <= set(measured)
    }
    return {**measured, **of_sums}


def find_places(cases: Sequence[str], counted: Sequence[str]) -> Integers:
    """Return the place of each counted case among the cases."""
    place_of = {case: place for place, case in enumerate(cases)}
    return np.array([place_of[case] for case in counted], dtype=np.intp)
