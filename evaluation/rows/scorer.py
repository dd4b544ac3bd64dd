"""Parts that all kinds of answers share: the row of a case, the interface of scorers, the metrics of rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

import numpy as np
from pydantic import ValidationError

from contract.documents import Text, make_document_error
from contract.errors import Finding, HecktorError, PredictionError
from evaluation.execution import Workers
from evaluation.inputs.ground_truth import Reference
from evaluation.inputs.submission import Submission, SubmittedAnswer, find_answer_file
from evaluation.metrics.overlap import WeightedMetric
from evaluation.metrics.rules import Metric
from evaluation.rows.table import RowPart, RowRule, RowTable, read_table


class ScoredRow(RowPart):
    """The row of one case, from which metrics are computed.

    Attributes:
        case: Name of the case.
        error: The reason if there is no usable prediction; otherwise None.
        failed: Whether something was submitted that cannot be used.
    """

    case: Text
    error: Text | None = None
    failed: bool = False

    RULES: ClassVar[tuple[RowRule, ...]] = (
        RowRule(
            ("failed", "error"),
            lambda failed, errors: None not in compress(errors, failed),
            "the error of a failed case",
        ),
    )


def make_prediction_rule(name: str) -> RowRule:
    """Make the rule that a row has either this prediction or an error."""
    return RowRule(
        (name, "error"),
        lambda predictions, errors: all(
            (prediction is None) != (error is None) for prediction, error in zip(predictions, errors, strict=True)
        ),
        "a prediction, or the error that prevented it",
    )


AnyRow = TypeVar("AnyRow", bound=ScoredRow)
Value = TypeVar("Value")


@dataclass(frozen=True)
class RowMetrics:
    """Metrics of rows as functions of case weights, and what is reported with them.

    Attributes:
        metrics: Metrics by name.
        excluded: Cases that do not count in a metric, by the reason.
        warnings: By metric, a function that returns the warning about the metric, or None if there is no reason for a
            warning. Its arguments are the value in the whole cohort and the upper end of the interval, None without an
            interval.
        undefined: Why a metric that may rank has no value in the whole cohort. Each text begins with the metric's name.
    """

    metrics: Mapping[str, WeightedMetric]
    excluded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    warnings: Mapping[str, Callable[[float, float | None], str | None]] = field(default_factory=dict)
    undefined: tuple[str, ...] = ()


class Scorer(Protocol):
    """Scorer of the answers of one kind."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that the rules measure."""

    def read_reference(self, source: Path, centre_columns: Sequence[str]) -> Reference[Any]:
        """Read the targets of all cases from a folder or file; `centre_columns` are names of the centre's column."""

    def read_files(self, source: Path, cases: Collection[str], not_evaluated: Collection[str]) -> Submission:
        """Read a submission of plain files and match it to the cases."""

    def score(
        self, reference: Reference[Any], submissions: Sequence[Submission], workers: Workers, /
    ) -> Sequence[Sequence[Any]]:
        """Return the rows of each submission, a row for each of its answers.

        The answers of all submissions have the same cases in the same order.
        """

    def make_table(self, rows: Sequence[Any]) -> RowTable:
        """Return rows that were just scored as columns."""

    def read_table(self, rows: Sequence[Mapping[str, Any]], source: str) -> RowTable:
        """Read rows of metrics.json as columns, sorted by case.

        Raises:
            HecktorError: A row is malformed or lacks a value that the rules measure. The message names `source` and the
                case.
        """

    def measure(self, table: RowTable) -> RowMetrics:
        """Return the metrics of the rows."""

    def find_problems(self, rows: Sequence[Any]) -> tuple[Finding, ...]:
        """Find probable mistakes in rows that were just scored; public results do not show these warnings."""

    def parse_row(self, content: Mapping[str, Any], place: str) -> Any:
        """Parse a row of metrics.json.

        Raises:
            HecktorError: The row is malformed or lacks a value that the rules measure. The message begins with `place`.
        """

    def row_as_json(self, row: Any) -> dict[str, Any]:
        """Return the row as it is stored in metrics.json."""

    def list_references(self, table: RowTable) -> list[tuple[object, ...]]:
        """Return the part of each row that must be equal for all teams of a ranking."""


def parse_stored_row(
    content: Mapping[str, Any], model: type[AnyRow], place: str, keys: Mapping[str, str] | None = None
) -> AnyRow:
    """Validate a row of metrics.json.

    Args:
        content: The row, with the names of the model's fields as keys.
        model: Class of the row.
        place: Place of the row in messages.
        keys: Key in metrics.json of each field that has another name there, for messages.

    Raises:
        HecktorError: The row is malformed.
    """
    try:
        return model.model_validate(content)
    except ValidationError as problem:
        raise make_document_error(problem, place, HecktorError, keys=keys) from None


def make_table(rows: Sequence[ScoredRow], model: type[ScoredRow]) -> RowTable:
    """Return rows of one model as columns."""
    return read_table(model, [row.model_dump() for row in rows])


def read_stored_table(
    rows: Sequence[Mapping[str, Any]],
    read_columns: Callable[[Sequence[Mapping[str, Any]]], RowTable],
    parse_row: Callable[[Mapping[str, Any]], ScoredRow],
) -> RowTable:
    """Read rows of metrics.json as columns, sorted by case.

    Args:
        rows: The rows.
        read_columns: Reads all rows at once; raises an exception of `read_table` for a row that it does not accept.
        parse_row: Parses a row; raises HecktorError for a malformed row.
    """
    try:
        return read_columns(sorted(rows, key=itemgetter("case")))
    except (KeyError, TypeError, ValueError):
        # `parse_row` names the fault, or accepts what the columns do not accept.
        parsed = [parse_row(row) for row in rows]
    return make_table(sorted(parsed, key=lambda row: row.case), type(parsed[0]))


@dataclass(frozen=True)
class SubmittedValue(Generic[Value]):
    """The value of an answer.

    Attributes:
        value: The value; None if there is an error.
        error: Why there is no value; None if there is a value.
        failed: Whether something was submitted that cannot be used.
    """

    value: Value | None
    error: str | None = None
    failed: bool = False


def read_submitted_value(answer: SubmittedAnswer, read: Callable[[Path], Value]) -> SubmittedValue[Value]:
    """Read the value of an answer."""
    if answer.value is not None:
        return SubmittedValue(cast("Value", answer.value))
    try:
        return SubmittedValue(read(find_answer_file(answer, is_image=False)))
    except PredictionError as problem:
        return SubmittedValue(None, problem.message, answer.is_submitted)


def compute_cohort_value(metric: WeightedMetric, n_cases: int) -> float:
    """Compute a metric of the whole cohort; NaN if it is undefined."""
    return float(metric(np.ones((1, n_cases)))[0])


def build_metrics(metrics: Iterable[Metric], cohort: Any) -> dict[str, WeightedMetric]:
    """Return the metrics of a cohort by name, without metrics whose data is not in the rows."""
    functions = {metric.name: metric.build(cohort) for metric in metrics}
    return {name: function for name, function in functions.items() if function is not None}
