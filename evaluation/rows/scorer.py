"""The steps shared by all kinds of answers: read the reference, score each case as one row, measure the rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from contract.errors import PredictionError
from evaluation.execution.pool import AnyWorkers
from evaluation.inputs.ground_truth import Reference
from evaluation.inputs.submission import Submission, SubmittedAnswer, answer_file
from evaluation.metrics.metric import Metric
from evaluation.metrics.overlap import WeightedMetric
from evaluation.rows.raw import RawRow

Value = TypeVar("Value")


@dataclass(frozen=True)
class RowMetrics:
    """Metrics of rows as functions of case weights, and all that is reported beside them.

    Attributes:
        metrics: by name.
        excluded: cases excluded from a metric, by reason.
        warnings: by metric, the warning about its value in the whole cohort, None if there is no reason for one.
        undefined: why a metric that may rank has no value in the whole cohort; begins with the metric's name.
        analyses: tables that are not metrics.
    """

    metrics: Mapping[str, WeightedMetric]
    excluded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    warnings: Mapping[str, Callable[[float], str | None]] = field(default_factory=dict)
    undefined: tuple[str, ...] = ()
    analyses: Mapping[str, Any] = field(default_factory=dict)


class Scorer(Protocol):
    """Scores the answers of one kind.

    `scores_outcomes` says whether the answers are outcomes of patients, such as an HPV status, and not masks: public
    results show fewer metrics of these.
    """

    @property
    def scores_outcomes(self) -> bool: ...

    def read_reference(self, source: Path, centre_columns: Sequence[str]) -> Reference[Any]:
        """The targets of all cases, from a folder or file; `centre_columns` are spellings of the centre's column."""

    def read_files(self, source: Path, cases: Collection[str], not_evaluated: Collection[str]) -> Submission:
        """A submission in plain files, matched to the cases."""

    def score(self, reference: Reference[Any], submission: Submission, workers: AnyWorkers, /) -> Sequence[Any]:
        """One row for each submitted answer."""

    def measure(self, rows: Sequence[Any]) -> RowMetrics:
        """Metrics of the rows."""

    def restore(self, raw: RawRow) -> Any:
        """The row from its form in metrics.json. Raises HecktorError for a row that cannot be."""

    def reference_of(self, row: Any) -> tuple[object, ...]:
        """The part of a row that must be equal for all teams of a ranking."""


def submitted_value(answer: SubmittedAnswer, read: Callable[[Path], Value]) -> tuple[Value | None, str | None, bool]:
    """The answer's value, or None with the reason and whether anything was submitted."""
    if answer.value is not None:
        return cast("Value", answer.value), None, False
    try:
        return read(answer_file(answer, is_image=False)), None, False
    except PredictionError as problem:
        return None, problem.message, answer.tried


def whole_cohort(metric: WeightedMetric, n_cases: int) -> float:
    """The metric of the whole cohort, NaN if it is undefined."""
    return float(metric(np.ones((1, n_cases)))[0])


def measured(metrics: Iterable[Metric], cohort: Any) -> dict[str, WeightedMetric]:
    """The metrics of a cohort by name, without those for which its rows lack the data."""
    functions = {metric.name: metric.of(cohort) for metric in metrics}
    return {name: function for name, function in functions.items() if function is not None}
