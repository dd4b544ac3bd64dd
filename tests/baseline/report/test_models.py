"""Figures of the heads, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from baseline.report.models import BEHIND, GAP, best_of_random, coefficients, estimate_models, high_risk
from evaluation.studies.chance import random_balanced_accuracy, random_c_index
from tests.baseline.prepared import HPV, RFS
from tests.baseline.report.records import PATIENTS, PERFECT, hpv_record, rfs_record
from tests.conftest import head_json


def test_the_best_of_k_random_risks_on_two_patients() -> None:
    """One comparable pair: C is 0 or 1, each by half. Of k, the best is 1 but for one in 2^k: 1 - 0.5^k.

    2,000 draws tell a half with a standard error of 0.011; four of these, times the slope k 0.5^(k-1), are allowed.
    """
    chance = best_of_random(random_c_index(np.array([1.0, 2.0]), np.array([True, False])), np.random.default_rng(0))
    assert chance.sd == pytest.approx(0.5, abs=0.001)
    assert chance.best_of[1] == pytest.approx(0.5, abs=0.045)
    assert chance.best_of[5] == pytest.approx(1 - 0.5**5, abs=0.045 * 5 * 0.5**4)
    assert chance.best_of[100] == pytest.approx(1, abs=1e-6)


def test_the_best_of_k_grows_as_for_a_normal_distribution() -> None:
    """300 patients: C is near normal, and the expected highest of 5, 20 and 100 normal draws lies 1.163, 1.867 and 2.508
    standard deviations above the mean (published tables of order statistics)."""
    rng = np.random.default_rng(1)
    days, relapse = rng.permutation(300) + 1.0, rng.random(300) < 0.3
    chance = best_of_random(random_c_index(days, relapse), rng, draws=4000)
    assert chance.best_of[1] == pytest.approx(0.5, abs=4 * chance.sd / math.sqrt(4000))
    for k, deviations in ((5, 1.163), (20, 1.867), (100, 2.508)):
        assert (chance.best_of[k] - chance.best_of[1]) / chance.sd == pytest.approx(deviations, rel=0.06)


def test_the_best_of_k_coins_by_hand() -> None:
    """One patient of either HPV status: the balanced accuracy of a coin is 0, 1/2 or 1 with 1/4, 1/2 and 1/4.

    The best of 5 is below 1 with (3/4)^5 and below 1/2 with (1/4)^5, so it is expected at
    1 - ((3/4)^5 + (1/4)^5) / 2 = 0.88086. Four standard errors (0.0079 of a share of 1/4) times the slope 5 (3/4)^4 / 2.
    """
    scores = random_balanced_accuracy(np.array([True, False]))
    chance = best_of_random(scores, np.random.default_rng(0), draws=3000)
    assert chance.sd == pytest.approx(math.sqrt(1 / 8), abs=0.01)
    assert chance.best_of[5] == pytest.approx(0.88086, abs=4 * 0.0079 * 5 * 0.75**4 / 2)


def test_both_kinds_side_by_side() -> None:
    """The perfect risk inside, none outside: C 1 and 0.5, whatever patients are drawn; the volume is always 0.5."""
    heads, volume = estimate_models(RFS, rfs_record(PERFECT, np.zeros(PATIENTS)), bootstraps=50, seed=0)
    exactly = {"nested": 1.0, "leave_one_centre_out": 0.5, GAP: 0.5}
    for model, expected in (
        (heads, exactly),
        (volume, {"nested": 0.5, "leave_one_centre_out": 0.5, GAP: 0, BEHIND: 0.5}),
    ):
        assert {what: found.value for what, found in model.estimates.items()} == pytest.approx(expected)
        for what, found in model.estimates.items():
            assert (found.ci95_low, found.ci95_high) == pytest.approx((expected[what], expected[what]))
    (hpv,) = estimate_models(HPV, hpv_record(), bootstraps=50, seed=0)
    assert {what: found.value for what, found in hpv.estimates.items()} == pytest.approx(exactly)


def test_a_kind_that_was_not_possible_is_absent() -> None:
    record = rfs_record(PERFECT, PERFECT) | {"leave_one_centre_out": {"why_not": "rfs: 1 centre"}}
    heads, volume = estimate_models(RFS, record, bootstraps=10, seed=0)
    assert set(heads.estimates) == {"nested"}
    assert set(volume.estimates) == {"nested", BEHIND}
    both = {kind: {"why_not": "rfs: no relapse"} for kind in ("nested", "leave_one_centre_out")}
    assert estimate_models(RFS, record | both, bootstraps=10, seed=0) == []


def test_risk_groups_are_dealt_within_each_outer_fold() -> None:
    """The second fold's scores are on another scale: its lower half stays the lower one."""
    kind = {"score": [1, 2, 3, 4, 101, 102, 103, 104], "fold_of_patient": [0] * 4 + [1] * 4}
    assert high_risk(kind).tolist() == [False, False, True, True] * 2


def test_steadiness_of_coefficients() -> None:
    head = head_json(("volume", 0.5), ("age", -0.1))
    folds = [{"coefficients": {"volume": 0.4, "age": 0.2}}, {"coefficients": {"volume": 0.6, "noise": -1.2}}]
    noise, volume, age = coefficients(head, folds)
    assert (noise.feature, noise.shipped, noise.folds, noise.used_in, noise.same_sign) == (
        "noise",
        None,
        (0.0, -1.2),
        1,
        1,
    )
    assert (volume.feature, volume.used_in, volume.same_sign) == ("volume", 2, 2)
    assert (age.feature, age.folds, age.used_in, age.same_sign) == ("age", (0.2, 0.0), 1, 0)
    assert [one.folds for one in coefficients(head, [])] == [(), ()]


def test_a_head_of_classes_shows_the_change_from_class_to_class() -> None:
    """Weights 0.1, 0.4 and 1.3: the slope over -1, 0 and 1 is 0.6."""
    head = {"classes": {f"T{n}": head_json(("volume", weight)) for n, weight in enumerate((0.1, 0.4, 1.3), start=1)}}
    (volume,) = coefficients(head, [{"coefficients": {"volume": 0.5}}])
    assert volume.shipped == pytest.approx(0.6)
    assert (volume.folds, volume.same_sign) == ((0.5,), 1)
