"""Metrics of predicted classes: accuracy, recall and balanced accuracy; with a probability also AUC and calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from contract.editions import AnswerSpec
from contract.editions.answers import ClassValue
from evaluation.metrics.concordance import make_case_control_counter
from evaluation.metrics.overlap import Booleans, Floats, MeanRecall, WeightedMetric, ratio, ratio_of_sums
from evaluation.metrics.rules import ClassRules, Metric

Codes: TypeAlias = npt.NDArray[np.intp]

CALIBRATION_BINS: Final = 5
# Code of a missing prediction.
NO_CLASS: Final = -1
RECALL_PREFIX: Final = "recall_"


def make_binary_metrics(positive: Booleans, correct: Booleans) -> dict[str, WeightedMetric]:
    """Return balanced accuracy, sensitivity and specificity as functions of case weights.

    Sensitivity is the fraction of positive patients who are predicted positive. Specificity is the fraction of negative
    patients who are predicted negative. Balanced accuracy is the mean of both, NaN if a class is absent from the
    reference. In a bootstrap this is a thousand times faster than scikit-learn's `balanced_accuracy_score`.

    Args:
        positive: Whether the reference is the positive class, shape (patients,).
        correct: Whether the prediction agrees with the reference, False where missing, shape (patients,).
    """
    return {
        "balanced_accuracy": _make_mean_recall([positive, ~positive], correct),
        "sensitivity": _make_mean_recall([positive], correct),
        "specificity": _make_mean_recall([~positive], correct),
    }


def make_multiclass_metrics(reference: Codes, predicted: Codes, n_classes: int) -> dict[str, WeightedMetric]:
    """Return balanced accuracy, accuracy, and the recall of each class by its code, as functions of case weights.

    Balanced accuracy is the mean recall of the classes that are present in the weighted reference. It is NaN if fewer
    than two are present. The recall of an absent class is NaN.

    Args:
        reference: Codes of the classes in the reference, from 0; shape (patients,).
        predicted: Codes of the predicted classes, `NO_CLASS` where missing; shape (patients,).
        n_classes: Number of classes.
    """
    correct = np.asarray(reference == predicted, dtype=np.bool_)
    patients_of = [reference == code for code in range(n_classes)]
    all_patients = np.ones(reference.size, dtype=np.bool_)
    return {
        "balanced_accuracy": _make_mean_recall(patients_of, correct),
        "accuracy": _make_mean_recall([all_patients], correct),
        **{str(code): _make_mean_recall([patients], correct) for code, patients in enumerate(patients_of)},
    }


def _make_mean_recall(classes: Sequence[Booleans], correct: Booleans) -> WeightedMetric:
    """Make the mean recall of classes, each given by the mask of its patients.

    The mean over several classes is undefined if fewer than two of them have patients.
    """
    members = np.array(classes, dtype=np.float64)
    return MeanRecall(correct.astype(np.float64), members, min(2, len(classes)))


def confusion_matrix(reference: Codes, predicted: Codes, n_classes: int) -> npt.NDArray[np.intp]:
    """Count patients by reference and prediction.

    Returns:
        Counts of shape (classes, classes + 1): rows by reference, columns by prediction. The last column counts
            missing predictions.
    """
    columns = np.where(predicted == NO_CLASS, n_classes, predicted)
    cells = np.bincount(reference * (n_classes + 1) + columns, minlength=n_classes * (n_classes + 1))
    return np.asarray(cells.reshape(n_classes, n_classes + 1), dtype=np.intp)


def make_probability_metrics(positive: Booleans, probability: Floats) -> dict[str, WeightedMetric]:
    """Return metrics of the predicted probability of the positive class, as functions of case weights.

    A missing probability (NaN) counts as 0 for a positive patient and as 1 for a negative one.

    - `auc`: the probability that a positive patient has the higher probability (ties 0.5), NaN if a class is absent.
    - `brier`: the mean squared error.
    - `calibration_in_the_large`: the mean probability minus the fraction of positive patients.
    - `calibration_error`: the absolute value of this difference within each of five equal bins of the probability,
      averaged over patients.
    """
    truth = positive.astype(np.float64)
    completed = np.where(np.isnan(probability), 1.0 - truth, probability)
    in_bin = (_find_bins(completed)[:, None] == np.arange(CALIBRATION_BINS)).astype(np.float64)

    def calibration_error(weights: Floats) -> Floats:
        gaps: Floats = np.abs(weights @ (in_bin * (completed - truth)[:, None])).sum(axis=1)
        return ratio(gaps, weights.sum(axis=1))

    ones = np.ones(truth.size)
    return {
        "auc": auc_metric(positive, completed),
        "brier": lambda weights: ratio_of_sums(weights, (completed - truth) ** 2, ones),
        "calibration_in_the_large": lambda weights: ratio_of_sums(weights, completed - truth, ones),
        "calibration_error": calibration_error,
    }


def auc_metric(positive: Booleans, score: Floats) -> WeightedMetric:
    """Return the area under the ROC curve as a function of case weights; NaN if a class is absent.

    A bootstrap of 1000 replicates of 400 patients is 140 times faster than with scikit-learn's `roc_auc_score`.
    """
    counter = make_case_control_counter(positive, score)
    return lambda weights: counter.count(weights).concordance()


def calibration_table(positive: Booleans, probability: Floats) -> list[dict[str, Any]]:
    """Return the number of patients, mean probability and fraction of positives in five equal bins of the probability.

    Patients with no probability (NaN) do not count. Empty bins are left out.
    """
    known = ~np.isnan(probability)
    probability, positive = probability[known], positive[known]
    bins = _find_bins(probability)
    return [
        {
            "cases": int((bins == number).sum()),
            "probability_mean": float(probability[bins == number].mean()),
            "positive_share": float(positive[bins == number].mean()),
        }
        for number in range(CALIBRATION_BINS)
        if (bins == number).any()
    ]


def encode_classes(values: Sequence[object], classes: Sequence[object]) -> Codes:
    """Return the index of each value among the classes, `NO_CLASS` for None."""
    code_of = {value: code for code, value in enumerate(classes)}
    return np.array([NO_CLASS if value is None else code_of[value] for value in values], dtype=np.intp)


def _find_bins(probability: Floats) -> npt.NDArray[np.intp]:
    return np.minimum(probability * CALIBRATION_BINS, CALIBRATION_BINS - 1).astype(np.intp)


@dataclass(frozen=True)
class ClassCohort:
    """The classes of a cohort, and the metrics of its patients.

    Attributes:
        answer: The answer with its classes.
        actual: Class of each patient.
        predicted: Predicted class of each patient, None where missing.
        probability: Predicted probability of the second of two classes, NaN where missing; shape (patients,).
    """

    answer: AnswerSpec
    actual: Sequence[ClassValue]
    predicted: Sequence[ClassValue | None]
    probability: Floats

    @cached_property
    def binary_metrics(self) -> dict[str, WeightedMetric]:
        """The metrics of two classes; metrics of probabilities only if a patient has a probability."""
        positive = np.array([actual == self.answer.classes[1] for actual in self.actual], dtype=np.bool_)
        correct = np.array(
            [actual == predicted for actual, predicted in zip(self.actual, self.predicted, strict=True)], dtype=np.bool_
        )
        metrics = make_binary_metrics(positive, correct)
        if np.isfinite(self.probability).any():
            metrics |= make_probability_metrics(positive, self.probability)
        return metrics

    @cached_property
    def multiclass_metrics(self) -> dict[str, WeightedMetric]:
        """The metrics of more than two classes."""
        actual = encode_classes(self.actual, self.answer.classes)
        predicted = encode_classes(self.predicted, self.answer.classes)
        return make_multiclass_metrics(actual, predicted, len(self.answer.classes))


def _make_binary_metric(name: str, title: str, **properties: Any) -> Metric:
    return Metric(name, title, "class", lambda cohort: cohort.binary_metrics.get(name), **properties)


def _make_multiclass_metric(name: str, title: str, key: str) -> Metric:
    return Metric(name, title, "class", lambda cohort: cohort.multiclass_metrics[key])


BINARY_METRICS: tuple[Metric, ...] = (
    _make_binary_metric("balanced_accuracy", "Balanced accuracy"),
    _make_binary_metric("sensitivity", "Sensitivity"),
    _make_binary_metric("specificity", "Specificity"),
    _make_binary_metric("auc", "AUC"),
    _make_binary_metric("brier", "Brier score", best=0.0),
    _make_binary_metric("calibration_in_the_large", "Calibration in the large", bounds=(-1.0, 1.0), best=0.0),
    _make_binary_metric("calibration_error", "Calibration error", best=0.0),
)
MULTICLASS_METRICS: tuple[Metric, ...] = (
    _make_multiclass_metric("balanced_accuracy", "Balanced accuracy", "balanced_accuracy"),
    _make_multiclass_metric("accuracy", "Accuracy", "accuracy"),
)


def list_class_metrics(answer: AnswerSpec) -> tuple[Metric, ...]:
    """Return the metrics of an answer; for more than two classes they include the recall of each class."""
    if answer.is_binary:
        return BINARY_METRICS
    return (*MULTICLASS_METRICS, *(_make_recall_metric(value, code) for code, value in enumerate(answer.classes)))


def _make_recall_metric(value: ClassValue, code: int) -> Metric:
    return _make_multiclass_metric(f"{RECALL_PREFIX}{value}", f"Recall of {value}", str(code))


def with_all_classes(answer: AnswerSpec) -> AnswerSpec:
    """Return the answer with all its classes counted, including those that its declaration leaves out."""
    return answer.model_copy(update={"classes": (*answer.not_counted, *answer.classes), "not_counted": ()})


def select_counted_classes(answer: AnswerSpec, rules: ClassRules) -> AnswerSpec:
    """Return the answer with the classes that count by the rules."""
    return with_all_classes(answer) if rules.not_counted == "class" else answer
