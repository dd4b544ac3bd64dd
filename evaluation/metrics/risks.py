"""Metrics of risks: one record each, a function of case weights from a cohort's follow-up and risks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from evaluation.metrics.overlap import WeightedMetric
from evaluation.metrics.rules import KANG, Metric
from evaluation.metrics.survival import (
    AUC_YEARS,
    DAYS_PER_YEAR,
    SurvivalCohort,
    c_index_metric,
    dynamic_auc_metric,
    uno_c_metric,
)


@dataclass(frozen=True)
class RiskCohort:
    """The patients of an evaluation, and how a missing risk counts."""

    patients: SurvivalCohort
    missing_risk: str


def _of_risk(
    name: str, title: str, of: Callable[[SurvivalCohort, str], WeightedMetric], second_test: str = ""
) -> Metric:
    def of_cohort(cohort: RiskCohort) -> WeightedMetric:
        return of(cohort.patients, cohort.missing_risk)

    return Metric(name, title, "risk", of_cohort, second_test=second_test, rules=("missing_risk",))


def _auc_after(years: int) -> Metric:
    of = partial(dynamic_auc_metric, time_days=years * DAYS_PER_YEAR)
    return _of_risk(f"auc_{years}y", f"AUC after {years} year{'s' * (years > 1)}", of)


RISK_METRICS: tuple[Metric, ...] = (
    _of_risk("c_index", "C-index", c_index_metric, second_test=KANG),
    _of_risk("uno_c", "Uno's C-index", uno_c_metric),
    *map(_auc_after, AUC_YEARS),
)
