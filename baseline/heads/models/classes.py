"""Models of a class with more than two values: class-balanced multinomial logistic regression with ridge.

It gives a linear score for each class, of which the highest wins. Classes weigh alike in the fit, so that the highest
score aims at balanced accuracy. A class without training patients gets a score that never wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from algorithm.heads.documents import NEVER, LinearHead, Term
from baseline.heads.cohort import Flags, Floats, HeadCohort, Numbers
from baseline.heads.models.terms import linear_head, matrix

SCALE: Final = "multinomial logit"


def fit_multinomial(
    cohort: HeadCohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], _rng: np.random.Generator
) -> list[LinearHead]:
    """One head per setting; `penalty` applies to the mean loss."""
    from sklearn.linear_model import LogisticRegression

    columns, names = matrix(terms, cohort), cohort.outcomes.classes
    present, codes = np.unique(cohort.outcomes.values, return_inverse=True)
    heads = []
    for setting in settings:
        weights, intercepts = np.zeros((len(names), len(terms))), np.full(len(names), NEVER)
        intercepts[present] = 0.0
        if terms and len(present) > 1:
            strength = 1.0 / (setting["penalty"] * len(columns))
            model = LogisticRegression(C=strength, class_weight="balanced", max_iter=5000).fit(columns, codes)
            fitted = present[-len(model.coef_) :]  # of two classes the model holds the second one's logit alone
            weights[fitted], intercepts[fitted] = model.coef_, model.intercept_
        heads.append(linear_head(SCALE, terms, weights, intercepts, classes=names))
    return heads


def predicted(scores: Floats, possible: Flags) -> Numbers:
    """The class with the highest score among the possible ones, of equal scores the lower; shape (patients,)."""
    return np.asarray((np.where(possible, scores, -np.inf) if possible.size else scores).argmax(1), dtype=np.int64)


def trend(head: LinearHead) -> dict[str, float]:
    """The change of a feature's weight from one class to the next: the slope of its weights over the class numbers."""
    fitted = np.array(head.intercepts) > NEVER
    places = np.arange(fitted.sum()) - (fitted.sum() - 1) / 2
    slopes: dict[str, float] = {}
    for term in head.terms:
        slope = float(places @ np.array(term.weights)[fitted] / (places @ places))
        slopes[term.feature] = slopes.get(term.feature, 0.0) + slope
    return slopes
