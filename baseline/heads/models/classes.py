"""Models of a class: logistic regression of two values, multinomial regression of more values, rules for comparison.

Both regressions weight the classes equally and have a ridge penalty, so that the score aims at balanced accuracy. Two
values get a threshold and a calibration from out-of-fold scores. With more values the highest score wins; a class
without training patients gets a score that never wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np

from algorithm.heads.documents import NEVER, LinearHead, Term
from algorithm.heads.parts import Calibration
from algorithm.heads.values import derive_stage
from baseline.heads.cohort import Flags, Floats, HeadCohort, Numbers
from baseline.heads.models.terms import make_linear_head, make_matrix

# Predicts class numbers of the second cohort's patients, and may learn from the first cohort.
ClassRule = Callable[[HeadCohort, HeadCohort], Numbers]
_MULTINOMIAL: Final = "multinomial logit"


def fit_multinomial(
    cohort: HeadCohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], _rng: np.random.Generator
) -> list[LinearHead]:
    """Fit a multinomial regression for each setting; `penalty` applies to the mean loss."""
    from sklearn.linear_model import LogisticRegression

    columns, names = make_matrix(terms, cohort), cohort.outcomes.classes
    present, codes = np.unique(cohort.outcomes.values, return_inverse=True)
    heads = []
    for setting in settings:
        weights, intercepts = np.zeros((len(names), len(terms))), np.full(len(names), NEVER)
        intercepts[present] = 0.0
        if terms and len(present) > 1:
            strength = 1.0 / (setting["penalty"] * len(columns))
            model = LogisticRegression(C=strength, class_weight="balanced", max_iter=5000).fit(columns, codes)
            fitted = present[-len(model.coef_) :]  # for two classes the model has only the logit of the second class
            weights[fitted], intercepts[fitted] = model.coef_, model.intercept_
        heads.append(make_linear_head(_MULTINOMIAL, terms, weights, intercepts, classes=names))
    return heads


def predict_classes(scores: Floats, possible: Flags) -> Numbers:
    """Predict the possible class with the highest score, or the lowest number among equal scores; shape (patients,)."""
    if possible.size:
        scores = np.where(possible, scores, -np.inf)
    return np.asarray(scores.argmax(1), dtype=np.int64)


def compute_class_trends(head: LinearHead) -> dict[str, float]:
    """Compute the slope of each feature's weights over the class numbers: the change from one class to the next."""
    fitted = np.array(head.intercepts) > NEVER
    places = np.arange(fitted.sum()) - (fitted.sum() - 1) / 2
    slopes: dict[str, float] = {}
    for term in head.terms:
        slope = float(places @ np.array(term.weights)[fitted] / (places @ places))
        slopes[term.feature] = slopes.get(term.feature, 0.0) + slope
    return slopes


_LOGIT: Final = "logit"
THRESHOLD_RESAMPLES: Final = 200
# A calibration on uninformative scores must not reverse their order.
MIN_SLOPE: Final = 0.0


def fit_logistic(
    cohort: HeadCohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], _rng: np.random.Generator
) -> list[LinearHead]:
    """Fit a logistic regression for each setting.

    `penalty` applies to the mean loss, and both classes have equal weight.
    """
    from sklearn.linear_model import LogisticRegression

    if not terms:
        return [make_linear_head(_LOGIT, (), ()) for _ in settings]
    columns, positive = make_matrix(terms, cohort), cohort.outcomes.positive
    heads = []
    for setting in settings:
        model = LogisticRegression(C=1.0 / (setting["penalty"] * len(columns)), class_weight="balanced", max_iter=5000)
        model.fit(columns, positive)
        heads.append(make_linear_head(_LOGIT, terms, model.coef_, model.intercept_))
    return heads


def find_operating_point(positive: Flags, scores: Floats, rng: np.random.Generator) -> float:
    """Find the threshold midway between the stable threshold and the point where both classes are equally likely.

    The second point does not depend on single patients, so that the threshold varies less.
    """
    stable = find_stable_threshold(positive, scores, rng)
    return (stable + find_balanced_point(positive, scores, stable)) / 2


def find_balanced_point(positive: Flags, scores: Floats, default: float) -> float:
    """Find the score at which the positive class is as probable as it is frequent among the training patients.

    If both classes were equally frequent, its probability there would be 0.5. The frequency is smoothed as in Platt's
    calibration. The point lies within the scores; `default` is returned for scores that do not rise with the class.
    """
    calibration = fit_platt(positive, scores)
    if calibration.slope <= MIN_SLOPE:
        return default
    share = smooth_targets(positive).mean()
    prevalence = np.log(share / (1 - share))
    return float(np.clip((prevalence - calibration.offset) / calibration.slope, scores.min(), scores.max()))


def find_stable_threshold(positive: Flags, scores: Floats, rng: np.random.Generator) -> float:
    """Compute the median of the best thresholds over bootstrap samples of each class.

    With about fifty negative patients a single best threshold depends on one or two of them.
    """
    thresholds = []
    for _ in range(THRESHOLD_RESAMPLES):
        picked = np.concatenate(
            [rng.choice(np.flatnonzero(positive == value), int(np.sum(positive == value))) for value in (True, False)]
        )
        thresholds.append(find_best_threshold(positive[picked], scores[picked])[0])
    return float(np.median(thresholds))


def find_best_threshold(positive: Flags, scores: Floats) -> tuple[float, float]:
    """Find the threshold (score >= threshold is positive) with the highest balanced accuracy, and this accuracy.

    Candidates lie midway between neighbouring scores. The middle one of equally good candidates is chosen, because it
    is the most stable.
    """
    order, place = np.unique(scores, return_inverse=True)
    candidates = np.concatenate([[order[0] - 1.0], (order[:-1] + order[1:]) / 2, [order[-1] + 1.0]])
    below = [np.cumsum(np.bincount(place[flag], minlength=len(order))) for flag in (positive, ~positive)]
    sensitivity, specificity = 1 - _cumulative_shares(below[0]), _cumulative_shares(below[1])
    accuracy = (sensitivity + specificity) / 2
    best = np.flatnonzero(accuracy >= accuracy.max() - 1e-12)
    chosen = best[len(best) // 2]
    return float(candidates[chosen]), float(accuracy[chosen])


def _cumulative_shares(counts: Numbers) -> Floats:
    """Compute cumulative counts as shares of the last count, after a first 0."""
    return np.concatenate([[0.0], counts / counts[-1]])


def fit_platt(positive: Flags, scores: Floats) -> Calibration:
    """Fit slope and offset of the logistic function from score to probability (Platt 1999), with smoothed targets.

    A negative slope is set to 0; every probability is then the fraction of positive patients. scikit-learn's
    LogisticRegression on two weighted copies of each patient gives the same to within 0.1% and takes at least 10 times
    as long; a repeated cross-validation calibrates hundreds of times.
    """
    from scipy.optimize import minimize

    count, rest = int(positive.sum()), int((~positive).sum())
    target = smooth_targets(positive)

    def loss(parameters: Floats) -> float:
        logit = parameters[0] * scores + parameters[1]
        return float((np.logaddexp(0, logit) - target * logit).mean())

    start = np.array([1.0, np.log((count + 1) / (rest + 1))])
    fit = minimize(loss, start, method="L-BFGS-B", bounds=[(MIN_SLOPE, None), (None, None)])
    return Calibration(slope=float(fit.x[0]), offset=float(fit.x[1]))


def smooth_targets(positive: Flags) -> Floats:
    """Compute the probabilities to which Platt's calibration is fitted, slightly below 1 and above 0."""
    count, rest = int(positive.sum()), int((~positive).sum())
    return np.where(positive, (count + 1) / (count + 2), 1 / (rest + 2))


def predict_most_frequent(train: HeadCohort, cohort: HeadCohort) -> Numbers:
    """Predict the most frequent class of the training patients for each patient."""
    return np.full(len(cohort.ids), train.outcomes.find_most_frequent_class(), dtype=np.int64)


def make_staging_rule(rule: str) -> ClassRule:
    """Make the function that predicts each patient's stage by the staging rule `rule`.

    If the rule gives no stage, the function predicts the most frequent class of the training patients among the classes
    that the mask leaves possible.
    """
    return partial(_predict_stages, rule)


def _predict_stages(rule: str, train: HeadCohort, cohort: HeadCohort) -> Numbers:
    names = cohort.outcomes.classes
    counts = np.bincount(train.outcomes.values, minlength=len(names)).astype(np.float64)
    frequent = predict_classes(np.tile(counts, (len(cohort.ids), 1)), cohort.possible).tolist()
    stages = [derive_stage(rule, row) for row in cohort.to_rows()]
    pairs = zip(stages, frequent, strict=True)
    return np.array([names.index(stage) if stage in names else number for stage, number in pairs], dtype=np.int64)
