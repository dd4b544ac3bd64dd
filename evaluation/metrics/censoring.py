"""Concordance corrected for censoring: Uno's C-index and the cumulative/dynamic AUC."""

from __future__ import annotations

from typing import Final

import numpy as np

from evaluation.editions.edge_cases import MISSING_RISK_RULES
from evaluation.metrics.concordance import PairCounter, PairSums, case_control_pairs
from evaluation.metrics.overlap import Floats, WeightedMetric, ratio
from evaluation.metrics.survival import SurvivalCohort

DAYS_A_YEAR: Final = 365.25
AUC_YEARS: Final = (1, 2, 3)


def uno_c_metric(cohort: SurvivalCohort, missing_risk: str) -> WeightedMetric:
    """Uno's C-index as a function of case weights; NaN where no pair is comparable.

    The pairs are those of Harrell's C-index; each counts 1 / G(t)^2, where t is its earlier time and G(t) the
    Kaplan-Meier probability of not being censored before t, from the same (weighted) cohort. Without censoring it
    is Harrell's. No upper time limit is set.
    Source: Uno et al. 2011.
    """

    counter = PairCounter(cohort.times_days, cohort.events, cohort.risks)
    missing_score = MISSING_RISK_RULES[missing_risk]

    def weighted(weights: Floats) -> Floats:
        pairs = counter.count(weights, weights / uncensored_before(cohort, weights) ** 2)
        return _share(pairs, missing_score)

    return weighted


def dynamic_auc_metric(cohort: SurvivalCohort, missing_risk: str, time_days: float) -> WeightedMetric:
    """The cumulative/dynamic AUC at one time as a function of case weights; NaN without cases or controls.

    The probability that a patient who recurred by `time_days` has a higher risk than one followed for longer without
    recurrence. A patient with recurrence at t counts 1 / G(t), G as in `uno_c_metric`.
    Source: Uno et al. 2007; Hung and Chiang 2010.
    """
    controls = cohort.times_days > time_days
    taking_part = controls | cohort.events
    counter = case_control_pairs(~controls[taking_part], cohort.risks[taking_part])
    missing_score = MISSING_RISK_RULES[missing_risk]

    def weighted(weights: Floats) -> Floats:
        worth = weights / uncensored_before(cohort, weights)
        pairs = counter.count(weights[:, taking_part], worth[:, taking_part])
        return _share(pairs, missing_score)

    return weighted


def _share(pairs: PairSums, missing_score: float) -> Floats:
    # Fractional weights leave a perfect order an ulp above 1.
    return np.clip(ratio(pairs.concordant + missing_score * pairs.unknown, pairs.comparable), 0.0, 1.0)


def uncensored_before(cohort: SurvivalCohort, weights: Floats) -> Floats:
    """The probability of not being censored before each patient's own time, shape (replicates, patients).

    Kaplan-Meier with censoring as the event; a recurrence at the same time comes first, so that those who recur at
    t are not at risk of being censored at t. Patients of weight 0 whose time comes after all others get 1.
    """
    order = np.argsort(cohort.times_days, kind="stable")
    times, first, place = np.unique(cohort.times_days[order], return_index=True, return_inverse=True)
    drawn = weights[:, order]
    at_time = np.add.reduceat(drawn, first, axis=1)
    censored = np.add.reduceat(drawn * ~cohort.events[order], first, axis=1)
    at_risk = np.cumsum(at_time[:, ::-1], axis=1)[:, ::-1]
    exposed = at_risk - (at_time - censored)
    stays = 1.0 - np.divide(censored, exposed, out=np.zeros_like(censored), where=exposed > 0)
    before = np.ones((len(weights), times.size))
    np.cumprod(stays[:, :-1], axis=1, out=before[:, 1:])
    # After a last time with censoring alone nobody is left in this replicate, so any positive number serves.
    before[before <= 0] = 1.0
    probability: Floats = np.empty_like(weights, dtype=np.float64)
    probability[:, order] = before[:, place]
    return probability


def censoring_metrics(cohort: SurvivalCohort, missing_risk: str) -> dict[str, WeightedMetric]:
    """Uno's C-index and the AUC after one, two and three years."""
    aucs = {f"auc_{years}y": dynamic_auc_metric(cohort, missing_risk, years * DAYS_A_YEAR) for years in AUC_YEARS}
    return {"uno_c": uno_c_metric(cohort, missing_risk), **aucs}
