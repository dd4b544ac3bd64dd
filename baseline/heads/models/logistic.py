"""Class-weighted ridge logistic regression for a binary class, its calibration and its threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from algorithm.heads.documents import Head, LinearHead, Term
from algorithm.heads.parts import Calibration
from baseline.heads.cohort import Flags, Floats, HeadCohort, Numbers
from baseline.heads.models.terms import linear_head, matrix

SCALE: Final = "logit"
THRESHOLD_RESAMPLES: Final = 200
# A calibration on uninformative scores must not reverse their order.
LEAST_SLOPE: Final = 0.0


def fit_logistic(
    cohort: HeadCohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], _rng: np.random.Generator
) -> list[LinearHead]:
    """One head per setting; `penalty` applies to the mean loss, and both classes have equal weight."""
    from sklearn.linear_model import LogisticRegression

    if not terms:
        return [linear_head(SCALE, (), ()) for _ in settings]
    columns, positive = matrix(terms, cohort), cohort.outcomes.positive
    heads = []
    for setting in settings:
        model = LogisticRegression(C=1.0 / (setting["penalty"] * len(columns)), class_weight="balanced", max_iter=5000)
        model.fit(columns, positive)
        heads.append(linear_head(SCALE, terms, model.coef_, model.intercept_))
    return heads


def with_threshold(head: Head, positive: Flags, scores: Floats, rng: np.random.Generator) -> Head:
    """The head with threshold and calibration, learnt from out-of-fold scores of its training patients."""
    threshold, calibration = stable_threshold(positive, scores, rng), platt(positive, scores)
    return head.model_copy(update={"threshold": threshold, "calibration": calibration})


def stable_threshold(positive: Flags, scores: Floats, rng: np.random.Generator) -> float:
    """Median of the best thresholds over bootstrap samples of each class.

    With about fifty negatives a single best threshold depends on one or two patients.
    """
    chosen = []
    for _ in range(THRESHOLD_RESAMPLES):
        picked = np.concatenate(
            [rng.choice(np.flatnonzero(positive == value), int(np.sum(positive == value))) for value in (True, False)]
        )
        chosen.append(best_threshold(positive[picked], scores[picked])[0])
    return float(np.median(chosen))


def best_threshold(positive: Flags, scores: Floats) -> tuple[float, float]:
    """The threshold (score >= threshold is positive) with the highest balanced accuracy, and that accuracy.

    Candidates lie midway between neighbouring scores; of equally good ones the middle one is chosen, as it is the most
    stable.
    """
    order, place = np.unique(scores, return_inverse=True)
    candidates = np.concatenate([[order[0] - 1.0], (order[:-1] + order[1:]) / 2, [order[-1] + 1.0]])
    below = [np.cumsum(np.bincount(place[flag], minlength=len(order))) for flag in (positive, ~positive)]
    sensitivity, specificity = 1 - _shares(below[0]), _shares(below[1])
    accuracy = (sensitivity + specificity) / 2
    best = np.flatnonzero(accuracy >= accuracy.max() - 1e-12)
    chosen = best[len(best) // 2]
    return float(candidates[chosen]), float(accuracy[chosen])


def _shares(counts: Numbers) -> Floats:
    """Cumulative counts as shares of the last, after a first 0."""
    return np.concatenate([[0.0], counts / counts[-1]])


def platt(positive: Flags, scores: Floats) -> Calibration:
    """Slope and offset of the logistic function from score to probability (Platt 1999), with his smoothed targets.

    A negative slope is set to 0: then every probability is the share of the class. scikit-learn's LogisticRegression on
    two weighted copies of each patient gives the same to 0.1% and takes 10 times as long or more; a repeated
    cross-validation calibrates hundreds of times.
    """
    from scipy.optimize import minimize

    count, rest = int(positive.sum()), int((~positive).sum())
    target = np.where(positive, (count + 1) / (count + 2), 1 / (rest + 2))

    def loss(parameters: Floats) -> float:
        logit = parameters[0] * scores + parameters[1]
        return float((np.logaddexp(0, logit) - target * logit).mean())

    start = np.array([1.0, np.log((count + 1) / (rest + 1))])
    fit = minimize(loss, start, method="L-BFGS-B", bounds=[(LEAST_SLOPE, None), (None, None)])
    return Calibration(slope=float(fit.x[0]), offset=float(fit.x[1]))
