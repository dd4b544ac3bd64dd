"""Predicted risks and classes: survival curves, numbers at risk, confusion matrices, calibration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from contract.editions import load_edition
from evaluation.editions.profile import with_options
from evaluation.metrics.survival import DAYS_PER_YEAR
from reporting.analyses.classes import analyse_calibration, analyse_confusion
from reporting.analyses.survival import (
    analyse_survival,
    compute_restricted_mean_years,
    kaplan_meier,
    list_curve_points,
    log_rank_p,
)
from reporting.analyses.tables import collect_rows
from tests.evaluation.builders import make_metrics, make_results
from tests.evaluation.tasks import HPV, RFS, RISK, STATUS


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


def test_curves_numbers_at_risk_log_rank_and_restricted_mean(table) -> None:
    """High: 3 at risk at 1 year, 2 at 2 years: 2/3, then 1/3, until 4 years. Low: 2 at risk at 3 years: 1/2.

    Log-rank: recurrences of the high group at 1, 2 and 3 years are expected as 3/6, 2/4 and 1/3, variances 1/4, 1/4
    and 2/9: chi-squared is (2 - 4/3)^2 / (13/18) = 0.615, p 0.4328. Areas up to 4 years: 1 + 2/3 + 2/3 and 3 + 1/2.
    """
    curves, at_risk = analyse_survival(table({"ann": ROWS}, RISK, RFS))
    points = {group: [] for group in ("higher risk", "lower risk")}
    for line in curves.rows:
        points[line["group"]].append((line["years"], line["free"]))
    assert points["higher risk"] == [(0.0, 1.0), (1.0, 0.6667), (2.0, 0.3333), (4.0, 0.3333)]
    assert points["lower risk"] == [(0.0, 1.0), (3.0, 0.5), (5.0, 0.5)]
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


COMBINED = load_edition("hecktor2026").algorithms[0]
T_STAGE = next(answer for answer in COMBINED.answers if answer.name == "t_stage")


def make_class_row(actual: bool, predicted: bool | None, probability: float | None = None) -> dict[str, Any]:
    return {"hpv_positive": actual, "predicted_hpv_positive": predicted, "predicted_probability": probability}


def test_calibration_counts_patients_with_a_probability(table) -> None:
    """Two probabilities, 0.1 and 0.15, are in the first fifth, one of two positive; 0.9 is in the last; one is missing."""
    rows = [
        make_class_row(True, True, 0.1),
        make_class_row(False, False, 0.15),
        make_class_row(True, True, 0.9),
        make_class_row(True, True),
    ]
    (curve,) = analyse_calibration(table({"ann": rows, "bea": [make_class_row(True, True)]}, STATUS, HPV))
    assert [(line["patients"], line["probability_mean"], line["positive_share"]) for line in curve.rows] == [
        (2, 0.125, 0.5),
        (1, 0.9, 1.0),
    ]
    assert curve.notes == ("Without probabilities: bea.",)
    assert analyse_calibration(table({"bea": [make_class_row(True, True)]}, STATUS, HPV)) == []


def test_confusion_of_two_classes_with_a_missing_one(table) -> None:
    """Two of three positives are right and one is missing; the negative patient is called positive."""
    rows = [
        make_class_row(True, True),
        make_class_row(True, True),
        make_class_row(True, None),
        make_class_row(False, True),
    ]
    (matrix,) = analyse_confusion(table({"ann": rows}, STATUS, HPV))
    assert [(line["actual"], line["predicted"], line["patients"], line["fraction"]) for line in matrix.rows] == [
        ("negative", "negative", 0, 0.0),
        ("negative", "positive", 1, 1.0),
        ("negative", "no prediction", 0, 0.0),
        ("positive", "negative", 0, 0.0),
        ("positive", "positive", 2, 0.6667),
        ("positive", "no prediction", 1, 0.3333),
    ]


def test_confusion_of_four_classes(table) -> None:
    """T1 is taken for T2, T4 is right; no patient has T2 or T3, and all have predictions."""
    rows = [{"t_stage": "T1", "predicted_t_stage": "T2"}, {"t_stage": "T4", "predicted_t_stage": "T4"}]
    nested = [{"case": case, "t_stage": stages} for case, stages in zip("AB", rows, strict=True)]
    (matrix,) = analyse_confusion(table({"ann": nested}, T_STAGE, COMBINED))
    assert matrix.name == "t_stage-confusion"
    filled = [(line["actual"], line["predicted"]) for line in matrix.rows if line["patients"]]
    assert filled == [("T1", "T2"), ("T4", "T4")]
    assert len(matrix.rows) == 16
    assert {line["fraction"] for line in matrix.rows if line["actual"] == "T2"} == {None}
