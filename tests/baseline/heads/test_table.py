"""Heads on tables: published data against lifelines, units, centres, classes and unusable columns."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from algorithm.heads.documents import EnsembleHead
from baseline import FittedTable, fit_table
from contract.errors import HecktorError
from tests.baseline.heads.custom_code import write_custom_head

# Rows, and a strong feature among them.
ROWS = 60


def make_table(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    """Return times of mean 3 / exp(x), censored at 4, the feature x, a feature of noise, and three centres."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows)
    times = rng.exponential(3 / np.exp(x))
    frame = pd.DataFrame({"years": np.minimum(times, 4), "died": (times < 4).astype(int), "x": x})
    frame["noise"], frame["site"] = rng.normal(size=rows), np.tile(["A", "B", "C"], rows)[:rows]
    return frame.set_index(pd.Index([f"P{number}" for number in range(rows)]))


FEATURES = ["x", "noise"]


@pytest.fixture(scope="module")
def rossi() -> pd.DataFrame:
    from lifelines.datasets import load_rossi

    return load_rossi()


@pytest.fixture(scope="module")
def rossi_fit(rossi: pd.DataFrame) -> FittedTable:
    return fit_table(rossi, time="week", event="arrest")


@pytest.mark.slow
def test_rossi_agrees_with_lifelines(rossi: pd.DataFrame, rossi_fit: FittedTable) -> None:
    """lifelines' Cox model ranks 432 men by recidivism nearly as the head does (Rossi et al. 1980).

    A third of the head is a forest. The concordance of lifelines on its training rows, 0.640, is above the nested
    C-index. The mean of the days equals Kaplan-Meier's restricted mean within 1%.
    """
    from lifelines import CoxPHFitter, KaplanMeierFitter
    from lifelines.utils import restricted_mean_survival_time

    cox = CoxPHFitter().fit(rossi, "week", "arrest")
    predicted = rossi_fit.predict(rossi)
    assert predicted["risk"].corr(cox.predict_log_partial_hazard(rossi), method="spearman") > 0.9
    signs = np.sign(rossi_fit.coefficients()[["fin", "age", "prio"]])
    assert (
        signs.to_dict() == np.sign(cox.params_[["fin", "age", "prio"]]).to_dict() == {"fin": -1, "age": -1, "prio": 1}
    )
    nested = rossi_fit.cross_validation.targets["risk"].nested.c_index
    assert cox.concordance_index_ == pytest.approx(0.640, abs=5e-4)
    assert 0.58 < nested < cox.concordance_index_
    curve = KaplanMeierFitter().fit(rossi["week"], rossi["arrest"])
    assert predicted["mean_time"].mean() == pytest.approx(restricted_mean_survival_time(curve, t=52), rel=0.01)


def test_summary(rossi_fit: FittedTable) -> None:
    lines = rossi_fit.summary().splitlines()
    assert lines[0] == "432 rows, 114 events, 7 features"
    assert lines[1].startswith("risk: weighted mean of Cox (")
    assert "%) + forest (" in lines[1]
    assert "%), c_index 0.6" in lines[1]
    assert lines[2].startswith("risk, nested: c_index 0.6")
    assert lines[3] == "risk, leave one centre out: risk: 1 centre, expected at least 2 to leave one out"
    share = sum(expert.weight for expert in rossi_fit.fitted.experts if expert.name != "forest")
    start = f"hazard ratio per SD (linear part of the head, {share:.0%} of the weight): age 0."
    assert lines[4].startswith(start)
    head = rossi_fit.fitted.head
    assert isinstance(head, EnsembleHead)
    forest = head.model_copy(update={"experts": head.experts[-1:]})
    only_forest = replace(rossi_fit, fitted=rossi_fit.fitted.model_copy(update={"head": forest}))
    assert only_forest.summary().splitlines()[4] == "no hazard ratio of a feature: the head has no linear part"


def test_a_median_is_missing_beyond_the_horizon(rossi: pd.DataFrame, rossi_fit: FittedTable) -> None:
    """Half of the men like the riskiest man are arrested within the year, unlike men like the safest man."""
    predicted = rossi_fit.predict(rossi).sort_values("risk")
    assert np.isnan(predicted["median_time"].iloc[0])
    assert predicted["median_time"].iloc[-1] < 52
    assert (predicted["mean_time"] < 52).all()


def test_the_unit_of_time_is_the_unit_of_the_table() -> None:
    frame = make_table()
    years = fit_table(frame, time="years", event="died", features=FEATURES)
    months = fit_table(frame.assign(years=frame["years"] * 12), time="years", event="died", features=FEATURES)
    first, second = years.predict(frame), months.predict(frame)
    assert first.index.equals(frame.index)
    np.testing.assert_allclose(second["risk"], first["risk"], rtol=1e-9)
    np.testing.assert_allclose(second["mean_time"], 12 * first["mean_time"], rtol=1e-9)
    np.testing.assert_allclose(second["median_time"], 12 * first["median_time"], rtol=1e-9)


def test_centres_are_left_out_and_are_no_feature() -> None:
    """A constant column is no feature either, and is named."""
    head = fit_table(make_table().assign(constant=0.1), time="years", event="died", centre="site")
    assert head.features == ("x", "noise", "constant")
    assert "risk: features left out: constant (constant)" in head.summary().splitlines()
    record = head.cross_validation.targets["risk"].leave_one_centre_out
    assert [fold.held_out[0] for fold in record.folds] == ["P0", "P1", "P2"]
    assert sorted(record.by_centre) == ["A", "B", "C"]
    assert record.c_index > 0.65


def test_two_classes() -> None:
    """Classes follow x with a slope of 3, so that the nested balanced accuracy is far above chance."""
    frame = make_table().drop(columns=["years", "died", "site"])
    noise = np.random.default_rng(1).logistic(size=ROWS)
    frame["hpv"] = 3 * frame["x"] + noise > 0
    head = fit_table(frame, target="hpv")
    predicted = head.predict(frame)
    assert set(predicted["class"]) == {True, False}
    assert predicted["probability"].between(0, 1).all()
    assert (predicted["class"] == frame["hpv"]).mean() > 0.75
    assert head.cross_validation.targets["class"].nested.balanced_accuracy > 0.7
    assert "odds ratio per SD: x " in head.summary()


def test_more_classes() -> None:
    frame, classes = make_table().drop(columns=["years", "died", "site"]), (1, 2, 4)
    frame["stage"] = [classes[place] for place in np.searchsorted([-0.5, 0.5], frame["x"])]
    head = fit_table(frame, target="stage")
    predicted = head.predict(frame)["class"]
    assert set(predicted) == set(classes)
    assert (predicted == frame["stage"]).mean() > 0.8
    assert "change from class to class per SD: x " in head.summary()


def set_value(column: str, value: Any, row: int = 3) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def change(frame: pd.DataFrame) -> pd.DataFrame:
        values = list(frame[column])
        values[row] = value
        return frame.assign(**{column: values})

    return change


SURVIVAL = {"time": "years", "event": "died", "features": FEATURES}
CODES = "expected 1 or True for an event, 0 or False for censoring"
OUTCOME = {"time": "years", "event": "died"}
REFUSED: list[tuple[Callable[[pd.DataFrame], Any], dict[str, Any], str]] = [
    (lambda f: f.assign(died=f["died"] + 1), SURVIVAL, rf"column 'died': found 2 in row P\d+ and \d+ more, {CODES}"),
    (set_value("died", np.nan), SURVIVAL, f"column 'died': found nan in row P3, {CODES}"),
    (set_value("years", -1.0), SURVIVAL, "column 'years': found -1.0 in row P3, expected a time of 0 or more"),
    (lambda f: f.assign(years=0), SURVIVAL, "column 'years': found 0 in row P0 and 59 more, .* of 0 or more, above 0"),
    (set_value("x", np.inf), SURVIVAL, "column 'x': found inf in row P3, expected finite numbers, NaN where missing"),
    (lambda f: f, OUTCOME, "column 'site': found object such as 'A', expected finite numbers"),
    (lambda f: f, {"features": FEATURES}, "fit_table: found no outcome, expected time and event, or target"),
    (lambda f: f, {**SURVIVAL, "target": "site"}, "fit_table: found time, event, target, expected time and event, or"),
    (lambda f: f, {**SURVIVAL, "time": "weeks"}, "table: found no column 'weeks', expected one of years, died, x"),
    (lambda f: f.iloc[:0], SURVIVAL, "table: found no row, expected a row for each patient"),
    (lambda f: f[["years", "died"]], OUTCOME, "table: found no column of a feature"),
    (set_value("site", None), {**SURVIVAL, "centre": "site"}, "column 'site': found None in row P3, expected a centre"),
    (lambda f: pd.concat([f, f[["x"]]], axis=1), SURVIVAL, "column 'x': found twice, expected each column once"),
    (lambda f: f[["years", "died", "x", "noise"]].set_axis(["years", "died", 1, "1"], axis=1), OUTCOME,
     "column '1': found twice, expected each column once; 1 and '1' are the same name"),
    (lambda f: f, {"target": "x", "features": ["noise"]}, "column 'x': found 60 different values of type float"),
    (lambda f: f.assign(site="A"), {"target": "site", "features": FEATURES}, "found 1 different values of type str, such"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "options", "message"), REFUSED, ids=[message for *_, message in REFUSED])
def test_an_unusable_table_is_refused_with_the_reason(
    change: Callable[[pd.DataFrame], Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(HecktorError, match=message):
        fit_table(change(make_table()), **options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="age"), "table: found no column 'age', expected one of"),
        (lambda f: f.assign(age="27"), "column 'age': found object such as '27', expected finite numbers"),
    ],
)
def test_a_table_that_cannot_be_predicted(
    rossi: pd.DataFrame, rossi_fit: FittedTable, change: Callable[[pd.DataFrame], pd.DataFrame], message: str
) -> None:
    with pytest.raises(HecktorError, match=message):
        rossi_fit.predict(change(rossi))


def test_a_custom_head_competes(tmp_path: Path) -> None:
    """Patients with a large absolute value of x have short times, which only the custom head can learn.

    It orders the patients of each fold correctly, and is part of the ensemble together with the Cox model.
    """
    x = np.random.default_rng(0).uniform(-3, 3, ROWS // 2)
    frame = pd.DataFrame({"years": 4 - np.abs(x), "died": 1, "x": x})
    head = fit_table(frame, time="years", event="died", code=[write_custom_head(tmp_path)])
    nested = head.cross_validation.targets["risk"].nested
    assert nested.comparators["my_code:Head"].c_index > 0.95  # each fold has a scale of its own
    assert "my_code:Head" in head.fitted.model
    low, middle, high = head.predict(pd.DataFrame({"x": [-2.9, 0.0, 2.9]}))["risk"]
    assert min(low, high) > middle
    sys.modules.pop("my_code")
    folder = write_custom_head(tmp_path / "b", ("class Head:", "class Other:"))
    with pytest.raises(HecktorError, match=r"^--code: found my_code, which nothing uses"):
        fit_table(frame, time="years", event="died", code=[folder])
    sys.modules.pop("my_code")


def test_columns_may_have_whole_numbers_as_names() -> None:
    """Columns of outcomes, centre and features have numbers as names, as in a DataFrame of an array."""
    numbered = make_table(30).set_axis([0, 1, 2, 3, 4], axis=1)
    fitted = fit_table(numbered, time=0, event=1, centre=4, features=[2, 3])  # type: ignore[arg-type, list-item]
    assert fitted.features == ("2", "3")
    assert np.isfinite(fitted.predict(numbered)["risk"]).all()
