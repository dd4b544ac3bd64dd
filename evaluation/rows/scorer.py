"""Shared by all kinds of answers: score a case as one row, measure rows, read a row back from metrics.json."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, cast

import numpy as np

from contract.editions.values import described, is_integer, is_member, is_number, is_text
from contract.errors import Finding, HecktorError, PredictionError
from contract.images.volumes import MAX_VOXELS
from evaluation.execution import Workers
from evaluation.inputs.ground_truth import Reference
from evaluation.inputs.submission import Submission, SubmittedAnswer, answer_file
from evaluation.metrics.overlap import WeightedMetric
from evaluation.metrics.rules import Metric

# Files of other machines may differ in the last digits.
_TOLERANCE: Final = 1e-9


@dataclass(frozen=True)
class RawRow:
    """A row as JSON; `where` is its file and case, for messages. All methods raise HecktorError for other values."""

    content: Mapping[str, Any]
    where: str

    def fault(self, found: str, expected: str) -> HecktorError:
        return HecktorError(self.where, found, expected)

    @property
    def case(self) -> str:
        return str(self.content["case"])

    def outcome(self) -> tuple[str | None, bool]:
        """The reason why there is no usable prediction (None if there is one), and whether something was submitted."""
        error, failed = self._value("error"), self.flag("failed")
        if error is not None and not is_text(error):
            raise self._not("error", "a text or null")
        if failed and error is None:
            raise self.fault("failed without an error", "the reason")
        return error, failed

    def flag(self, key: str) -> bool:
        value = self._value(key)
        if not isinstance(value, bool):
            raise self._not(key, "true or false")
        return value

    def count(self, key: str) -> int:
        """A number of voxels or lesions, at most the voxels of the largest image."""
        value = self._value(key)
        if not is_integer(value) or not 0 <= value <= MAX_VOXELS:
            raise self._not(key, f"a whole number from 0 to {MAX_VOXELS}")
        return int(value)

    def number(self, key: str, low: float = -math.inf, high: float = math.inf) -> float:
        """A finite number from `low` to `high`, both included."""
        value = self._value(key)
        if not is_number(value) or not low <= value <= high:
            limits = [f"at least {low:g}"] * (low > -math.inf) + [f"at most {high:g}"] * (high < math.inf)
            raise self._not(key, " ".join(["a finite number", " and ".join(limits)]).strip())
        return float(value)

    def member(self, key: str, values: Sequence[Any]) -> Any:
        value = self._value(key)
        if not is_member(value, values):
            raise self._not(key, f"one of {', '.join(map(str, values))}")
        return value

    def is_null(self, key: str) -> bool:
        return self._value(key) is None

    def check_null(self, key: str, *, because: bool) -> None:
        """A prediction is null if, and only if, there is an error."""
        if self.is_null(key) != because:
            found = f"{key} and an error" if because else f"neither {key} nor an error"
            raise self.fault(found, "a prediction, or the reason why there is none")

    def check(self, key: str, expected: Any, by: str) -> None:
        """Compare a figure with the one that follows from others; `by` names these."""
        value = self._value(key)
        if type(value) is type(expected) and value == expected:  # most figures, without the tests of numbers
            return
        if is_number(expected) and is_number(value):
            equal = math.isclose(value, expected, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
        else:
            equal = is_member(value, [expected])
        if not equal:
            wanted = "null" if expected is None else f"{expected:.6g}" if is_number(expected) else str(expected)
            raise self._not(key, f"{wanted} by {by}")

    def _value(self, key: str) -> Any:
        if key not in self.content:
            raise self.fault(f"no {key}", "a row of `hecktor evaluate`")
        return self.content[key]

    def _not(self, key: str, expected: str) -> HecktorError:
        value = self.content[key]
        return self.fault(f"{key} {'null' if value is None else described(value)}", expected)


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
