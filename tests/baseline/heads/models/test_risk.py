"""Cox regression and its baseline hazard by hand, and against lifelines."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from algorithm.heads.documents import MOST_STEPS
from baseline.heads.cohort import Outcomes
from baseline.heads.models.risk import baseline_survival, cox_weights
from evaluation.analyses.survival import kaplan_meier, restricted_mean_years
from evaluation.metrics.survival import DAYS_A_YEAR


def test_two_patients_by_hand() -> None:
    """The patient with x = 1 relapses first: log likelihood b - log(e^b + 1), over two patients, less b^2 / 2 x 0.1.
    Its derivative 1 / (2 (e^b + 1)) - 0.1 b is 0 at the coefficient."""
    (weight,) = cox_weights(np.array([[1.0], [0.0]]), Outcomes(np.array([1, 0]), np.array([1.0, 2.0])), 0.1)
    assert 1 / (2 * (np.exp(weight) + 1)) == pytest.approx(0.1 * weight, abs=1e-5)


def test_ties_by_hand() -> None:
    """Of three patients two relapse on one day: Efron's denominators are a + b + c and (a + b) / 2 + c. With x = 1, 0,
    0 the derivative of the log likelihood at 0 is 1 - 1 / 3 - (1 / 2) / 2 = 5 / 12; a strong penalty p on three
    patients gives a coefficient near 5 / (36 p)."""
    outcomes = Outcomes(np.array([1, 1, 0]), np.array([5.0, 5.0, 5.0]))
    (weight,) = cox_weights(np.array([[1.0], [0.0], [0.0]]), outcomes, 100.0)
    assert weight == pytest.approx(5 / 3600, rel=0.01)


@pytest.mark.parametrize("penalty", [0.01, 0.3])
def test_lifelines_agrees(penalty: float) -> None:
    """120 patients, whole months, so that there are many ties."""
    lifelines = pytest.importorskip("lifelines")
    rng = np.random.default_rng(2)
    columns = rng.normal(size=(120, 6))
    columns = (columns - columns.mean(0)) / columns.std(0, ddof=1)  # lifelines scales its columns so
    time = rng.exponential(20 / np.exp(columns[:, 0] - 0.5 * columns[:, 1]))
    days, event = np.ceil(np.minimum(time, 30)), (time <= 30).astype(int)
    table = pd.DataFrame(columns).assign(days=days, event=event)
    theirs = lifelines.CoxPHFitter(penalizer=penalty, l1_ratio=0.0).fit(table, "days", "event").params_
    assert cox_weights(columns, Outcomes(event, days), penalty) == pytest.approx(theirs.to_numpy(), abs=1e-4)


def test_nothing_to_fit() -> None:
    days = np.array([1.0, 2.0])
    assert cox_weights(np.zeros((2, 0)), Outcomes(np.array([1, 0]), days), 0.1).shape == (0,)
    assert cox_weights(np.ones((2, 3)), Outcomes(np.array([0, 0]), days), 0.1).tolist() == [0, 0, 0]


# The baseline hazard that turns a risk into days


def test_breslow_by_hand() -> None:
    """Hazard ratios 1, 2, 1, 4. Event on day 10 with all at risk: 1/8; on day 30 with the last two: 1/5. Nodes lie in
    the middle of the steps: 1/16 and 1/8 + 1/10. Follow-up ends on day 50 with 1/8 + 1/5."""
    outcomes = Outcomes(np.array([1, 0, 1, 0]), np.array([10.0, 20.0, 30.0, 50.0]))
    survival = baseline_survival(outcomes, np.log([1.0, 2.0, 1.0, 4.0]))
    assert survival.days == (10, 30, 50)
    assert survival.cumulative_hazard == pytest.approx([1 / 16, 9 / 40, 13 / 40])


def test_an_event_on_the_last_day_ends_the_hazard() -> None:
    """All four relapse: ties on day 10 count together, 2/4, then 1/2 and on the last day 1/1."""
    outcomes = Outcomes(np.ones(4, dtype=np.int64), np.array([10.0, 10.0, 20.0, 40.0]))
    survival = baseline_survival(outcomes, np.zeros(4))
    assert survival.days == (10, 20, 40)
    assert survival.cumulative_hazard == pytest.approx([0.25, 0.75, 2.0])


def test_an_event_on_day_zero_counts_on_the_first_day() -> None:
    survival = baseline_survival(Outcomes(np.array([1, 0]), np.array([0.0, 9.0])), np.zeros(2))
    assert survival.days == (1, 9)


@pytest.mark.parametrize(("patients", "tolerance"), [(60, 0.15), (600, 0.05)])
def test_answers_agree_with_kaplan_meier_on_the_mean(patients: int, tolerance: float) -> None:
    """Exponential times with log hazard ratios of standard deviation 0.8, a third censored. The mean of the answers
    estimates the cohort's restricted mean, and so does Kaplan-Meier without a model. Over many cohorts their ratio has
    a standard deviation of 5% (60 patients) and 1.7% (600)."""
    rng = np.random.default_rng(2)
    scores = rng.normal(0, 0.8, patients)
    event, censored = rng.exponential(1000 / np.exp(scores)), rng.uniform(200, 3000, patients)
    outcomes = Outcomes((event <= censored).astype(np.int64), np.minimum(event, censored))
    survival = baseline_survival(outcomes, scores)
    assert len(survival.days) <= MOST_STEPS
    assert survival.horizon_days == outcomes.times_days.max()
    answers = np.array([survival.restricted_mean(score) for score in scores])
    assert (answers > 0).all()
    assert (answers < survival.horizon_days).all()
    assert (np.diff(answers[np.argsort(scores)]) < 0).all()
    horizon = survival.horizon_days
    expected = restricted_mean_years(kaplan_meier(outcomes.times_days, outcomes.positive), horizon) * DAYS_A_YEAR
    assert math.isclose(answers.mean(), expected, rel_tol=tolerance)


def test_thinning_to_64_steps_changes_no_answer_noticeably() -> None:
    """Against the full estimate with a node at each of 500 events, the integral of its steps; within 1%."""
    rng = np.random.default_rng(3)
    days = np.sort(rng.exponential(1000, 500))
    outcomes = Outcomes(np.ones(500, dtype=np.int64), days)
    survival = baseline_survival(outcomes, np.zeros(500))
    assert len(survival.days) == MOST_STEPS
    hazard = np.concatenate([[0.0], np.cumsum(1 / np.arange(500, 0, -1))])
    for score in (-1.0, 0.0, 1.0):
        exact = float(np.diff(np.concatenate([[0.0], days])) @ np.exp(-hazard[:-1] * math.exp(score)))
        assert survival.restricted_mean(score) == pytest.approx(exact, rel=0.01)
