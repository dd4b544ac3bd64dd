"""Metrics of classes: one record each, a function of case weights from the rows of a cohort."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from contract.editions import AnswerSpec
from contract.editions.answers import ClassValue
from evaluation.metrics.classification import (
    Codes,
    binary_metrics,
    class_codes,
    many_classes_metrics,
    probability_metrics,
)
from evaluation.metrics.overlap import Booleans, Floats, WeightedMetric
from evaluation.metrics.rules import ClassRules, Metric


@dataclass(frozen=True)
class ClassCohort:
    """The rows of a cohort (`ClassRow`) as arrays, shape (patients,)."""

    rows: Sequence[Any]
    answer: AnswerSpec

    @cached_property
    def positive(self) -> Booleans:
        return np.array([row.actual == self.answer.classes[1] for row in self.rows], dtype=np.bool_)

    @cached_property
    def probability(self) -> Floats:
        return np.array([np.nan if row.probability is None else row.probability for row in self.rows])

    @cached_property
    def binary(self) -> dict[str, WeightedMetric]:
        """The metrics of two classes; those of probabilities only if somebody has one."""
        correct = np.array([row.correct for row in self.rows], dtype=np.bool_)
        of_classes = binary_metrics(self.positive, correct)
        has_probabilities = np.isfinite(self.probability).any()
        return of_classes | (probability_metrics(self.positive, self.probability) if has_probabilities else {})

    @cached_property
    def codes(self) -> tuple[Codes, Codes]:
        actual = class_codes([row.actual for row in self.rows], self.answer.classes)
        return actual, class_codes([row.predicted for row in self.rows], self.answer.classes)

    @cached_property
    def many(self) -> dict[str, WeightedMetric]:
        return many_classes_metrics(*self.codes, len(self.answer.classes))


RECALL_PREFIX: Final = "recall_"


def _binary(name: str, title: str, **facts: Any) -> Metric:
    return Metric(name, title, "class", lambda cohort: cohort.binary.get(name), **facts)


BINARY_METRICS: tuple[Metric, ...] = (
    _binary("balanced_accuracy", "Balanced accuracy"),
    _binary("sensitivity", "Sensitivity"),
    _binary("specificity", "Specificity"),
    _binary("auc", "AUC"),
    _binary("brier", "Brier score", best=0.0),
    _binary("calibration_in_the_large", "Calibration in the large", bounds=(-1.0, 1.0), best=0.0),
    _binary("calibration_error", "Calibration error", best=0.0),
)


def _of_many(name: str, title: str, key: str) -> Metric:
    return Metric(name, title, "class", lambda cohort: cohort.many[key])


MANY_CLASSES_METRICS: tuple[Metric, ...] = (
    _of_many("balanced_accuracy", "Balanced accuracy", "balanced_accuracy"),
    _of_many("accuracy", "Accuracy", "accuracy"),
)


def class_metrics(answer: AnswerSpec) -> tuple[Metric, ...]:
    """The metrics of an answer: of two classes, or of more with the recall of each."""
    if answer.is_binary:
        return BINARY_METRICS
    return (*MANY_CLASSES_METRICS, *(_recall(value, code) for code, value in enumerate(answer.classes)))


def _recall(value: ClassValue, code: int) -> Metric:
    return _of_many(f"{RECALL_PREFIX}{value}", f"Recall of {value}", str(code))


def with_all_classes(answer: AnswerSpec) -> AnswerSpec:
    """The answer with the classes that its declaration does not count."""
    return answer.model_copy(update={"classes": (*answer.not_counted, *answer.classes), "not_counted": ()})


def select_counted_classes(answer: AnswerSpec, rules: ClassRules) -> AnswerSpec:
    """The answer with the classes that count by the rules: all, or all that its declaration counts."""
    return with_all_classes(answer) if rules.not_counted == "class" else answer
