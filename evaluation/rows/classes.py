"""Classes, two or more: the row of a patient."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from pydantic import AfterValidator, Field, create_model, model_validator

from contract.editions import AnswerSpec
from contract.editions.answers import ClassValue
from evaluation.execution import Workers
from evaluation.inputs.ground_truth import Reference, read_classes
from evaluation.inputs.plain_files import read_class_table
from evaluation.inputs.submission import Submission, SubmittedAnswer, read_class
from evaluation.metrics.classification import ClassCohort, class_metrics
from evaluation.metrics.rules import ONE_CLASS_ONLY, Metric
from evaluation.rows.scorer import RowMetrics, ScoredRow, compute_cohort_value, measured, read_submitted_value


class ClassRow(ScoredRow):
    """A patient's class and the predicted one, None where missing; of two classes also the second one's probability.

    `row_type` gives the class of an answer's rows, which has the answer's name in its JSON.
    """

    predicted: ClassValue | None
    probability: Annotated[float, Field(ge=0, le=1)] | None = Field(default=None, exclude=True)
    actual: ClassValue

    @property
    def correct(self) -> bool:
        return self.predicted is not None and self.predicted == self.actual

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.check_prediction(self.predicted)
        return self


def row_type(answer: AnswerSpec) -> type[ClassRow]:
    """The class of the rows of an answer: its classes alone, under the answer's name."""
    return _row_type(answer.row_key, tuple((type(value), value) for value in answer.classes), answer.is_binary)


@cache
def _row_type(key: str, classes: tuple[tuple[type, ClassValue], ...], is_binary: bool) -> type[ClassRow]:
    def member(value: ClassValue | None) -> ClassValue | None:
        if value is not None and (type(value), value) not in classes:
            raise ValueError(f"one of {', '.join(str(one) for _, one in classes)}")
        return value

    one_of = AfterValidator(member)
    fields: dict[str, Any] = {
        "predicted": (Annotated[ClassValue | None, one_of], Field(alias=f"predicted_{key}")),
        "actual": (Annotated[ClassValue, one_of], Field(alias=key)),
    }
    if is_binary:
        of_second = Annotated[float, Field(ge=0, le=1)] | None
        fields["probability"] = (of_second, Field(alias="predicted_probability"))
    return create_model(f"ClassRow_{key}", __base__=ClassRow, __config__=None, **fields)


def make_class_row(
    answer: AnswerSpec,
    case: str,
    actual: ClassValue,
    predicted: ClassValue | None,
    *,
    error: str | None = None,
    failed: bool = False,
    probability: float | None = None,
) -> ClassRow:
    """The row of a patient."""
    content: dict[str, Any] = {"case": case, "error": error, "failed": failed}
    content |= {f"predicted_{answer.row_key}": predicted, answer.row_key: actual}
    content |= {"predicted_probability": probability} if answer.is_binary else {}
    return row_type(answer)(**content)


@dataclass(frozen=True)
class ClassScorer:
    """Scores the classes of one answer."""

    answer: AnswerSpec

    def read_reference(self, source: Path, centre_columns: Sequence[str]) -> Reference[ClassValue]:
        return read_classes(source, self.answer, centre_columns)

    def read_files(self, source: Path, cases: Collection[str], not_evaluated: Collection[str]) -> Submission:
        return read_class_table(source, self.answer, cases, not_evaluated)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return class_metrics(self.answer)

    @property
    def row(self) -> type[ClassRow]:
        return row_type(self.answer)

    def score(
        self, reference: Reference[ClassValue], submissions: Sequence[Submission], _workers: Workers
    ) -> list[Sequence[ClassRow]]:
        targets = reference.targets
        return [[self._row(answer, targets[answer.case]) for answer in one.answers] for one in submissions]

    def _row(self, answer: SubmittedAnswer, actual: ClassValue) -> ClassRow:
        predicted, error, failed = read_submitted_value(answer, partial(read_class, answer=self.answer))
        if predicted is None:
            return make_class_row(self.answer, answer.case, actual, None, error=error, failed=failed)
        return make_class_row(self.answer, answer.case, actual, predicted.value, probability=predicted.probability)

    def measure(self, rows: Sequence[ClassRow]) -> RowMetrics:
        """Recall, accuracy and, of two classes, the metrics of the probabilities."""
        cohort = ClassCohort(rows, self.answer)
        metrics = measured(self.metrics, cohort)
        one_class = np.isnan(compute_cohort_value(metrics["balanced_accuracy"], len(rows)))
        without = sum(row.predicted is None for row in rows)
        warnings = {}
        if without < len(rows):
            occurring = len({row.actual for row in rows})
            warnings["balanced_accuracy"] = partial(_warn_below_chance, occurring=occurring, without=without)
        if "auc" in metrics:
            warnings["auc"] = partial(_warn_auc_below_chance, second_class=self.answer.classes[1])
        return RowMetrics(metrics, warnings=warnings, undefined=(ONE_CLASS_ONLY,) if one_class else ())

    def check_row(self, row: ClassRow) -> None:
        """Accept every row: its model requires all that is measured."""

    def reference_of(self, row: ClassRow) -> tuple[object, ...]:
        return (row.actual,)


def _warn_below_chance(value: float, upper: float | None, *, occurring: int, without: int) -> str | None:
    """Return a warning if the balanced accuracy and its interval lie below chance, one in the number of classes.

    Args:
        value: the balanced accuracy.
        upper: the upper end of its interval; None without an interval.
        occurring: number of classes in the reference.
        without: number of patients without an answer.
    """
    if (value if upper is None else upper) >= 1 / occurring:
        return None
    cause = "are the classes inverted?"
    if without:
        cause += f" ({without} patients without an answer count as wrong)"
    return f"balanced_accuracy is {value:.3f}, below chance ({1 / occurring:.3g} for {occurring} classes): {cause}"


def _warn_auc_below_chance(value: float, upper: float | None, *, second_class: ClassValue) -> str | None:
    """Return a warning if the AUC and its interval lie below 0.5."""
    if (value if upper is None else upper) >= 0.5:
        return None
    cause = f"is it the probability of the other class? (expected: the probability of class {json.dumps(second_class)})"
    return f"auc is {value:.3f}, below chance (0.5): {cause}"
