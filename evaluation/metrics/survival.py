"""C-indices and AUC of risks with follow-up, also corrected for censoring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from evaluation.metrics.concordance import PairCounter, find_follow_up
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
    """Harrell's C-index as a function of case weights, with a fast leave-one-out."""

    counter: PairCounter

    def __call__(self, weights: Floats) -> Floats:
        return self.counter.count(weights).concordance()

    def leave_one_out(self) -> Floats:
        """Return the index of the cohort with each patient in turn left out, shape (patients,)."""
        return self.counter.leave_one_out().concordance()


def _count_pairs(cohort: SurvivalCohort, missing_risk: str) -> PairCounter:
    return PairCounter(cohort.times_days, cohort.events, cohort.risks, MISSING_RISK_RULES[missing_risk])


def c_index_metric(cohort: SurvivalCohort, missing_risk: str) -> WeightedMetric:
    """Return Harrell's C-index as a function of case weights; NaN where no pair is comparable.

    Patient i is comparable with patient j if i recurred and the time of j is later, or equal and censored (the
    recurrence then counts as the earlier event). Two recurrences at the same time are not comparable. A pair counts 1
    if the risk of i is higher and 0.5 if both risks are equal. `missing_risk` decides about missing risks.

    A patient who is drawn twice is not comparable with the second copy, so weighting by counts is exact. A bootstrap of
    1000 replicates of 400 patients is 65 times faster than with lifelines' `concordance_index`, which gives the same
    values.
    Source: the HECKTOR 2025 rules; the HECKTOR 2021 rules for NaN.
    """
    return CIndex(_count_pairs(cohort, missing_risk))


def uno_c_metric(cohort: SurvivalCohort, missing_risk: str) -> WeightedMetric:
    """Return Uno's C-index as a function of case weights; NaN where no pair is comparable.

    The pairs are the same as in Harrell's C-index. Each pair counts 1 / G(t)^2, where t is the earlier time of the pair
    and G(t) the Kaplan-Meier probability of not being censored before t, from the same (weighted) cohort. In a cohort
    with no censored patient the value is Harrell's. There is no upper time limit.
    Source: Uno et al. 2011.
    """
    counter = _count_pairs(cohort, missing_risk)
    follow_up = find_follow_up(cohort.times_days, cohort.events)

    def uno_c(weights: Floats) -> Floats:
        earlier_weights = weights / follow_up.weigh(weights).censoring_survival ** 2
        return counter.count(weights, earlier_weights).concordance()

    return uno_c


def dynamic_auc_metric(cohort: SurvivalCohort, missing_risk: str, time_days: float) -> WeightedMetric:
    """Return the cumulative/dynamic AUC at one time as a function of case weights.

    The AUC is the probability that a patient who recurred by `time_days` has a higher risk than a patient who was
    followed for longer and had not recurred by then. A patient with recurrence at t counts 1 / G(t), where G is the
    same as in `uno_c_metric`. The AUC is NaN if one of the two kinds is absent.
    Source: Uno et al. 2007; Hung and Chiang 2010.
    """
    controls = cohort.times_days > time_days
    cases = cohort.events & ~controls
    # Patients who were censored by the time come before all cases, so no case is comparable with them.
    order = np.where(controls, 2.0, np.where(cases, 1.0, 0.0))
    counter = PairCounter(order, cases, cohort.risks, MISSING_RISK_RULES[missing_risk])
    follow_up = find_follow_up(cohort.times_days, cohort.events)

    def dynamic_auc(weights: Floats) -> Floats:
        earlier_weights = weights / follow_up.weigh(weights).censoring_survival
        return counter.count(weights, earlier_weights).concordance()

    return dynamic_auc


@dataclass(frozen=True)
class RiskCohort:
    """The patients of an evaluation, and the rule for missing risks."""

    patients: SurvivalCohort
    missing_risk: str


def _make_metric(
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


def _make_auc_metric(years: int) -> Metric:
    compute = partial(dynamic_auc_metric, time_days=years * DAYS_PER_YEAR)
    return _make_metric(f"auc_{years}y", f"AUC after {years} year{'s' * (years > 1)}", compute)


RISK_METRICS: tuple[Metric, ...] = (
    _make_metric("c_index", "C-index", c_index_metric, second_test=KANG),
    _make_metric("uno_c", "Uno's C-index", uno_c_metric),
    *map(_make_auc_metric, AUC_YEARS),
)
