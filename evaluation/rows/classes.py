"""Classes, two or more: the row of a patient and its scorer."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

import numpy as np
from pydantic import Field

from contract.documents import is_member
from contract.editions import AnswerSpec
from contract.editions.answers import ClassValue
from contract.errors import Finding, HecktorError
from evaluation.execution import Workers
from evaluation.inputs.ground_truth import Reference, read_classes
from evaluation.inputs.plain_files import read_class_table
from evaluation.inputs.submission import Submission, SubmittedAnswer, read_class
from evaluation.metrics.classification import ClassCohort, list_class_metrics
from evaluation.metrics.rules import ONE_CLASS_ONLY, Metric
from evaluation.rows.scorer import (
    RowMetrics,
    ScoredRow,
    build_metrics,
    compute_cohort_value,
    make_prediction_rule,
    make_table,
    parse_stored_row,
    read_stored_table,
    read_submitted_value,
)
from evaluation.rows.table import RowRule, RowTable, read_table

# The fields of a row that have the same key in metrics.json for every answer.
_COMMON_KEYS: Final = tuple(ScoredRow.model_fields)


class ClassRow(ScoredRow):
    """A patient's class and the predicted class.

    In metrics.json the keys of these three fields follow from the answer's name, see `ClassScorer.row_as_json`.

    Attributes:
        predicted: Predicted class, None where missing.
        probability: Predicted probability of the second of two classes, None where missing.
        actual: Class in the reference.
    """

    predicted: ClassValue | None
    probability: Annotated[float, Field(ge=0, le=1)] | None
    actual: ClassValue

    RULES: ClassVar[tuple[RowRule, ...]] = (*ScoredRow.RULES, make_prediction_rule("predicted"))


@dataclass(frozen=True)
class ClassScorer:
    """Scorer of the classes of one answer."""

    answer: AnswerSpec

    def read_reference(self, source: Path, centre_columns: Sequence[str]) -> Reference[ClassValue]:
        """Read the classes of all patients from a table."""
        return read_classes(source, self.answer, centre_columns)

    def read_files(self, source: Path, cases: Collection[str], not_evaluated: Collection[str]) -> Submission:
        """Read a table of predicted classes."""
        return read_class_table(source, self.answer, cases, not_evaluated)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics of the answer."""
        return list_class_metrics(self.answer)

    def score(
        self, reference: Reference[ClassValue], submissions: Sequence[Submission], _workers: Workers
    ) -> list[Sequence[ClassRow]]:
        """Return the rows of each submission."""
        targets = reference.targets
        return [
            [self._score_answer(answer, targets[answer.case]) for answer in submission.answers]
            for submission in submissions
        ]

    def _score_answer(self, answer: SubmittedAnswer, actual: ClassValue) -> ClassRow:
        submitted = read_submitted_value(answer, partial(read_class, answer=self.answer))
        predicted = submitted.value
        return ClassRow(
            case=answer.case,
            error=submitted.error,
            failed=submitted.failed,
            predicted=None if predicted is None else predicted.value,
            probability=None if predicted is None else predicted.probability,
            actual=actual,
        )

    def make_table(self, rows: Sequence[ClassRow]) -> RowTable:
        """Return rows that were just scored as columns."""
        return make_table(rows, ClassRow)

    def read_table(self, rows: Sequence[Mapping[str, Any]], source: str) -> RowTable:
        """Read rows of metrics.json as columns, sorted by case."""
        return read_stored_table(rows, self._read_columns, lambda row: self.parse_row(row, f"{source}, {row['case']}"))

    def _read_columns(self, rows: Sequence[Mapping[str, Any]]) -> RowTable:
        """Read the columns; raise an exception of `read_table` for a row with a fault."""
        field_of = {**{key: key for key in _COMMON_KEYS}, **{key: field for field, key in self._stored_keys.items()}}
        absent: dict[str, Any] = {} if self.answer.is_binary else {"probability": None}
        table = read_table(ClassRow, [{field_of[key]: value for key, value in row.items()} | absent for row in rows])
        values = {(type(value), value) for name in ("predicted", "actual") for value in table.columns[name]}
        if not all(value is None or is_member(value, self.answer.classes) for _, value in values):
            raise ValueError("a class that the answer does not have")
        return table

    def measure(self, table: RowTable) -> RowMetrics:
        """Return recall, accuracy and, for two classes, the metrics of the probabilities."""
        actual, predicted = table.columns["actual"], table.columns["predicted"]
        probability = table.numbers("probability")
        metrics = build_metrics(self.metrics, ClassCohort(self.answer, actual, predicted, probability))
        has_one_class = np.isnan(compute_cohort_value(metrics["balanced_accuracy"], len(actual)))
        n_unanswered = predicted.count(None)
        warnings = {}
        if n_unanswered < len(actual):
            n_classes = len(set(actual))
            warnings["balanced_accuracy"] = partial(
                _make_below_chance_warning, n_classes=n_classes, n_unanswered=n_unanswered
            )
        if "auc" in metrics:
            warnings["auc"] = partial(_make_auc_below_chance_warning, second_class=self.answer.classes[1])
        return RowMetrics(metrics, warnings=warnings, undefined=(ONE_CLASS_ONLY,) if has_one_class else ())

    def find_problems(self, _rows: Sequence[ClassRow]) -> tuple[Finding, ...]:
        """Return no warning: the warnings about classes follow from their metrics."""
        return ()

    def parse_row(self, content: Mapping[str, Any], place: str) -> ClassRow:
        """Parse a row of metrics.json."""
        key_of = self._stored_keys
        for key in content:
            if key not in _COMMON_KEYS and key not in key_of.values():
                raise HecktorError(f"{place}.{key}", f"found {json.dumps(content[key]):.80}", "no such key")
        fields = {key: content[key] for key in _COMMON_KEYS if key in content}
        fields |= {field: content[key] for field, key in key_of.items() if key in content}
        if not self.answer.is_binary:
            fields["probability"] = None
        row = parse_stored_row(fields, ClassRow, place, key_of)
        for field, value in (("predicted", row.predicted), ("actual", row.actual)):
            if value is not None and not is_member(value, self.answer.classes):
                expected = f"one of {', '.join(map(str, self.answer.classes))}"
                raise HecktorError(f"{place}.{key_of[field]}", f"found {json.dumps(value)}", expected)
        return row

    def row_as_json(self, row: ClassRow) -> dict[str, Any]:
        """Return the row with keys that contain the answer's name; the probability only for two classes."""
        fields = row.model_dump()
        stored = {key: fields[key] for key in _COMMON_KEYS}
        return stored | {key: fields[field] for field, key in self._stored_keys.items()}

    @property
    def _stored_keys(self) -> dict[str, str]:
        """The key in metrics.json of each field of `ClassRow` that is stored."""
        keys = {"predicted": f"predicted_{self.answer.row_key}"}
        if self.answer.is_binary:
            keys["probability"] = "predicted_probability"
        return {**keys, "actual": self.answer.row_key}

    def list_references(self, table: RowTable) -> list[tuple[object, ...]]:
        """Return the class of each patient in the reference."""
        return list(zip(table.columns["actual"]))


def _make_below_chance_warning(value: float, upper: float | None, *, n_classes: int, n_unanswered: int) -> str | None:
    """Return a warning if the balanced accuracy and its interval lie below chance, 1 / `n_classes`.

    Args:
        value: The balanced accuracy.
        upper: The upper end of its interval; None without an interval.
        n_classes: Number of classes in the reference.
        n_unanswered: Number of patients without an answer.
    """
    if (value if upper is None else upper) >= 1 / n_classes:
        return None
    cause = "are the classes inverted?"
    if n_unanswered:
        cause += f" ({n_unanswered} patients without an answer count as wrong)"
    return f"balanced_accuracy is {value:.3f}, below chance ({1 / n_classes:.3g} for {n_classes} classes): {cause}"


def _make_auc_below_chance_warning(value: float, upper: float | None, *, second_class: ClassValue) -> str | None:
    """Return a warning if the AUC and its interval lie below 0.5."""
    if (value if upper is None else upper) >= 0.5:
        return None
    cause = f"is it the probability of the other class? (expected: the probability of class {json.dumps(second_class)})"
    return f"auc is {value:.3f}, below chance (0.5): {cause}"
