"""Forests: residuals by hand, predictions equal to scikit-learn's, and skill only if there is an interaction."""

from __future__ import annotations

import json

import numpy as np
import pytest
from lifelines import NelsonAalenFitter
from sklearn.ensemble import RandomForestRegressor

from algorithm.heads.documents import ForestHead, read_head
from algorithm.heads.parts import Forest
from baseline.heads.cohort import HeadCohort, Outcomes, area_under_curve, c_index
from baseline.heads.models.forest import compute_martingale_residuals, convert_tree, fit_class_forest, fit_risk_forest
from baseline.heads.models.selection import FOREST
from baseline.heads.models.targets import make_targets
from baseline.heads.models.terms import fit_scaled_terms, use_unchanged
from contract.editions import load_edition
from tests.baseline.heads.cohorts import make_head_cohort

NAMES = ("a", "b", "c")


def draw_cohort(patients: int, seed: int, effect: float, *, is_risk: bool = True) -> HeadCohort:
    """Draw outcomes that the product of two of three features drives; a tenth of the values is missing."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(patients, 3))
    score = effect * values[:, 0] * values[:, 1]
    values[rng.random(values.shape) < 0.1] = np.nan
    rows = [{name: None if np.isnan(v) else float(v) for name, v in zip(NAMES, row, strict=True)} for row in values]
    if not is_risk:
        positive = rng.random(patients) < 1 / (1 + np.exp(-score))
        return make_head_cohort(rows, Outcomes(positive.astype(np.int64), classes=("False", "True")))
    times, ends = rng.exponential(500 / np.exp(score)), rng.exponential(900, patients)
    return make_head_cohort(rows, Outcomes((times <= ends).astype(np.int64), np.minimum(times, ends)))


def test_residuals_by_hand() -> None:
    """Events are on days 1 and 3, censorings on days 1 and 5: the hazard is 1/4 after day 1, 1/4 + 1/2 after day 3."""
    outcomes = Outcomes(np.array([1, 0, 1, 0]), np.array([1.0, 1.0, 3.0, 5.0]))
    assert compute_martingale_residuals(outcomes).tolist() == [0.75, -0.25, 0.25, -0.75]


def test_lifelines_agrees_on_residuals() -> None:
    """lifelines adds the parts of tied events one by one, so this cohort has no ties."""
    outcomes = draw_cohort(60, 1, 1.0).outcomes
    fitted = NelsonAalenFitter(nelson_aalen_smoothing=False).fit(outcomes.times_days, outcomes.positive)
    hazard = fitted.cumulative_hazard_at_times(outcomes.times_days).to_numpy()
    np.testing.assert_allclose(compute_martingale_residuals(outcomes), outcomes.positive - hazard)
    assert compute_martingale_residuals(outcomes).sum() == pytest.approx(0)


def test_scikit_learn_predicts_the_same() -> None:
    """Trees are stored with the shortest decimals in single precision; splits are the same for every patient."""
    rng = np.random.default_rng(0)
    columns, response = rng.normal(size=(300, 4)).round(2), rng.normal(size=300)
    model = RandomForestRegressor(20, min_samples_leaf=2, max_features="sqrt", random_state=0).fit(columns, response)
    forest = Forest.from_trees([convert_tree(tree.tree_) for tree in model.estimators_])
    midpoints = np.concatenate([tree.tree_.threshold for tree in model.estimators_]).reshape(-1, 1)
    fresh = np.concatenate([columns, rng.normal(size=(300, 4)), np.tile(midpoints, (1, 4))])
    np.testing.assert_allclose(forest.predict(fresh), model.predict(fresh), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("is_risk", [True, False])
def test_an_interaction_is_learnt_and_survives_json(is_risk: bool) -> None:
    cohort, fresh = (draw_cohort(500, seed, 1.5 if is_risk else 3.0, is_risk=is_risk) for seed in (1, 2))
    fit = fit_risk_forest if is_risk else fit_class_forest
    terms = fit_scaled_terms(cohort, use_unchanged(NAMES))
    [head] = fit(cohort, terms, FOREST, np.random.default_rng(0))
    assert isinstance(head, ForestHead)
    measure = c_index if is_risk else area_under_curve
    assert measure(fresh.outcomes, head.scores(fresh)) > 0.62
    stored = read_head(json.loads(json.dumps(head.as_json())), "head.json")
    np.testing.assert_array_equal(stored.scores(fresh), head.scores(fresh))
    [again] = fit(cohort, terms, FOREST, np.random.default_rng(0))
    assert again == head


@pytest.mark.parametrize("is_risk", [True, False])
def test_no_skill_without_an_effect(is_risk: bool) -> None:
    """Without an effect the mean over 10 cohorts of 200 new patients is 0.5; its standard error is near 0.013.

    An area under the curve of 100 and 100 patients has the standard deviation sqrt(201 / 120,000) = 0.041.
    """
    fit, measure = (fit_risk_forest, c_index) if is_risk else (fit_class_forest, area_under_curve)
    values = []
    for seed in range(10):
        cohort, fresh = (draw_cohort(200, 2 * seed + part, 0.0, is_risk=is_risk) for part in (0, 1))
        [head] = fit(cohort, fit_scaled_terms(cohort, use_unchanged(NAMES)), FOREST, np.random.default_rng(seed))
        values.append(measure(fresh.outcomes, head.scores(fresh)))
    assert abs(np.mean(values) - 0.5) < 0.03


def test_other_models_draw_the_same_numbers() -> None:
    cohort, rng = draw_cohort(60, 1, 1.0), np.random.default_rng(0)
    fit_risk_forest(cohort, fit_scaled_terms(cohort, use_unchanged(NAMES)), FOREST, rng)
    assert rng.random() == np.random.default_rng(0).random()


def test_without_features_the_score_is_constant() -> None:
    cohort = draw_cohort(60, 1, 1.0)
    [head] = fit_risk_forest(cohort, (), FOREST, np.random.default_rng(0))
    assert head.features == ()
    assert set(head.scores(cohort)) == {0.0}


def test_a_forest_needs_forty_events() -> None:
    rfs = next(target for target in make_targets(load_edition("hecktor2025")) if target.name == "rfs")
    for events, has_forest in ((39, False), (40, True)):
        outcomes = Outcomes(np.repeat([1, 0], [events, 40]), np.arange(1.0, events + 41.0))
        names = [family.name for family in rfs.select_families(make_head_cohort([{}] * (events + 40), outcomes))]
        assert ("forest, all features" in names) == has_forest
