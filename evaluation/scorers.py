"""What the three kinds of task have in common: read the reference, one row a case, metrics of the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from contract.errors import GroundTruthError, MetricError, PredictionError
from contract.sockets import Socket
from evaluation import ground_truth
from evaluation.cases import MaskPair, SegmentationRow, read_labels, score_masks
from evaluation.classification import Answers, classification_metrics
from evaluation.edge_cases import DIRECTIONS, NO_COMPARABLE_PAIR, ONE_CLASS_ONLY, SIGN_MAY_BE_FLIPPED
from evaluation.edition import ClassificationRules, Rules, SegmentationRules, SurvivalRules
from evaluation.ground_truth import FollowUp, Reference
from evaluation.lesions import f1_agg_metric
from evaluation.overlap import Floats, WeightedMetric, dsc_agg_metric, mean_metric
from evaluation.pool import map_cases
from evaluation.submission import Answer, Submission, answer_file, read_risk, read_status
from evaluation.survival import Cohort, c_index_metric

Value = TypeVar("Value")


@dataclass(frozen=True)
class RiskRow:
    """A patient's follow-up and predicted risk, None where missing."""

    case: str
    follow_up: FollowUp
    risk: float | None
    error: str | None = None
    failed: bool = False

    def as_json(self) -> dict[str, Any]:
        """The row for metrics.json."""
        return {
            "case": self.case,
            "error": self.error,
            "risk": self.risk,
            "rfs_days": self.follow_up.rfs_days,
            "relapse": self.follow_up.relapse,
        }


@dataclass(frozen=True)
class StatusRow:
    """A patient's HPV status (True = positive) and the predicted one, None where missing."""

    case: str
    hpv_positive: bool
    predicted: bool | None
    error: str | None = None
    failed: bool = False

    def as_json(self) -> dict[str, Any]:
        """The row for metrics.json."""
        return {
            "case": self.case,
            "error": self.error,
            "predicted_hpv_positive": self.predicted,
            "hpv_positive": self.hpv_positive,
        }


@dataclass(frozen=True)
class Measured:
    """Metrics of a cohort as functions of case weights, and cases that entered not every metric, by reason."""

    metrics: Mapping[str, WeightedMetric]
    skipped: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Scorer:
    """One kind of task. `score` gives a row for each answer; `measure` metrics for the rows."""

    read_reference: Callable[[Path], Reference[Any]]
    score: Callable[[Reference[Any], Submission, Any, Socket, int], Sequence[Any]]
    measure: Callable[[Sequence[Any], Any], Measured]
    warn: Callable[[Mapping[str, float | None], Any], list[str]]


def _score_segmentation(
    reference: Reference[Path], submission: Submission, rules: SegmentationRules, output: Socket, workers: int
) -> list[SegmentationRow]:
    del output
    pairs = [MaskPair(reference.targets[answer.case], answer, rules) for answer in submission.answers]
    return map_cases(score_masks, pairs, workers, _row_of_dead_worker)


def _row_of_dead_worker(pair: MaskPair) -> SegmentationRow:
    # The reference alone must be readable here; if it is what kills a process, the run stops with it.
    read_labels(pair.reference, GroundTruthError)
    lost = Answer(pair.answer.case, None, "the process that compared it died, out of memory perhaps", failed=True)
    return score_masks(MaskPair(pair.reference, lost, pair.rules))


def _measure_segmentation(rows: Sequence[SegmentationRow], rules: SegmentationRules) -> Measured:
    unit = np.array([row.voxel_volume_mm3 if rules.volume_unit == "mm3" else 1.0 for row in rows])
    dsc = np.array([np.nan if row.gtvp_dsc is None else row.gtvp_dsc for row in rows])
    metrics = {
        "gtvp_dsc_mean": mean_metric(dsc),
        "gtvn_dsc_agg": dsc_agg_metric(
            _column(rows, lambda row: row.gtvn.intersection) * unit,
            _column(rows, lambda row: row.gtvn.reference) * unit,
            _column(rows, lambda row: row.gtvn.predicted) * unit,
        ),
        "gtvn_f1_agg": f1_agg_metric(
            _column(rows, lambda row: row.gtvn_lesions.true_positives),
            _column(rows, lambda row: row.gtvn_lesions.false_positives),
            _column(rows, lambda row: row.gtvn_lesions.false_negatives),
        ),
    }
    not_in_mean = tuple(row.case for row in rows if row.gtvp_dsc is None)
    return Measured(metrics, {"gtvp_empty_not_in_mean_dsc": not_in_mean} if not_in_mean else {})


def _score_survival(
    reference: Reference[FollowUp], submission: Submission, rules: SurvivalRules, output: Socket, workers: int
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
    return Measured({"c_index": metric}, {})


def _score_classification(
    reference: Reference[bool], submission: Submission, rules: ClassificationRules, output: Socket, workers: int
) -> list[StatusRow]:
    del rules, workers
    return [
        StatusRow(answer.case, reference.targets[answer.case], *_value(answer, output, read_status))
        for answer in submission.answers
    ]


def _measure_classification(rows: Sequence[StatusRow], rules: ClassificationRules) -> Measured:
    del rules
    positive = np.array([row.hpv_positive for row in rows], dtype=np.bool_)
    correct = np.array([row.predicted is row.hpv_positive for row in rows], dtype=np.bool_)
    metrics = classification_metrics(Answers(positive, correct))
    _require(metrics["balanced_accuracy"], len(rows), ONE_CLASS_ONLY)
    return Measured(metrics, {})


def _value(answer: Answer, output: Socket, read: Callable[[Path], Value]) -> tuple[Value | None, str | None, bool]:
    """The answer's value, or None with the reason and whether an answer was tried."""
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
    "segmentation": Scorer(ground_truth.read_mask_folder, _score_segmentation, _measure_segmentation, _no_warning),
    "survival": Scorer(ground_truth.read_follow_up, _score_survival, _measure_survival, _warn_of_flipped_sign),
    "classification": Scorer(ground_truth.read_hpv_status, _score_classification, _measure_classification, _no_warning),
}
