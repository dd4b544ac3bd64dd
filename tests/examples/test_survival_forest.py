"""`examples/survival_forest`: pseudo-values compared with theory, and the stored forest with scikit-learn's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lifelines.utils import concordance_index

from contract.code import Code
from tests.examples.readme import EXAMPLES

CODE = Code.from_folders([EXAMPLES / "survival_forest"])
Head = CODE.find("survival_forest:Head", "head")
compute_restricted_mean = CODE.find("survival_forest:compute_restricted_mean", "head")
compute_pseudo_values = CODE.find("survival_forest:compute_pseudo_values", "head")


def test_mean_time_by_hand() -> None:
    """Events at 2 and 6, censored at 4: S is 1 until 2, 2/3 until 6, 0 after; to 8 the area is 2 + 4 * 2/3."""
    times, events = np.array([2.0, 4.0, 6.0]), np.array([True, False, True])
    assert compute_restricted_mean(times, events, 8.0) == pytest.approx(2 + 8 / 3)
    assert compute_restricted_mean(times, events, 5.0) == pytest.approx(2 + 2)


def test_pseudo_values_without_censoring_are_the_times() -> None:
    """Mean time is then the mean of min(time, horizon), whose jackknife gives back each value."""
    times = np.array([3.0, 1.0, 4.0, 1.0, 5.0, 9.0])
    values = compute_pseudo_values(times, np.ones(6, dtype=bool), 4.5)
    np.testing.assert_allclose(values, np.minimum(times, 4.5), atol=1e-9)


def test_a_pseudo_value_with_censoring_by_hand() -> None:
    """With horizon 8 the area of the three patients above is 14/3. Without the first: events at 6, area 6. Without the
    censored one: events at 2 and 6, area (2 + 6) / 2 = 4. Without the last: S is 1/2 from 2 on, area 2 + 3 = 5. So the
    values are 14 - 2 * 6, 14 - 2 * 4 and 14 - 2 * 5.
    """
    times, events = np.array([2.0, 4.0, 6.0]), np.array([True, False, True])
    np.testing.assert_allclose(compute_pseudo_values(times, events, 8.0), [2.0, 6.0, 4.0], atol=1e-9)


def draw_cohort(rng: np.random.Generator, patients: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Draw exponential times whose hazard rises with the squared first feature; a third is censored, values are
    missing.
    """
    features = pd.DataFrame(rng.normal(size=(patients, 4)), columns=list("abcd"))
    times = rng.exponential(1000 * np.exp(-1.5 * features["a"] ** 2))
    censored = rng.exponential(2500, patients)
    outcomes = pd.DataFrame({"days": np.minimum(times, censored), "event": times <= censored})
    return features.mask(rng.random(features.shape) < 0.05), outcomes


def test_a_stored_forest_predicts_what_no_linear_head_can(tmp_path: Path) -> None:
    """Hazards of a squared feature have no linear risk: the C-index of new patients is far above 0.5. After storing and
    reading, the forest predicts the same, for all patients and for one.
    """
    rng = np.random.default_rng(5)
    head = Head(None)
    head.fit(*draw_cohort(rng, 200), rng)
    features, outcomes = draw_cohort(rng, 200)
    risk = head.predict(features)
    assert risk.shape == (200,)
    assert concordance_index(outcomes["days"], -risk, outcomes["event"]) > 0.62
    linear = concordance_index(outcomes["days"], -features["a"].fillna(0), outcomes["event"])
    assert abs(linear - 0.5) < 0.07
    head.save(tmp_path)
    loaded = Head.load(tmp_path)
    np.testing.assert_array_equal(loaded.predict(features), risk)
    np.testing.assert_array_equal(loaded.predict(features[["d", "c", "b", "a"]].iloc[7:8]), risk[7:8])


def test_the_arrays_are_scikit_learns_forest(monkeypatch: pytest.MonkeyPatch) -> None:
    names, forests = Head.fit.__globals__, []  # other tests import the module anew

    class RecordingForest(names["RandomForestRegressor"]):  # type: ignore[misc]
        def fit(self, table: np.ndarray, values: np.ndarray) -> None:
            super().fit(table, values)
            forests.append((self, table))

    monkeypatch.setitem(names, "RandomForestRegressor", RecordingForest)
    rng = np.random.default_rng(6)
    features, outcomes = draw_cohort(rng, 80)
    head = Head(None)
    head.fit(features, outcomes, rng)
    ((forest, table),) = forests
    np.testing.assert_allclose(head.predict(features), -forest.predict(table), rtol=1e-12)
