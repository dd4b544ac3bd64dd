"""Where images reveal only the centre, and centres differ in prevalence, nothing is known of a centre that is left out."""

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
from tests.baseline.heads.cohorts import head_cohort
from tests.baseline.heads.custom_code import custom_head
from tests.baseline.prepared import RFS

FITTED: Final = "their_code:prevalence"
CENTRES, EACH, SEEDS = 5, 20, 16
CODES: Final = np.repeat(np.arange(CENTRES), EACH)
RIDGE: Final = ({"penalty": 0.1},)
PLAIN: Final = with_families(RFS, [Family("Cox", fit_cox, RIDGE, use_unchanged(("x",)))])
_, N_STAGE, _ = make_targets(load_edition("hecktor2026"))


def draw(seed: int) -> tuple[np.ndarray, list[dict[str, float | None]], np.random.Generator]:
    """0.3 to 0.7 of the patients of each centre have the outcome; x is the centre's, with a little noise."""
    rng = np.random.default_rng(seed)
    shares = rng.permutation([0.3, 0.4, 0.5, 0.6, 0.7])
    positive = np.concatenate([rng.permutation(EACH) < round(EACH * share) for share in shares])
    images = rng.permutation(CENTRES)[CODES] + rng.normal(0, 0.05, len(CODES))
    return positive.astype(np.int64), [{"x": float(x)} for x in images], rng


def relapses(seed: int) -> HeadCohort:
    """All relapses on day 100, all others until day 200, so that the C-index is the area under the curve.

    The fitted feature is measured over balanced folds as by a `fit` hook: the share of relapses among the training
    patients with the most similar images, those of the centre.
    """
    events, rows, rng = draw(seed)
    cohort = head_cohort(rows, Outcomes(events, np.where(events == 1, 100.0, 200.0)), ["ABCDE"[one] for one in CODES])
    values, images = np.zeros(len(CODES)), cohort.values(("x",))[:, 0]
    for held_out in make_stratified_folds(cohort, events.tolist(), 5, rng):
        train = np.setdiff1d(np.arange(len(CODES)), held_out)
        for number in held_out:
            near = np.argsort(np.abs(images[train] - images[number]))[: round(0.7 * EACH)]
            values[number] = events[train[near]].mean()
    cohort.features[FITTED] = values
    return cohort


def left_out_metric(target: Target, cohort: HeadCohort) -> float:
    scored = cross_validate(replace(target, comparators={}), cohort, "leave_one_centre_out", 0)
    return float(scored.get_metric(target.metric))


@pytest.mark.parametrize("model", ["plain features", "fitted features", "a head of one's own"])
def test_nothing_is_known_of_a_centre_that_is_left_out(tmp_path: Path, model: str) -> None:
    """The C-index is 0.5 within three standard errors.

    A score that is constant in each centre, with rank r of the centre among the five, has C = 0.5 + sum(p (2r - 6)) /
    (2 sum(p) sum(1 - p)) with the shares p. For a random order the sum has the variance sum((p - 0.5)^2) sum((2r -
    6)^2) / 4 = 0.1 x 40 / 4 = 1, so that C has the standard deviation 1 / (2 x 2.5 x 2.5) = 0.08; 0.11 at most is seen,
    as the five heads share patients. The mean of 16 has 0.027. In the order of the shares the sum is 2 and C 0.66,
    which features that know the centre approach.
    """
    target = with_custom_features(PLAIN, [FITTED], [FITTED])
    if model == "plain features":
        target = PLAIN
    elif model == "fitted features":
        target = with_families(target, target.families[1:])
    else:
        seen = f'features.get("{FITTED}", features["x"]).to_numpy()'
        code = Code.from_folders(
            [custom_head(tmp_path, ('np.abs(features["x"].to_numpy())', seen), name="knowing_code")]
        )
        target = with_families(target, with_custom_heads(PLAIN, CustomHeads(code, ("knowing_code:Head",))).families[1:])
    found = [left_out_metric(target, relapses(seed)) for seed in range(SEEDS)]
    assert np.mean(found) == pytest.approx(0.5, abs=0.08)


@pytest.mark.slow
def test_masks_that_reveal_the_centre_decide_no_better_than_chance() -> None:
    """Balanced accuracy of N0 to N3 is 0.25 within three standard errors.

    Masks of two centres lack nodes, of each two of the five once: N0 is given there, and nowhere else. These two have
    the share s of all N0, on average 0.4, so that N1 to N3 are possible for 0.2 + s of their patients, a third of whom a
    guess hits: the metric is (s + 3 (0.2 + s) / 3) / 4, on average 0.25. A guess for three centres gains or loses the
    centres' excess of that stage, 0.09 of the stage's 17 patients each: 3^0.5 x 0.09 / 4 = 0.04, and in the mean of 10
    0.012.
    """
    found = []
    for seed, places in enumerate(combinations(range(CENTRES), 2)):
        is_n0, rows, rng = draw(seed)
        stages = np.where(is_n0 == 1, 0, rng.integers(1, 4, len(CODES)))
        by_share = np.argsort(np.bincount(CODES, is_n0))
        decided = np.isin(CODES, by_share[list(places)])
        possible = np.where(np.arange(4) == 0, decided[:, None], ~decided[:, None])
        outcomes = Outcomes(stages, classes=tuple(map(str, N_STAGE.answer.classes)))
        cohort = head_cohort(rows, outcomes, ["ABCDE"[one] for one in CODES], possible)
        family = Family("multinomial", fit_multinomial, RIDGE, use_unchanged(("x",)))
        found.append(left_out_metric(with_families(N_STAGE, [family]), cohort))
    assert np.mean(found) == pytest.approx(0.25, abs=0.037)
