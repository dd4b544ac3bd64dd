"""How well a confidence predicts the quality of cases: rank correlation, risk-coverage curve and its area."""

from __future__ import annotations

import numpy as np

from evaluation.metrics.overlap import Floats, WeightedMetric, weighted_ratio


def confidence_metrics(expected: Floats, true_dsc: Floats) -> dict[str, WeightedMetric]:
    """Agreement of expected and true DSC, as functions of case weights; a case's risk is 1 - DSC.

    Both are 0 to 1, of shape (cases,) and in one order.

    `spearman` is their rank correlation, `mean_error` the mean of expected minus true DSC, `mean_absolute_error` the
    mean of its absolute value. `aurc` is the area under the risk-coverage curve, `excess_aurc` its excess over the
    oracle (ordered by the true DSC), `below_random` its distance below the mean risk (random order).
    """
    risk, ones = 1 - true_dsc, np.ones(true_dsc.size)
    own, best = area_metric(expected, risk), area_metric(true_dsc, risk)
    return {
        "spearman": spearman_metric(expected, true_dsc),
        "mean_error": lambda weights: weighted_ratio(weights, expected - true_dsc, ones),
        "mean_absolute_error": lambda weights: weighted_ratio(weights, np.abs(expected - true_dsc), ones),
        "aurc": own,
        "excess_aurc": lambda weights: own(weights) - best(weights),
        "below_random": lambda weights: weighted_ratio(weights, risk, ones) - own(weights),
    }


def spearman_metric(first: Floats, second: Floats) -> WeightedMetric:
    """Spearman's rank correlation (ties share their mean rank), NaN if either side is constant."""
    order = [(one < one[:, None]) + (one == one[:, None]) / 2 for one in (first, second)]

    def weighted(weights: Floats) -> Floats:
        a, b = (weights @ below.T for below in order)
        count = weights.sum(1, keepdims=True)
        a, b = (ranks - (weights * ranks).sum(1, keepdims=True) / count for ranks in (a, b))
        spread = np.sqrt((weights * a**2).sum(1) * (weights * b**2).sum(1))
        product = (weights * a * b).sum(1)
        return np.asarray(np.divide(product, spread, out=np.full(len(product), np.nan), where=spread > 1e-9))

    return weighted


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


def area_metric(confidence: Floats, risk: Floats) -> WeightedMetric:
    """`area` as a function of case weights."""
    return lambda weights: np.array([area(confidence, risk, row) for row in weights])
