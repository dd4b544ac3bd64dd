"""The training report: figures by hand, and a page that shows them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from baseline.heads.models.targets import targets_of
from baseline.report import page
from baseline.report.figures import wilson_interval
from baseline.report.models import BEHIND, GAP, best_of_random, coefficients, estimate_models, high_risk
from baseline.report.sections import segmentation_section, target_section
from baseline.report.segmentation import mean_dsc
from contract.editions import load_edition
from evaluation.studies.chance import random_balanced_accuracy, random_c_index
from tests.baseline.prepared import HPV, RFS
from tests.conftest import head_json

PATIENTS = 60


def answers(scores: np.ndarray, **more: Any) -> dict[str, Any]:
    """One model's answers as `cross_validation.json` has them."""
    return {"score": scores.tolist(), **more}


def rfs_record(inside: np.ndarray, outside: np.ndarray) -> dict[str, Any]:
    """Everyone relapses, patient 0 first: a score of -n is the perfect risk."""
    rows = [{"id": f"P{n}", "centre": "AB"[n % 2], "rfs_days": 10.0 + n, "relapse": True} for n in range(PATIENTS)]
    fold = {"coefficients": {"total_volume_ml": 0.5}}
    record: dict[str, Any] = {"metric": "c_index", "patients": rows}
    for kind, scores in (("nested", inside), ("leave_one_centre_out", outside)):
        rivals = {"tumour_volume": answers(np.zeros(PATIENTS))}
        by_centre = {"A": 1.0, "B": 0.9} if kind == "nested" else {"A": 0.5, "B": None}
        folds: dict[str, Any] = {"by_centre": by_centre} | {
            "fold_of_patient": [n % 2 for n in range(PATIENTS)],
            "folds": [fold, fold],
            "comparators": rivals,
        }
        record[kind] = answers(scores, **folds)
    return record


PERFECT = -np.arange(PATIENTS, dtype=float)


def hpv_record() -> dict[str, Any]:
    """Every third is negative; the heads answer everyone right inside, and positive for everyone with centres left out."""
    told = [n % 3 > 0 for n in range(PATIENTS)]
    record: dict[str, Any] = {
        "metric": "balanced_accuracy",
        "patients": [{"id": f"P{n}", "centre": "A", "hpv": told[n]} for n in range(PATIENTS)],
    }
    for kind, positive in (("nested", told), ("leave_one_centre_out", [True] * PATIENTS)):
        probability = [0.9 if flag else 0.1 for flag in positive]
        record[kind] = {
            "score": probability, "positive": positive, "probability": probability, "fold_of_patient": [0] * PATIENTS,
            "by_centre": {"A": 0.5}, "folds": [{"coefficients": {}}], "comparators": {},
        }  # fmt: skip
    return record


# Figures


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


def test_wilsons_interval_by_hand() -> None:
    """5 of 10, z 1.96: centre 0.5; half width 1.96 / (1 + 0.38415) x sqrt(0.025 + 0.0096037) = 0.26340."""
    assert wilson_interval(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    low, high = wilson_interval(1.0, 3)
    assert (low, high) == pytest.approx((3 / (3 + 1.959964**2), 1.0))


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
    content, _ = target_section(RFS, record, None, bootstraps=10, seed=0)
    assert "No leave one centre out: rfs: 1 centre." in content
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


def test_the_worst_case_has_the_lowest_mean_of_both_structures() -> None:
    """GTVp 2 x 30 / 100; GTVn is in neither mask, or invented: DSC 0."""
    row = {"gtvp_intersection_voxels": 30, "gtvp_reference_voxels": 60, "gtvp_predicted_voxels": 40}
    none = dict.fromkeys(("gtvn_intersection_voxels", "gtvn_reference_voxels", "gtvn_predicted_voxels"), 0)
    assert mean_dsc(row | none) == pytest.approx(0.6)
    assert mean_dsc(row | none | {"gtvn_predicted_voxels": 5}) == pytest.approx(0.3)
    assert mean_dsc(none | dict.fromkeys(row, 0)) is None


# The page


def test_the_sections_show_every_part() -> None:
    head = head_json(("total_volume_ml", 0.5))
    tried = {"Cox, few features": 0.7, "signs, all features": 0.6}
    chosen = {"model": "Cox, few features", "setting": {"penalty": 0.1}, "tried": tried}
    shipped = {"head": head, "metric": "c_index", "out_of_fold": 0.7, **chosen}
    content, plain = target_section(RFS, rfs_record(PERFECT, np.zeros(PATIENTS)), shipped, bootstraps=20, seed=0)
    assert "<tr><td>Cox, few features</td><td>penalty 0.1</td><td>2</td>" in content
    assert '<td>B</td><td>30</td><td><span class="value">0.900</span></td><td>-</td>' in content
    assert content.count("<svg") == 3  # intervals, survival, coefficients
    for text in ("tumour volume alone", "Expected best C-index", "total_volume_ml", "2 of 2"):
        assert text in content
    assert plain["models"]["heads"]["nested"]["value"] == 1
    content, plain = target_section(HPV, hpv_record(), None, bootstraps=20, seed=0)
    assert content.count("<svg") == 2  # intervals, calibration
    assert "area under the curve" in content
    assert plain["probability"]["nested"]["auc"] == 1
    assert plain["probability"]["leave_one_centre_out"]["auc"] == 0.5


def stage_record() -> dict[str, Any]:
    """Thirty patients of T1, fifteen of T2 and of T3, none of T4; T3 is always called T2."""
    truth = ["T1"] * 30 + ["T2"] * 15 + ["T3"] * 15
    given = ["T1"] * 30 + ["T2"] * 30
    scored: dict[str, Any] = {
        "class": given, "recall": {"T1": 1.0, "T2": 1.0, "T3": 0.0, "T4": None},
        "confusion": [[30, 0, 0, 0], [0, 15, 0, 0], [0, 15, 0, 0], [0] * 4],
        "fold_of_patient": [0] * PATIENTS, "by_centre": {"A": 2 / 3}, "folds": [{"coefficients": {}}],
        "comparators": {"most_frequent": {"class": ["T1"] * PATIENTS}, "rule": {"class": truth}},
    }  # fmt: skip
    rows = [{"id": f"P{n}", "centre": "A", "t_stage": stage} for n, stage in enumerate(truth)]
    why = {"why_not": "t_stage: 1 centre, expected at least 2 to leave one out"}
    return {"metric": "balanced_accuracy", "patients": rows, "nested": scored, "leave_one_centre_out": why}


def test_the_section_of_a_class_with_four_values() -> None:
    """Mean recall of the heads 2/3, of the most frequent class 1/3, of the rule 1."""
    target = targets_of(load_edition("hecktor2026"))[0]
    content, plain = target_section(target, stage_record(), None, bootstraps=20, seed=0)
    values = {name: one["nested"]["value"] for name, one in plain["models"].items()}
    assert values == pytest.approx({"heads": 2 / 3, "most_frequent": 1 / 3, "rule": 1.0})
    assert "7th edition&#x27;s rule on the mask" in content
    row = "<tr><td>T3</td><td>15</td><td>0</td><td>15</td><td>0</td><td>0</td>"
    assert row + '<td><span class="value">0.000</span></td></tr>' in content
    assert "<tr><td>T4</td><td>0</td><td>0</td><td>0</td><td>0</td><td>0</td><td>-</td></tr>" in content
    assert plain["by_class"]["nested"]["recall"]["T4"] is None
    assert plain["best_of_random"]["1"] == pytest.approx(0.25, abs=0.01)


def test_a_time_is_explained() -> None:
    target = targets_of(load_edition("hecktor2026"))[2]
    head = head_json(("age_years", 0.1)) | {"survival": {"days": [100.0, 2000.0], "cumulative_hazard": [0.1, 0.5]}}
    shipped = {"head": head, "model": "Cox, few features", "setting": {}, "tried": {}, "out_of_fold": 0.7}
    content, _ = target_section(target, rfs_record(PERFECT, PERFECT), shipped, bootstraps=10, seed=0)
    assert "within 2000 days, the longest follow-up of the training. Higher means later recurrence." in content


def test_a_target_that_nothing_could_be_said_of_still_has_its_section() -> None:
    why = {"why_not": "rfs: 1 training patients with a relapse, expected at least 2"}
    record = rfs_record(PERFECT, PERFECT) | {"nested": why, "leave_one_centre_out": why}
    content, _ = target_section(RFS, record, None, bootstraps=10, seed=0)
    assert "expected at least 2" in content
    assert "No head is shipped for this target." in content
    assert "No feature has a weight." in content
    assert "<svg" not in content


def test_a_release_without_anyones_outcome_still_has_the_section() -> None:
    """As where it holds Task 1 alone: no patients, no head, and the sentence that says so."""
    why = {"why_not": "hpv: 0 training patients of the rarer class, expected at least 3"}
    record = {"metric": "balanced_accuracy", "patients": [], "nested": why, "leave_one_centre_out": why}
    html, plain = target_section(HPV, record, None, 50, 0)
    assert "0 patients." in html
    assert "No nested cross-validation: hpv: 0 training patients of the rarer class" in html
    assert plain["models"] == {}


def test_segmentation_by_centre() -> None:
    found = {"gtvp_dsc_mean": {"value": 0.7, "ci95_low": 0.6, "ci95_high": 0.8}}
    report = {
        "cases": {"used": 12}, "provenance": {"edition": "hecktor2025"}, "aggregates": found,
        "centres": {"CHUM": {"cases": 5, "aggregates": {"gtvp_dsc_mean": {"value": None}}}},
    }  # fmt: skip
    content = segmentation_section(report, {"gtvp_dsc_mean": "GTVp mean DSC"}, without_mask=3)
    assert '0.700</span> <span class="interval">0.600 to 0.800' in content
    assert "<td>CHUM</td><td>5</td><td>-</td>" in content
    assert "3 patients without a reference" in content
    assert "CT's own grid" in content.replace("&#x27;", "'")


def test_the_page_is_one_document_that_runs_nothing() -> None:
    text = page.page("A <title>", "lead", [("one", "First & last", page.paragraph("a < b"))], "footer")
    assert text.startswith("<!doctype html>")
    assert "A &lt;title&gt;" in text
    assert '<a href="#one">First &amp; last</a>' in text
    assert "<script" not in text
    assert "http" not in text.replace("http://www.w3.org", "")
