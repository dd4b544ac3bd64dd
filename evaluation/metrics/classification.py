"""Predicted HPV status: balanced accuracy, sensitivity and specificity; with a probability also AUC and calibration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from evaluation.metrics.concordance import case_control_pairs
from evaluation.metrics.overlap import Floats, WeightedMetric, ratio, weighted_ratio

Booleans: TypeAlias = npt.NDArray[np.bool_]

CALIBRATION_BINS: Final = 5


@dataclass(frozen=True)
class Answers:
    """`positive`: the reference; `correct`: whether the prediction agrees, False where missing; shape (patients,)."""

    positive: Booleans
    correct: Booleans


def classification_metrics(answers: Answers) -> dict[str, WeightedMetric]:
    """The three metrics as functions of case weights; NaN where the reference lacks a class.

    Sensitivity is the share of HPV-positive patients answered so, specificity that of HPV-negative ones, and
    balanced accuracy their mean. A missing answer is wrong in either class.
    """
    positive = answers.positive.astype(np.float64)
    negative = 1.0 - positive
    correct = answers.correct.astype(np.float64)

    def sensitivity(weights: Floats) -> Floats:
        return weighted_ratio(weights, positive * correct, positive)

    def specificity(weights: Floats) -> Floats:
        return weighted_ratio(weights, negative * correct, negative)

    def balanced_accuracy(weights: Floats) -> Floats:
        return (sensitivity(weights) + specificity(weights)) / 2

    return {"balanced_accuracy": balanced_accuracy, "sensitivity": sensitivity, "specificity": specificity}


def probability_metrics(positive: Booleans, probability: Floats) -> dict[str, WeightedMetric]:
    """Metrics of the predicted probability of HPV positive, as functions of case weights.

    Args:
        positive: the reference, shape (patients,).
        probability: in [0, 1], NaN where missing: then 0 counts for a positive patient and 1 for a negative one.

    `auc` is the chance that a positive patient has the higher probability (ties 0.5), NaN without both classes;
    `brier` the mean squared error; `calibration_in_the_large` the mean probability less the share of positives;
    `calibration_error` the mean over patients of the absolute difference of these two in five equal bins of the
    probability.
    """
    truth = positive.astype(np.float64)
    given = np.where(np.isnan(probability), 1.0 - truth, probability)
    bins = _bins(given)
    member = (bins[:, None] == np.arange(CALIBRATION_BINS)).astype(np.float64)

    def calibration_error(weights: Floats) -> Floats:
        gaps: Floats = np.abs(weights @ (member * (given - truth)[:, None])).sum(axis=1)
        return ratio(gaps, weights.sum(axis=1))

    ones = np.ones(truth.size)
    return {
        "auc": auc_metric(positive, given),
        "brier": lambda weights: weighted_ratio(weights, (given - truth) ** 2, ones),
        "calibration_in_the_large": lambda weights: weighted_ratio(weights, given - truth, ones),
        "calibration_error": calibration_error,
    }


def auc_metric(positive: Booleans, score: Floats) -> WeightedMetric:
    """Area under the ROC curve as a function of case weights; NaN without both classes."""
    counter = case_control_pairs(positive, score)

    def weighted(weights: Floats) -> Floats:
        pairs = counter.count(weights)
        return ratio(pairs.concordant, pairs.comparable)

    return weighted


def calibration_table(positive: Booleans, probability: Floats) -> list[dict[str, Any]]:
    """Patients with a probability in five equal bins of it: how many, their mean probability and share of positives."""
    given = ~np.isnan(probability)
    bins = _bins(probability[given])
    table = []
    for number in range(CALIBRATION_BINS):
        inside = bins == number
        if inside.any():
            mean, share = float(probability[given][inside].mean()), float(positive[given][inside].mean())
            table.append({"cases": int(inside.sum()), "probability_mean": mean, "positive_share": share})
    return table


def _bins(probability: Floats) -> npt.NDArray[np.intp]:
    return np.minimum(probability * CALIBRATION_BINS, CALIBRATION_BINS - 1).astype(np.intp)
