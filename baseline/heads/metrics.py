"""The evaluation's metrics: of heads on their cohorts, and the titles of those of masks."""

from __future__ import annotations

import numpy as np

from baseline.heads.cohort import Flags, Floats, Numbers, Outcomes
from contract.editions import Edition
from contract.errors import HecktorError, MetricError
from evaluation.editions.profile import profile_of
from evaluation.metrics.classification import auc_metric, binary_metrics, many_classes_metrics
from evaluation.metrics.overlap import WeightedMetric
from evaluation.metrics.survival import SurvivalCohort, c_index_metric


def weighted_c_index(outcomes: Outcomes, risks: Floats) -> WeightedMetric:
    """Harrell's C-index of risks (higher for earlier recurrence) as a function of case weights."""
    return c_index_metric(SurvivalCohort(outcomes.times_days, outcomes.positive, risks), "non_concordant")


def weighted_balanced_accuracy(outcomes: Outcomes, answers: Flags) -> WeightedMetric:
    """Balanced accuracy of binary answers as a function of case weights."""
    return binary_metrics(outcomes.positive, answers == outcomes.positive)["balanced_accuracy"]


def weighted_class_accuracy(outcomes: Outcomes, answers: Numbers) -> WeightedMetric:
    """Balanced accuracy of class numbers, the mean recall of the classes that occur, as a function of case weights."""
    codes = answers.astype(np.intp)
    metrics = many_classes_metrics(outcomes.values.astype(np.intp), codes, len(outcomes.classes))
    return metrics["balanced_accuracy"]


def c_index(outcomes: Outcomes, risks: Floats) -> float:
    """Harrell's C-index of risks (higher for earlier recurrence); ties of risks count half.

    Raises:
        MetricError: no two patients are comparable.
    """
    value = _of_everyone(weighted_c_index(outcomes, risks), len(risks))
    if np.isnan(value):
        raise MetricError("C-index", f"no comparable pair among {len(risks)} patients")
    return value


def balanced_accuracy(outcomes: Outcomes, answers: Flags) -> float:
    """Mean of sensitivity and specificity; NaN without both classes."""
    return _of_everyone(weighted_balanced_accuracy(outcomes, answers), len(answers))


def class_accuracy(outcomes: Outcomes, answers: Numbers) -> float:
    """Mean recall of the classes that occur; NaN for a single class."""
    return _of_everyone(weighted_class_accuracy(outcomes, answers), len(answers))


def area_under_curve(outcomes: Outcomes, scores: Floats) -> float:
    """Probability that a positive patient scores higher than a negative one; ties count half.

    Raises:
        MetricError: one of the classes is empty.
    """
    positive = outcomes.positive
    value = _of_everyone(auc_metric(positive, scores), len(scores))
    if np.isnan(value):
        raise MetricError("area under the curve", f"{int(positive.sum())} of {len(positive)} positive", "both classes")
    return value


def _of_everyone(metric: WeightedMetric, patients: int) -> float:
    return float(metric(np.ones((1, patients)))[0])


def mask_task(edition: Edition) -> str:
    """Name of the edition's first task that segments."""
    for algorithm in edition.algorithms:
        if algorithm.mask is not None:
            return algorithm.name
    raise HecktorError(f"edition {edition.name}: found no mask among its answers, expected one")


def mask_metric_titles(edition: Edition) -> dict[str, str]:
    """Titles of the ranked metrics of masks, in order, by name without the mask's prefix."""
    task = profile_of(edition).task(mask_task(edition))
    profiles = [task.answers[answer.name] for answer in task.algorithm.answers if answer.kind == "mask"]
    names = {f"{one.prefix}{name}": name for one in profiles for name in one.metrics}
    return {names[name]: metric.title for name, metric in task.metrics.items() if name in names}
