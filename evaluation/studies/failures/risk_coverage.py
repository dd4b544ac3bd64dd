"""How well a confidence orders cases by what came out: rank correlation, and the risk-coverage curve with its area."""

from __future__ import annotations

import numpy as np

from evaluation.metrics.overlap import Floats, WeightedMetric, weighted_ratio


def confidence_metrics(expected: Floats, true_dsc: Floats) -> dict[str, WeightedMetric]:
    """How well the expected DSC does, as functions of case weights; a case's risk is 1 - DSC.

    Args:
        expected: what was expected of each case, 0 to 1, shape (cases,).
        true_dsc: what came out, 0 to 1, in the same order.

    `spearman` is the rank correlation of both, `mean_error` the mean of expected less true, `mean_absolute_error` that
    of its size. `aurc` is the area under the risk-coverage curve, `excess_aurc` what it has more than the oracle's
    (the order of the true DSC), `below_random` what it has less than the mean risk, which is random order's.
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
    """Spearman's rank correlation (ties share their mean rank), NaN where either does not vary."""
    order = [_below(values) for values in (first, second)]

    def weighted(weights: Floats) -> Floats:
        a, b = (weights @ below.T for below in order)
        count = weights.sum(1, keepdims=True)
        a, b = (ranks - (weights * ranks).sum(1, keepdims=True) / count for ranks in (a, b))
        spread = np.sqrt((weights * a**2).sum(1) * (weights * b**2).sum(1))
        product = (weights * a * b).sum(1)
        return np.asarray(np.divide(product, spread, out=np.full(len(product), np.nan), where=spread > 1e-9))

    return weighted


def _below(values: Floats) -> Floats:
    return np.asarray((values < values[:, None]) + (values == values[:, None]) / 2, dtype=np.float64)


def risk_coverage(confidence: Floats, risk: Floats, weights: Floats | None = None) -> Floats:
    """Mean risk of the k cases that are surest, for k from 1 to all of them.

    Cases of equal confidence are taken in random order: the mean over all such orders is given. `weights`, whole
    numbers, say how often each case counts; None once each.
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
