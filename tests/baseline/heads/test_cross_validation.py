"""Cross-validation on simulated patients: heads find the effects, find none in permuted outcomes, and lose skill if centres
are left out and differ.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from algorithm.heads.documents import LinearHead
from baseline.heads.cohort import HeadCohort, Outcomes, area_under_curve, c_index
from baseline.heads.cross_validation import (
    HeldOutPredictions,
    compute_metric,
    cross_validate_by_centre,
    cross_validate_nested,
    predict_held_out,
)
from baseline.heads.models.risk import fit_cox, make_unfitted_heads
from baseline.heads.models.selection import Family
from baseline.heads.models.targets import RISK_FEATURES, Target, with_families
from baseline.heads.models.terms import with_weights
from benchmarks.heads import (
    CLINICAL_FEATURES,
    IMAGE_FEATURES,
    Centres,
    Simulation,
    draw_classes,
    draw_patients,
    draw_times,
)
from tests.baseline.prepared import HPV, RFS

pytestmark = pytest.mark.slow

PATIENTS, CENTRES = 300, 7
RIDGE = ({"penalty": 0.1}, {"penalty": 0.01})
FEW = Family("Cox, few features", fit_cox, RIDGE, RISK_FEATURES)
ALL = Family("Cox, all features", fit_cox, RIDGE[:1])
LOGISTIC = replace(HPV.families[1], settings=HPV.families[1].settings[:1])


@cache
def draw_cohort(kind: str) -> tuple[HeadCohort, np.ndarray]:
    """Draw 300 patients with relapses ("rfs") or 600 with statuses ("hpv") of seven equal centres, and their true effects.

    Two of twelve hidden factors drive the outcome; each of the features shows one to three factors, with noise.
    """
    rng, patients = np.random.default_rng(12), {"rfs": 1, "hpv": 2}[kind] * PATIENTS
    no_shift, no_missing = np.zeros((CENTRES, len(IMAGE_FEATURES))), np.zeros((CENTRES, len(CLINICAL_FEATURES)))
    numbers = np.arange(patients) % CENTRES
    centres = Centres(no_shift, np.zeros(CENTRES), no_missing)
    drawn = draw_patients(Simulation.draw("few strong", rng), centres, numbers, rng)
    outcomes = draw_times(drawn.effect, 3000.0, rng) if kind == "rfs" else draw_classes(drawn.effect, 2.0, rng)
    ids, codes = (tuple(f"{letter}{n}" for n in values) for letter, values in (("P", range(patients)), ("C", numbers)))
    return HeadCohort(ids, codes, drawn.features, outcomes), drawn.effect


@pytest.fixture(scope="module")
def rfs() -> HeldOutPredictions:
    return cross_validate_nested(with_families(RFS, [FEW, ALL]), draw_cohort("rfs")[0], np.random.default_rng(0))


@pytest.mark.parametrize("kind", ["rfs", "hpv"])
def test_heads_near_the_oracle(kind: str, rfs: HeldOutPredictions) -> None:
    """The hidden factors are seen only through noisy features, so that the oracle is better, by less than 0.08 in the
    median of 300 bootstrap samples.
    """
    (cohort, effect), measure, heads = draw_cohort(kind), c_index, rfs
    if kind == "hpv":
        heads = cross_validate_nested(with_families(HPV, [LOGISTIC]), cohort, np.random.default_rng(0))
        measure = area_under_curve
    rng, gaps = np.random.default_rng(0), []
    for _ in range(300):
        drawn = rng.integers(0, len(effect), len(effect))
        outcomes = cohort.outcomes.pick(drawn)
        gaps.append(measure(outcomes, effect[drawn]) - measure(outcomes, heads.scores[drawn]))
    assert 0 < np.median(gaps) < 0.08
    if kind == "hpv":
        accuracy = compute_metric(cohort, heads)
        assert accuracy is not None
        assert accuracy > 0.6


def test_every_patient_is_scored_once_by_a_head_that_never_saw_them(rfs: HeldOutPredictions) -> None:
    cohort = draw_cohort("rfs")[0]
    assert sorted(np.concatenate([fold.held_out for fold in rfs.folds])) == list(range(PATIENTS))
    for number, fold in enumerate(rfs.folds):
        assert len(fold.ensemble.scores) == PATIENTS - len(fold.held_out)
        assert set(np.flatnonzero(rfs.list_folds() == number)) == set(fold.held_out)
        selection = fold.ensemble.scores
        for patient in fold.held_out[:3]:
            score = fold.head.scores(cohort.pick([patient]))[0]
            assert rfs.scores[patient] == pytest.approx((score - selection.mean()) / selection.std())


def test_the_scale_of_a_single_head_does_not_matter() -> None:
    """Only the order of risks counts, even if a head's scores are 100 times as large.

    Every head that is fitted without the first outer fold's patients is such a head, in the selection too. Without
    scaling, its patients would be the first and the last of all.
    """
    cohort = draw_cohort("rfs")[0]
    outer = [np.arange(first, PATIENTS, 5) for first in range(5)]
    without_first = {cohort.ids[number] for number in outer[0]}

    def fit_scaled(training: HeadCohort, *rest: Any) -> list[LinearHead]:
        factor = 100 if without_first.isdisjoint(training.ids) else 1
        return [
            head.model_copy(
                update={"terms": tuple(with_weights(term, [factor * term.weights[0]]) for term in head.terms)}
            )
            for head in make_unfitted_heads(training, *rest)
        ]

    plain, scaled = (
        predict_held_out(
            with_families(RFS, [Family("volume", fit, ({},), {"total_volume_ml": "log1p"})]), cohort, outer,
            np.random.default_rng(0),
        )
        for fit in (make_unfitted_heads, fit_scaled)
    )  # fmt: skip
    np.testing.assert_allclose(scaled.scores, plain.scores, atol=1e-9)
    assert scaled.folds[0].ensemble.scores.std() == pytest.approx(100 * plain.folds[0].ensemble.scores.std())


@pytest.mark.parametrize(
    ("kind", "target", "tolerance"),
    [
        ("rfs", with_families(RFS, [FEW]), 0.048),
        ("hpv", with_families(HPV, [replace(HPV.families[0], settings=HPV.families[0].settings[:1])]), 0.063),
    ],
    ids=["rfs", "hpv"],
)
def test_permuted_outcomes_give_a_half(kind: str, target: Target, tolerance: float) -> None:
    """The mean of six permutations is 0.5 within three standard errors.

    Sixteen nested C-indices of 300 permuted patients had a standard deviation of 0.039, and sixteen balanced accuracies
    with 49 negatives of 0.051. The means of six have 0.016 and 0.021.
    """
    metrics = []
    for seed in range(6):
        rng, cohort = np.random.default_rng(seed), draw_cohort(kind)[0].pick(np.arange(PATIENTS))
        cohort = replace(cohort, outcomes=cohort.outcomes.pick(rng.permutation(PATIENTS)))
        metrics.append(compute_metric(cohort, cross_validate_nested(target, cohort, rng)))
    assert np.mean(np.array(metrics, float)) == pytest.approx(0.5, abs=tolerance)


def test_leaving_centres_out_costs_where_centres_differ_and_not_where_they_do_not() -> None:
    """Centres differ here in the pace of relapse, and each has a shift of another SUV or HU feature.

    Within the centres this feature reveals the centre and so the pace. At an unknown centre it has no meaning.
    """
    few = with_families(RFS, [replace(FEW, settings=RIDGE[1:])])
    misled = with_families(RFS, [replace(FEW, settings=RIDGE[1:], transforms=dict.fromkeys(SHIFTED, "identity"))])
    assert abs(_compute_gap(few, draw_cohort("rfs")[0])) < 0.05
    assert _compute_gap(misled, _shift_centres(draw_cohort("rfs")[0])) > 0.08


def _compute_gap(target: Target, cohort: HeadCohort) -> float:
    """Return C within the centres minus C with whole centres left out."""
    inside = compute_metric(cohort, cross_validate_nested(target, cohort, np.random.default_rng(0)))
    outside = compute_metric(cohort, cross_validate_by_centre(target, cohort, np.random.default_rng(0)))
    assert inside is not None
    assert outside is not None
    return inside - outside


SHIFTED = (
    *("gtvp_suv_max", "gtvp_suv_mean", "gtvp_suv_cv", "gtvp_hu_mean"),
    *("gtvn_suv_max", "gtvn_suv_mean", "gtvn_hu_mean"),
)


def _shift_centres(cohort: HeadCohort) -> HeadCohort:
    codes = sorted(set(cohort.centres))
    assert len(codes) == len(SHIFTED)
    off = dict(zip(codes, SHIFTED, strict=True))
    order = np.random.default_rng(5).permutation(np.linspace(-3, 3, len(codes)))
    pace = dict(zip(codes, order.tolist(), strict=True))
    features = cohort.features.copy()
    for number, code in enumerate(cohort.centres):
        features.loc[number, off[code]] += 40
    days = cohort.outcomes.times_days * np.exp([pace[code] for code in cohort.centres])
    return replace(cohort, features=features, outcomes=Outcomes(cohort.outcomes.values, days))
