"""`cross_validation.json`: what is written is read unchanged, each fault is one line, and what the summary shows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baseline.fit import heads_are_current
from baseline.heads.cohort import HeadCohort, Outcomes
from baseline.heads.cross_validation import cross_validate_targets
from baseline.heads.models.risk import fit_cox
from baseline.heads.models.selection import Family
from baseline.heads.models.targets import Target, with_families
from baseline.heads.record import (
    KINDS,
    CrossValidation,
    estimate_new_centres,
    load_cross_validation,
    read_cross_validation,
    summarise_heads,
)
from baseline.report.models import describe_benefit_of_images
from baseline.work import WorkFolders
from contract.documents import parse_document
from contract.editions import load_edition
from contract.errors import HecktorError
from contract.io.files import write_json
from evaluation.statistics.bootstrap import Estimate
from tests.baseline.heads.cohorts import head_cohort
from tests.baseline.prepared import HPV, RFS, cross_validation_json
from tests.baseline.report.test_models import make_comparison

RUNS = 4000


def written() -> dict[str, Any]:
    patients = [{"id": "A-1", "centre": "A", "hpv": True}, {"id": "B-1", "centre": "B", "hpv": False}]
    nested = {"balanced_accuracy": 1.0, "score": [0.5, -0.5], "positive": [True, False], "probability": [0.6, 0.4]}
    return cross_validation_json({"hpv": {"patients": patients, "nested": nested}}, made_from="digest")


def parsed(content: dict[str, Any]) -> CrossValidation:
    return parse_document(content, CrossValidation, "cross_validation.json")


def test_what_is_written_is_read_unchanged(tmp_path: Path) -> None:
    work, content = WorkFolders(tmp_path), written()
    write_json(work.cross_validation_json, content)
    document = read_cross_validation(work)
    assert document.as_json() == content
    assert list(document.targets) == ["hpv"]
    assert (document.seed, document.made_from, document.custom) == (0, "digest", {})


def test_more_than_two_classes_have_a_score_each() -> None:
    stages = {"score": [[0.5, -0.5, -1.0, -1.0], [0.0, 1.0, -1.0, -1.0]], "class": ["T1", "T2"]}
    stages |= {"recall": {"T1": 1.0, "T3": None}, "confusion": [[1, 0], [0, 1]], "balanced_accuracy": None}
    patients = [{"t_stage": "T1"}, {"t_stage": "T2"}]
    content = cross_validation_json({"t_stage": {"patients": patients, "nested": stages}})
    assert parsed(content).as_json() == content


def test_the_document_of_a_cohort_has_this_form() -> None:
    """With all its comparators; one centre gives a reason in place of the other kind."""
    cohort = head_cohort([{"x": float(n)} for n in range(12)], Outcomes(np.arange(12) % 2, classes=("False", "True")))
    document = cross_validate_targets([(HPV, cohort)], 0, {"rfs": "no outcome"})
    assert parsed(document.as_json()) == document
    assert [document.targets["hpv"].kinds[kind].why_not is None for kind in KINDS] == [True, False]


def test_those_of_another_version_are_fitted_again(tmp_path: Path) -> None:
    """Version 3 had other keys; a damaged document of this version is refused."""
    work = WorkFolders(tmp_path)
    assert load_cross_validation(work) is None
    write_json(work.cross_validation_json, {"format_version": 3, "seed": 0, "floor": {"rfs": 0.5}})
    assert (load_cross_validation(work), heads_are_current(work)) == (None, False)
    write_json(work.cross_validation_json, written() | {"floor": {}})
    with pytest.raises(HecktorError, match=r"^cross_validation\.json\.floor\.metric: found nothing"):
        load_cross_validation(work)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(no_heads={}), r"\.no_heads\.metric: found nothing, expected this key"),
        (lambda d: d.pop("seed"), r"\.seed: found nothing, expected this key"),
        (lambda d: d["hpv"]["nested"].update(scores=[]), r"\.hpv\.nested\.scores: found \[\], expected no such key"),
        (lambda d: d["hpv"]["nested"].update(score=["high"]), r'\.hpv\.nested\.score\[0\]: found "high", expected a number'),
        (lambda d: d["hpv"]["nested"].pop("folds"), r"\.hpv\.nested: found an object, expected either why_not, or "),
        (lambda d: d["hpv"]["patients"][1].pop("id"), r"\.hpv\.patients\[1\]\.id: found nothing, expected this key"),
    ],
    ids=["unknown target", "no seed", "unknown key", "text for a number", "incomplete", "patient without ID"],
)  # fmt: skip
def test_a_fault_is_named_by_its_place(change: Callable[[dict[str, Any]], object], message: str) -> None:
    content = written()
    change(content)
    with pytest.raises(HecktorError, match=r"^cross_validation\.json" + message):
        parsed(content)


FAMILIES = tuple(Family(name, fit_cox, ({"penalty": 0.1},), {name: "identity"}) for name in ("x", "y"))


@pytest.fixture(scope="module")
def target() -> Target:
    return replace(with_families(RFS, FAMILIES), comparators={})


@pytest.fixture(scope="module")
def cohort() -> HeadCohort:
    """Two drivers of the hazard, each a feature."""
    rng = np.random.default_rng(1)
    values = rng.normal(size=(80, 2))
    time, censored = rng.exponential(1000 / np.exp(values.sum(1))), rng.exponential(1500, 80)
    rows = [{"x": float(a), "y": float(b)} for a, b in values]
    outcomes = Outcomes((time <= censored).astype(int), np.minimum(time, censored))
    return head_cohort(rows, outcomes, "AB" * 40)


def test_both_kinds_are_recorded_and_shown(target: Target, cohort: HeadCohort) -> None:
    document = cross_validate_targets([(target, cohort)], 3, {"hpv": "too few"})
    record = document.as_json()["rfs"]
    lines = summarise_heads({}, document, [target]).splitlines()
    assert lines[0] == "hpv: no head (too few)"
    assert lines[1:] == [
        f"rfs, {kind.replace('_', ' ')}: c_index {record[kind]['c_index']:.3f}"
        for kind in ("nested", "leave_one_centre_out")
    ]
    fold = record["nested"]["folds"][0]
    assert [one["name"] for one in fold["experts"]] == ["x", "y"]
    assert set(fold["coefficients"]) == {"x", "y"}
    kept = document.to_manifest()["rfs"]
    assert kept["nested"] == {name: record["nested"][name] for name in ("c_index", "by_centre")}


@pytest.mark.slow
def test_processes_change_nothing(target: Target, cohort: HeadCohort) -> None:
    few = cohort.pick(np.arange(24))
    assert cross_validate_targets([(target, few)], 3, {}, jobs=2) == cross_validate_targets([(target, few)], 3, {})


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
        (target,) = make_comparison(clinical=clinical, tumour_volume=volume)
        for name, outside in (("clinical", clinical_outside), ("tumour_volume", volume_outside)):
            target.models[name]["behind_outside"] = outside
        said += "better than" in describe_benefit_of_images([target]).replace("not shown to be better than", "")
    assert alone / runs > 0.05
    assert said / runs <= 0.025
