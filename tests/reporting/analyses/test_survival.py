"""Kaplan-Meier curves, numbers at risk and the log-rank test by predicted risk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from evaluation.editions.profile import with_options
from evaluation.metrics.survival import DAYS_PER_YEAR
from reporting.analyses.survival import (
    analyse_survival,
    compute_restricted_mean_years,
    kaplan_meier,
    list_curve_points,
    log_rank_p,
)
from reporting.analyses.tables import collect_rows
from tests.evaluation.builders import make_metrics, make_results
from tests.evaluation.tasks import RFS, RISK


def make_row(risk: float | None, years: float, relapse: bool) -> dict[str, Any]:
    return {"risk": risk, "rfs_days": years * DAYS_PER_YEAR, "relapse": relapse}


# The median risk is 3.5: 6, 5 and 4 are high.
ROWS = [
    make_row(6, 1, True),
    make_row(5, 2, True),
    make_row(4, 4, False),
    make_row(3, 1.5, False),
    make_row(2, 3, True),
    make_row(1, 5, False),
]


def test_curves_fall_at_recurrences(table) -> None:
    """High: 3 at risk at 1 year, 2 at 2 years: 2/3, then 1/3, until 4 years. Low: 2 at risk at 3 years: 1/2."""
    curves, _ = analyse_survival(table({"ann": ROWS}, RISK, RFS))
    points = {group: [] for group in ("higher risk", "lower risk")}
    for line in curves.rows:
        points[line["group"]].append((line["years"], line["free"]))
    assert points["higher risk"] == [(0.0, 1.0), (1.0, 0.6667), (2.0, 0.3333), (4.0, 0.3333)]
    assert points["lower risk"] == [(0.0, 1.0), (3.0, 0.5), (5.0, 0.5)]


def test_numbers_at_risk_log_rank_and_restricted_mean(table) -> None:
    """Log-rank: recurrences of the high group at 1, 2 and 3 years are expected as 3/6, 2/4 and 1/3, variances 1/4, 1/4
    and 2/9: chi-squared is (2 - 4/3)^2 / (13/18) = 0.615, p 0.4328. Areas up to 4 years: 1 + 2/3 + 2/3 and 3 + 1/2.
    """
    _, at_risk = analyse_survival(table({"ann": ROWS}, RISK, RFS))
    high, low = at_risk.rows
    assert [high[f"at_risk_{year}y"] for year in range(1, 6)] == [3, 2, 1, 1, 0]
    assert [low[f"at_risk_{year}y"] for year in range(1, 6)] == [3, 2, 2, 1, 1]
    assert (high["patients"], high["recurred"], low["recurred"]) == (3, 2, 1)
    assert high["p"] == low["p"] == pytest.approx(0.4328, abs=1e-4)
    assert (high["mean_years"], low["mean_years"]) == (2.333, 3.5)


def test_a_predicted_time_is_a_low_risk() -> None:
    """The same numbers scored as times (`--option direction=time`): the short ones are the high risks."""
    results = make_results({"ann": make_metrics(rows=ROWS)}, RFS)
    results = replace(results, profile=with_options(results.profile, {"direction": "time"}))
    _, at_risk = analyse_survival(collect_rows(results, RISK))
    assert [line["recurred"] for line in at_risk.rows] == [1, 2]


def test_patients_and_teams_without_a_risk(table) -> None:
    """Equal risks leave the group above the median empty; a team without risks is named."""
    equal = [make_row(1.0, 1, True), make_row(1.0, 2, False), make_row(None, 3, True)]
    curves, at_risk = analyse_survival(table({"ann": equal, "bea": [make_row(None, 1, True)] * 3}, RISK, RFS))
    assert [(line["group"], line["patients"], line["p"]) for line in at_risk.rows] == [
        ("higher risk", 0, None),
        ("lower risk", 2, None),
    ]
    assert curves.notes == ("Without a risk for any patient: bea.",)
    assert analyse_survival(table({"bea": [make_row(None, 1, True)]}, RISK, RFS)) == []


def test_kaplan_meier_by_hand() -> None:
    """At risk 5, 4, 2 at years 1, 2, 3; recurrences 1, 1, 1: 4/5, 4/5 * 3/4 = 3/5, 3/5 * 1/2 = 3/10, then 4: none."""
    days, events = np.array([1.0, 2, 2, 3, 4]) * DAYS_PER_YEAR, np.array([True, True, False, True, False])
    estimate = kaplan_meier(days, events)
    curve = list_curve_points(estimate)
    assert [point["years"] for point in curve] == pytest.approx([0, 1, 2, 3, 4])
    assert [point["free"] for point in curve] == pytest.approx([1, 0.8, 0.6, 0.3, 0.3])
    assert all(point["low"] <= point["free"] <= point["high"] for point in curve)
    assert compute_restricted_mean_years(estimate, 3 * DAYS_PER_YEAR) == pytest.approx(1 + 0.8 + 0.6)
    assert list_curve_points(kaplan_meier(days[:0], events[:0])) == []
    assert compute_restricted_mean_years(None, 3.0) is None


def test_log_rank_without_two_groups_or_events_does_not_exist() -> None:
    times, no_patient = np.array([1.0, 2, 3]), np.zeros(3, np.bool_)
    group = np.array([True, False, False])
    assert log_rank_p(times, ~no_patient, no_patient) is None
    assert log_rank_p(times, no_patient, group) is None
    assert log_rank_p(times, times > 1, group) is None, "the group is empty at the recurrences"


@pytest.mark.parametrize("seed", range(4))
def test_lifelines_agrees(seed: int) -> None:
    """Compare curves with ties, intervals also at 0 and 1, restricted mean and log-rank."""
    lifelines = pytest.importorskip("lifelines")
    from lifelines.statistics import logrank_test
    from lifelines.utils import restricted_mean_survival_time

    random = np.random.default_rng(seed)
    days, events, group = random.integers(1, 50, 60) * 30.0, random.random(60) < (0.3, 1)[seed % 2], np.arange(60) < 25
    theirs = lifelines.KaplanMeierFitter().fit(days, events)
    estimate = kaplan_meier(days, events)
    assert estimate is not None
    assert estimate.days == pytest.approx(theirs.timeline)
    assert estimate.free == pytest.approx(theirs.survival_function_.to_numpy()[:, 0])
    interval = theirs.confidence_interval_survival_function_.to_numpy().T
    assert np.array([estimate.low, estimate.high]) == pytest.approx(interval)
    for horizon in (15.0, 700.0, float(days.max())):
        mean = restricted_mean_survival_time(theirs, t=horizon) / DAYS_PER_YEAR
        assert compute_restricted_mean_years(estimate, horizon) == pytest.approx(mean)
    test = logrank_test(days[group], days[~group], events[group], events[~group])
    assert log_rank_p(days, events, group) == pytest.approx(test.p_value)
