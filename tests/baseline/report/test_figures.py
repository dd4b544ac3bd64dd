"""The report's charts as data: every figure by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baseline.report.figures import (
    calibration,
    confusion,
    expected_dsc,
    model_intervals,
    numbers_at_risk,
    risk_by_coverage,
    survival_curves,
    weights_by_feature,
)
from baseline.report.models import Coefficient, ModelEstimates
from baseline.report.uncertainty import estimate_uncertainty
from evaluation.statistics.bootstrap import Estimate
from tests.baseline.report.records import uncertainty_record

YEAR = 365.25
# Four patients in one outer fold; the two with the higher scores relapse after one and three years.
DAYS = np.array([YEAR, 3 * YEAR, 2.5 * YEAR, 4 * YEAR])
EVENT = np.array([True, True, False, False])
KINDS = {"nested": {"score": [4, 3, 2, 1], "fold_of_patient": [0] * 4}}


def column(rows: Any, key: str, **only: Any) -> list[Any]:
    return [row[key] for row in rows if all(row[name] == value for name, value in only.items())]


def test_models_have_a_row_for_each_kind_and_one_for_chance() -> None:
    heads = ModelEstimates(
        "heads", {"nested": Estimate(0.7, 0.6, 0.8), "leave_one_centre_out": Estimate(0.6, 0.5, 0.7)}
    )
    volume = ModelEstimates("tumour_volume", {"nested": Estimate(0.65, None, None)})
    analysis = model_intervals([heads, volume], "C-index", 0.5)
    assert column(analysis.rows, "model", kind="Nested cross-validation") == [
        "heads",
        "tumour volume alone",
        "random answers",
    ]
    assert column(analysis.rows, "value", kind="Leave one centre out") == [0.6, 0.5]
    assert analysis.rows[0]["ci95_low"] == 0.6
    assert analysis.chart["reference"] == 0.5


def test_survival_of_both_risk_groups() -> None:
    """Of the two at higher risk one relapses after 1 year, the other after 3: 1, 1/2, 0. Nobody else relapses."""
    rows = survival_curves(DAYS, EVENT, KINDS).rows
    assert column(rows, "free", group="higher risk") == [1.0, 0.5, 0.0]
    assert column(rows, "years", group="higher risk") == [0.0, 1.0, 3.0]
    assert set(column(rows, "free", group="lower risk")) == {1.0}


def test_numbers_at_risk() -> None:
    """Followed for 1 and 3 years: at risk after 1 year 2, after 2 and 3 years 1. For 2.5 and 4 years: 2, 2, 1, 1, 0.

    Log-rank: after 1 year 2 of 4 at risk are in the higher group, after 3 years 1 of 2: expected 1/2 + 1/2 = 1,
    observed 2, variance 2 x 1/4. Chi-square 1 / 0.5 = 2, p = 0.1573.
    """
    high, low = numbers_at_risk(DAYS, EVENT, KINDS).rows
    assert [high[f"at_{year}"] for year in range(1, 6)] == [2, 1, 1, 0, 0]
    assert [low[f"at_{year}"] for year in range(1, 6)] == [2, 2, 1, 1, 0]
    assert (high["patients"], high["events"], low["patients"], low["events"]) == (2, 2, 2, 0)
    assert high["p"] == low["p"] == pytest.approx(0.1573, abs=1e-4)


def test_calibration_with_wilsons_intervals() -> None:
    """Five of ten patients at p = 0.9 are positive. Wilson, z 1.96: 0.5 with half width
    1.96 / (1 + 0.38415) x sqrt(0.025 + 0.0096037) = 0.26340."""
    positive = np.arange(10) < 5
    (row,) = calibration(positive, {"nested": {"probability": [0.9] * 10}}, "HPV positive").rows
    assert (row["patients"], row["share"], row["predicted"]) == (10, 0.5, pytest.approx(0.9))
    assert (row["ci95_low"], row["ci95_high"]) == pytest.approx((0.2366, 0.7634), abs=1e-4)


def test_confusion_by_fraction_of_the_row() -> None:
    """Three of four of class A are called A; a class without patients has no fraction."""
    rows = confusion(["A", "B"], {"nested": {"confusion": [[3, 1], [0, 0]]}}).rows
    assert column(rows, "patients", actual="A") == [3, 1]
    assert column(rows, "fraction", actual="A") == [0.75, 0.25]
    assert column(rows, "fraction", actual="B") == [None, None]


def test_weights_of_shipped_head_and_folds() -> None:
    """Folds 0.2 and 0.4: mean 0.3. A feature that the shipped head lacks has one bar."""
    rows = weights_by_feature([Coefficient("volume", 0.5, (0.2, 0.4)), Coefficient("age", None, (-0.1, 0.0))]).rows
    assert column(rows, "head", feature="volume") == ["shipped head", "mean of outer folds"]
    assert column(rows, "weight", feature="volume") == [0.5, pytest.approx(0.3)]
    assert column(rows, "weight", feature="age") == [-0.05]


def test_uncertainty_of_three_patients() -> None:
    """True DSC 0.9, 0.5 and 0.1 in the opposite of the expected order: the mean of 1 - DSC of the most certain one is
    0.9, of two 0.7, of all 0.5; the oracle gives 0.1, 0.3 and 0.5."""
    true: dict[str, float | None] = {"P0": 0.9, "P1": 0.5, "P2": 0.1}
    records = {name: uncertainty_record(expected, None) for name, expected in zip(true, (0.2, 0.4, 0.6), strict=True)}
    by_label = {"GTVp": estimate_uncertainty("GTVp", records, true, draws=5, seed=0)}
    points = expected_dsc(by_label, {"P1": "CHUM"}).rows
    assert column(points, "case") == ["P0", "P1", "P2"]
    assert column(points, "centre") == [None, "CHUM", None]
    assert [(row["expected"], row["true"]) for row in points] == [(0.2, 0.9), (0.4, 0.5), (0.6, 0.1)]
    analysis = risk_by_coverage(by_label)
    assert column(analysis.rows, "risk", order="expected DSC") == pytest.approx([0.9, 0.7, 0.5])
    assert column(analysis.rows, "risk", order="oracle") == pytest.approx([0.1, 0.3, 0.5])
    assert column(analysis.rows, "risk", order="random order") == pytest.approx([0.5, 0.5])
    assert column(analysis.rows, "retained", order="expected DSC") == pytest.approx([1 / 3, 2 / 3, 1])
    assert analysis.chart["domain"][1] >= 0.9
