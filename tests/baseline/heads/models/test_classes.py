"""Models of two and of more classes, and the classes that a mask rules out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from algorithm.heads.documents import NEVER, LinearHead
from baseline.heads.cohort import Floats, HeadCohort, Numbers, Outcomes, mark_possible_classes
from baseline.heads.cross_validation import cross_validate_targets
from baseline.heads.fitting import fit_target
from baseline.heads.models.classes import (
    compute_class_trends,
    find_balanced_point,
    fit_logistic,
    fit_multinomial,
    predict_classes,
)
from baseline.heads.models.selection import Family
from baseline.heads.models.targets import make_targets, with_families
from baseline.heads.models.terms import fit_scaled_terms
from contract.editions import load_edition
from tests.algorithm.heads.head_parts import make_class_head, term
from tests.baseline.heads.cohorts import make_head_cohort

T_STAGE, N_STAGE, _ = make_targets(load_edition("hecktor2026"))
CLASSES = ("T1", "T2", "T3", "T4")
FEATURES = {"a": "identity", "b": "identity"}
SETTINGS = ({"penalty": 0.1}, {"penalty": 0.01})
FAMILIES = [Family("multinomial", fit_multinomial, SETTINGS, FEATURES)]


def make_cohort(columns: Floats, values: Numbers, classes: Sequence[str] = CLASSES) -> HeadCohort:
    rows = [dict(zip("abcd", map(float, row), strict=False)) for row in columns]
    return make_head_cohort(rows, Outcomes(np.asarray(values, dtype=np.int64), classes=tuple(classes)))


def draw_ordinal_data(patients: int, cuts: Sequence[float], seed: int = 0) -> tuple[Floats, Numbers]:
    """Draw two standard normal columns, and classes of the score 2 a - b with logistic noise, separated at `cuts`."""
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(patients, 2))
    latent = columns @ [2.0, -1.0] + rng.logistic(size=patients)
    return columns, np.digitize(latent, cuts)


# Heads


def test_the_trend_of_a_multinomial_head_by_hand() -> None:
    """Weights of 0, 1 and 5 at -1, 0 and 1 have the slope (5 - 0) / 2. The class that never wins does not count."""
    head = make_class_head({"N0": NEVER, "N1": 0.0, "N2": 0.0, "N3": 0.0}, term("a", 0.0, 0.0, 1.0, 5.0))
    assert compute_class_trends(head) == {"a": 2.5}


@pytest.mark.parametrize("values", [[0, 1, 2, 3], [1, 3], [2]])
def test_classes_without_patients_never_win(values: list[int]) -> None:
    """Well separated patients of the other classes get their own class."""
    truth = np.array(values * 6)
    columns = np.stack([10.0 * truth, np.arange(len(truth)) % 5], axis=1)
    patients = make_cohort(columns, truth)
    (head,) = fit_multinomial(patients, fit_scaled_terms(patients, FEATURES), SETTINGS[1:], np.random.default_rng(0))
    assert head.classes == CLASSES
    assert predict_classes(head.scores(patients), patients.possible).tolist() == truth.tolist()
    absent = [number for number in range(4) if number not in values]
    assert all(head.intercepts[number] == NEVER for number in absent)
    assert all(term.weights[number] == 0 for number in absent for term in head.terms)


# Classes that the mask rules out


def test_possible_classes_by_hand() -> None:
    """Without a node only N0 is possible, otherwise or if unknown N1 to N3. Without a primary T4 is impossible."""
    rows = [{"gtvn_count": 0.0}, {"gtvn_count": 3.0}, {"age_years": 60.0}]
    expected = [[True, False, False, False], [False, True, True, True], [False, True, True, True]]
    assert mark_possible_classes(N_STAGE.answer, rows).tolist() == expected
    assert mark_possible_classes(T_STAGE.answer, rows).size == 0
    primaries = [{"gtvp_diameter_mm": None}, {"gtvp_diameter_mm": 12.0}]
    assert mark_possible_classes(T_STAGE.answer, primaries).tolist() == [[True, True, True, False], [True] * 4]


def test_heads_learn_from_patients_whose_class_is_open() -> None:
    """An N0 without nodes (decided), an N2 without nodes and an N0 with nodes (both impossible) are left out."""
    rows = [{"gtvn_count": count} for count in (0.0, 0.0, 3.0, 3.0, 3.0)]
    outcomes = Outcomes(np.array([0, 2, 0, 1, 3]), classes=("N0", "N1", "N2", "N3"))
    patients = make_head_cohort(rows, outcomes, possible=mark_possible_classes(N_STAGE.answer, rows))
    assert patients.select_undecided().ids == ("P003", "P004")
    assert patients.hide_mask().select_undecided().ids == patients.ids
    assert patients.pick(np.array([4, 0])).possible.tolist() == [[False, True, True, True], [True, False, False, False]]
    assert N_STAGE.count_scarce(patients) == 1


def test_the_answer_is_the_best_possible_class() -> None:
    scores = np.array([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0], [1.0, 1.0, 1.0]])
    possible = np.array([[False, True, True], [True, False, False], [False, True, True]])
    assert predict_classes(scores, possible).tolist() == [2, 0, 1]
    assert predict_classes(scores, np.zeros((0, 0), dtype=np.bool_)).tolist() == [0, 0, 0]


# Cross-validation


def test_the_record_of_a_cross_validation_can_be_recounted() -> None:
    """Recalls, confusion matrix and comparators agree for both kinds; clinical variables ignore that the mask decides N0."""
    values = np.array([0, 1, 0, 2, 0, 3] * 12)
    columns = np.stack([values * 4.0, np.arange(72) % 7], axis=1)
    patients = make_cohort(columns, values, ("N0", "N1", "N2", "N3"))
    features = patients.features.assign(gtvn_count=values.astype(float), age_years=60.0)
    possible = mark_possible_classes(N_STAGE.answer, [{"gtvn_count": float(value)} for value in values])
    patients = replace(patients, features=features, centres=tuple("ABC"[n % 3] for n in range(72)), possible=possible)
    document = cross_validate_targets([(with_families(N_STAGE, FAMILIES[:1]), patients)], 0, {}).as_json()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    for kind in ("nested", "leave_one_centre_out"):
        scored = document["n_stage"][kind]
        codes = [("N0", "N1", "N2", "N3").index(stage) for stage in scored["class"]]
        counts = np.zeros((4, 4), dtype=int)
        np.add.at(counts, (values, codes), 1)
        assert scored["confusion"] == counts.tolist()
        recalls = [counts[n, n] / counts[n].sum() for n in range(4)]
        assert list(scored["recall"].values()) == pytest.approx(recalls)
        assert scored["balanced_accuracy"] == pytest.approx(np.mean(recalls))
        assert scored["recall"]["N0"] == 1.0
        rivals = {name: comparator["balanced_accuracy"] for name, comparator in scored["comparators"].items()}
        assert set(rivals) == {"clinical", "rule", "most_frequent"}
        assert rivals["most_frequent"] == 0.25
        assert set(scored["comparators"]["rule"]["class"]) == {"N0", "N1", "N2"}
        assert rivals["clinical"] == 0.25


def test_no_cross_validation_gives_t4_without_a_primary() -> None:
    """No model and no rule may answer T4 for a patient without a primary, even if T4 is right.

    One in three patients with T4 has no primary, `a` predicts T4 for them too, and T4 is the most frequent class.
    """
    values = np.array([0, 3, 1, 3, 2, 3] * 12)
    rows = [{"gtvp_diameter_mm": None if n % 6 == 1 else 10.0 + 15 * v} for n, v in enumerate(values.tolist())]
    patients = make_cohort(np.stack([values * 4.0, np.arange(72) % 7], axis=1), values)
    features = patients.features.assign(gtvp_diameter_mm=[row["gtvp_diameter_mm"] for row in rows], age_years=60.0)
    possible = mark_possible_classes(T_STAGE.answer, rows)
    patients = replace(patients, features=features, centres=tuple("ABC"[n % 3] for n in range(72)), possible=possible)
    document = cross_validate_targets([(with_families(T_STAGE, FAMILIES[:1]), patients)], 0, {}).as_json()
    for kind in ("nested", "leave_one_centre_out"):
        scored = document["t_stage"][kind]
        for answers in (scored, scored["comparators"]["rule"]):
            assert "T4" not in [answers["class"][n] for n in range(1, 72, 6)]
        assert scored["recall"]["T4"] == pytest.approx(2 / 3)


# Selection


def test_permuted_classes_are_not_predicted() -> None:
    """Balanced accuracy of 240 patients in four classes has a standard error near 0.03 around 0.25."""
    columns, values = draw_ordinal_data(240, (-2.0, 0.5, 2.0))
    patients = make_cohort(columns, np.random.default_rng(5).permutation(values))
    fitted = fit_target(with_families(T_STAGE, FAMILIES), patients, np.random.default_rng(0))
    assert 0.15 < fitted.out_of_fold < 0.37


def test_rare_classes_are_predicted_as_often_as_they_occur_in_balance() -> None:
    """T4 is rare, one patient in twenty: without class weights it would hardly ever be predicted."""
    columns, values = draw_ordinal_data(400, (-2.0, 0.5, 4.5))
    patients = make_cohort(columns, values)
    fitted = fit_target(with_families(T_STAGE, FAMILIES[:1]), patients, np.random.default_rng(0))
    answers = predict_classes(fitted.head.scores(patients), patients.possible)
    recall = np.mean(answers[values == 3] == 3)
    assert (values == 3).mean() < 0.06
    assert recall > 0.6


def test_a_mask_that_decides_a_class_leaves_the_others_to_the_head() -> None:
    """Half of the patients have no node and are N0; `a` separates the others without error, so all answers are right."""
    values = np.array([0, 1, 0, 2, 0, 3] * 10)
    columns = np.stack([values * 4.0, np.arange(60) % 7], axis=1)
    patients = make_cohort(columns, values, ("N0", "N1", "N2", "N3"))
    volumes = [{"gtvn_count": float(value)} for value in values]
    patients = replace(patients, possible=mark_possible_classes(N_STAGE.answer, volumes))
    fitted = fit_target(with_families(N_STAGE, FAMILIES), patients, np.random.default_rng(0))
    assert fitted.out_of_fold == 1.0
    assert fitted.fallback == "N0"
    assert isinstance(fitted.head, LinearHead)
    assert fitted.head.intercepts[0] == NEVER


def test_scores_with_little_skill_are_balanced_near_their_mean() -> None:
    """580 positive and 8 negative patients have normal scores, a tenth of a standard deviation apart.

    Where the slope is small the logistic function is nearly a line, and the mean probability is the mean of Platt's
    smoothed targets, so that both classes are equally likely near the mean score."""
    quantiles = stats.norm.ppf((np.arange(580) + 0.5) / 580)
    negative = stats.norm.ppf((np.arange(8) + 0.5) / 8) - 0.1
    scores = np.concatenate([quantiles, negative])
    point = find_balanced_point(np.arange(588) < 580, scores, default=99.0)
    assert point == pytest.approx(scores.mean(), abs=0.1)


@pytest.mark.parametrize("patients", [4, 40])
def test_the_penalty_of_a_logistic_regression_applies_to_the_mean_loss(patients: int) -> None:
    """Half of the patients are positive with x = 1, half negative with x = -1: the mean loss is log(1 + exp(-w)).

    With p w^2 / 2 added its slope is 0 where 1 / (1 + exp(w)) = p w, for p = 1 / (1 + e) at w = 1, for any number of
    patients.
    """
    positive = np.arange(patients) % 2 == 1
    rows = [{"x": 1.0 if is_positive else -1.0} for is_positive in positive]
    cohort = make_head_cohort(rows, Outcomes(positive.astype(np.int64), classes=("0", "1")))
    terms = fit_scaled_terms(cohort, {"x": "identity"})
    (head,) = fit_logistic(cohort, terms, [{"penalty": 1 / (1 + np.e)}], np.random.default_rng(0))
    assert [term.weights[0] for term in head.terms] == pytest.approx([1.0], abs=1e-3)
    assert head.intercepts == pytest.approx([0], abs=1e-3)
