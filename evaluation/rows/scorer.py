"""Shared by all kinds of answers: the row of a case, scoring cases as rows, measuring rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar, cast

import numpy as np
from pydantic import model_validator

from contract.documents import Document, Text
from contract.errors import Finding, PredictionError
from evaluation.execution import Workers
from evaluation.inputs.ground_truth import Reference
from evaluation.inputs.submission import Submission, SubmittedAnswer, find_answer_file
from evaluation.metrics.overlap import WeightedMetric
from evaluation.metrics.rules import Metric


class ScoredRow(Document):
    """The row of a case, the same in memory and in metrics.json, and a column of the cohort.

    `error` is the reason why there is no usable prediction, None if there is one; `failed` says whether something was
    submitted that cannot be used.
    """

    case: Text
    error: Text | None = None
    failed: bool = False

    @model_validator(mode="after")
    def _check_failed(self) -> Self:
        if self.failed and self.error is None:
            raise ValueError("the error of a failed case")
        return self

    def check_prediction(self, prediction: object) -> None:
        """Raise ValueError unless there is either a prediction or an error."""
        if (prediction is None) == (self.error is None):
            raise ValueError("a prediction, or the error why there is none")


Value = TypeVar("Value")


@dataclass(frozen=True)
class RowMetrics:
    """Metrics of rows as functions of case weights, and all that is reported beside them.

    Attributes:
        metrics: by name.
        excluded: cases excluded from a metric, by reason.
        warnings: by metric, the warning about its value in the whole cohort and the upper end of its interval (None
            without one); None if there is no reason for a warning.
        undefined: why a metric that may rank has no value in the whole cohort; begins with the metric's name.
        findings: warnings about answers, which public results do not show.
    """

    metrics: Mapping[str, WeightedMetric]
    excluded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    warnings: Mapping[str, Callable[[float, float | None], str | None]] = field(default_factory=dict)
    undefined: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


class Scorer(Protocol):
    """Scores the answers of one kind."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that the rules measure."""

    def read_reference(self, source: Path, centre_columns: Sequence[str]) -> Reference[Any]:
        """The targets of all cases, from a folder or file; `centre_columns` are spellings of the centre's column."""

    def read_files(self, source: Path, cases: Collection[str], not_evaluated: Collection[str]) -> Submission:
        """A submission in plain files, matched to the cases."""

    def score(
        self, reference: Reference[Any], submissions: Sequence[Submission], workers: Workers, /
    ) -> Sequence[Sequence[Any]]:
        """The rows of each submission, one for each of its answers, which have the same cases in the same order."""

    def measure(self, rows: Sequence[Any]) -> RowMetrics:
        """Metrics of the rows."""

    @property
    def row(self) -> type[ScoredRow]:
        """The class of the rows, which reads one from metrics.json."""

    def check_row(self, row: Any) -> None:
        """Raise ValueError, with the expectation, if a stored row lacks what the rules measure."""

    def reference_of(self, row: Any) -> tuple[object, ...]:
        """The part of a row that must be equal for all teams of a ranking."""


def read_submitted_value(
    answer: SubmittedAnswer, read: Callable[[Path], Value]
) -> tuple[Value | None, str | None, bool]:
    """The answer's value, or None with the reason and whether anything was submitted."""
    if answer.value is not None:
        return cast("Value", answer.value), None, False
    try:
        return read(find_answer_file(answer, is_image=False)), None, False
    except PredictionError as problem:
        return None, problem.message, answer.is_submitted


def compute_cohort_value(metric: WeightedMetric, n_cases: int) -> float:
    """The metric of the whole cohort, NaN if it is undefined."""
    return float(metric(np.ones((1, n_cases)))[0])


def measured(metrics: Iterable[Metric], cohort: Any) -> dict[str, WeightedMetric]:
    """The metrics of a cohort by name, without those for which its rows lack the data."""
    functions = {metric.name: metric.build(cohort) for metric in metrics}
    return {name: function for name, function in functions.items() if function is not None}
