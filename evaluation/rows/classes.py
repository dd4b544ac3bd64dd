"""Predicted classes, two or more: rows, recall, balanced accuracy, calibration and confusion matrix."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from contract.editions import Answer
from contract.editions.declaration import ClassValue
from evaluation.editions.edge_cases import ONE_CLASS_ONLY
from evaluation.editions.rules import RECALL_PREFIX
from evaluation.execution.pool import Workers
from evaluation.inputs.ground_truth import Reference, read_classes
from evaluation.inputs.plain_files import read_class_table
from evaluation.inputs.submission import Submission, SubmittedAnswer
from evaluation.inputs.values import read_class
from evaluation.metrics.classification import (
    binary_metrics,
    calibration_table,
    class_codes,
    confusion_matrix,
    many_classes_metrics,
    probability_metrics,
)
from evaluation.metrics.overlap import WeightedMetric
from evaluation.rows.raw import RawRow
from evaluation.rows.scorer import RowMetrics, submitted_value, whole_cohort


@dataclass(frozen=True)
class ClassRow:
    """A patient's class and the predicted one, None where missing; of two classes also the second one's probability.

    `answer` gives the names in metrics.json.
    """

    case: str
    answer: Answer
    actual: ClassValue
    predicted: ClassValue | None
    error: str | None = None
    failed: bool = False
    probability: float | None = None

    @property
    def reference(self) -> tuple[object, ...]:
        return (self.actual,)

    @property
    def correct(self) -> bool:
        """Whether the prediction agrees with the reference; a missing one does not."""
        return self.predicted is not None and self.predicted == self.actual

    def as_json(self) -> dict[str, Any]:
        probability = {"predicted_probability": self.probability} if self.answer.is_binary else {}
        return {
            "case": self.case,
            "error": self.error,
            "failed": self.failed,
            f"predicted_{self.answer.row_key}": self.predicted,
            **probability,
            self.answer.row_key: self.actual,
        }


@dataclass(frozen=True)
class ClassScorer:
    """Scores the classes of one answer."""

    answer: Answer
    scores_outcomes: bool = True

    def read_reference(self, source: Path, centre_columns: Sequence[str]) -> Reference[ClassValue]:
        return read_classes(source, self.answer, centre_columns)

    def read_files(self, source: Path, cases: Collection[str], not_evaluated: Collection[str]) -> Submission:
        return read_class_table(source, self.answer, cases, not_evaluated)

    def score(
        self, reference: Reference[ClassValue], submission: Submission, _workers: int | Workers
    ) -> list[ClassRow]:
        return [self._row(answer, reference.targets[answer.case]) for answer in submission.answers]

    def _row(self, answer: SubmittedAnswer, actual: ClassValue) -> ClassRow:
        predicted, error, failed = submitted_value(answer, partial(read_class, answer=self.answer))
        if predicted is None:
            return ClassRow(answer.case, self.answer, actual, None, error, failed)
        return ClassRow(answer.case, self.answer, actual, predicted.value, probability=predicted.probability)

    def measure(self, rows: Sequence[ClassRow]) -> RowMetrics:
        return self._measure_binary(rows) if self.answer.is_binary else self._measure_many(rows)

    def _measure_binary(self, rows: Sequence[ClassRow]) -> RowMetrics:
        positive = np.array([row.actual == self.answer.classes[1] for row in rows], dtype=np.bool_)
        probability = np.array([np.nan if row.probability is None else row.probability for row in rows])
        metrics = binary_metrics(positive, np.array([row.correct for row in rows], dtype=np.bool_))
        undefined = _undefined(metrics["balanced_accuracy"], len(rows))
        if not np.isfinite(probability).any():
            return RowMetrics(metrics, undefined=undefined)
        metrics |= probability_metrics(positive, probability)
        # The calibration is private: the fraction of positives among few patients would reveal their class.
        analyses = {"calibration": calibration_table(positive, probability)}
        return RowMetrics(metrics, analyses=analyses, undefined=undefined)

    def _measure_many(self, rows: Sequence[ClassRow]) -> RowMetrics:
        classes = self.answer.classes
        actual = class_codes([row.actual for row in rows], classes)
        predicted = class_codes([row.predicted for row in rows], classes)
        measured = many_classes_metrics(actual, predicted, len(classes))
        undefined = _undefined(measured["balanced_accuracy"], len(rows))
        recalls = {f"{RECALL_PREFIX}{value}": measured.pop(str(code)) for code, value in enumerate(classes)}
        counts = confusion_matrix(actual, predicted, len(classes)).tolist()
        matrix = {"classes": list(classes), "columns": [*classes, "no prediction"], "counts": counts}
        return RowMetrics({**measured, **recalls}, analyses={"confusion_matrix": matrix}, undefined=undefined)

    def restore(self, raw: RawRow) -> ClassRow:
        answer, (error, failed) = self.answer, raw.outcome()
        key = f"predicted_{answer.row_key}"
        raw.check_null(key, because=error is not None)
        predicted = None if raw.is_null(key) else raw.member(key, answer.classes)
        probability = None
        if answer.is_binary and not raw.is_null("predicted_probability"):
            raw.check_null("predicted_probability", because=error is not None)
            probability = raw.number("predicted_probability", 0.0, 1.0)
        actual = raw.member(answer.row_key, answer.classes)
        return ClassRow(raw.case, answer, actual, predicted, error, failed, probability)

    def reference_of(self, row: ClassRow) -> tuple[object, ...]:
        return row.reference


def _undefined(balanced_accuracy: WeightedMetric, n_cases: int) -> tuple[str, ...]:
    return (ONE_CLASS_ONLY,) if np.isnan(whole_cohort(balanced_accuracy, n_cases)) else ()
