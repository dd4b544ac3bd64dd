"""Random forests of a risk and of two classes, fitted by scikit-learn and stored as plain numbers.

A forest of a risk predicts the martingale residuals of a model without features: the observed events minus the
cumulative hazard at the end of the follow-up. Their differences between two branches are the scores of the log-rank
test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from algorithm.heads.documents import ForestHead, LinearHead, ScaledFeature, Term
from algorithm.heads.parts import LEAF, Tree
from baseline.heads.cohort import Floats, HeadCohort, Outcomes
from baseline.heads.models.terms import make_linear_head, make_matrix

TREES: Final = 100


def fit_risk_forest(
    cohort: HeadCohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], rng: np.random.Generator
) -> list[ForestHead | LinearHead]:
    """Fit a forest to the martingale residuals for each setting."""
    response = Response("martingale residual", compute_martingale_residuals(cohort.outcomes))
    return [fit_forest(cohort, terms, response, int(setting["min_leaf"]), rng) for setting in settings]


def fit_class_forest(
    cohort: HeadCohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], rng: np.random.Generator
) -> list[ForestHead | LinearHead]:
    """Fit a forest to the second of two classes for each setting; both classes have equal weight.

    Least squares on 0 and 1 choose the same splits as the Gini impurity.
    """
    positive = cohort.outcomes.positive
    frequency = np.where(positive, positive.mean(), 1 - positive.mean())
    response = Response("balanced share", positive.astype(np.float64), 0.5 / frequency)
    return [fit_forest(cohort, terms, response, int(setting["min_leaf"]), rng) for setting in settings]


@dataclass(frozen=True)
class Response:
    """The numbers that a forest predicts, with the name of their scale and the weights of the patients."""

    scale: str
    values: Floats
    weights: Floats | None = None


def fit_forest(
    cohort: HeadCohort, terms: Sequence[Term], response: Response, min_leaf: int, rng: np.random.Generator
) -> ForestHead | LinearHead:
    """Fit a forest with at least `min_leaf` patients in each leaf; without features the score is constant."""
    from sklearn.ensemble import RandomForestRegressor

    if not terms:
        return make_linear_head(response.scale, (), ())
    # The other models draw the same numbers with and without a forest.
    seed = int(rng.spawn(1)[0].integers(2**31))
    model = RandomForestRegressor(TREES, min_samples_leaf=min_leaf, max_features="sqrt", random_state=seed)
    model.fit(make_matrix(terms, cohort), response.values, response.weights)
    inputs = tuple(ScaledFeature(**term.model_dump(exclude={"weights"})) for term in terms)
    trees = tuple(convert_tree(tree.tree_) for tree in model.estimators_)
    return ForestHead(scale=response.scale, inputs=inputs, trees=trees)


def convert_tree(tree: Any) -> Tree:
    """Convert a tree of scikit-learn, whose nodes are in preorder.

    scikit-learn compares features in single precision with thresholds in double precision; the largest number in single
    precision up to the threshold divides the patients in the same way.
    """
    is_leaf = tree.children_left == tree.children_right
    thresholds = tree.threshold.astype(np.float32)
    lower = np.nextafter(thresholds, np.float32(-np.inf))
    thresholds = np.where(thresholds > tree.threshold, lower, thresholds)
    numbers = np.where(is_leaf, tree.value.reshape(-1).astype(np.float32), thresholds)
    features = np.where(is_leaf, LEAF, tree.feature)
    # The decimal number is the shortest that is read as the same number in single precision.
    return Tree(features=tuple(features.tolist()), numbers=tuple(float(str(number)) for number in numbers))


def compute_martingale_residuals(outcomes: Outcomes) -> Floats:
    """Compute each patient's event minus the Nelson-Aalen estimate at the end of the follow-up."""
    days, place = np.unique(outcomes.times_days, return_inverse=True)
    events = np.bincount(place, outcomes.positive, minlength=len(days))
    at_risk = np.bincount(place, minlength=len(days))[::-1].cumsum()[::-1]
    return np.asarray(outcomes.positive - np.cumsum(events / at_risk)[place], dtype=np.float64)
