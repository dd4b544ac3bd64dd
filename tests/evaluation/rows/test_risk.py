"""Metrics of risks over a cohort small enough to count its pairs."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.metrics.survival import RISK_METRICS, RiskCohort, SurvivalCohort
from evaluation.rows.scorer import build_metrics


def test_the_horizons_of_the_aucs_are_years() -> None:
    """Recurrence after 200, 300 and 366 days with risks 3, 1 and 0; followed for 400 and 800 days with risks 2 and 0.5.

    No patient is censored before the last recurrence, so that every pair counts once. After one year (365.25 days) the
    first two have recurred and the other three not: of the pairs 3 against 0, 2, 0.5 and 1 against 0, 2, 0.5 only
    1 against 2 is wrong, 5/6. After two years three have recurred and one is followed for longer: 3, 1 and 0 against
    0.5, 2/3. No patient is followed for three years.
    """
    patients = SurvivalCohort(
        times_days=np.array([200.0, 300.0, 366.0, 400.0, 800.0]),
        events=np.array([True, True, True, False, False]),
        risks=np.array([3.0, 1.0, 0.0, 2.0, 0.5]),
    )
    cohort, once = RiskCohort(patients, "tie"), np.ones((1, 5))
    metrics = build_metrics(RISK_METRICS, cohort)
    aucs = {name: metric(once)[0] for name, metric in metrics.items() if name.startswith("auc_")}
    assert aucs == {
        "auc_1y": pytest.approx(5 / 6),
        "auc_2y": pytest.approx(2 / 3),
        "auc_3y": pytest.approx(np.nan, nan_ok=True),
    }
