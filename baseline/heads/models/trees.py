"""Gradient-boosted trees by xgboost, as a candidate for every kind of answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from algorithm.heads.classes import ClassHead
from algorithm.heads.linear import LinearHead, Term
from algorithm.heads.trees import TreeHead
from baseline.heads.cohort import Floats, HeadCohort
from baseline.heads.models.classes import NEVER

KIND: Final = "boosted trees"
# Small trees and slow learning, since there are a few hundred patients.
_PARAMETERS: Final = {
    "eta": 0.05, "subsample": 0.7, "colsample_bytree": 0.5, "min_child_weight": 3, "lambda": 5.0, "nthread": 1,
    "verbosity": 0,
}  # fmt: skip
# Fewest rounds first: they regularise most.
TREES: Final = tuple({"depth": depth, "rounds": rounds} for depth in (1, 2, 3) for rounds in (40, 100))
_FIRST_DAY: Final = 1.0


def fit_survival_trees(
    cohort: HeadCohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], rng: np.random.Generator
) -> list[TreeHead]:
    """One head per setting by the Cox objective; xgboost marks censored follow-up by a negative sign."""
    days = np.maximum(cohort.outcomes.times_days, _FIRST_DAY)
    labels = np.where(cohort.outcomes.positive, days, -days)
    return _fitted("survival:cox", cohort, terms, labels, np.ones(len(labels)), settings, rng)


def fit_class_trees(
    cohort: HeadCohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], rng: np.random.Generator
) -> list[TreeHead]:
    """One head per setting by the logistic loss, in which both classes weigh alike."""
    labels = cohort.outcomes.positive.astype(np.float64)
    return _fitted("binary:logistic", cohort, terms, labels, _balanced(labels), settings, rng)


def fit_classes_trees(
    cohort: HeadCohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], rng: np.random.Generator
) -> list[ClassHead]:
    """One head per setting, each class against the others; a class without patients gets a score that never wins."""
    by_class: dict[str, list[TreeHead] | list[LinearHead]] = {}
    for code, name in enumerate(cohort.outcomes.classes):
        labels = (cohort.outcomes.values == code).astype(np.float64)
        if labels.any() and not labels.all():
            by_class[name] = _fitted("binary:logistic", cohort, terms, labels, _balanced(labels), settings, rng)
        else:
            score = 0.0 if labels.all() else NEVER
            by_class[name] = [LinearHead(KIND, score, (), None) for _ in settings]
    return [ClassHead({name: heads[number] for name, heads in by_class.items()}) for number in range(len(settings))]


def _fitted(
    objective: str,
    cohort: HeadCohort,
    terms: Sequence[Term],
    labels: Floats,
    weights: Floats,
    settings: Sequence[Mapping[str, float]],
    rng: np.random.Generator,
) -> list[TreeHead]:
    import xgboost

    names, seed = tuple(term.feature for term in terms), int(rng.integers(2**31))
    data = xgboost.DMatrix(cohort.values(names).astype(np.float32), labels, weight=weights, nthread=1)
    heads = []
    for setting in settings:
        chosen: dict[str, Any] = {
            **_PARAMETERS,
            "objective": objective,
            "max_depth": int(setting["depth"]),
            "seed": seed,
        }
        booster = xgboost.train(chosen, data, int(setting["rounds"]))
        model = json.loads(bytes(booster.save_raw("json")))
        heads.append(TreeHead(f"{KIND}, {objective}", names, model))
    return heads


def _balanced(labels: Floats) -> Floats:
    share = labels.mean()
    return np.asarray(np.where(labels > 0, 0.5 / max(share, 1e-9), 0.5 / max(1 - share, 1e-9)), dtype=np.float64)
