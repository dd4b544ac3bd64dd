"""Heads find known effects, thresholds are the best possible, and classes have comparators without a model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.heads.documents import Features, LinearHead, read_head
from baseline.heads.cohort import HeadCohort, Outcomes
from baseline.heads.fitting import FittedHead, fit_target
from baseline.heads.models.classes import find_best_threshold, make_staging_rule, predict_most_frequent
from baseline.heads.models.selection import Family
from baseline.heads.models.targets import Target, with_families
from contract.errors import MetricError
from tests.algorithm.heads.head_parts import score
from tests.baseline.heads.cohorts import make_head_cohort
from tests.baseline.prepared import HPV, RFS

TRANSFORMS = {"volume": "log1p", "age": "identity", "noise": "identity"}
Rows = list[dict[str, float | None]]


def make_drivers(patients: int = 240, seed: int = 3) -> tuple[Rows, np.ndarray]:
    """Return features on their own scales, with a tenth of the ages missing, and the standardised true drivers."""
    rng = np.random.default_rng(seed)
    drivers = rng.normal(0, 1, (patients, 3))
    ages = [None if rng.random() < 0.1 else float(60 + 9 * age) for age in drivers[:, 1]]
    volumes, noise = np.exp(2 + 0.8 * drivers[:, 0]).tolist(), drivers[:, 2].tolist()
    rows = zip(volumes, ages, noise, strict=True)
    return [dict(zip(TRANSFORMS, row, strict=True)) for row in rows], drivers


def draw_outcomes(risk: np.ndarray, logit: np.ndarray, seed: int = 4) -> tuple[Outcomes, Outcomes]:
    """Draw relapses and HPV statuses."""
    rng = np.random.default_rng(seed)
    event, censored = rng.exponential(1000 / np.exp(risk)), rng.exponential(1500, len(risk))
    positive = rng.random(len(logit)) < 1 / (1 + np.exp(-logit))
    return Outcomes((event <= censored).astype(int), np.minimum(event, censored)), Outcomes(positive.astype(int))


def fit_first_family(target: Target, rows: Rows, outcomes: Outcomes) -> FittedHead:
    """Fit the target's first family on the three features of patients of a single centre."""
    first = target.families[0]
    family = Family(first.name, first.fit, first.settings, TRANSFORMS)
    patients = make_head_cohort(rows, outcomes)
    return fit_target(with_families(target, [family]), patients, np.random.default_rng(0))


def collect_weights(head: LinearHead) -> dict[str, float]:
    return {term.feature: term.weights[0] for term in head.terms}


def test_cox_recovers_the_signs_and_sizes_of_known_effects() -> None:
    """True log hazard ratios per standard deviation are +1 for log volume, -0.5 for age and 0 for noise.

    The ridge shrinks the weights, and 150 events have a standard error near 0.1.
    """
    rows, drivers = make_drivers()
    fitted = fit_first_family(RFS, rows, draw_outcomes(drivers @ [1, -0.5, 0], drivers[:, 0])[0])
    weights = collect_weights(fitted.head)
    assert 0.6 < weights["volume"] < 1.3
    assert -0.8 < weights["age"] < -0.2
    assert abs(weights["noise"]) < 0.3
    assert 0.70 < fitted.out_of_fold < 0.85
    assert fitted.head.threshold is None
    assert read_head(fitted.head.as_json(), "rfs") == fitted.head


def test_logistic_recovers_the_signs_of_known_effects() -> None:
    """With one HPV negative in eight, the class weights keep the threshold from answering positive for all patients.

    The penalty shrinks all coefficients alike, so only their signs and order are tested.
    """
    rows, drivers = make_drivers()
    logit = drivers @ [-2.0, 1.0, 0] + 3
    fitted = fit_first_family(HPV, rows, draw_outcomes(drivers[:, 0], logit)[1])
    weights = collect_weights(fitted.head)
    assert weights["volume"] < -0.2
    assert weights["age"] > 0.1
    assert abs(weights["noise"]) < weights["age"]
    assert fitted.out_of_fold > 0.75
    assert fitted.setting["penalty"] in {setting["penalty"] for setting in HPV.families[0].settings}
    threshold = fitted.head.threshold
    assert threshold is not None
    answers = np.array([score(fitted.head, row) >= threshold for row in rows])
    assert 0.05 < np.mean(~answers) < 0.5


def test_features_that_say_nothing_give_a_head_without_terms() -> None:
    rows: Rows = [{"volume": None, "age": 60.0} for _ in range(20)]
    rfs = fit_first_family(RFS, rows, Outcomes((np.arange(20) % 2 == 0).astype(int), np.arange(1.0, 21)))
    assert (rfs.head.terms, rfs.out_of_fold) == ((), 0.5)
    hpv = fit_first_family(HPV, rows, Outcomes((np.arange(20) % 3 > 0).astype(int)))
    assert (hpv.head.terms, hpv.out_of_fold) == ((), 0.5)


def test_too_few_of_a_class() -> None:
    rows: Rows = [{"age": float(n)} for n in range(10)]
    first = (np.arange(10) == 0).astype(int)
    with pytest.raises(MetricError, match="rfs: 1 training patients with a relapse"):
        fit_first_family(RFS, rows, Outcomes(first, np.arange(1.0, 11)))
    with pytest.raises(MetricError, match="hpv: 1 training patients of the rarer class"):
        fit_first_family(HPV, rows, Outcomes(1 - first))


# Thresholds


@pytest.mark.parametrize(
    ("negative", "positive", "threshold", "accuracy"),
    [
        ([0, 1], [3, 4], 2.0, 1.0),
        # sensitivity and specificity are 1 and 2/3 at 1.25, and 2/3 and 1 at 2.5: of equal accuracies the upper is taken
        ([0, 1, 2], [1.5, 3, 4], 2.5, 5 / 6),
        # reversed scores: the best answer is one class for all
        ([3, 4], [0, 1], 5.0, 0.5),
        ([7], [7], 8.0, 0.5),
    ],
)
def test_thresholds_by_hand(negative: list[float], positive: list[float], threshold: float, accuracy: float) -> None:
    labels = np.array([False] * len(negative) + [True] * len(positive))
    assert find_best_threshold(labels, np.array([*negative, *positive], dtype=float)) == (
        threshold,
        pytest.approx(accuracy),
    )


@given(st.lists(st.tuples(st.booleans(), st.integers(-5, 5)), min_size=2, max_size=20), st.integers(-12, 12))
def test_no_other_threshold_is_better(scored: list[tuple[bool, int]], half_steps: int) -> None:
    positive = np.array([flag for flag, _ in scored])
    if positive.all() or not positive.any():
        return
    scores = np.array([float(score) for _, score in scored])

    def accuracy(threshold: float) -> float:
        return float((np.mean(scores[positive] >= threshold) + np.mean(scores[~positive] < threshold)) / 2)

    threshold, claimed = find_best_threshold(positive, scores)
    assert accuracy(threshold) == pytest.approx(claimed)
    assert accuracy(half_steps / 2) <= claimed + 1e-12


# Comparators of classes without a model


def make_staged_cohort(values: list[int], rows: list[Features]) -> HeadCohort:
    return make_head_cohort(rows, Outcomes(np.array(values), classes=("T1", "T2", "T3", "T4")))


def test_the_most_frequent_class_comes_from_the_training_patients() -> None:
    """Training patients have T3 twice and T2 and T4 once; of equally frequent classes the lower is used."""
    patients = make_staged_cohort([0, 0, 0], [{}] * 3)
    assert predict_most_frequent(make_staged_cohort([2, 1, 2, 3], [{}] * 4), patients).tolist() == [2, 2, 2]
    assert predict_most_frequent(make_staged_cohort([3, 1], [{}] * 2), patients).tolist() == [1, 1, 1]


def test_the_rule_reads_the_features_and_falls_back_to_the_most_frequent_class() -> None:
    """Diameters up to 20 mm are T1, up to 40 mm T2, above T3 (7th edition); without a primary T4 is most frequent."""
    rows: list[Features] = [{"gtvp_diameter_mm": value} for value in (15.0, 30.0, 50.0)] + [{}]
    train = make_staged_cohort([3, 3, 1], [{}] * 3)
    assert make_staging_rule("t_stage_7th")(train, make_staged_cohort([0] * 4, rows)).tolist() == [0, 1, 2, 3]
