"""Kaplan-Meier curves, numbers at risk and the log-rank test by predicted risk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from lifelines.statistics import logrank_test

from evaluation.analyses.survival import survival_by_risk
from evaluation.metrics.survival import DAYS_A_YEAR
from tests.evaluation.tasks import RFS, RISK


def row(risk: float | None, years: float, relapse: bool) -> dict[str, Any]:
    return {"risk": risk, "rfs_days": years * DAYS_A_YEAR, "relapse": relapse}


# The median risk is 3.5: 6, 5 and 4 are high.
ROWS = [row(6, 1, True), row(5, 2, True), row(4, 4, False), row(3, 1.5, False), row(2, 3, True), row(1, 5, False)]


def test_curves_fall_at_recurrences(table) -> None:
    """High: 3 at risk at 1 year, 2 at 2 years: 2/3, then 1/3, until 4 years. Low: 2 at risk at 3 years: 1/2."""
    curves, _ = survival_by_risk(table({"ann": ROWS}, RISK, RFS))
    points = {group: [] for group in ("higher risk", "lower risk")}
    for line in curves.rows:
        points[line["group"]].append((line["years"], line["free"]))
    assert points["higher risk"] == [(0.0, 1.0), (1.0, 0.6667), (2.0, 0.3333), (4.0, 0.3333)]
    assert points["lower risk"] == [(0.0, 1.0), (3.0, 0.5), (5.0, 0.5)]


def test_numbers_at_risk_and_log_rank(table) -> None:
    _, at_risk = survival_by_risk(table({"ann": ROWS}, RISK, RFS))
    high, low = at_risk.rows
    assert [high[f"at_risk_{year}y"] for year in range(6)] == [3, 3, 2, 1, 1, 0]
    assert [low[f"at_risk_{year}y"] for year in range(6)] == [3, 3, 2, 2, 1, 1]
    assert (high["patients"], high["recurred"], low["recurred"]) == (3, 2, 1)
    oracle = logrank_test([1, 2, 4], [1.5, 3, 5], [1, 1, 0], [0, 1, 0]).p_value
    assert high["p"] == low["p"] == pytest.approx(oracle, abs=1e-4)


def test_a_predicted_time_is_a_low_risk(table) -> None:
    """The same numbers as predicted times: the short ones are the high risks."""
    by_time = replace(RISK, direction="time")
    _, at_risk = survival_by_risk(table({"ann": ROWS}, by_time, RFS))
    assert [line["recurred"] for line in at_risk.rows] == [1, 2]


def test_patients_and_teams_without_a_risk(table) -> None:
    """Equal risks leave the group above the median empty; a team without any risk is named."""
    equal = [row(1.0, 1, True), row(1.0, 2, False), row(None, 3, True)]
    curves, at_risk = survival_by_risk(table({"ann": equal, "bea": [row(None, 1, True)] * 3}, RISK, RFS))
    assert [(line["group"], line["patients"], line["p"]) for line in at_risk.rows] == [
        ("higher risk", 0, None),
        ("lower risk", 2, None),
    ]
    assert curves.notes == ("Without a risk for any patient: bea.",)
    assert survival_by_risk(table({"bea": [row(None, 1, True)]}, RISK, RFS)) == []
