"""Models of a class with more than two values: class-balanced ordinal and multinomial logistic regression with ridge.

Both give a linear score for each class, of which the highest wins. Classes weigh alike in the fit, so that the highest
score aims at balanced accuracy. A class without training patients gets a score that never wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from scipy.optimize import brentq, minimize
from scipy.special import expit, log_expit

from algorithm.heads.documents import ClassHead, LinearHead, Term
from algorithm.heads.own import NEVER
from baseline.heads.cohort import Flags, Floats, HeadCohort, Numbers
from baseline.heads.models.terms import matrix, weighted

MULTINOMIAL: Final = "multinomial logit"
ORDINAL: Final = "ordinal score"
# Cut points below and above all scores.
_BEYOND: Final = 500.0
_LEAST_GAP: Final = 1e-9
# Limits of the lowest cut point and of the logarithm of the distance to the next one, where classes are separable.
_MOST_CUT: Final = 100.0
_LOG_GAPS: Final = (-20.0, 4.0)


def fit_multinomial(
    cohort: HeadCohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], _rng: np.random.Generator
) -> list[ClassHead]:
    """One head per setting; `penalty` applies to the mean loss."""
    from sklearn.linear_model import LogisticRegression

    columns, (present, codes) = matrix(terms, cohort), _present(cohort)
    heads = []
    for setting in settings:
        weights, intercepts = np.zeros((len(present), len(terms))), np.zeros(len(present))
        if terms and len(present) > 1:
            strength = 1.0 / (setting["penalty"] * len(columns))
            model = LogisticRegression(C=strength, class_weight="balanced", max_iter=5000).fit(columns, codes)
            # of two classes the model holds the second one's logit alone
            weights[-len(model.coef_) :], intercepts[-len(model.coef_) :] = model.coef_, model.intercept_
        heads.append(_class_head(MULTINOMIAL, cohort, present, terms, weights, intercepts))
    return heads


def fit_ordinal(
    cohort: HeadCohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], _rng: np.random.Generator
) -> list[ClassHead]:
    """One head per setting by proportional odds (McCullagh 1980); `penalty` applies to the mean loss.

    Class k has the score k times the latent score less the sum of the first k boundaries, so that the highest score is
    that of the most probable class.
    """
    columns, (present, codes) = matrix(terms, cohort), _present(cohort)
    ranks = np.arange(len(present))
    heads = []
    for setting in settings:
        weights, cuts = proportional_odds(columns, codes, len(present), setting["penalty"])
        intercepts = -np.concatenate([[0.0], np.cumsum(boundaries(cuts))])[: len(present)]
        heads.append(_class_head(ORDINAL, cohort, present, terms, np.outer(ranks, weights), intercepts))
    return heads


def proportional_odds(columns: Floats, codes: Numbers, n_classes: int, penalty: float) -> tuple[Floats, Floats]:
    """Weights of the latent score and the ascending cut points of a class-balanced proportional-odds model.

    The logit of being in class k or a higher one is the latent score less cut point k. The fit minimises the mean loss,
    in which classes weigh alike, plus `penalty` / 2 times the squared weights.
    """
    features = columns.shape[1]
    if n_classes < 2:
        return np.zeros(features), np.zeros(0)
    share = 1.0 / (n_classes * np.bincount(codes, minlength=n_classes)[codes])

    def loss(parameters: Floats) -> tuple[float, Floats]:
        weights, gaps = parameters[:features], np.exp(parameters[features + 1 :])
        cuts = parameters[features] + np.concatenate([[0.0], np.cumsum(gaps)])
        edges = np.concatenate([[-_BEYOND], cuts, [_BEYOND]])
        score = columns @ weights
        above, below = edges[codes + 1] - score, edges[codes] - score
        gap = np.clip(edges[codes + 1] - edges[codes], _LEAST_GAP, _BEYOND)
        # P = F(above) - F(below) = F(above) F(-below) (1 - exp(-gap))
        fit = log_expit(above) + log_expit(-below) + np.log(-np.expm1(-gap))
        by_above = share * (expit(-above) + 1 / np.expm1(gap))
        by_below = -share * (expit(below) + 1 / np.expm1(gap))
        by_edge = np.bincount(codes + 1, by_above, n_classes + 1) + np.bincount(codes, by_below, n_classes + 1)
        by_cut = by_edge[1:-1]
        by_gap = np.cumsum(by_cut[::-1])[::-1][1:] * gaps
        by_weight = columns.T @ (by_above + by_below)
        gradient = np.concatenate([by_weight + penalty * weights, [-by_cut.sum()], -by_gap])
        return float(penalty / 2 * weights @ weights - share @ fit), gradient

    start = np.concatenate([np.zeros(features), [-1.0], np.zeros(n_classes - 2)])
    bounds = [(None, None)] * features + [(-_MOST_CUT, _MOST_CUT)] + [_LOG_GAPS] * (n_classes - 2)
    fitted = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    gaps = np.exp(fitted[features + 1 :])
    return fitted[:features], fitted[features] + np.concatenate([[0.0], np.cumsum(gaps)])


def boundaries(cuts: Floats) -> Floats:
    """Latent scores at which the most probable class changes, one for each cut point.

    A class that is nowhere the most probable has equal boundaries on both sides.
    """
    edges = np.concatenate([[-_BEYOND], cuts, [_BEYOND]])
    gaps = np.clip(np.diff(edges), _LEAST_GAP, _BEYOND)

    def lead_of_higher(score: float, rank: int) -> float:
        fit = log_expit(edges[1:] - score) + log_expit(score - edges[:-1]) + np.log(-np.expm1(-gaps))
        return float(fit[rank:].max() - fit[:rank].max())

    span = (float(cuts.min()) - 50, float(cuts.max()) + 50) if cuts.size else (0.0, 0.0)
    roots = [brentq(lead_of_higher, *span, (rank,)) for rank in range(1, len(cuts) + 1)]
    return np.maximum.accumulate(np.asarray(roots, dtype=np.float64))


def predicted(scores: Floats, possible: Flags) -> Numbers:
    """The class with the highest score among the possible ones, of equal scores the lower; shape (patients,)."""
    return np.asarray((np.where(possible, scores, -np.inf) if possible.size else scores).argmax(1), dtype=np.int64)


def trend(head: ClassHead) -> dict[str, float]:
    """The change of a feature's weight from one class to the next: the slope of its weights over the class numbers.

    In an ordinal head it is the weight of the latent score.
    """
    heads = [one for one in head.classes.values() if one.intercept > NEVER]
    places = np.arange(len(heads)) - (len(heads) - 1) / 2
    weights: dict[str, float] = {}
    for place, one in zip(places, heads, strict=True):
        for term in one.terms:
            weights[term.feature] = weights.get(term.feature, 0.0) + place * term.weight / (places @ places)
    return {feature: float(weight) for feature, weight in weights.items()}


def _present(cohort: HeadCohort) -> tuple[Numbers, Numbers]:
    """Numbers of the classes that occur, and each patient's place among them."""
    present, codes = np.unique(cohort.outcomes.values, return_inverse=True)
    return present, codes.astype(np.int64)


def _class_head(
    kind: str, cohort: HeadCohort, present: Numbers, terms: Sequence[Term], weights: Floats, intercepts: Floats
) -> ClassHead:
    names = cohort.outcomes.classes
    heads = {name: LinearHead(kind=f"{kind} of {name}", intercept=NEVER, terms=()) for name in names}
    for code, row, intercept in zip(present, weights, intercepts, strict=True):
        one = LinearHead(kind=f"{kind} of {names[code]}", intercept=float(intercept), terms=weighted(terms, row))
        heads[names[code]] = one
    return ClassHead(classes=heads)
