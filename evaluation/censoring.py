"""Uno's C-index and the cumulative/dynamic AUC: concordance corrected for censoring, as extra columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from evaluation.edge_cases import MISSING_RISK_RULES
from evaluation.overlap import Floats, WeightedMetric, ratio
from evaluation.survival import Cohort

# Pairs held at once: bounds the memory to about 100 MB for any cohort.
_PAIRS_AT_ONCE: Final = 4_000_000

DAYS_A_YEAR: Final = 365.25
AUC_YEARS: Final = (1, 2, 3)


def uno_c_metric(cohort: Cohort, missing_risk: str) -> WeightedMetric:
    """Uno's C-index as a function of case weights; NaN where no pair is comparable.

    The pairs are those of Harrell's C-index; each counts 1 / G(t)^2, where t is its earlier time and G(t) the
    Kaplan-Meier probability of not being censored before t, from the same (weighted) cohort. Without censoring it
    is Harrell's. No upper time limit is set.
    Source: Uno et al. 2011.
    """

    def weighted(weights: Floats) -> Floats:
        worth = weights / uncensored_before(cohort, weights) ** 2
        concordant, comparable = np.zeros(len(weights)), np.zeros(len(weights))
        for rows, score, pairs in _pair_blocks(cohort, MISSING_RISK_RULES[missing_risk]):
            concordant += np.einsum("bi,bi->b", weights @ score.T, worth[:, rows])
            comparable += np.einsum("bi,bi->b", weights @ pairs.T, worth[:, rows])
        return ratio(concordant, comparable)

    return weighted


def _pair_blocks(cohort: Cohort, missing_score: float) -> Iterator[tuple[npt.NDArray[np.intp], Floats, Floats]]:
    """Blocks of patients with a recurrence: their indices, the pairs' scores and comparability (block, patients)."""
    recurred = np.flatnonzero(cohort.events)
    step = max(1, _PAIRS_AT_ONCE // max(1, cohort.times_days.size))
    for start in range(0, recurred.size, step):
        rows = recurred[start : start + step]
        mine, times = cohort.times_days[rows, None], cohort.times_days[None, :]
        comparable = (mine < times) | ((mine == times) & ~cohort.events[None, :])
        score = _concordance(cohort.risks[rows, None], cohort.risks[None, :], missing_score)
        yield rows, score * comparable, comparable.astype(np.float64)


def _concordance(earlier: Floats, later: Floats, missing_score: float) -> Floats:
    """1 where the earlier recurrence has the higher risk, 0.5 for a tie, `missing_score` for NaN, else 0."""
    score = (earlier > later) + 0.5 * (earlier == later)
    return np.where(np.isnan(earlier) | np.isnan(later), missing_score, score)


def dynamic_auc_metric(cohort: Cohort, missing_risk: str, time_days: float) -> WeightedMetric:
    """The cumulative/dynamic AUC at one time as a function of case weights; NaN without cases or controls.

    The probability that a patient who recurred by `time_days` has a higher risk than one followed for longer without
    recurrence. A patient with recurrence at t counts 1 / G(t), G as in `uno_c_metric`.
    Source: Uno et al. 2007; Hung and Chiang 2010.
    """
    cases = cohort.events & (cohort.times_days <= time_days)
    controls = cohort.times_days > time_days
    score = _concordance(
        cohort.risks[cases, None], cohort.risks[None, controls], MISSING_RISK_RULES[missing_risk]
    )

    def weighted(weights: Floats) -> Floats:
        worth = (weights / uncensored_before(cohort, weights))[:, cases]
        concordant = np.einsum("bi,bi->b", weights[:, controls] @ score.T, worth)
        return ratio(concordant, worth.sum(axis=1) * weights[:, controls].sum(axis=1))

    return weighted


def uncensored_before(cohort: Cohort, weights: Floats) -> Floats:
    """The probability of not being censored before each patient's own time, shape (replicates, patients).

    Kaplan-Meier with censoring as the event; a recurrence at the same time comes first, so that those who recur at
    t are not at risk of being censored at t. Patients of weight 0 whose time comes after all others get 1.
    """
    times, place = np.unique(cohort.times_days, return_inverse=True)
    member = np.zeros((cohort.times_days.size, times.size))
    member[np.arange(place.size), place] = 1.0
    at_time = weights @ member
    censored = (weights * ~cohort.events) @ member
    at_risk = np.cumsum(at_time[:, ::-1], axis=1)[:, ::-1]
    exposed = at_risk - (at_time - censored)
    stays = 1.0 - np.divide(censored, exposed, out=np.zeros_like(censored), where=exposed > 0)
    before = np.concatenate([np.ones((len(weights), 1)), np.cumprod(stays, axis=1)[:, :-1]], axis=1)
    # Nobody of this replicate is left after a last time of censoring alone, so that any positive number serves there.
    positive: Floats = np.where(before > 0, before, 1.0)[:, place]
    return positive


def censoring_metrics(cohort: Cohort, missing_risk: str) -> dict[str, WeightedMetric]:
    """Uno's C-index and the AUC after one, two and three years."""
    aucs = {f"auc_{years}y": dynamic_auc_metric(cohort, missing_risk, years * DAYS_A_YEAR) for years in AUC_YEARS}
    return {"uno_c": uno_c_metric(cohort, missing_risk), **aucs}
