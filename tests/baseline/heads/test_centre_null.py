"""Heads do not predict at an unknown centre if images reveal only the centre and centres differ in prevalence."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from baseline.heads.cohort import HeadCohort, Outcomes
from baseline.heads.cross_validation import cross_validate
from baseline.heads.models.classes import fit_multinomial
from baseline.heads.models.custom import CustomHeads, with_custom_heads
from baseline.heads.models.risk import fit_cox
from baseline.heads.models.selection import Family, make_stratified_folds
from baseline.heads.models.targets import Target, make_targets, with_custom_features, with_families
from baseline.heads.models.terms import use_unchanged
from contract.code import Code
from contract.editions import load_edition
from tests.baseline.heads.cohorts import make_head_cohort
from tests.baseline.heads.custom_code import write_custom_head
from tests.baseline.prepared import RFS

FITTED_FEATURE: Final = "their_code:prevalence"
CENTRES, CENTRE_SIZE, SEEDS = 5, 20, 16
CODES: Final = np.repeat(np.arange(CENTRES), CENTRE_SIZE)
RIDGE: Final = ({"penalty": 0.1},)
PLAIN: Final = with_families(RFS, [Family("Cox", fit_cox, RIDGE, use_unchanged(("x",)))])
_, N_STAGE, _ = make_targets(load_edition("hecktor2026"))


def draw_patients(seed: int) -> tuple[np.ndarray, list[dict[str, float | None]], np.random.Generator]:
    """Draw outcomes with a share of 0.3 to 0.7 at each centre, and x, which is a value of the centre with a little noise."""
    rng = np.random.default_rng(seed)
    shares = rng.permutation([0.3, 0.4, 0.5, 0.6, 0.7])
    positive = np.concatenate([rng.permutation(CENTRE_SIZE) < round(CENTRE_SIZE * share) for share in shares])
    images = rng.permutation(CENTRES)[CODES] + rng.normal(0, 0.05, len(CODES))
    return positive.astype(np.int64), [{"x": float(x)} for x in images], rng


def make_relapse_cohort(seed: int) -> HeadCohort:
    """Return relapses on day 100 and censorings on day 200, so that the C-index is the area under the curve.

    The fitted feature is measured over balanced folds, as by a `fit` hook. It is the share of relapses among the
    training patients with the most similar images, who are the patients of the same centre.
    """
    events, rows, rng = draw_patients(seed)
    cohort = make_head_cohort(
        rows, Outcomes(events, np.where(events == 1, 100.0, 200.0)), ["ABCDE"[code] for code in CODES]
    )
    values, images = np.zeros(len(CODES)), cohort.values(("x",))[:, 0]
    for held_out in make_stratified_folds(cohort, events.tolist(), 5, rng):
        train = np.setdiff1d(np.arange(len(CODES)), held_out)
        for number in held_out:
            near = np.argsort(np.abs(images[train] - images[number]))[: round(0.7 * CENTRE_SIZE)]
            values[number] = events[train[near]].mean()
    cohort.features[FITTED_FEATURE] = values
    return cohort


def compute_left_out_metric(target: Target, cohort: HeadCohort) -> float:
    scored = cross_validate(replace(target, comparators={}), cohort, "leave_one_centre_out", 0)
    return float(scored.get_metric(target.metric))


@pytest.mark.parametrize("model", ["plain features", "fitted features", "custom head"])
def test_relapses_at_a_centre_that_is_left_out_are_not_predicted(tmp_path: Path, model: str) -> None:
    """Heads have a C-index of 0.5 within three standard errors.

    A score that is constant in each centre, with rank r of the centre among the five, has C = 0.5 + sum(p (2r - 6)) /
    (2 sum(p) sum(1 - p)) with the shares p. For a random order the sum has the variance sum((p - 0.5)^2) sum((2r -
    6)^2) / 4 = 0.1 x 40 / 4 = 1, so that C has the standard deviation 1 / (2 x 2.5 x 2.5) = 0.08. Up to 0.11 was
    observed, because the five heads share patients. The mean of 16 cohorts has 0.027. In the order of the shares the sum
    is 2 and C is 0.66, which features that know the centre approach.
    """
    target = with_custom_features(PLAIN, [FITTED_FEATURE], [FITTED_FEATURE])
    if model == "plain features":
        target = PLAIN
    elif model == "fitted features":
        target = with_families(target, target.families[1:])
    else:
        seen = f'features.get("{FITTED_FEATURE}", features["x"]).to_numpy()'
        code = Code.from_folders(
            [write_custom_head(tmp_path, ('np.abs(features["x"].to_numpy())', seen), name="knowing_code")]
        )
        target = with_families(target, with_custom_heads(PLAIN, CustomHeads(code, ("knowing_code:Head",))).families[1:])
    metrics = [compute_left_out_metric(target, make_relapse_cohort(seed)) for seed in range(SEEDS)]
    assert np.mean(metrics) == pytest.approx(0.5, abs=0.08)


@pytest.mark.slow
def test_masks_that_reveal_the_centre_decide_no_better_than_chance() -> None:
    """Balanced accuracy of N0 to N3 is 0.25 within three standard errors.

    Masks of two of the five centres lack nodes, for each pair of centres once: N0 is predicted there and nowhere else.
    Both centres together have the share s of all N0, 0.4 on average. N1 to N3 are then possible for 0.2 + s of their
    patients, and a guess is right for a third of these patients: the metric is (s + 3 (0.2 + s) / 3) / 4, on average
    0.25. A guess for three centres gains or loses the excess of that stage at the centres, 0.09 of the stage's 17
    patients each. The standard deviation is 3^0.5 x 0.09 / 4 = 0.04, and 0.012 for the mean of 10.
    """
    metrics = []
    for seed, places in enumerate(combinations(range(CENTRES), 2)):
        is_n0, rows, rng = draw_patients(seed)
        stages = np.where(is_n0 == 1, 0, rng.integers(1, 4, len(CODES)))
        by_share = np.argsort(np.bincount(CODES, is_n0))
        decided = np.isin(CODES, by_share[list(places)])
        possible = np.where(np.arange(4) == 0, decided[:, None], ~decided[:, None])
        outcomes = Outcomes(stages, classes=tuple(map(str, N_STAGE.answer.classes)))
        cohort = make_head_cohort(rows, outcomes, ["ABCDE"[code] for code in CODES], possible)
        family = Family("multinomial", fit_multinomial, RIDGE, use_unchanged(("x",)))
        metrics.append(compute_left_out_metric(with_families(N_STAGE, [family]), cohort))
    assert np.mean(metrics) == pytest.approx(0.25, abs=0.037)
