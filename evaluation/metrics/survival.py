"""C-indices and AUC of risks with follow-up, also corrected for censoring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from evaluation.metrics.concordance import PairCounter, make_case_control_counter
from evaluation.metrics.overlap import Booleans, Floats, WeightedMetric
from evaluation.metrics.rules import KANG, MISSING_RISK_RULES, Metric

DAYS_PER_YEAR: Final = 365.25
AUC_YEARS: Final = (1, 2, 3)


@dataclass(frozen=True)
class SurvivalCohort:
    """Follow-up and predicted risk of patients; all arrays have shape (patients,).

    Attributes:
        times_days: Follow-up of the reference.
        events: True for a recurrence.
        risks: Predicted risk, higher for earlier recurrence, NaN where missing.
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
    """Return Harrell's C-index as a function of case weights; NaN where no pair is comparable.

    Patient i is comparable with patient j if i recurred and the time of j is later, or equal and censored (the
    recurrence then counts as the earlier event). Two recurrences at the same time are not comparable. A pair counts 1
    if the risk of i is higher and 0.5 if both risks are equal. `missing_risk` decides about missing risks.

    A patient who is drawn twice makes no comparable pair with itself, so that weights by count are exact. A bootstrap
    of 1000 replicates of 400 patients is 65 times faster than with lifelines' `concordance_index`, which gives the same
    values.
    Source: the HECKTOR 2025 rules; the HECKTOR 2021 rules for NaN.
    """
    counter = PairCounter(cohort.times_days, cohort.events, cohort.risks)
    return CIndex(counter, MISSING_RISK_RULES[missing_risk])


def uno_c_metric(cohort: SurvivalCohort, missing_risk: str) -> WeightedMetric:
    """Return Uno's C-index as a function of case weights; NaN where no pair is comparable.

    The pairs are the same as in Harrell's C-index. Each pair counts 1 / G(t)^2, where t is the earlier time of the pair
    and G(t) the Kaplan-Meier probability of not being censored before t, from the same (weighted) cohort. In a cohort
    with no censored patient the value is Harrell's. There is no upper time limit.
    Source: Uno et al. 2011.
    """
    counter = PairCounter(cohort.times_days, cohort.events, cohort.risks)
    missing_score = MISSING_RISK_RULES[missing_risk]

    def uno_c(weights: Floats) -> Floats:
        earlier_weights = weights / censoring_survival(cohort, weights) ** 2
        return counter.count(weights, earlier_weights).concordance(missing_score)

    return uno_c


def dynamic_auc_metric(cohort: SurvivalCohort, missing_risk: str, time_days: float) -> WeightedMetric:
    """Return the cumulative/dynamic AUC at one time as a function of case weights.

    The AUC is the probability that a patient who recurred by `time_days` has a higher risk than a patient who was
    followed for longer and had not recurred by then. A patient with recurrence at t counts 1 / G(t), where G is the
    same as in `uno_c_metric`. The AUC is NaN if one of the two kinds is absent.
    Source: Uno et al. 2007; Hung and Chiang 2010.
    """
    controls = cohort.times_days > time_days
    is_compared = controls | cohort.events
    counter = make_case_control_counter(~controls[is_compared], cohort.risks[is_compared])
    missing_score = MISSING_RISK_RULES[missing_risk]

    def dynamic_auc(weights: Floats) -> Floats:
        earlier_weights = weights / censoring_survival(cohort, weights)
        return counter.count(weights[:, is_compared], earlier_weights[:, is_compared]).concordance(missing_score)

    return dynamic_auc


def censoring_survival(cohort: SurvivalCohort, weights: Floats) -> Floats:
    """Return the probability of not being censored before each patient's own time, shape (replicates, patients).

    This is the Kaplan-Meier estimate with censoring as the event. A recurrence at the same time comes first, so that
    patients who recur at t are not at risk of being censored at t. Patients of weight 0 whose time is after all other
    times get 1.
    """
    order = np.argsort(cohort.times_days, kind="stable")
    times, first, place = np.unique(cohort.times_days[order], return_index=True, return_inverse=True)
    ordered_weights = weights[:, order]
    at_time = np.add.reduceat(ordered_weights, first, axis=1)
    censored = np.add.reduceat(ordered_weights * ~cohort.events[order], first, axis=1)
    at_risk = np.cumsum(at_time[:, ::-1], axis=1)[:, ::-1]
    exposed = at_risk - (at_time - censored)
    stays = 1.0 - np.divide(censored, exposed, out=np.zeros_like(censored), where=exposed > 0)
    before = np.ones((len(weights), times.size))
    np.cumprod(stays[:, :-1], axis=1, out=before[:, 1:])
    # If every patient at the last time is censored, no patient of this replicate is later: any positive number serves.
    before[before <= 0] = 1.0
    probability: Floats = np.empty_like(weights, dtype=np.float64)
    probability[:, order] = before[:, place]
    return probability


@dataclass(frozen=True)
class RiskCohort:
    """The patients of an evaluation, and the rule for missing risks."""

    patients: SurvivalCohort
    missing_risk: str


def _declare_metric(
    name: str, title: str, compute: Callable[[SurvivalCohort, str], WeightedMetric], second_test: str = ""
) -> Metric:
    return Metric(
        name,
        title,
        "risk",
        lambda cohort: compute(cohort.patients, cohort.missing_risk),
        second_test=second_test,
        rules=("missing_risk",),
    )


def _declare_auc(years: int) -> Metric:
    compute = partial(dynamic_auc_metric, time_days=years * DAYS_PER_YEAR)
    return _declare_metric(f"auc_{years}y", f"AUC after {years} year{'s' * (years > 1)}", compute)


RISK_METRICS: tuple[Metric, ...] = (
    _declare_metric("c_index", "C-index", c_index_metric, second_test=KANG),
    _declare_metric("uno_c", "Uno's C-index", uno_c_metric),
    *map(_declare_auc, AUC_YEARS),
)
