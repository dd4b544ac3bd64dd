"""Metrics at new centres: by hand, and the coverage of their intervals in simulations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from baseline.heads.new_centres import estimate_new_centres
from baseline.report.models import describe_benefit_of_images
from contract.editions import load_edition
from evaluation.statistics.bootstrap import Estimate
from tests.baseline.report.test_models import compared

RUNS = 4000


def test_intervals_by_hand() -> None:
    """Values 0.5, 0.6 and 0.7: mean 0.6, s = 0.1, t = 4.30265 with two degrees of freedom. The mean's half width is
    4.30265 x 0.1 / sqrt(3) = 0.24841, and that of three new centres 4.30265 x 0.1 x sqrt(2 / 3) = 0.35131."""
    found = estimate_new_centres([0.5, None, 0.6, 0.7], 3)
    assert (found.value, found.centres, found.new_centres) == (pytest.approx(0.6), 3, 3)
    assert (found.ci95_low, found.ci95_high) == pytest.approx((0.35159, 0.84841), abs=1e-5)
    assert (found.test_low, found.test_high) == pytest.approx((0.24869, 0.95131), abs=1e-5)


def test_few_centres_and_an_unknown_number() -> None:
    """One centre has a value without an interval; NaN counts as undefined; no interval for an unknown test set."""
    assert estimate_new_centres([0.7, math.nan], 3).ci95_low is None
    assert estimate_new_centres([None, math.nan]).value is None
    unknown = estimate_new_centres([0.6, 0.7])
    assert unknown.ci95_low is not None
    assert unknown.test_low is None
    assert estimate_new_centres([0.2, 0.9], 1).test_high == 1.0


def coverage(effect_sd: float, patients_sd: float, mean: float, centres: int = 7, new: int = 3) -> tuple[float, float]:
    """Shares of runs in which the intervals hold the mean of all new centres, and the mean of one test set."""
    rng = np.random.default_rng(1)
    sd = math.hypot(effect_sd, patients_sd)
    trained, tested = rng.normal(mean, sd, (RUNS, centres)), rng.normal(mean, sd, (RUNS, new)).mean(1)
    found = [estimate_new_centres(values, new) for values in trained.tolist()]
    of_mean = [one.ci95_low <= mean <= one.ci95_high for one in found]
    of_test = [one.test_low <= value <= one.test_high for one, value in zip(found, tested, strict=True)]
    return float(np.mean(of_mean)), float(np.mean(of_test))


@pytest.mark.parametrize(
    ("effect_sd", "mean"), [(0.05, 0.65), (0.0, 0.65), (0.0, 0.5)], ids=["effects", "none", "null"]
)
def test_coverage(effect_sd: float, mean: float) -> None:
    """Nominal 95%, with effects that vary over centres, without them, and under the null. The standard error of 4,000
    runs is 0.0034; four of them are allowed."""
    for share in coverage(effect_sd, 0.05, mean):
        assert share == pytest.approx(0.95, abs=0.014)


def test_the_number_of_new_centres_is_declared_with_its_source() -> None:
    for name, count in (("hecktor2020", 1), ("hecktor2021", 1), ("hecktor2025", 3), ("hecktor2026", 3)):
        declared = load_edition(name).new_test_centres
        assert declared is not None
        assert (declared.count, bool(declared.source)) == (count, True)
    assert load_edition("hecktor2022").new_test_centres is None
    assert load_edition("hntsmrg2024").new_test_centres is None


def test_better_is_rarely_said_under_the_null() -> None:
    """Heads and two comparators of equal skill. Besides the patients, whose error the interval knows, the training
    moves each difference by half as much: the nested interval alone says "better" in 3.4% for each comparator (its z
    has variance 1.25), and in 6 to 7% for one of two. The same training and patients move leave-one-centre-out,
    correlated by 0.7. At most 2.5% of runs may say it."""
    rng = np.random.default_rng(3)
    runs, said, alone = 2000, 0, 0
    half = 1.96 * 0.03
    for _ in range(runs):
        estimates = []
        for _ in range(2):
            nested, other = rng.normal(0, 0.03 * math.sqrt(1.25), 2)
            outside = 0.7 * nested + math.sqrt(1 - 0.7**2) * other
            estimates.append([Estimate(value, value - half, value + half) for value in (nested, outside)])
        (clinical, clinical_outside), (volume, volume_outside) = estimates
        alone += max(clinical.ci95_low, volume.ci95_low) > 0
        (target,) = compared(clinical=clinical, tumour_volume=volume)
        for name, outside in (("clinical", clinical_outside), ("tumour_volume", volume_outside)):
            target.models[name]["behind_outside"] = outside
        said += "better than" in describe_benefit_of_images([target]).replace("not shown to be better than", "")
    assert alone / runs > 0.05
    assert said / runs <= 0.025
