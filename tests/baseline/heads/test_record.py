"""`cross_validation.json`: reading what was written, messages of one line for each fault, and the summary."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baseline.fit import heads_are_current
from baseline.heads.cohort import HeadCohort, Outcomes, area_under_curve, balanced_accuracy, c_index
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
from contract.errors import HecktorError, MetricError
from contract.io.files import write_json
from evaluation.statistics.bootstrap import Estimate
from tests.baseline.heads.cohorts import make_head_cohort
from tests.baseline.prepared import HPV, RFS, cross_validation_json
from tests.baseline.report.test_models import make_comparison

RUNS = 4000


def make_content() -> dict[str, Any]:
    patients = [{"id": "A-1", "centre": "A", "hpv": True}, {"id": "B-1", "centre": "B", "hpv": False}]
    nested = {"balanced_accuracy": 1.0, "score": [0.5, -0.5], "positive": [True, False], "probability": [0.6, 0.4]}
    return cross_validation_json({"hpv": {"patients": patients, "nested": nested}}, made_from="digest")


def parse_content(content: dict[str, Any]) -> CrossValidation:
    return parse_document(content, CrossValidation, "cross_validation.json")


def test_what_is_written_is_read_unchanged(tmp_path: Path) -> None:
    work, content = WorkFolders(tmp_path), make_content()
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
    assert parse_content(content).as_json() == content


def test_the_document_of_a_cohort_has_this_form() -> None:
    """All comparators are included; a single centre gives a reason instead of results with centres left out."""
    cohort = make_head_cohort(
        [{"x": float(n)} for n in range(12)], Outcomes(np.arange(12) % 2, classes=("False", "True"))
    )
    document = cross_validate_targets([(HPV, cohort)], 0, {"rfs": "no outcome"})
    assert parse_content(document.as_json()) == document
    assert [document.targets["hpv"].kinds[kind].why_not is None for kind in KINDS] == [True, False]


def test_heads_of_another_version_are_fitted_again(tmp_path: Path) -> None:
    """Version 3 had other keys; a damaged document of this version is refused."""
    work = WorkFolders(tmp_path)
    assert load_cross_validation(work) is None
    write_json(work.cross_validation_json, {"format_version": 3, "seed": 0, "floor": {"rfs": 0.5}})
    assert (load_cross_validation(work), heads_are_current(work)) == (None, False)
    write_json(work.cross_validation_json, make_content() | {"floor": {}})
    with pytest.raises(HecktorError, match=r"^cross_validation\.json\.floor\.metric: found nothing"):
        load_cross_validation(work)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(no_heads={}), r"\.no_heads\.metric: found nothing, expected this key"),
        (lambda d: d["hpv"]["nested"].pop("folds"), r"\.hpv\.nested: found an object, expected either why_not, or "),
    ],
    ids=["unknown target", "incomplete"],
)  # fmt: skip
def test_a_fault_is_named_by_its_place(change: Callable[[dict[str, Any]], object], message: str) -> None:
    content = make_content()
    change(content)
    with pytest.raises(HecktorError, match=r"^cross_validation\.json" + message):
        parse_content(content)


FAMILIES = tuple(Family(name, fit_cox, ({"penalty": 0.1},), {name: "identity"}) for name in ("x", "y"))


@pytest.fixture(scope="module")
def target() -> Target:
    return replace(with_families(RFS, FAMILIES), comparators={})


@pytest.fixture(scope="module")
def cohort() -> HeadCohort:
    """Return a cohort with two features that drive the hazard."""
    rng = np.random.default_rng(1)
    values = rng.normal(size=(80, 2))
    time, censored = rng.exponential(1000 / np.exp(values.sum(1))), rng.exponential(1500, 80)
    rows = [{"x": float(a), "y": float(b)} for a, b in values]
    outcomes = Outcomes((time <= censored).astype(int), np.minimum(time, censored))
    return make_head_cohort(rows, outcomes, "AB" * 40)


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
    assert [expert["name"] for expert in fold["experts"]] == ["x", "y"]
    assert set(fold["coefficients"]) == {"x", "y"}
    manifest = document.to_manifest()["rfs"]
    assert manifest["nested"] == {name: record["nested"][name] for name in ("c_index", "by_centre")}


@pytest.mark.slow
def test_processes_change_nothing(target: Target, cohort: HeadCohort) -> None:
    few = cohort.pick(np.arange(24))
    assert cross_validate_targets([(target, few)], 3, {}, jobs=2) == cross_validate_targets([(target, few)], 3, {})


def test_intervals_by_hand() -> None:
    """Values of 0.5, 0.6 and 0.7 have the mean 0.6, s = 0.1, and t = 4.30265 with two degrees of freedom.

    The half width is 4.30265 x 0.1 / sqrt(3) = 0.24841 for the mean, and 4.30265 x 0.1 x sqrt(2 / 3) = 0.35131 for three
    new centres.
    """
    estimate = estimate_new_centres([0.5, None, 0.6, 0.7], 3)
    assert (estimate.value, estimate.centres, estimate.new_centres) == (pytest.approx(0.6), 3, 3)
    assert (estimate.ci95_low, estimate.ci95_high) == pytest.approx((0.35159, 0.84841), abs=1e-5)
    assert (estimate.test_low, estimate.test_high) == pytest.approx((0.24869, 0.95131), abs=1e-5)


def test_few_centres_and_an_unknown_number() -> None:
    """A single centre and an unknown number of new centres give no interval; NaN counts as undefined."""
    assert estimate_new_centres([0.7, math.nan], 3).ci95_low is None
    assert estimate_new_centres([None, math.nan]).value is None
    unknown = estimate_new_centres([0.6, 0.7])
    assert unknown.ci95_low is not None
    assert unknown.test_low is None
    assert estimate_new_centres([0.2, 0.9], 1).test_high == 1.0


def compute_coverage(
    effect_sd: float, patients_sd: float, mean: float, centres: int = 7, new: int = 3
) -> tuple[float, float]:
    """Return how often the intervals contain the mean of all new centres, and the mean of a single test set."""
    rng = np.random.default_rng(1)
    sd = math.hypot(effect_sd, patients_sd)
    trained, tested = rng.normal(mean, sd, (RUNS, centres)), rng.normal(mean, sd, (RUNS, new)).mean(1)
    estimates = [estimate_new_centres(values, new) for values in trained.tolist()]
    has_mean = [estimate.ci95_low <= mean <= estimate.ci95_high for estimate in estimates]
    has_test = [
        estimate.test_low <= value <= estimate.test_high for estimate, value in zip(estimates, tested, strict=True)
    ]
    return float(np.mean(has_mean)), float(np.mean(has_test))


@pytest.mark.parametrize(
    ("effect_sd", "mean"), [(0.05, 0.65), (0.0, 0.65), (0.0, 0.5)], ids=["effects", "none", "null"]
)
def test_coverage(effect_sd: float, mean: float) -> None:
    """Coverage is 95% with effects that vary over centres, without them, and under the null.

    The standard error of 4,000 runs is 0.0034, and the test allows four standard errors.
    """
    for share in compute_coverage(effect_sd, 0.05, mean):
        assert share == pytest.approx(0.95, abs=0.014)


def test_the_number_of_new_centres_is_declared_with_its_source() -> None:
    for name, count in (("hecktor2020", 1), ("hecktor2021", 1), ("hecktor2025", 3), ("hecktor2026", 3)):
        declared = load_edition(name).new_test_centres
        assert declared is not None
        assert (declared.count, bool(declared.source)) == (count, True)
    assert load_edition("hecktor2022").new_test_centres is None
    assert load_edition("hntsmrg2024").new_test_centres is None


def test_heads_are_rarely_called_better_under_the_null() -> None:
    """At most 2.5% of runs may call heads better than two comparators of equal skill.

    Besides the patients, whose error the interval includes, the training changes each difference by half as much. The
    nested interval would call heads better than a comparator in 3.4% of runs (its z has the variance 1.25), and better
    than one of two in 6 to 7%. Leave-one-centre-out has a correlation of 0.7, as it shares training and patients.
    """
    rng = np.random.default_rng(3)
    runs, called_better, nested_better = 2000, 0, 0
    half = 1.96 * 0.03
    for _ in range(runs):
        estimates = []
        for _ in range(2):
            nested, independent = rng.normal(0, 0.03 * math.sqrt(1.25), 2)
            outside = 0.7 * nested + math.sqrt(1 - 0.7**2) * independent
            estimates.append([Estimate(value, value - half, value + half) for value in (nested, outside)])
        (clinical, clinical_outside), (volume, volume_outside) = estimates
        nested_better += max(clinical.ci95_low, volume.ci95_low) > 0
        (target,) = make_comparison(clinical=clinical, tumour_volume=volume)
        for name, outside in (("clinical", clinical_outside), ("tumour_volume", volume_outside)):
            target.models[name]["behind_outside"] = outside
        called_better += "better than" in describe_benefit_of_images([target]).replace(
            "not shown to be better than", ""
        )
    assert nested_better / runs > 0.05
    assert called_better / runs <= 0.025


# Metrics of the evaluation on cohorts of the heads


def test_the_c_index_by_hand() -> None:
    """Events are at 1 and 3, censorings at 2 and 4. Comparable pairs are (1, 2), (1, 3), (1, 4) and (3, 4).

    Risks of 4, 3, 1 and 2 order three of these four pairs correctly.
    """
    days = np.array([1.0, 2, 3, 4])
    outcomes = Outcomes(np.array([1, 0, 1, 0]), days)
    assert c_index(outcomes, np.array([4.0, 3, 1, 2])) == 0.75
    assert c_index(outcomes, np.zeros(4)) == 0.5
    with pytest.raises(MetricError, match=r"^C-index: no comparable pair among 4 patients"):
        c_index(Outcomes(np.zeros(4, int), days), np.zeros(4))


def test_the_area_under_the_curve_by_hand() -> None:
    """Positives score 3 and 1, negatives 2 and 1: two pairs are right, one is wrong, one is tied."""
    assert area_under_curve(Outcomes(np.array([1, 1, 0, 0])), np.array([3.0, 1, 2, 1])) == pytest.approx(2.5 / 4)
    with pytest.raises(MetricError, match="0 of 2 positive"):
        area_under_curve(Outcomes(np.zeros(2, int)), np.zeros(2))


def test_balanced_accuracy_by_hand() -> None:
    """Two of three positives and one of two negatives are right: (2/3 + 1/2) / 2."""
    outcomes = Outcomes(np.array([1, 1, 1, 0, 0]))
    answers = np.array([True, True, False, True, False])
    assert balanced_accuracy(outcomes, answers) == pytest.approx(7 / 12)
    assert np.isnan(balanced_accuracy(outcomes.pick(np.arange(3)), answers[:3]))
