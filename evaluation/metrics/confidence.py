"""Agreement of a confidence with the quality of cases: rank correlation, risk-coverage curve and its area."""

from __future__ import annotations

import numpy as np

from evaluation.metrics.overlap import Floats, WeightedMetric, ratio_of_sums


def spearman(first: Floats, second: Floats) -> float | None:
    """Return Spearman's rank correlation with average ranks for ties; None if either side is constant."""
    value = float(spearman_metric(first, second)(np.ones((1, len(first))))[0])
    return None if np.isnan(value) else value


def spearman_metric(first: Floats, second: Floats) -> WeightedMetric:
    """Return Spearman's rank correlation as a function of case weights; NaN if either side is constant.

    Weights are whole numbers, the counts of each case.
    """

    def correlation(weights: Floats) -> Floats:
        a, b = _centre_ranks(first, weights), _centre_ranks(second, weights)
        spread = np.sqrt((weights * a**2).sum(axis=1) * (weights * b**2).sum(axis=1))
        product = (weights * a * b).sum(axis=1)
        return np.asarray(np.divide(product, spread, out=np.full(len(product), np.nan), where=spread > 1e-9))

    return correlation


def _centre_ranks(values: Floats, weights: Floats) -> Floats:
    """Return average ranks minus their mean, shape (replicates, cases).

    `scipy.stats.rankdata` takes no weights, and its import takes a second of every run.
    """
    _, level = np.unique(values, return_inverse=True)
    counts = np.stack([np.bincount(level, sample) for sample in weights])
    ranks = np.cumsum(counts, axis=1) - (counts - 1) / 2
    centred: Floats = ranks[:, level] - (weights.sum(axis=1, keepdims=True) + 1) / 2
    return centred


def confidence_metrics(expected: Floats, true_dsc: Floats) -> dict[str, WeightedMetric]:
    """Return metrics of the agreement of expected and true DSC, as functions of case weights.

    The risk of a case is 1 - DSC.

    - `spearman`: rank correlation of expected and true DSC.
    - `mean_error`, `mean_absolute_error`: mean of expected minus true DSC, and of its absolute value.
    - `aurc`: area under the risk-coverage curve.
    - `excess_aurc`: excess of this area over the area of an oracle, which orders cases by their true DSC.
    - `below_random`: distance of this area below the mean risk, which is the area of a random order.

    Args:
        expected: Expected DSC from 0 to 1, shape (cases,).
        true_dsc: True DSC from 0 to 1, in the same order.
    """
    risk, ones = 1 - true_dsc, np.ones(true_dsc.size)
    aurc_of_expected, aurc_of_oracle = aurc_metric(expected, risk), aurc_metric(true_dsc, risk)
    return {
        "spearman": spearman_metric(expected, true_dsc),
        "mean_error": lambda weights: ratio_of_sums(weights, expected - true_dsc, ones),
        "mean_absolute_error": lambda weights: ratio_of_sums(weights, np.abs(expected - true_dsc), ones),
        "aurc": aurc_of_expected,
        "excess_aurc": lambda weights: aurc_of_expected(weights) - aurc_of_oracle(weights),
        "below_random": lambda weights: ratio_of_sums(weights, risk, ones) - aurc_of_expected(weights),
    }


def risk_coverage(confidence: Floats, risk: Floats, weights: Floats | None = None) -> Floats:
    """Return the mean risk of the k most confident cases, for k from 1 to the number of cases.

    For cases of equal confidence the result is the mean over all their orders. `weights`, whole numbers, are the
    counts of each case; None counts each case once.
    """
    level = np.unique(-confidence, return_inverse=True)[1]
    counts_of_cases = np.ones(risk.size) if weights is None else weights
    counts = np.bincount(level, counts_of_cases).astype(np.intp)
    sums = np.bincount(level, counts_of_cases * risk)
    mean = np.divide(sums, counts, out=np.zeros(len(sums)), where=counts > 0)
    return np.asarray(np.cumsum(np.repeat(mean, counts)) / np.arange(1, counts.sum() + 1))


def aurc(confidence: Floats, risk: Floats, weights: Floats | None = None) -> float:
    """Return the area under the risk-coverage curve, the mean of its points (Geifman, Uziel and El-Yaniv 2019)."""
    return float(risk_coverage(confidence, risk, weights).mean())


def aurc_metric(confidence: Floats, risk: Floats) -> WeightedMetric:
    """Return `aurc` as a function of case weights."""
    return lambda weights: np.array([aurc(confidence, risk, sample) for sample in weights])
