"""Values of answers by their kind, by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from algorithm.heads.documents import Head, LinearHead
from algorithm.heads.parts import Calibration, Survival
from algorithm.heads.values import check_head, compute_head_answer
from contract.editions import AnswerSpec
from contract.editions.answers import ClassSpec, RiskSpec
from contract.errors import ModelPackageError
from tests.algorithm.heads.head_parts import make_class_head, make_linear_head, term

SOCKET = {"slug": "slug", "title": "Title", "path": "answer.json"}
RISK = RiskSpec(name="risk", kind="risk", columns={"time": "RFS", "event": "Relapse"}, **SOCKET)
TIME = RISK.model_copy(update={"direction": "time"})
POSITIVE = ClassSpec(name="positive", kind="class", classes=(False, True), columns={"class": "HPV"}, **SOCKET)
STAGE = ClassSpec(name="stage", kind="class", classes=("T1", "T2", "T3"), columns={"class": "T"}, **SOCKET)


def make_head(weight: float, intercept: float = 0.0, **more: Any) -> LinearHead:
    """Make a head whose score is `intercept + weight * x`, x up to 4; a missing x counts as 0."""
    return make_linear_head(term("x", weight), intercept=intercept, **more)


STAGES = make_class_head({"T2": 1.0, "T1": 1.0, "T3": 0.0}, term("x", 0.0, -1.0, 1.0))


def test_a_risk_is_the_score() -> None:
    assert compute_head_answer(RISK, make_head(0.5, 0.25), {"x": 3.0}).value == 1.75


def test_a_time_is_the_expected_days_within_the_horizon() -> None:
    """H rises by 1 to day 100 and by 1 to day 300. At score ln k the mean of e^-kH over the first 100 days is
    (1 - e^-k) / k and over the other 200 days e^-k times that."""
    head = make_head(1.0, survival=Survival(days=(100.0, 300.0), cumulative_hazard=(1.0, 2.0)))
    times = [compute_head_answer(TIME, head, {"x": math.log(k)}).value for k in (1.0, 2.0, 0.5)]
    expected = [(100 + 200 * math.exp(-k)) * (1 - math.exp(-k)) / k for k in (1.0, 2.0, 0.5)]
    assert times == pytest.approx(expected)
    assert times[0] == pytest.approx(109.72, abs=0.01)


def test_a_note_explains_the_days_by_the_median() -> None:
    """H is 1 on day 100 and 2 on day 300. At score 0 it is ln 2 on day 69; at score ln 0.25 it ends at 0.5, below ln 2."""
    head = make_head(1.0, survival=Survival(days=(100.0, 300.0), cumulative_hazard=(1.0, 2.0)))
    assert compute_head_answer(TIME, head, {"x": 0.0}).note == (
        "risk: 110 days is the mean without recurrence within 300 days, not a time to recurrence; the predicted median "
        "is 69 days. The order of patients transfers to new centres, the days do not"
    )
    assert "the predicted median is after 300 days." in compute_head_answer(TIME, head, {"x": math.log(0.25)}).note
    assert compute_head_answer(RISK, head, {"x": 0.0}).note == compute_head_answer(STAGE, STAGES, {"x": 0.0}).note == ""


def test_the_second_class_gives_way_where_it_is_excluded() -> None:
    head = make_head(1.0, threshold=0.5)
    assert compute_head_answer(POSITIVE, head, {"x": 1.0}, excluded=(True,)).value is False
    assert compute_head_answer(POSITIVE, head, {"x": 0.0}, excluded=(False,)).value is True
    assert compute_head_answer(POSITIVE, head, {"x": 1.0}, excluded=(False,)).value is True


@pytest.mark.parametrize(("excluded", "stage"), [((), "T1"), (("T1",), "T2"), (("T1", "T2"), "T3"), (("T3",), "T1")])
def test_an_excluded_class_is_never_the_answer(excluded: tuple[str, ...], stage: str) -> None:
    """Scores at -1: T1 2, T2 1, T3 -1."""
    assert compute_head_answer(STAGE, STAGES, {"x": -1.0}, excluded=excluded).value == stage


def test_the_second_of_two_classes_is_the_answer_at_the_threshold_and_above() -> None:
    head = make_head(1.0, threshold=0.5)
    values = [compute_head_answer(POSITIVE, head, {"x": x}).value for x in (0.49, 0.5, 0.51, None)]
    assert values == [False, True, True, False]
    assert all(type(value) is bool for value in values)


@pytest.mark.parametrize(
    ("x", "stage"), [(-2.0, "T1"), (0.5, "T2"), (3.0, "T3"), (0.0, "T1"), (1.0, "T2"), (None, "T1")]
)
def test_the_class_with_the_highest_score_wins_and_the_lower_of_equal_ones(x: float | None, stage: str) -> None:
    """Scores 1 - x, 1 and x: T1 below 0, T3 above 1; at 0 and without x T1 and T2 are equal, at 1 T2 and T3."""
    assert compute_head_answer(STAGE, STAGES, {"x": x}).value == stage


def test_a_probability_by_hand() -> None:
    """Score 1.5 and Platt scaling 2 x 1.5 - 1 = 2: 1 / (1 + e^-2)."""
    calibrated = make_head(1.0, threshold=0.0, calibration=Calibration(slope=2.0, offset=-1.0))
    assert compute_head_answer(POSITIVE, calibrated, {"x": 1.5}).probability == pytest.approx(1 / (1 + math.exp(-2)))
    assert compute_head_answer(POSITIVE, make_head(1.0, threshold=0.0), {"x": 1.5}).probability is None
    assert Calibration(slope=1e50, offset=0.0).probability(-4.0) == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("answer", "head", "message"),
    [
        (POSITIVE, make_head(1.0), "head 'name': no threshold"),
        (TIME, make_head(1.0), "head 'name': no survival"),
        (STAGE, make_head(1.0, threshold=0.0), "head 'name': one score"),
        (RISK, STAGES, "head 'name': classes T2, T1, T3"),
        (STAGE.model_copy(update={"classes": ("T1", "T2")}), STAGES, "classes T2, T1, T3"),
    ],
)
def test_a_head_must_fit_its_answer(answer: AnswerSpec, head: Head, message: str) -> None:
    with pytest.raises(ModelPackageError, match=message):
        check_head(answer, head, "name")
