"""Cox regression by hand, and against lifelines."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from baseline.heads.cohort import Outcomes
from baseline.heads.models.risk import cox_weights


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
