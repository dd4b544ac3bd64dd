"""Cox regression and its baseline hazard, compared with computations by hand and with lifelines."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.heads.parts import MAX_STEPS
from baseline.heads.cohort import HeadCohort, Outcomes
from baseline.heads.fitting import fit_target
from baseline.heads.models.ensemble import compute_scale
from baseline.heads.models.risk import (
    describe_slope_problem,
    estimate_baseline_survival,
    fit_cox,
    fit_cox_weights,
    fit_lifelines_weights,
    fit_shipped_cox,
    log_hazard_slope,
)
from baseline.heads.models.targets import RISK_FEATURES, with_families
from baseline.heads.models.terms import fit_scaled_terms
from evaluation.metrics.survival import DAYS_PER_YEAR
from reporting.analyses.survival import compute_restricted_mean_years, kaplan_meier
from tests.baseline.heads.cohorts import make_head_cohort
from tests.baseline.prepared import RFS


def test_ties_by_hand() -> None:
    """Two of three patients relapse on the same day: Efron's denominators are a + b + c and (a + b) / 2 + c.

    With x = 1, 0, 0 the derivative of the log likelihood at 0 is 1 - 1 / 3 - (1 / 2) / 2 = 5 / 12. A strong penalty p on
    three patients gives a coefficient near 5 / (36 p).
    """
    outcomes = Outcomes(np.array([1, 1, 0]), np.array([5.0, 5.0, 5.0]))
    (weight,) = fit_cox_weights(np.array([[1.0], [0.0], [0.0]]), outcomes, 100.0)
    assert weight == pytest.approx(5 / 3600, rel=0.01)


@pytest.mark.parametrize(("patients", "features", "penalty"), [(120, 6, 0.01), (120, 6, 0.3), (24, 60, 0.03)])
def test_lifelines_agrees(patients: int, features: int, penalty: float) -> None:
    """Coefficients of patients with many ties (whole months) and columns on different scales equal lifelines'; also with
    more features than patients, where the ridge has a single minimum.
    """
    rng = np.random.default_rng(2)
    columns = rng.normal(size=(patients, features)) * np.resize([1.0, 1.0, 0.5, 2.0, 1.0, 0.1], features)
    time = rng.exponential(20 / np.exp(columns[:, 0] - 0.5 * columns[:, 1]))
    days, event = np.ceil(np.minimum(time, 30)), (time <= 30).astype(int)
    ours, theirs = (fit(columns, Outcomes(event, days), penalty) for fit in (fit_cox_weights, fit_lifelines_weights))
    assert ours == pytest.approx(theirs, abs=1e-4)
    assert np.abs(theirs).max() > 0.1


def test_lifelines_fits_the_head_of_the_package() -> None:
    """Weights of the head are exactly lifelines' weights; our own implementation differs by up to 1e-4."""
    rng = np.random.default_rng(4)
    values = rng.normal(size=(60, 2))
    rows = [{"total_volume_ml": float(np.exp(a)), "age_years": float(b)} for a, b in values]
    cohort = make_head_cohort(
        rows, Outcomes(np.ones(60, np.int64), np.ceil(rng.exponential(20 / np.exp(values[:, 0]))))
    )
    few = with_families(RFS, RFS.families[:1])
    fitted, setting = fit_target(few, cohort, np.random.default_rng(0)), np.random.default_rng(0)
    terms, settings = fit_scaled_terms(cohort, RISK_FEATURES), [fitted.setting]
    (theirs,), (ours,) = (fit(cohort, terms, settings, setting) for fit in (fit_shipped_cox, fit_cox))
    assert fitted.head == theirs != ours


def test_nothing_to_fit() -> None:
    days = np.array([1.0, 2.0])
    assert fit_cox_weights(np.zeros((2, 0)), Outcomes(np.array([1, 0]), days), 0.1).shape == (0,)
    assert fit_cox_weights(np.ones((2, 3)), Outcomes(np.array([0, 0]), days), 0.1).tolist() == [0, 0, 0]


# The baseline hazard that turns a risk into days


def test_product_limit_by_hand() -> None:
    """Hazard ratios are 1, 2, 1 and 4; the hazard of the event on day 10, 1 of 8, is -ln(7/8) = 0.133531.

    The hazard on day 30, 1 of 5, is -ln(4/5) = 0.223144. Follow-up ends on day 50, and each step rises within a thousandth
    of the follow-up, 0.05 days.
    """
    outcomes = Outcomes(np.array([1, 0, 1, 0]), np.array([10.0, 20.0, 30.0, 50.0]))
    survival = estimate_baseline_survival(outcomes, np.log([1.0, 2.0, 1.0, 4.0]))
    assert survival.days == pytest.approx([9.95, 10, 29.95, 30, 50])
    assert survival.cumulative_hazard == pytest.approx([0, 0.133531, 0.133531, 0.356675, 0.356675], abs=1e-6)


def test_a_step_of_a_high_risk_by_hand() -> None:
    """Patient 4 has the event and the hazard ratio 4, the others have 1, 2 and 1: -ln(1 - 4/8) / 4 = 0.173287."""
    outcomes = Outcomes(np.array([0, 0, 0, 1]), np.array([20.0, 30.0, 40.0, 10.0]))
    survival = estimate_baseline_survival(outcomes, np.log([1.0, 2.0, 1.0, 4.0]))
    assert survival.cumulative_hazard[-1] == pytest.approx(0.173287, abs=1e-6)


def test_an_event_on_the_last_day_does_not_change_the_days_before() -> None:
    """Two of four patients relapse on day 10, one of two on day 20, and the last one on day 40.

    Kaplan-Meier's mean is 10 + 10 / 2 + 20 / 4 = 20 days. Steps rise within 0.04 days. Their means are
    (1 - 1/2) / ln 2 = 0.7213 and half of this number: 20 - 0.04 (0.2787 + 0.1393) = 19.98328.
    """
    outcomes = Outcomes(np.ones(4, dtype=np.int64), np.array([10.0, 10.0, 20.0, 40.0]))
    survival = estimate_baseline_survival(outcomes, np.zeros(4))
    assert survival.days == pytest.approx([9.96, 10, 19.96, 20, 40])
    assert survival.cumulative_hazard[1:] == pytest.approx([math.log(2), math.log(2), 2 * math.log(2), 2 * math.log(2)])
    assert survival.restricted_mean(0) == pytest.approx(19.98328, abs=1e-5)
    assert survival.median(0) == 10


def test_only_events_on_the_last_day() -> None:
    """No patient relapsed before the horizon: all answers are the horizon, in the order of the scores."""
    outcomes = Outcomes(np.array([0, 0, 1]), np.array([10.0, 20.0, 30.0]))
    survival = estimate_baseline_survival(outcomes, np.zeros(3))
    assert survival.restricted_mean(0) == pytest.approx(30)
    assert survival.restricted_mean(1) < survival.restricted_mean(0)
    assert survival.median(0) is None


def test_times_that_differ_by_rounding_are_one_time() -> None:
    """0.1 + 0.2 exceeds 0.3, and 0.7 + 0.2 is below 0.9, by one unit in the last place.

    Two of four patients relapse at 0.3, -ln(2/4) = ln 2, and the event at 0.9 is on the horizon.
    """
    nearly = Outcomes(np.array([1, 1, 1, 0]), np.array([0.3, 0.1 + 0.2, 0.7 + 0.2, 0.9]))
    assert len(set(nearly.times_days.tolist())) == 4
    survival = estimate_baseline_survival(nearly, np.zeros(4))
    exactly = Outcomes(nearly.values, np.array([0.3, 0.3, 0.7 + 0.2, 0.7 + 0.2]))
    assert survival == estimate_baseline_survival(exactly, np.zeros(4))
    assert survival.cumulative_hazard[1:] == pytest.approx([math.log(2), math.log(2)])


@pytest.mark.parametrize(("horizon", "first"), [(2000.0, 1.0), (9.0, 0.009)])
def test_an_event_on_day_zero_counts_on_the_first_day(horizon: float, first: float) -> None:
    """The first day is day 1, or a thousandth of a shorter follow-up."""
    survival = estimate_baseline_survival(Outcomes(np.array([1, 0]), np.array([0.0, horizon])), np.zeros(2))
    assert survival.days == pytest.approx([first / 2, first, horizon])


def _make_outcomes(kind: str) -> Outcomes:
    rng = np.random.default_rng(4)
    if kind == "plateau":  # half relapse on days 10 to 500, the others are followed to day 2,000
        return Outcomes(np.repeat([1, 0], 50), np.r_[np.arange(10.0, 510, 10), np.full(49, 2000.0), 2001.0])
    if kind == "long tail":
        return Outcomes(np.ones(1000, dtype=np.int64), np.ceil(rng.lognormal(6, 1.5, 1000)))
    event, censored = np.ceil(rng.weibull(0.6, 200) * 900), np.ceil(rng.uniform(300, 3500, 200))
    return Outcomes((event <= censored).astype(np.int64), np.minimum(event, censored))


@pytest.mark.parametrize("last", [0, 1], ids=["censored last", "event last"])
@pytest.mark.parametrize("kind", ["plateau", "long tail", "censored"])
def test_days_without_risks_equal_kaplan_meier(kind: str, last: int) -> None:
    """Days agree within 1%, whether the longest follow-up ends in an event or not."""
    outcomes = _make_outcomes(kind)
    values = outcomes.values.copy()
    values[outcomes.times_days.argmax()] = last
    outcomes = Outcomes(values, outcomes.times_days)
    survival = estimate_baseline_survival(outcomes, np.zeros(len(values)))
    assert len(survival.days) <= MAX_STEPS
    curve = kaplan_meier(outcomes.times_days, outcomes.positive)
    expected = compute_restricted_mean_years(curve, survival.horizon_days) * DAYS_PER_YEAR
    assert survival.restricted_mean(0) == pytest.approx(expected, rel=0.01)


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 500), st.floats(-3, 3)), min_size=2, max_size=80),
    st.integers(501, 900),
)
def test_the_outcome_of_the_longest_follow_up_changes_nothing(rows: list[tuple[int, int, float]], horizon: int) -> None:
    values, days, scores = map(np.array, zip(*rows, (0, horizon, 0.0), strict=True))
    first = estimate_baseline_survival(Outcomes(values, days.astype(float)), scores)
    values[-1] = 1
    assert estimate_baseline_survival(Outcomes(values, days.astype(float)), scores) == first
    assert all(0 < first.restricted_mean(score) <= horizon * (1 + 1e-9) for score in scores)


def test_answers_agree_with_kaplan_meier_on_the_mean() -> None:
    """Both the mean of the answers and Kaplan-Meier estimate the cohort's restricted mean.

    Times are exponential with log hazard ratios of standard deviation 0.8, and a third is censored. Over many cohorts
    the ratio of the estimates has a standard deviation of 1.7%.
    """
    rng = np.random.default_rng(2)
    scores = rng.normal(0, 0.8, 600)
    event, censored = rng.exponential(1000 / np.exp(scores)), rng.uniform(200, 3000, 600)
    outcomes = Outcomes((event <= censored).astype(np.int64), np.minimum(event, censored))
    survival = estimate_baseline_survival(outcomes, scores)
    assert len(survival.days) <= MAX_STEPS
    assert survival.horizon_days == outcomes.times_days.max()
    answers = np.array([survival.restricted_mean(score) for score in scores])
    assert (answers > 0).all()
    assert (answers < survival.horizon_days).all()
    assert (np.diff(answers[np.argsort(scores)]) < 0).all()
    horizon = survival.horizon_days
    expected = (
        compute_restricted_mean_years(kaplan_meier(outcomes.times_days, outcomes.positive), horizon) * DAYS_PER_YEAR
    )
    assert math.isclose(answers.mean(), expected, rel_tol=0.05)


def test_thinning_to_64_steps_changes_no_answer_noticeably() -> None:
    """Answers equal the integral of the full estimate, with a step at each of 500 events, within 1%."""
    rng = np.random.default_rng(3)
    days = np.sort(rng.exponential(1000, 500))
    outcomes = Outcomes(np.ones(500, dtype=np.int64), days)
    survival = estimate_baseline_survival(outcomes, np.zeros(500))
    assert len(survival.days) == MAX_STEPS
    hazard = np.concatenate(
        [[0.0], np.cumsum(-np.log1p(-1 / np.arange(500, 1, -1)))]
    )  # the last event is the horizon's
    for score in (-1.0, 0.0, 1.0):
        exact = float(np.diff(np.concatenate([[0.0], days])) @ np.exp(-hazard * math.exp(score)))
        assert survival.restricted_mean(score) == pytest.approx(exact, rel=0.01)


# The slope of an ensemble's scores


def _make_relapses(days: list[float]) -> HeadCohort:
    return make_head_cohort([{}] * len(days), Outcomes(np.ones(len(days), dtype=np.int64), np.array(days)))


@pytest.mark.parametrize("scale", [1e-12, 1e9])
def test_a_perfect_order_has_a_bounded_slope_and_a_notice(scale: float) -> None:
    """Perfect orders have no maximum of the likelihood: the slope is 5 per standard deviation in every unit."""
    scores = scale * np.arange(40.0)
    cohort = _make_relapses(list(np.arange(400.0, 0, -10)))
    assert log_hazard_slope(scores, cohort) * scores.std() == pytest.approx(5)
    assert "bounded" in (describe_slope_problem(scores, cohort) or "")


@pytest.mark.parametrize("scale", [1e-12, 1e9])
def test_the_slope_falls_as_the_unit_rises(scale: float) -> None:
    """Slopes per standard deviation are the same in every unit; the slope of equal scores is 0."""
    scores, cohort = np.array([1.0, 0, 1, 0]), _make_relapses([1, 2, 3, 4])
    expected = log_hazard_slope(scores, cohort)
    assert log_hazard_slope(scale * scores, cohort) * scale == pytest.approx(expected, rel=1e-9)
    assert log_hazard_slope(scale * np.full(4, 0.1), cohort) == 0


def test_an_ordinary_slope_by_hand_has_no_notice() -> None:
    """Scores 1, 0, 1, 0 and days 1, 2, 3, 4 add (b - ln(2e + 2)) + (-ln(e + 2)) + (b - ln(e + 1)) with e = exp(b).

    The derivative 2 - 2 e / (e + 1) - e / (e + 2) is 0 where 2 (e + 2) = e (e + 1), at e = (1 + sqrt(17)) / 2.
    """
    scores, cohort = np.array([1.0, 0, 1, 0]), _make_relapses([1, 2, 3, 4])
    assert log_hazard_slope(scores, cohort) == pytest.approx(math.log((1 + math.sqrt(17)) / 2), abs=1e-5)
    assert describe_slope_problem(scores, cohort) is None


@pytest.mark.parametrize("scale", [1e-12, 1e9])
def test_scores_without_skill_have_a_notice_and_keep_their_scale(scale: float) -> None:
    """Reversed scores have the minimum slope, 1e-6 per standard deviation in every unit.

    Such risks are standardised as all other risks are.
    """
    scores, cohort = scale * np.arange(40.0), _make_relapses(list(np.arange(10.0, 410, 10)))
    slope = log_hazard_slope(scores, cohort)
    assert slope * scores.std() == pytest.approx(1e-6)
    assert "do not rise" in (describe_slope_problem(scores, cohort) or "")
    assert "do not rise" in (describe_slope_problem(slope * scores, cohort) or "")
    mean, sd = compute_scale(slope * scores)
    assert ((slope * scores - mean) / sd).std() == pytest.approx(1)
