"""Agreement of a confidence with the quality of cases: rank correlation, risk-coverage curve and its area."""

from __future__ import annotations

import numpy as np

from evaluation.metrics.overlap import Floats, WeightedMetric, ratio_of_sums, spearman_metric


def confidence_metrics(expected: Floats, true_dsc: Floats) -> dict[str, WeightedMetric]:
    """Agreement of expected and true DSC, as functions of case weights; a case's risk is 1 - DSC.

    Both are 0 to 1, of shape (cases,) and in one order.

    `spearman` is their rank correlation, `mean_error` the mean of expected minus true DSC, `mean_absolute_error` the
    mean of its absolute value. `aurc` is the area under the risk-coverage curve, `excess_aurc` its excess over the
    oracle (ordered by the true DSC), `below_random` its distance below the mean risk (random order).
    """
    risk, ones = 1 - true_dsc, np.ones(true_dsc.size)
    own, best = aurc_metric(expected, risk), aurc_metric(true_dsc, risk)
    return {
        "spearman": spearman_metric(expected, true_dsc),
        "mean_error": lambda weights: ratio_of_sums(weights, expected - true_dsc, ones),
        "mean_absolute_error": lambda weights: ratio_of_sums(weights, np.abs(expected - true_dsc), ones),
        "aurc": own,
        "excess_aurc": lambda weights: own(weights) - best(weights),
        "below_random": lambda weights: ratio_of_sums(weights, risk, ones) - own(weights),
    }


def risk_coverage(confidence: Floats, risk: Floats, weights: Floats | None = None) -> Floats:
    """Mean risk of the k most confident cases, for k from 1 to all of them.

    For cases of equal confidence the result is the mean over all their orders. `weights`, whole numbers, are the
    counts of each case; None counts each case once.
    """
    level = np.unique(-confidence, return_inverse=True)[1]
    often = np.ones(risk.size) if weights is None else weights
    counts = np.bincount(level, often).astype(np.intp)
    sums = np.bincount(level, often * risk)
    mean = np.divide(sums, counts, out=np.zeros(len(sums)), where=counts > 0)
    return np.asarray(np.cumsum(np.repeat(mean, counts)) / np.arange(1, counts.sum() + 1))


def area(confidence: Floats, risk: Floats, weights: Floats | None = None) -> float:
    """Area under the risk-coverage curve: the mean of its points (AURC; Geifman, Uziel and El-Yaniv 2019)."""
    return float(risk_coverage(confidence, risk, weights).mean())


def aurc_metric(confidence: Floats, risk: Floats) -> WeightedMetric:
    """`area` as a function of case weights."""
    return lambda weights: np.array([area(confidence, risk, row) for row in weights])
