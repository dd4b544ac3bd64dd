"""Harrell's C-index, Kaplan-Meier curves and the log-rank test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc

from evaluation.editions.edge_cases import MISSING_RISK_RULES
from evaluation.metrics.concordance import PairCounter
from evaluation.metrics.overlap import Floats, WeightedMetric, ratio

Booleans: TypeAlias = npt.NDArray[np.bool_]


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

    def weighted(weights: Floats) -> Floats:
        pairs = counter.count(weights)
        return ratio(pairs.concordant + missing_score * pairs.unknown, pairs.comparable)

    return weighted


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
    return float(chdtrc(1, observed_less_expected**2 / variance))
