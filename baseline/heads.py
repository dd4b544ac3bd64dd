"""Fit the RFS and HPV heads on measured features and clinical variables; judge them out-of-fold.

Every transform (filling, standardising) is learnt inside the training part of a fold and travels with the head.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from algorithm.heads import LinearHead, Term
from algorithm.measure import CLINICAL, Features
from contract.errors import MetricError

# feature -> transform; skewed quantities are logarithmised. With a few dozen relapses and a dozen HPV negatives in
# the training patients, each head is held to a handful of features.
RFS_FEATURES: Final[dict[str, str]] = {
    "total_volume_ml": "log1p",
    "gtvn_count": "identity",
    "age_years": "identity",
    "tobacco": "identity",
    "performance_status": "identity",
}
HPV_FEATURES: Final[dict[str, str]] = {
    "gtvn_cold_share": "identity",
    "total_volume_ml": "log1p",
    "age_years": "identity",
    "gender": "identity",
    "tobacco": "identity",
}
PENALTIES: Final = (0.01, 0.03, 0.1, 0.3, 1.0)
INNER_FOLDS: Final = 5


def clinical_only(transforms: Mapping[str, str]) -> dict[str, str]:
    """The clinical variables among a head's features: its comparator's."""
    return {feature: transform for feature, transform in transforms.items() if feature in CLINICAL}


_Float = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Outcomes:
    """Targets of the patients of a feature table, in its order; `hpv` and `relapse` are boolean arrays."""

    rfs_days: _Float
    relapse: npt.NDArray[np.bool_]
    hpv: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class FittedHead:
    """A head fitted on all patients, with its metric over out-of-fold scores and the penalty chosen."""

    head: LinearHead
    metric: str
    out_of_fold: float
    penalty: float


def fit_rfs(
    rows: Sequence[Features], outcomes: Outcomes, transforms: Mapping[str, str], rng: np.random.Generator
) -> FittedHead:
    """Ridge-penalised Cox regression (lifelines); the penalty with the best out-of-fold C-index is kept.

    Raises:
        MetricError: fewer than two relapses, so that a fold could lack one.
    """
    if int(outcomes.relapse.sum()) < 2:
        raise MetricError(f"RFS head: {int(outcomes.relapse.sum())} relapses among the training patients, expected 2")

    def fit(train: npt.NDArray[np.int64], penalty: float) -> LinearHead:
        return _cox(_pick(rows, train), outcomes.rfs_days[train], outcomes.relapse[train], transforms, penalty)

    def judge(scores: _Float) -> float:
        return concordance(outcomes.rfs_days, outcomes.relapse, scores)

    folds = _stratified_folds(outcomes.relapse, rng)
    scores, penalty, metric = _best_penalty(rows, folds, fit, judge)
    del scores
    return FittedHead(fit(np.arange(len(rows)), penalty), "c_index", metric, penalty)


def fit_hpv(
    rows: Sequence[Features], outcomes: Outcomes, transforms: Mapping[str, str], rng: np.random.Generator
) -> FittedHead:
    """Class-weighted ridge logistic regression (scikit-learn); threshold and penalty are chosen out-of-fold.

    The threshold maximises balanced accuracy of the out-of-fold logits.

    Raises:
        MetricError: fewer than two patients of either class, so that a fold could lack one.
    """
    fewest = min(int(outcomes.hpv.sum()), int((~outcomes.hpv).sum()))
    if fewest < 2:
        raise MetricError(f"HPV head: {fewest} training patients of the rarer class, expected at least 2")

    def fit(train: npt.NDArray[np.int64], penalty: float) -> LinearHead:
        return _logistic(_pick(rows, train), outcomes.hpv[train], transforms, penalty)

    def judge(scores: _Float) -> float:
        return best_threshold(outcomes.hpv, scores)[1]

    folds = _stratified_folds(outcomes.hpv, rng)
    scores, penalty, _ = _best_penalty(rows, folds, fit, judge)
    threshold, metric = best_threshold(outcomes.hpv, scores)
    head = fit(np.arange(len(rows)), penalty)
    return FittedHead(
        LinearHead(head.kind, head.intercept, head.terms, threshold), "balanced_accuracy", metric, penalty
    )


def concordance(rfs_days: _Float, relapse: npt.NDArray[np.bool_], risk: _Float) -> float:
    """Harrell's C of a risk (higher = earlier recurrence).

    Raises:
        MetricError: no two patients can be compared.
    """
    from lifelines.utils import concordance_index

    try:
        return float(concordance_index(rfs_days, -risk, relapse))
    except ZeroDivisionError:
        raise MetricError("C-index: no comparable pair of patients, expected at least one") from None


def best_threshold(positive: npt.NDArray[np.bool_], scores: _Float) -> tuple[float, float]:
    """The threshold (score >= threshold is positive) of the highest balanced accuracy, and that accuracy.

    Candidates lie midway between neighbouring scores; of equally good ones the middle one is taken, which is
    the most stable choice.
    """
    order = np.unique(scores)
    candidates = np.concatenate([[order[0] - 1.0], (order[:-1] + order[1:]) / 2, [order[-1] + 1.0]])
    sensitivity = np.array([np.mean(scores[positive] >= c) for c in candidates])
    specificity = np.array([np.mean(scores[~positive] < c) for c in candidates])
    accuracy = (sensitivity + specificity) / 2
    best = np.flatnonzero(accuracy >= accuracy.max() - 1e-12)
    chosen = best[len(best) // 2]
    return float(candidates[chosen]), float(accuracy[chosen])


def _best_penalty(
    rows: Sequence[Features],
    folds: Sequence[npt.NDArray[np.int64]],
    fit: Callable[[npt.NDArray[np.int64], float], LinearHead],
    judge: Callable[[_Float], float],
) -> tuple[_Float, float, float]:
    """Out-of-fold scores, the penalty and its metric; of equally good penalties the strongest."""
    best: tuple[_Float, float, float] | None = None
    everyone = np.arange(len(rows))
    for penalty in PENALTIES:
        scores = np.zeros(len(rows))
        for held_out in folds:
            head = fit(np.setdiff1d(everyone, held_out), penalty)
            scores[held_out] = [head.score(rows[number]) for number in held_out]
        metric = judge(scores)
        if best is None or metric >= best[2]:
            best = (scores, penalty, metric)
    if best is None:
        raise ValueError("no penalty to choose from")
    return best


def _stratified_folds(stratum: npt.NDArray[np.bool_], rng: np.random.Generator) -> list[npt.NDArray[np.int64]]:
    number = np.zeros(len(stratum), dtype=np.int64)
    for value in (False, True):
        members = rng.permutation(np.flatnonzero(stratum == value))
        number[members] = np.arange(len(members)) % INNER_FOLDS
    return [np.flatnonzero(number == fold) for fold in range(INNER_FOLDS)]


def _terms(rows: Sequence[Features], transforms: Mapping[str, str]) -> list[Term]:
    """Filling and standardisation of each feature, learnt from `rows`; constant features are left out."""
    terms = []
    for feature, transform in transforms.items():
        known = np.array([row[feature] for row in rows if row.get(feature) is not None], dtype=np.float64)
        if not known.size:
            continue
        fill = float(np.median(known))
        bare = Term(feature, transform, fill, 0.0, 1.0, 0.0)
        moved = np.array([_transformed(bare, row.get(feature)) for row in rows])
        if moved.std() < 1e-9:
            continue
        terms.append(Term(feature, transform, fill, float(moved.mean()), float(moved.std()), 0.0))
    return terms


def _transformed(term: Term, value: float | None) -> float:
    known = term.fill if value is None else value
    return float(np.log1p(max(known, 0.0))) if term.transform == "log1p" else known


def _matrix(rows: Sequence[Features], terms: Sequence[Term]) -> _Float:
    return np.array([[term.standardised(row.get(term.feature)) for term in terms] for row in rows], dtype=np.float64)


def _weighted(terms: Sequence[Term], weights: npt.ArrayLike) -> tuple[Term, ...]:
    return tuple(
        Term(t.feature, t.transform, t.fill, t.mean, t.sd, float(w))
        for t, w in zip(terms, np.asarray(weights, dtype=np.float64), strict=True)
    )


def _cox(
    rows: Sequence[Features],
    rfs_days: _Float,
    relapse: npt.NDArray[np.bool_],
    transforms: Mapping[str, str],
    penalty: float,
) -> LinearHead:
    import pandas as pd
    from lifelines import CoxPHFitter

    terms = _terms(rows, transforms)
    if not terms:
        return LinearHead("log partial hazard", 0.0, (), None)
    table = pd.DataFrame(_matrix(rows, terms), columns=[term.feature for term in terms])
    table["rfs_days"], table["relapse"] = rfs_days, relapse.astype(int)
    with warnings.catch_warnings():
        # lifelines warns of low variance within events, which the penalty is there for
        warnings.simplefilter("ignore")
        fitted = CoxPHFitter(penalizer=penalty, l1_ratio=0.0).fit(table, "rfs_days", "relapse")
    weights = fitted.params_.loc[[term.feature for term in terms]].to_numpy()
    return LinearHead("log partial hazard", 0.0, _weighted(terms, weights), None)


def _logistic(
    rows: Sequence[Features], hpv: npt.NDArray[np.bool_], transforms: Mapping[str, str], penalty: float
) -> LinearHead:
    from sklearn.linear_model import LogisticRegression

    terms = _terms(rows, transforms)
    if not terms:
        return LinearHead("logit of HPV positive", 0.0, (), None)
    model = LogisticRegression(C=1.0 / (penalty * len(rows)), class_weight="balanced", max_iter=2000)
    model.fit(_matrix(rows, terms), hpv)
    return LinearHead("logit of HPV positive", float(model.intercept_[0]), _weighted(terms, model.coef_[0]), None)


def _pick(rows: Sequence[Features], numbers: npt.NDArray[np.int64]) -> list[Features]:
    return [rows[number] for number in numbers]
