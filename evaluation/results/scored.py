"""A scored submission: the rows of its answers, joined by case into one cohort."""

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
    """Select the rows of an answer that count by its rule for missing cases, and compute their metrics."""
    counted = table.select([is_counted(error, profile.rules.missing) for error in table.errors])
    return MeasuredAnswer(profile, table, counted, profile.scorer.measure(counted))


def list_counted_cases(answers: Iterable[MeasuredAnswer]) -> tuple[str, ...]:
    """Return the cases that count for any answer, sorted."""
    return tuple(sorted({case for answer in answers for case in answer.counted.cases}))


def collect_sum_weights(ranked: Mapping[str, MetricProfile]) -> dict[str, dict[str, float]]:
    """Return the weights of the terms of each ranked metric that is a weighted sum, by the sum's name."""
    return {name: dict(metric.terms) for name, metric in ranked.items() if metric.terms}


@dataclass(frozen=True)
class ScoredAnswer(MeasuredAnswer):
    """One answer that was just scored, with the objects of its rows, its reference and the submission."""

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

    Attributes:
        answers: The answers with their rows.
        cases: The cases that count for any answer, sorted.
        metrics: All metrics by name, with the prefixes of their answers, weighted sums included. They take weights of
            shape (replicates, cases), so that one draw of cases serves all answers.
    """

    answers: tuple[ScoredAnswer, ...]
    cases: tuple[str, ...]
    metrics: Mapping[str, WeightedMetric]

    @property
    def has_several_answers(self) -> bool:
        """Return whether rows are nested by answer."""
        return len(self.answers) > 1

    def rows_as_json(self) -> list[dict[str, Any]]:
        """Return one row for each case: the row of the only answer, or `{"case": ..., "<answer>": {...}}`."""
        rows_of = {
            answer.profile.answer.name: [answer.profile.scorer.row_as_json(row) for row in answer.rows]
            for answer in self.answers
        }
        if not self.has_several_answers:
            (rows,) = rows_of.values()
            return rows
        joined: dict[str, dict[str, Any]] = {}
        for name, rows in rows_of.items():
            for row in rows:
                case = row.pop("case")
                joined.setdefault(case, {"case": case})[name] = row
        return [joined[case] for case in sorted(joined)]

    @property
    def unknown(self) -> list[str]:
        """Submitted names that match no case, sorted; a name that is submitted twice for one answer appears twice."""
        counts: Counter[str] = Counter()
        for answer in self.answers:
            counts |= Counter(answer.submission.unknown)
        return sorted(counts.elements())

    @property
    def excluded(self) -> dict[str, tuple[str, ...]]:
        """Cases that do not count in a metric because of their masks, by the reason."""
        return {
            f"{self.get_reason_prefix(answer)}{reason}": cases
            for answer in self.answers
            for reason, cases in answer.measurement.excluded.items()
        }

    def get_reason_prefix(self, answer: ScoredAnswer) -> str:
        """Return the prefix of the reasons why cases of an answer do not count; empty in a task with one answer."""
        return f"{answer.profile.answer.name}_" if self.has_several_answers else ""

    @property
    def centres(self) -> dict[str, str]:
        """The centre of each case with a known centre.

        A centre in a table takes precedence over the centre in the case's name.
        """
        in_tables = {case: centre for answer in self.answers for case, centre in answer.reference.centres.items()}
        return find_centres(self.cases, in_tables)


def join_answers(answers: Sequence[ScoredAnswer], ranked: Mapping[str, MetricProfile]) -> ScoredCohort:
    """Join answers into the cohort of all cases that count for any answer; `ranked` defines the weighted sums."""
    cases = list_counted_cases(answers)
    return ScoredCohort(tuple(answers), cases, join_metrics(cases, answers, collect_sum_weights(ranked)))


def join_metrics(
    cases: Sequence[str], answers: Iterable[MeasuredAnswer], sum_weights: Mapping[str, Mapping[str, float]]
) -> dict[str, WeightedMetric]:
    """Return the metrics of all answers, with the answers' prefixes, as functions of the weights of a cohort.

    Args:
        cases: Names of the cohort's cases, which include the cases that count for each answer.
        answers: The answers.
        sum_weights: Weights of the terms of each weighted sum. A sum is included if all of its terms are measured.
    """
    measured: dict[str, WeightedMetric] = {}
    for answer in answers:
        indices = find_indices(cases, answer.counted.cases)
        for name, metric in answer.measurement.metrics.items():
            measured[f"{answer.profile.prefix}{name}"] = extend_to_cohort(metric, indices, len(cases))
    measured_sums = {
        name: WeightedSum([(weight, measured[term]) for term, weight in terms.items()])
        for name, terms in sum_weights.items()
        if set(terms) <= set(measured)
    }
    return {**measured, **measured_sums}


def find_indices(cases: Sequence[str], counted: Sequence[str]) -> Integers:
    """Return the index of each counted case among the cases."""
    index_of = {case: index for index, case in enumerate(cases)}
    return np.array([index_of[case] for case in counted], dtype=np.intp)
