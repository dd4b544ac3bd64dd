"""Models of a risk, all linear heads: elastic-net Cox regression (lifelines), bagged signs, and a single feature.

The signs follow the idea of ICARE (Rebaud et al. 2022). Only signs are fitted: each bootstrap sample (bag) uses a
random half of the features, gives each the sign of its own C-index, drops the weaker of two correlated features and
averages the signed standardised values. The average over the bags is linear in the features.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from algorithm.heads.linear import LinearHead, Term
from baseline.heads.cohort import Flags, Floats, HeadCohort
from baseline.heads.models.terms import matrix, rank_correlation, weighted
from contract.errors import MetricError
from evaluation.metrics.concordance import PairCounter

KIND: Final = "log partial hazard"
# lifelines smooths the absolute value, so coefficients below this size stand for zero.
NEARLY_ZERO: Final = 1e-3
BAGS: Final = 100
FEATURE_SHARE: Final = 0.5
# Rank correlation above which only the stronger of two features is used in a bag.
MOST_CORRELATION: Final = 0.7
_UNPENALISED: Final = {"penalty": 0.0, "l1_ratio": 0.0}


def unfitted(
    _cohort: HeadCohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], _rng: np.random.Generator
) -> list[LinearHead]:
    """The single feature as a risk: only its scale is learnt."""
    return [LinearHead(KIND, 0.0, weighted(terms, np.ones(len(terms))), None) for _ in settings]


def fit_cox(
    cohort: HeadCohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], _rng: np.random.Generator
) -> list[LinearHead]:
    """One head per setting: `penalty` is the size of the penalty, `l1_ratio` the share of its L1 part.

    Raises:
        MetricError: lifelines does not converge.
    """
    columns = matrix(terms, cohort)
    return [LinearHead(KIND, 0.0, weighted(terms, cox_weights(columns, cohort, setting)), None) for setting in settings]


def cox_weights(columns: Floats, cohort: HeadCohort, setting: Mapping[str, float]) -> Floats:
    """Coefficients of standardised columns (patients, terms)."""
    import pandas as pd
    from lifelines import CoxPHFitter
    from lifelines.exceptions import ConvergenceError

    if not columns.shape[1]:
        return np.zeros(0)
    table = pd.DataFrame(columns, columns=[str(number) for number in range(columns.shape[1])])
    table["days"], table["event"] = cohort.outcomes.times_days, cohort.outcomes.values
    fitter = CoxPHFitter(penalizer=setting["penalty"], l1_ratio=setting["l1_ratio"])
    with warnings.catch_warnings():
        # lifelines warns of low variance within events, which the penalty handles
        warnings.simplefilter("ignore")
        try:
            fitted = fitter.fit(table, "days", "event")
        except ConvergenceError as problem:
            raise MetricError(f"Cox regression with {dict(setting)}", f"no convergence ({problem})") from None
    weights = np.asarray(fitted.params_.to_numpy(), dtype=np.float64)
    if setting["l1_ratio"] > 0:
        weights[np.abs(weights) < NEARLY_ZERO] = 0.0
    return weights


def fit_signs(
    cohort: HeadCohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], rng: np.random.Generator
) -> list[LinearHead]:
    """One head per setting: `least_effect` is the minimum distance of a feature's C-index from 0.5.

    A Cox regression on the average alone puts it on the scale of a log partial hazard.
    """
    columns = matrix(terms, cohort)
    counts = rng.multinomial(len(cohort.rows), np.full(len(cohort.rows), 1 / len(cohort.rows)), size=BAGS)
    drawn = rng.random((BAGS, len(terms))).argsort(1) < np.ceil(FEATURE_SHARE * len(terms))
    effects = univariate_concordance(columns, cohort, counts.astype(np.float64)) - 0.5
    related = np.abs(rank_correlation(columns)) > MOST_CORRELATION
    heads = []
    for setting in settings:
        bags = [
            bag_weights(np.where(used, effect, 0.0), related, setting["least_effect"])
            for used, effect in zip(drawn, effects, strict=True)
        ]
        weights = np.mean(bags, axis=0) if terms else np.zeros(0)
        heads.append(LinearHead(KIND, 0.0, weighted(terms, _as_log_hazard(weights, columns, cohort)), None))
    return heads


def univariate_concordance(columns: Floats, cohort: HeadCohort, counts: Floats) -> Floats:
    """C-index of each column on each bag, shape (bags, columns); 0.5 for a bag without a comparable pair.

    `counts` (bags, patients) holds how often each patient was drawn.
    """
    values = np.empty((len(counts), columns.shape[1]))
    for number, column in enumerate(columns.T):
        pairs = PairCounter(cohort.outcomes.times_days, cohort.outcomes.positive, column).count(counts)
        signed = 2 * pairs.concordant - pairs.comparable
        values[:, number] = 0.5 + 0.5 * signed / np.maximum(pairs.comparable, 1e-9)
    return values


def bag_weights(effects: Floats, related: Flags, least_effect: float) -> Floats:
    """Weights of one bag: signs divided by the number of features used, all zero if there is none.

    Features are taken by decreasing effect; one that is related to an earlier feature is dropped, as is one whose
    effect is 0 or below `least_effect`.
    """
    chosen: list[int] = []
    for number in np.argsort(-np.abs(effects), kind="stable"):
        if effects[number] == 0 or abs(effects[number]) < least_effect:
            break
        if not related[number, chosen].any():
            chosen.append(int(number))
    weights = np.zeros(len(effects))
    weights[chosen] = np.sign(effects[chosen]) / max(len(chosen), 1)
    return weights


def log_hazard_slope(scores: Floats, cohort: HeadCohort) -> float:
    """Slope of a Cox regression on scores of which higher values mean an earlier event, above 0; 0 for a constant."""
    spread = float(scores.std())
    if spread < 1e-9:
        return 0.0
    slope = float(cox_weights((scores / spread)[:, None], cohort, _UNPENALISED)[0] / spread)
    # The scores rise with the hazard by construction; a slope of 0 or less is noise.
    return max(slope, 1e-6)


def _as_log_hazard(weights: Floats, columns: Floats, cohort: HeadCohort) -> Floats:
    return np.asarray(weights * log_hazard_slope(columns @ weights, cohort))
