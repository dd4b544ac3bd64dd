"""What the three kinds of task have in common: read the reference, one row a case, metrics of the rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numpy as np

from contract.editions import Socket
from contract.errors import GroundTruthError, MetricError, PredictionError
from evaluation.editions.edge_cases import DIRECTIONS, NO_COMPARABLE_PAIR, ONE_CLASS_ONLY, SIGN_MAY_BE_FLIPPED
from evaluation.editions.rules import ClassificationRules, Rules, SegmentationRules, SurvivalRules
from evaluation.execution.pool import Workers, map_cases
from evaluation.inputs import ground_truth, plain_files
from evaluation.inputs.ground_truth import FollowUp, Reference
from evaluation.inputs.masks import read_labels
from evaluation.inputs.submission import Answer, Submission, answer_file, read_risk, read_status
from evaluation.metrics.censoring import censoring_metrics
from evaluation.metrics.classification import (
    Answers,
    Booleans,
    calibration_table,
    classification_metrics,
    probability_metrics,
)
from evaluation.metrics.overlap import Floats, WeightedMetric
from evaluation.metrics.survival import Cohort, c_index_metric
from evaluation.rows.mask import MaskPair, SegmentationRow, score_masks
from evaluation.rows.mask_metrics import dsc_by_volume, segmentation_metrics

Value = TypeVar("Value")


@dataclass(frozen=True)
class RiskRow:
    """A patient's follow-up and predicted risk, None where missing."""

    case: str
    follow_up: FollowUp
    risk: float | None
    error: str | None = None
    failed: bool = False

    @property
    def reference(self) -> tuple[object, ...]:
        """The reference's part of the row: follow-up and recurrence."""
        return self.follow_up.rfs_days, self.follow_up.relapse

    def as_json(self) -> dict[str, Any]:
        """The row for metrics.json."""
        return {
            "case": self.case,
            "error": self.error,
            "failed": self.failed,
            "risk": self.risk,
            "rfs_days": self.follow_up.rfs_days,
            "relapse": self.follow_up.relapse,
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> RiskRow:
        """The row that `as_json` wrote. Raises KeyError where it lacks a figure."""
        return cls(raw["case"], FollowUp(raw["rfs_days"], raw["relapse"]), raw["risk"], raw["error"], raw["failed"])


@dataclass(frozen=True)
class StatusRow:
    """A patient's HPV status (True = positive), the predicted one and its probability, None where missing."""

    case: str
    hpv_positive: bool
    predicted: bool | None
    error: str | None = None
    failed: bool = False
    probability: float | None = None

    @property
    def reference(self) -> tuple[object, ...]:
        """The reference's part of the row: the status."""
        return (self.hpv_positive,)

    def as_json(self) -> dict[str, Any]:
        """The row for metrics.json."""
        return {
            "case": self.case,
            "error": self.error,
            "failed": self.failed,
            "predicted_hpv_positive": self.predicted,
            "predicted_probability": self.probability,
            "hpv_positive": self.hpv_positive,
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> StatusRow:
        """The row that `as_json` wrote. Raises KeyError where it lacks a figure."""
        answer = (raw["predicted_hpv_positive"], raw["error"], raw["failed"], raw["predicted_probability"])
        return cls(raw["case"], raw["hpv_positive"], *answer)


@dataclass(frozen=True)
class Measured:
    """Metrics of a cohort as functions of case weights, and cases that entered not every metric, by reason."""

    metrics: Mapping[str, WeightedMetric]
    skipped: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Scorer:
    """One kind of task.

    `read_files` reads a submission that is no platform's: the folder or table, the cases, and those not evaluated.
    `score` gives a row for each answer, `measure` metrics for the rows, `analyse` tables that are no metric (with
    True for what anyone may see), `warn` lines for the metrics' values. `restore` makes a row of its JSON form.
    `public_centres`: whether anyone may see the metrics of each centre; where all patients of a centre are of one
    class, or none of them recurred, a metric that does not exist there would tell so.
    """

    read_reference: Callable[[Path], Reference[Any]]
    read_files: Callable[[Path, Collection[str], Collection[str]], Submission]
    score: Callable[[Reference[Any], Submission, Any, Socket, int | Workers], Sequence[Any]]
    measure: Callable[[Sequence[Any], Any], Measured]
    analyse: Callable[[Sequence[Any], bool], dict[str, Any]]
    warn: Callable[[Mapping[str, float | None], Any], list[str]]
    restore: Callable[[Mapping[str, Any]], Any]
    public_centres: bool


def _score_segmentation(
    reference: Reference[Path], submission: Submission, rules: SegmentationRules, output: Socket, workers: int | Workers
) -> list[SegmentationRow]:
    del output
    pairs = [
        MaskPair(reference.targets[answer.case], answer, rules, reference.boxes.get(answer.case))
        for answer in submission.answers
    ]
    return map_cases(score_masks, pairs, workers, _row_of_dead_worker)


def _row_of_dead_worker(pair: MaskPair) -> SegmentationRow:
    # The reference alone must be readable here; if it is what kills a process, the run stops with it.
    read_labels(pair.reference, GroundTruthError)
    lost = Answer(pair.answer.case, None, "the process that compared it died, out of memory perhaps", failed=True)
    return score_masks(MaskPair(pair.reference, lost, pair.rules, pair.box))


def _measure_segmentation(rows: Sequence[SegmentationRow], rules: SegmentationRules) -> Measured:
    not_in_mean = tuple(row.case for row in rows if row.gtvp_dsc is None)
    skipped = {"gtvp_empty_not_in_mean_dsc": not_in_mean} if not_in_mean else {}
    return Measured(segmentation_metrics(rows, rules), skipped)


def _analyse_segmentation(rows: Sequence[SegmentationRow], public: bool) -> dict[str, Any]:
    found = dsc_by_volume(rows, public=public)
    return {} if found is None else {"gtvp_dsc_by_volume": found}


def _score_survival(
    reference: Reference[FollowUp], submission: Submission, rules: SurvivalRules, output: Socket, workers: int | Workers
) -> list[RiskRow]:
    del rules, workers
    return [
        RiskRow(answer.case, reference.targets[answer.case], *_value(answer, output, read_risk))
        for answer in submission.answers
    ]


def _measure_survival(rows: Sequence[RiskRow], rules: SurvivalRules) -> Measured:
    sign = {"risk": 1.0, "time": -1.0}[rules.direction]
    cohort = Cohort(
        times_days=_column(rows, lambda row: row.follow_up.rfs_days),
        events=np.array([row.follow_up.relapse for row in rows], dtype=np.bool_),
        risks=np.array([np.nan if row.risk is None else sign * row.risk for row in rows]),
    )
    metric = c_index_metric(cohort, rules.missing_risk)
    _require(metric, len(rows), NO_COMPARABLE_PAIR.format(n=len(rows)))
    return Measured({"c_index": metric, **censoring_metrics(cohort, rules.missing_risk)}, {})


def _score_classification(
    reference: Reference[bool],
    submission: Submission,
    rules: ClassificationRules,
    output: Socket,
    workers: int | Workers,
) -> list[StatusRow]:
    del rules, workers
    return [_status_row(answer, reference.targets[answer.case], output) for answer in submission.answers]


def _status_row(answer: Answer, hpv_positive: bool, output: Socket) -> StatusRow:
    status, error, failed = _value(answer, output, read_status)
    if status is None:
        return StatusRow(answer.case, hpv_positive, None, error, failed)
    return StatusRow(answer.case, hpv_positive, status.positive, probability=status.probability)


def _measure_classification(rows: Sequence[StatusRow], rules: ClassificationRules) -> Measured:
    del rules
    positive, probability = _positive_and_probability(rows)
    correct = np.array([row.predicted is row.hpv_positive for row in rows], dtype=np.bool_)
    metrics = classification_metrics(Answers(positive, correct))
    _require(metrics["balanced_accuracy"], len(rows), ONE_CLASS_ONLY)
    if np.isfinite(probability).any():
        metrics |= probability_metrics(positive, probability)
    return Measured(metrics, {})


def _analyse_classification(rows: Sequence[StatusRow], public: bool) -> dict[str, Any]:
    # The share of positives among few patients of a bin would give their status away.
    positive, probability = _positive_and_probability(rows)
    return (
        {}
        if public or not np.isfinite(probability).any()
        else {"calibration": calibration_table(positive, probability)}
    )


def _positive_and_probability(rows: Sequence[StatusRow]) -> tuple[Booleans, Floats]:
    positive = np.array([row.hpv_positive for row in rows], dtype=np.bool_)
    return positive, np.array([np.nan if row.probability is None else row.probability for row in rows])


def _no_analysis(rows: Sequence[Any], public: bool) -> dict[str, Any]:
    del rows, public
    return {}


def _value(answer: Answer, output: Socket, read: Callable[[Path], Value]) -> tuple[Value | None, str | None, bool]:
    """The answer's value, or None with the reason and whether an answer was tried."""
    if answer.value is not None:
        return cast("Value", answer.value), None, False
    try:
        return read(answer_file(answer, output)), None, False
    except PredictionError as problem:
        return None, problem.message, answer.tried


def _require(metric: WeightedMetric, n_cases: int, message: str) -> None:
    if np.isnan(metric(np.ones((1, n_cases)))[0]):
        raise MetricError(message)


def _warn_of_flipped_sign(values: Mapping[str, float | None], rules: SurvivalRules) -> list[str]:
    value = values.get("c_index")
    if value is None or value >= 0.5:
        return []
    return [SIGN_MAY_BE_FLIPPED.format(value=value, direction=DIRECTIONS[rules.direction])]


def _no_warning(values: Mapping[str, float | None], rules: Rules) -> list[str]:
    del values, rules
    return []


def _column(rows: Sequence[Any], of: Callable[[Any], float]) -> Floats:
    return np.array([of(row) for row in rows], dtype=np.float64)


SCORERS: Final[dict[str, Scorer]] = {
    "segmentation": Scorer(
        ground_truth.read_mask_folder,
        plain_files.read_mask_files,
        _score_segmentation,
        _measure_segmentation,
        _analyse_segmentation,
        _no_warning,
        SegmentationRow.from_json,
        public_centres=True,
    ),
    "survival": Scorer(
        ground_truth.read_follow_up,
        plain_files.read_risk_table,
        _score_survival,
        _measure_survival,
        _no_analysis,
        _warn_of_flipped_sign,
        RiskRow.from_json,
        public_centres=False,
    ),
    "classification": Scorer(
        ground_truth.read_hpv_status,
        plain_files.read_status_table,
        _score_classification,
        _measure_classification,
        _analyse_classification,
        _no_warning,
        StatusRow.from_json,
        public_centres=False,
    ),
}
