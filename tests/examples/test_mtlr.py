"""`examples/mtlr`: probabilities and slope by hand and by differences, effects that change in time, and the stored
head.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lifelines.utils import concordance_index
from scipy.optimize import approx_fprime

from baseline.heads.fitting import FittedHead, fit_target
from baseline.heads.models.custom import with_custom_heads
from baseline.heads.models.targets import with_families
from contract.code import Code
from tests.baseline.heads.models.test_custom import RFS_DAYS, load_custom_heads, make_symmetric_cohort
from tests.examples.readme import EXAMPLES

CODE = Code.from_folders([EXAMPLES / "mtlr"])
Head = CODE.find("mtlr:Head", "head")
log_probabilities = CODE.find("mtlr:log_probabilities", "head")
find_possible_intervals = CODE.find("mtlr:find_possible_intervals", "head")
compute_interval_ends = CODE.find("mtlr:compute_interval_ends", "head")
compute_loss = CODE.find("mtlr:compute_loss", "head")


def test_one_end_is_a_logistic_regression() -> None:
    """Events before the only end have the odds exp(2 x + 1): at x = 0.5 they are e squared."""
    logs = log_probabilities(np.array([[0.5, 1.0]]), np.array([[2.0, 1.0]]))
    np.testing.assert_allclose(np.exp(logs), [[np.e**2 / (1 + np.e**2), 1 / (1 + np.e**2)]])


@pytest.mark.parametrize("seed", range(5))
def test_probabilities_are_an_enumeration_of_all_sequences(seed: int) -> None:
    """Sequences say for each end whether the event was before; once it was, it stays so. Their weight is the product of
    exp(regressor) over the ends where it was.
    """
    rng = np.random.default_rng(seed)
    values, weights = rng.normal(size=(1, 3)), rng.normal(size=(4, 3))
    sequences = [sequence for sequence in itertools.product((0, 1), repeat=4) if list(sequence) == sorted(sequence)]
    sequences.sort(key=lambda sequence: -sum(sequence))  # an event in the first interval makes all of them true
    products = np.exp([sum(np.array(sequence) * (weights @ values[0])) for sequence in sequences])
    np.testing.assert_allclose(np.exp(log_probabilities(values, weights))[0], products / products.sum())


def test_possible_intervals() -> None:
    """Ends on days 10 and 20: day 10 belongs to the first interval, and a patient censored on it had no event in it."""
    days, event = np.array([10.0, 10.0, 9.0, 15.0, 20.0]), np.array([True, False, False, True, False])
    expected = [[1, 0, 0], [0, 1, 1], [1, 1, 1], [0, 1, 0], [0, 0, 1]]
    assert find_possible_intervals(np.array([10.0, 20.0]), days, event).astype(int).tolist() == expected


def test_the_slope_agrees_with_differences() -> None:
    rng = np.random.default_rng(1)
    values = np.hstack([rng.normal(size=(20, 2)), np.ones((20, 1))])
    interval, event = rng.integers(0, 4, 20)[:, None], rng.random(20)[:, None] < 0.5
    possible = np.where(event, np.arange(4) == interval, np.arange(4) >= interval)
    flat = rng.normal(size=9)
    numbers = approx_fprime(flat, lambda point: compute_loss(point, values, possible, 0.3)[0], 1e-6)
    np.testing.assert_allclose(compute_loss(flat, values, possible, 0.3)[1], numbers, atol=1e-5)


def test_without_features_the_intervals_have_their_frequencies() -> None:
    """Nine events at 1 to 9 and eight ends between them: the survival at each end is the share of later events, from
    8/9 down, as for Kaplan and Meier.
    """
    days = np.arange(1.0, 10.0)
    ends = compute_interval_ends(days, np.ones(9, bool))
    np.testing.assert_allclose(ends, np.quantile(days, np.arange(1, 9) / 9))
    head = Head(None)
    outcomes = pd.DataFrame({"days": days, "event": True})
    head.fit(pd.DataFrame({"a": np.zeros(9)}), outcomes, np.random.default_rng(0))
    shares = [(days > end).mean() for end in ends]
    np.testing.assert_allclose(head.predict_survival(pd.DataFrame({"a": [0.0]}))[0], shares, atol=2e-3)


def test_an_effect_may_change_in_time(tmp_path: Path) -> None:
    """Patients with the feature have their events at 100 to 200 or not before 900, the others at 300 to 600: survival
    curves cross, as in no Cox model. After storing and reading, the head predicts the same, also for one patient.
    """
    rng = np.random.default_rng(2)
    marked = np.repeat([0.0, 1.0], 150)
    early = np.where(rng.random(300) < 0.4, rng.uniform(100, 200, 300), rng.uniform(900, 1200, 300))
    days = np.where(marked > 0, early, rng.uniform(300, 600, 300))
    features = pd.DataFrame({"a": marked, "b": rng.normal(size=300)})
    head = Head(None)
    head.fit(features, pd.DataFrame({"days": days, "event": days < 1000}), rng)
    curves = head.predict_survival(pd.DataFrame({"a": [0.0, 1.0], "b": [0.0, 0.0]}))
    assert curves[0, 0] > curves[1, 0] + 0.1
    assert curves[0, -1] < curves[1, -1] - 0.1
    assert (np.diff(curves, axis=1) <= 0).all()
    head.save(tmp_path)
    again = Head.load(tmp_path)
    np.testing.assert_array_equal(again.predict(features), head.predict(features))
    np.testing.assert_allclose(again.predict(features[["b", "a"]].iloc[7:8]), head.predict(features)[7:8])


def test_a_log_linear_hazard_is_ranked() -> None:
    """With a hazard of exp(1.5 a) of 300 patients, a third censored, the C-index of new ones is close to the C-index of a."""
    rng = np.random.default_rng(3)

    def draw_cohort() -> tuple[pd.DataFrame, pd.DataFrame]:
        features = pd.DataFrame(rng.normal(size=(300, 3)), columns=list("abc"))
        days, censored = rng.exponential(1000 * np.exp(-1.5 * features["a"])), rng.exponential(2500, 300)
        return features, pd.DataFrame({"days": np.minimum(days, censored), "event": days <= censored})

    head = Head(None)
    head.fit(*draw_cohort(), rng)
    features, outcomes = draw_cohort()
    best = concordance_index(outcomes["days"], -features["a"], outcomes["event"])
    assert concordance_index(outcomes["days"], -head.predict(features), outcomes["event"]) > best - 0.03


def test_it_takes_part_as_a_candidate() -> None:
    """Cross-validation of the heads fits it."""
    target = with_custom_heads(RFS_DAYS, load_custom_heads(EXAMPLES / "mtlr"))
    assert [family.name for family in target.families][-1] == "mtlr:Head"
    fitted = fit_target(
        with_families(RFS_DAYS, target.families[-1:]), make_symmetric_cohort(40), np.random.default_rng(0)
    )
    assert isinstance(fitted, FittedHead)
    assert len(fitted.tried) == 1
