"""C-indices and AUC of risks with follow-up, also corrected for censoring; Kaplan-Meier curves; the log-rank test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from evaluation.metrics.concordance import PairCounter, case_control_pairs
from evaluation.metrics.overlap import Booleans, Floats, WeightedMetric
from evaluation.metrics.rules import MISSING_RISK_RULES

DAYS_A_YEAR: Final = 365.25
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


@dataclass(frozen=True)
class StepCurve:
    """A Kaplan-Meier curve: survival after each time in days, from (0, 1)."""

    times_days: Floats
    survival: Floats
    at_risk: npt.NDArray[np.int64]


def c_index_metric(cohort: SurvivalCohort, missing_risk: str) -> WeightedMetric:
    """Harrell's C-index as a function of case weights; NaN where no pair is comparable.

    Patient i is comparable with j where i recurred and j's time is later, or equal and censored (the recurrence
    then counts as the earlier). Two recurrences at one time are not comparable. A pair is concordant where
    the risk of i is higher, and half so where risks tie. Missing risks count by `missing_risk`.

    A patient drawn twice makes no comparable pair with itself, so that weights by count are exact.
    Source: the HECKTOR 2025 rules; NaN from those of 2021.
    """
    counter = PairCounter(cohort.times_days, cohort.events, cohort.risks)
    missing_score = MISSING_RISK_RULES[missing_risk]
    return lambda weights: counter.count(weights).concordance(missing_score)


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
        earlier_weights = weights / uncensored_before(cohort, weights) ** 2
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
    counter = case_control_pairs(~controls[taking_part], cohort.risks[taking_part])
    missing_score = MISSING_RISK_RULES[missing_risk]

    def weighted(weights: Floats) -> Floats:
        earlier_weights = weights / uncensored_before(cohort, weights)
        return counter.count(weights[:, taking_part], earlier_weights[:, taking_part]).concordance(missing_score)

    return weighted


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


def kaplan_meier(times_days: Floats, events: Booleans) -> StepCurve:
    """The product-limit estimate of being free of recurrence, after each distinct time.

    Censored patients count as at risk at their own time. No patient gives the single point (0, 1).
    """
    times = np.unique(times_days)
    at_risk = np.array([(times_days >= time).sum() for time in times], dtype=np.int64)
    recurred = np.array([(events & (times_days == time)).sum() for time in times], dtype=np.int64)
    survival = np.cumprod(1.0 - recurred / np.maximum(at_risk, 1))
    return StepCurve(
        np.concatenate([[0.0], times]),
        np.concatenate([[1.0], survival]),
        np.concatenate([[times_days.size], at_risk]).astype(np.int64),
    )


def log_rank_p(times_days: Floats, events: Booleans, group: Booleans) -> float | None:
    """Two-sided p of the log-rank test between `group` and the others, chi-squared with one degree of freedom.

    None if the test is undefined: an empty group, or no recurrence while both groups are at risk.
    """
    observed_less_expected, variance = 0.0, 0.0
    for time in np.unique(times_days[events]):
        at_risk = times_days >= time
        n, n_group = int(at_risk.sum()), int((at_risk & group).sum())
        now = events & (times_days == time)
        d, d_group = int(now.sum()), int((now & group).sum())
        observed_less_expected += d_group - d * n_group / n
        if n > 1:
            variance += d * (n_group / n) * (1 - n_group / n) * (n - d) / (n - 1)
    if variance <= 0:
        return None
    from scipy.special import chdtrc

    return float(chdtrc(1, observed_less_expected**2 / variance))
