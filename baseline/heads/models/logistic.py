"""Class-weighted ridge logistic regression for HPV status, its calibration and its threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from algorithm.heads.linear import Calibration, LinearHead, Term
from baseline.heads.models.shared import Cohort, Flags, Floats, best_threshold, matrix, weighted

KIND: Final = "logit of HPV positive"
THRESHOLD_RESAMPLES: Final = 200
# A calibration on scores that say nothing must not turn their order around.
LEAST_SLOPE: Final = 0.0


def fit_logistic(
    cohort: Cohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], _rng: np.random.Generator
) -> list[LinearHead]:
    """One head for each setting, whose `penalty` is that of the mean loss; both classes weigh alike."""
    from sklearn.linear_model import LogisticRegression

    if not terms:
        return [LinearHead(KIND, 0.0, (), None) for _ in settings]
    columns, positive = matrix(terms, cohort), cohort.outcomes.hpv
    heads = []
    for setting in settings:
        model = LogisticRegression(C=1.0 / (setting["penalty"] * len(columns)), class_weight="balanced", max_iter=5000)
        model.fit(columns, positive)
        heads.append(LinearHead(KIND, float(model.intercept_[0]), weighted(terms, model.coef_[0]), None))
    return heads


def with_threshold(head: LinearHead, positive: Flags, scores: Floats, rng: np.random.Generator) -> LinearHead:
    """The head with threshold and calibration learnt from out-of-fold scores of its training patients."""
    return replace(head, threshold=stable_threshold(positive, scores, rng), calibration=platt(positive, scores))


def stable_threshold(positive: Flags, scores: Floats, rng: np.random.Generator) -> float:
    """The median of the thresholds of best balanced accuracy over bootstrap samples of each class.

    With some fifty negatives the single best threshold hangs on a patient or two.
    """
    chosen = []
    for _ in range(THRESHOLD_RESAMPLES):
        picked = np.concatenate(
            [rng.choice(np.flatnonzero(positive == value), int(np.sum(positive == value))) for value in (True, False)]
        )
        chosen.append(best_threshold(positive[picked], scores[picked])[0])
    return float(np.median(chosen))


def platt(positive: Flags, scores: Floats) -> Calibration:
    """Slope and offset of the logistic function from score to probability (Platt 1999), with his smoothed targets.

    A slope below 0 is held at 0: then every probability is the class's share.
    """
    from scipy.optimize import minimize

    count, rest = int(positive.sum()), int((~positive).sum())
    target = np.where(positive, (count + 1) / (count + 2), 1 / (rest + 2))

    def loss(parameters: Floats) -> float:
        logit = parameters[0] * scores + parameters[1]
        return float((np.logaddexp(0, logit) - target * logit).mean())

    start = np.array([1.0, np.log((count + 1) / (rest + 1))])
    found = minimize(loss, start, method="L-BFGS-B", bounds=[(LEAST_SLOPE, None), (None, None)])
    return Calibration(float(found.x[0]), float(found.x[1]))
