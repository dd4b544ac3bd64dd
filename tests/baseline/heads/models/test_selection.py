"""Scaling, metrics, the sign model's parts, calibration, and the choice between models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from algorithm.heads.documents import LinearHead, Term
from baseline.heads.cohort import HeadCohort, Outcomes, c_index
from baseline.heads.models.classes import find_balanced_point, find_operating_point, find_stable_threshold, fit_platt
from baseline.heads.models.risk import compute_bag_weights, fit_signs, univariate_concordance
from baseline.heads.models.selection import Family, make_centre_folds, make_stratified_folds, select_candidates
from baseline.heads.models.terms import (
    choose_transforms,
    find_unusable_features,
    fit_scaled_terms,
    make_linear_head,
    make_matrix,
    remove_correlated_terms,
)
from tests.algorithm.heads.head_parts import make_linear_head as make_bare_head
from tests.algorithm.heads.head_parts import score
from tests.baseline.heads.cohorts import make_head_cohort

Rows = Sequence[dict[str, float | None]]


def make_cohort(rows: Rows, centres: Sequence[str] | None = None, outcomes: Outcomes | None = None) -> HeadCohort:
    count = len(rows)
    known = outcomes or Outcomes((np.arange(count) % 2 == 0).astype(int), np.arange(1.0, count + 1))
    return make_head_cohort(rows, known, centres)


# Scaling


def test_filling_and_scaling_are_learnt_from_the_training_patients() -> None:
    """Ages of 50, 70 and a missing age have the median 60, the mean 60 and the standard deviation sqrt(200 / 3)."""
    patients = make_cohort([{"age": 50.0}, {"age": 70.0}, {"age": None}])
    (term,) = fit_scaled_terms(patients, {"age": "identity", "absent": "identity"})
    assert [term.fill, term.mean, term.sd] == pytest.approx([60, 60, np.sqrt(200 / 3)])
    assert fit_scaled_terms(make_cohort([{"age": 50.0}] * 3), {"age": "identity"}) == ()


UNITS = [1e-60, 1e-12, 1e-9, 1.0, 1e12, 1e60]


@pytest.mark.parametrize("unit", UNITS)
def test_the_unit_of_a_feature_does_not_matter(unit: float) -> None:
    """1, 2 and 6 units have the mean 3 and the standard deviation sqrt((4 + 1 + 9) / 3); equal values have no term."""
    patients = make_cohort([{"x": value * unit, "same": 0.1 * unit} for value in (1.0, 2.0, 6.0)])
    (term,) = fit_scaled_terms(patients, {"x": "identity", "same": "identity"})
    assert (term.feature, term.mean / unit, term.sd / unit) == ("x", pytest.approx(3), pytest.approx(np.sqrt(14 / 3)))


def test_features_without_a_term_are_named() -> None:
    """Three of 20 patients with a known value are too few, four are enough."""
    rows: Rows = [
        {"x": float(n), "same": 1e-12, "rounded": 3 + n * 1e-15}
        | {name: float(n) if n < known else None for name, known in (("rare", 3), ("known", 4))}
        for n in range(20)
    ]
    names = dict.fromkeys(("x", "same", "rounded", "rare", "known", "absent"), "identity")
    few = "known for less than 20% of the patients"
    expected = {"same": "constant", "rounded": "constant", "rare": few, "absent": few}
    assert find_unusable_features(make_cohort(rows), names) == expected
    assert [term.feature for term in fit_scaled_terms(make_cohort(rows), names)] == ["x", "known"]


@given(st.integers(0, 2**32 - 1))
def test_the_matrix_is_what_the_shipped_head_computes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows: Rows = [
        {"suv_max": None if rng.random() < 0.2 else float(rng.gamma(2, 5)), "total_volume_ml": float(rng.gamma(1, 50))}
        for _ in range(24)
    ]
    patients = make_cohort(rows)
    head = make_linear_head("test", fit_scaled_terms(patients, choose_transforms(patients)), [0.7, -1.3], [0.1])
    assert head.scores(patients).tolist() == [score(head, row) for row in rows]
    assert make_matrix((), patients).shape == (24, 0)


def test_usual_transforms() -> None:
    """Volumes and glycolysis are transformed to logarithms."""
    patients = make_cohort([{"gtvp_mtv_over_2.5_ml": 1.0, "gtvp_tlg": 1.0, "age_years": 1.0}])
    assert list(choose_transforms(patients).values()) == ["log1p", "log1p", "identity"]


def test_the_first_of_two_correlated_features_is_kept() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=50)
    patients = make_cohort([{"a": v, "b": float(rng.normal()), "twin": -np.exp(v)} for v in values.tolist()])
    terms = fit_scaled_terms(patients, dict.fromkeys(("a", "b", "twin"), "identity"))
    assert [term.feature for term in remove_correlated_terms(terms, patients)] == ["a", "b"]


# The sign model


def test_concordance_of_bags_counts_repeated_patients() -> None:
    rng = np.random.default_rng(1)
    outcomes = Outcomes((rng.random(30) < 0.5).astype(int), rng.integers(1, 9, 30).astype(float))
    patients = make_cohort([{} for _ in range(30)], outcomes=outcomes)
    columns = rng.integers(0, 4, (30, 3)).astype(float)
    counts = rng.multinomial(30, np.full(30, 1 / 30), size=4)
    concordance = univariate_concordance(columns, patients, counts.astype(float))
    for bag, count in enumerate(counts):
        members = np.repeat(np.arange(30), count)
        for feature in range(3):
            drawn = patients.pick(members).outcomes
            assert concordance[bag, feature] == pytest.approx(c_index(drawn, columns[members, feature]))


def test_a_bag_by_hand() -> None:
    """Feature 1 is the strongest; 0 is related to it and dropped; 3 is below the least effect; 4 was not tested."""
    related = np.eye(5, dtype=bool)
    related[0, 1] = related[1, 0] = True
    effects = np.array([0.2, -0.3, 0.1, 0.02, 0.0])
    assert compute_bag_weights(effects, related, 0.05).tolist() == [0, -0.5, 0.5, 0, 0]
    assert compute_bag_weights(effects, related, 0.4).tolist() == [0] * 5


def test_signs_are_recovered_and_the_scale_is_a_log_hazard() -> None:
    """True log hazard ratios are +1 and -1 per standard deviation, and 8 features are noise.

    The head averages both signed features with equal weights, and its Cox slope gives both a weight of about 1.
    """
    rng = np.random.default_rng(2)
    values = rng.normal(size=(400, 10))
    time = rng.exponential(1000 / np.exp(values[:, 0] - values[:, 1]))
    outcomes = Outcomes((time <= 2000).astype(int), np.minimum(time, 2000))
    patients = make_cohort([{f"f{k}": float(v) for k, v in enumerate(row)} for row in values], outcomes=outcomes)
    terms = fit_scaled_terms(patients, choose_transforms(patients))
    (head,) = fit_signs(patients, terms, [{"least_effect": 0.08}], np.random.default_rng(0))
    weights = {term.feature: term.weights[0] for term in head.terms}
    assert 0.6 < weights["f0"] < 1.3
    assert -1.3 < weights["f1"] < -0.6
    assert max((abs(w) for f, w in weights.items() if f not in ("f0", "f1")), default=0) < 0.1
    (nothing,) = fit_signs(patients, (), [{"least_effect": 0.0}], np.random.default_rng(0))
    assert nothing.terms == ()


# Calibration and threshold


@pytest.mark.parametrize(("patients", "scale"), [(20, 1.0), (60, 5.0), (600, 0.3)])
def test_scikit_learn_calibrates_alike(patients: int, scale: float) -> None:
    """Patients count for both classes, weighted by Platt's smoothed target."""
    rng = np.random.default_rng(patients)
    scores = scale * rng.normal(size=patients)
    positive = rng.random(patients) < 1 / (1 + np.exp(-scores / scale - 1))
    target = np.where(positive, (positive.sum() + 1) / (positive.sum() + 2), 1 / ((~positive).sum() + 2))
    model = LogisticRegression(C=np.inf, tol=1e-8, max_iter=5000)
    weights = np.concatenate([target, 1 - target])
    model.fit(np.concatenate([scores, scores])[:, None], np.repeat([1, 0], patients), sample_weight=weights)
    calibration = fit_platt(positive, scores)
    assert calibration.slope == pytest.approx(model.coef_[0, 0], rel=1e-3, abs=1e-4)
    assert calibration.offset == pytest.approx(model.intercept_[0], rel=1e-3, abs=1e-4)


def test_a_calibration_never_turns_the_order_around() -> None:
    """Positives score lower: the slope stays 0, and all patients get the smoothed share (80 (81/82) + 20/22) / 100."""
    positive = np.arange(100) < 80
    calibration = fit_platt(positive, np.where(positive, -1.0, 1.0))
    assert calibration.slope == 0
    assert calibration.probability(3.0) == pytest.approx((80 * 81 / 82 + 20 / 22) / 100, abs=1e-3)


def test_the_operating_point_is_midway_to_the_balanced_point() -> None:
    """Two classes have normal scores around 0 and 2, one patient in ten is negative: both densities are equal at 1."""
    rng = np.random.default_rng(0)
    positive = np.arange(20_000) % 10 > 0
    scores = rng.normal(np.where(positive, 2.0, 0.0), 1.0)
    balanced = find_balanced_point(positive, scores, np.nan)
    assert balanced == pytest.approx(1.0, abs=0.1)
    few = slice(600)
    stable = find_stable_threshold(positive[few], scores[few], np.random.default_rng(1))
    point = find_operating_point(positive[few], scores[few], np.random.default_rng(1))
    assert point == pytest.approx((stable + find_balanced_point(positive[few], scores[few], np.nan)) / 2)


def test_without_skill_the_operating_point_is_the_stable_threshold() -> None:
    positive, scores = np.arange(100) < 80, np.where(np.arange(100) < 80, -1.0, 1.0)
    assert find_balanced_point(positive, scores, 0.25) == 0.25
    point = find_operating_point(positive, scores, np.random.default_rng(0))
    assert point == find_stable_threshold(positive, scores, np.random.default_rng(0))


# Choosing


def test_folds_distribute_the_stratum_and_the_centres() -> None:
    patients = make_cohort([{}] * 43, centres=["A", "B", "C"][0:1] * 20 + ["B"] * 13 + ["C"] * 10)
    stratum = [n % 4 == 0 for n in range(43)]
    folds = make_stratified_folds(patients, stratum, 5, np.random.default_rng(0))
    assert sorted(np.concatenate(folds)) == list(range(43))
    for fold in folds:
        assert abs(sum(stratum[n] for n in fold) - 11 / 5) < 1
        assert abs(sum(n < 20 for n in fold) - 4) <= 1
    by_centre = make_centre_folds(patients)
    assert [{patients.centres[n] for n in fold} for fold in by_centre] == [{"A"}, {"B"}, {"C"}]


def test_evaluated_patients_are_never_training_patients() -> None:
    """Training sets that a spying family records never contain the evaluated patients."""
    patients = make_cohort([{"x": float(n)} for n in range(23)])
    seen: list[set[str]] = []

    def spy(
        train: HeadCohort, terms: Sequence[Term], settings: Sequence[object], _: np.random.Generator
    ) -> list[LinearHead]:
        seen.append(set(train.ids))
        return [make_bare_head() for _ in settings]

    folds = make_stratified_folds(patients, [False] * 23, 5, np.random.default_rng(0))
    family = Family("spy", spy, ({}, {}), {"x": "identity"})
    select_candidates(patients, [family], folds, lambda _, scores: 0.0, np.random.default_rng(0))
    assert len(seen) == 5
    for train, fold in zip(seen, folds, strict=True):
        assert train == set(patients.ids) - {patients.ids[n] for n in fold}


def test_of_equally_good_settings_the_strongest_regularisation_is_used() -> None:
    """Settings score 0.6, 0.7 and 0.7, which are their intercepts: the second setting is used, with its scores."""

    def fit(
        _c: HeadCohort, _t: Sequence[Term], settings: Sequence[object], _r: np.random.Generator
    ) -> list[LinearHead]:
        return [make_bare_head(intercept=(0.6, 0.7, 0.7)[n]) for n in range(len(settings))]

    patients = make_cohort([{"x": 0.0}] * 10)
    family = Family("steady", fit, tuple({"n": float(n)} for n in range(3)), {})
    folds = [np.arange(5), np.arange(5, 10)]
    (chosen,) = select_candidates(
        patients, [family], folds, lambda _, scores: float(scores[0]), np.random.default_rng(0)
    )
    assert (chosen.name, chosen.setting["n"], chosen.metric) == ("steady", 1.0, 0.7)
    assert chosen.scores.tolist() == [0.7] * 10
