"""A scored submission: the rows of each answer, joined by case into one cohort."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from contract.patient import centres_of
from evaluation.editions.document import MetricProfile
from evaluation.editions.profile import AnswerProfile
from evaluation.inputs.ground_truth import Reference
from evaluation.inputs.submission import Submission
from evaluation.metrics.overlap import Integers, WeightedMetric, WeightedSum, on_cohort
from evaluation.rows import CaseRow
from evaluation.rows.scorer import RowMetrics


@dataclass(frozen=True)
class ScoredAnswer:
    """One answer of a submission: its rows, sorted by case, the rows that count, and their metrics."""

    profile: AnswerProfile
    reference: Reference[Any]
    submission: Submission
    rows: Sequence[CaseRow]
    counted: Sequence[CaseRow]
    measurement: RowMetrics


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
        """Whether rows are nested by answer."""
        return len(self.answers) > 1

    def rows_as_json(self) -> list[dict[str, Any]]:
        """One row for each case: the answer's own, or `{"case": ..., "<answer>": {...}}` for several answers."""
        if not self.has_several_answers:
            return [row.model_dump(by_alias=True) for row in self.answers[0].rows]
        joined: dict[str, dict[str, Any]] = {}
        for answer in self.answers:
            for row in answer.rows:
                content = row.model_dump(by_alias=True, exclude={"case"})
                joined.setdefault(row.case, {"case": row.case})[answer.profile.answer.name] = content
        return [joined[case] for case in sorted(joined)]

    @property
    def unknown(self) -> list[str]:
        """Submitted names that match no case of any answer, sorted; a name that is submitted twice stands twice."""
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
        return centres_of(self.cases, in_tables)


def joined_cohort(answers: Sequence[ScoredAnswer], ranked: Mapping[str, MetricProfile]) -> ScoredCohort:
    """The answers over the union of the cases that count; `ranked` defines the weighted sums."""
    cases = sorted({row.case for answer in answers for row in answer.counted})
    measured = [(answer.profile, answer.counted, answer.measurement) for answer in answers]
    return ScoredCohort(tuple(answers), tuple(cases), metrics_over(cases, measured, ranked))


def metrics_over(
    cases: Sequence[str],
    answers: Iterable[tuple[AnswerProfile, Sequence[CaseRow], RowMetrics]],
    ranked: Mapping[str, MetricProfile],
) -> dict[str, WeightedMetric]:
    """The metrics of all answers, under their prefixes, as functions of the weights of these cases.

    Each answer comes with its rows that count. The weighted sums among the ranked metrics are included if all of their
    terms are measured.
    """
    measured: dict[str, WeightedMetric] = {}
    for profile, rows, measurement in answers:
        places = places_among(cases, rows)
        for name, metric in measurement.metrics.items():
            measured[f"{profile.prefix}{name}"] = on_cohort(metric, places, len(cases))
    sums = {
        name: WeightedSum([(weight, measured[term]) for term, weight in metric.terms.items()])
        for name, metric in ranked.items()
        if metric.terms and set(metric.terms) <= set(measured)
    }
    return {**measured, **sums}


def places_among(cases: Sequence[str], rows: Sequence[CaseRow]) -> Integers:
    """The place of each row's case among the cases."""
    place_of = {case: place for place, case in enumerate(cases)}
    return np.array([place_of[row.case] for row in rows], dtype=np.intp)
