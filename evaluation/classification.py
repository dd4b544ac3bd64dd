"""Balanced accuracy, sensitivity and specificity of the predicted HPV status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from evaluation.overlap import Floats, WeightedMetric, weighted_ratio

Booleans: TypeAlias = npt.NDArray[np.bool_]


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
