"""Figures of the heads, computed by hand."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from scipy import stats

from algorithm.heads.documents import read_head
from baseline.heads.cohort import Outcomes, make_weighted_balanced_accuracy
from baseline.heads.models.targets import Target
from baseline.heads.record import KindRecord
from baseline.report.models import (
    BEHIND,
    BEHIND_OUTSIDE,
    GAP,
    NOT_INCLUDED,
    TargetEstimates,
    collect_coefficients,
    describe_benefit_of_images,
    describe_targets_at_new_centres,
    estimate_on_references,
    estimate_target,
    find_high_risk,
)
from evaluation.metrics.overlap import Difference
from evaluation.statistics.bootstrap import Estimate, estimate_unranked
from tests.baseline.prepared import HPV, RFS
from tests.baseline.report.records import PATIENTS, PERFECT, make_hpv_record, make_rfs_record, parse_record
from tests.conftest import class_head_json, head_json


def test_both_kinds_side_by_side() -> None:
    """Perfect risks have a C-index of 1 and constant risks of 0.5 in every bootstrap sample.

    A difference that no sample changes has no deviation, and so no interval.
    """
    record = parse_record(make_rfs_record(PERFECT, np.zeros(PATIENTS)))
    heads, volume = estimate_target(RFS, record, bootstraps=50, seed=0).models.values()
    exactly = {"nested": 1.0, "leave_one_centre_out": 0.5, GAP: 0.5}
    for model, expected in (
        (heads, exactly),
        (volume, {"nested": 0.5, "leave_one_centre_out": 0.5, GAP: 0, BEHIND: 0.5, BEHIND_OUTSIDE: 0}),
    ):
        assert {name: estimate.value for name, estimate in model.items()} == pytest.approx(expected)
        for name, estimate in model.items():
            ends = (
                (None, None)
                if name in (GAP, BEHIND, BEHIND_OUTSIDE)
                else pytest.approx((expected[name], expected[name]))
            )
            assert (estimate.ci95_low, estimate.ci95_high) == ends
    (hpv,) = estimate_target(HPV, parse_record(make_hpv_record()), bootstraps=50, seed=0).models.values()
    assert {name: estimate.value for name, estimate in hpv.items()} == pytest.approx(exactly)


def test_a_kind_that_was_not_possible_is_absent() -> None:
    record = make_rfs_record(PERFECT, PERFECT) | {"leave_one_centre_out": {"why_not": "rfs: 1 centre"}}
    heads, volume = estimate_target(RFS, parse_record(record), bootstraps=10, seed=0).models.values()
    assert set(heads) == {"nested"}
    assert set(volume) == {"nested", BEHIND}
    both = {kind: {"why_not": "rfs: no relapse"} for kind in ("nested", "leave_one_centre_out")}
    assert estimate_target(RFS, parse_record(record | both), bootstraps=10, seed=0).models == {}


def test_risk_groups_are_formed_within_each_outer_fold() -> None:
    """Scores of the second fold are on another scale, and its lower half is still the group at lower risk."""
    scores = [1.0, 2.0, 3.0, 4.0, 101.0, 102.0, 103.0, 104.0]
    kind = KindRecord(score=scores, fold_of_patient=[0] * 4 + [1] * 4, folds=[], comparators={})
    assert find_high_risk(kind).tolist() == [False, False, True, True] * 2


def test_coefficients_by_decreasing_weight() -> None:
    head = read_head(head_json(("volume", 0.5), ("age", -0.1)), "head")
    folds = [{"volume": 0.4, "age": 0.2}, {"volume": 0.6, "noise": -1.2}]
    noise, volume, age = collect_coefficients(head, folds)
    assert (noise.feature, noise.shipped, noise.folds) == ("noise", None, (0.0, -1.2))
    assert (volume.feature, volume.shipped, volume.folds) == ("volume", 0.5, (0.4, 0.6))
    assert (age.feature, age.folds) == ("age", (0.2, 0.0))
    assert [coefficient.folds for coefficient in collect_coefficients(head, [])] == [(), ()]


def test_a_head_of_classes_shows_the_change_from_class_to_class() -> None:
    """Weights of 0.1, 0.4 and 1.3 at -1, 0 and 1 have a slope of 0.6."""
    head = class_head_json(dict.fromkeys(("T1", "T2", "T3"), 0.5), volume=(0.1, 0.4, 1.3))
    (volume,) = collect_coefficients(read_head(head, "head"), [{"volume": 0.5}])
    assert volume.shipped == pytest.approx(0.6)
    assert volume.folds == (0.5,)


def test_the_cost_of_automatic_masks_by_hand() -> None:
    """Reversed scores have a C-index of 0 and perfect scores of 1; only patients of both records count."""
    automatic, reference = make_rfs_record(-PERFECT, -PERFECT), make_rfs_record(PERFECT, PERFECT)
    fewer = copy.deepcopy(reference)
    fewer["patients"] = fewer["patients"][1:]
    for kind in ("nested", "leave_one_centre_out"):
        fewer[kind]["score"] = fewer[kind]["score"][1:]
    patients, estimates = estimate_on_references(RFS, parse_record(automatic), parse_record(fewer), 100, 0)
    assert patients == PATIENTS - 1
    values = {name: estimate.value for name, estimate in estimates["nested"].items()}
    assert values == pytest.approx({"automatic": 0.0, "reference": 1.0, "cost": 1.0})


def test_without_a_common_cross_validation_automatic_masks_have_no_cost() -> None:
    record = make_rfs_record(PERFECT, PERFECT)
    nothing = {**record, "nested": {"why_not": "x"}, "leave_one_centre_out": {"why_not": "y"}}
    assert estimate_on_references(RFS, parse_record(record), parse_record(nothing), 100, 0) == (0, {})
    other_patients = {**record, "patients": [{**row, "id": f"other {n}"} for n, row in enumerate(record["patients"])]}
    assert estimate_on_references(RFS, parse_record(record), parse_record(other_patients), 100, 0) == (0, {})


NETWORKS = "the networks behind the masks may have seen other patients of the centre"


def estimate_targets(*targets: tuple[Target, dict[str, Any]]) -> list[TargetEstimates]:
    return [estimate_target(target, parse_record(record), 50, 0) for target, record in targets]


def make_estimate(value: float, low: float, high: float) -> Estimate:
    """Return the estimate of a difference with the p of a normal distribution: z = 1.96 x value / half the interval."""
    return Estimate(value, low, high, float(2 * stats.norm.sf(1.959964 * abs(value) / ((high - low) / 2))))


def make_comparison(outside: Estimate | None = None, **behind: Estimate) -> list[TargetEstimates]:
    """Return RFS with the difference of the heads to each comparator.

    With centres left out the differences are the same, unless `outside` replaces them.
    """
    models = {name: {BEHIND: inside, BEHIND_OUTSIDE: outside or inside} for name, inside in behind.items()}
    record = make_rfs_record(PERFECT, PERFECT)
    record["leave_one_centre_out"]["comparators"] = {name: {"by_centre": {"A": 0.4, "B": 0.4}} for name in models}
    return [TargetEstimates(RFS, parse_record(record), models)]


def test_new_centres_with_every_target() -> None:
    """C-indices of 0.6 and 0.7 at two centres have the mean 0.65, s = 0.0707 and t = 12.7062.

    The half width is 12.7062 x 0.0707 / sqrt(2) = 0.635 for the mean, and 12.7062 x 0.0707 x sqrt(1 / 2 + 1 / 3) = 0.820
    for three new centres. The intervals start at 0.015 and 0 and end at 1.
    """
    record = make_rfs_record(PERFECT, np.zeros(PATIENTS))
    record["leave_one_centre_out"]["by_centre"] = {"A": 0.6, "B": 0.7}
    everything = estimate_targets((RFS, record), (HPV, make_hpv_record()))
    text = (
        "At a new centre expect a C-index of 0.650 (95% interval of the mean 0.015 to 1.000 from 2 centres; {}) for "
        "recurrence-free survival and a balanced accuracy of 0.500 (no interval, which needs two centres) for HPV "
        f"status (each centre predicted by heads that were fitted without it); {NETWORKS}. {NOT_INCLUDED}"
    )
    predicted = "95% of test sets of 3 new centres within 0.000 to 1.000"
    assert describe_targets_at_new_centres(everything, 3) == text.format(predicted)
    assert describe_targets_at_new_centres(everything) == text.format(
        "the number of new centres in the test set is unknown"
    )


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.01, 0.09, "better than"), (-0.09, -0.01, "worse than"), (-0.01, 0.09, "not significantly different from")],
)
def test_images_against_clinical_variables(low: float, high: float, verdict: str) -> None:
    value = (low + high) / 2
    agrees = "; leave-one-centre-out agrees" if low > 0 else ""
    assert describe_benefit_of_images(make_comparison(clinical=make_estimate(value, low, high))) == (
        f"In nested cross-validation, heads that use images are {verdict} clinical variables alone "
        f"(C-index {value:+.3f}, 95% interval {low:+.3f} to {high:+.3f}{agrees}) for recurrence-free survival."
    )


@pytest.mark.parametrize(
    "outside", [make_estimate(0.05, -0.01, 0.11), Estimate(0.05, None, None), make_estimate(-0.1, -0.2, -0.01)]
)
def test_heads_that_are_not_better_at_other_centres_are_not_called_better(outside: Estimate) -> None:
    text = describe_benefit_of_images(make_comparison(outside, clinical=make_estimate(0.05, 0.01, 0.09)))
    assert "not shown to be better than clinical variables alone (C-index +0.050" in text
    assert "which leave-one-centre-out does not confirm)" in text


def test_most_centres_must_agree() -> None:
    """C-indices of 0.5 and 0.6 at two centres are below and above the comparator's 0.7 and 0.4."""
    (target,) = make_comparison(clinical=make_estimate(0.05, 0.01, 0.09))
    left_out = target.record.leave_one_centre_out
    left_out.by_centre["B"] = 0.6
    left_out.comparators["clinical"].by_centre["A"] = 0.7
    assert "not shown to be better" in describe_benefit_of_images([target])


def test_holm_over_targets_and_comparators() -> None:
    """Without correction p is 2 (1 - Phi(1.96 x 0.05 / 0.045)) = 0.029; Holm's correction of two raises it above 0.05."""
    better, equal = make_estimate(0.05, 0.005, 0.095), make_estimate(0.0, -0.05, 0.05)
    assert "images are better than clinical variables alone" in describe_benefit_of_images(
        make_comparison(clinical=better)
    )
    both = describe_benefit_of_images(make_comparison(clinical=better, tumour_volume=equal))
    assert "not significantly different from clinical variables alone (C-index +0.050" in both
    assert "+0.005 to +0.095, significant only before correction)" in both
    assert (
        describe_benefit_of_images(make_comparison(clinical=better) + make_comparison(clinical=equal)).count(
            "not significantly different"
        )
        == 2
    )


def test_the_p_of_few_patients_follows_a_t_distribution() -> None:
    """Agresti and Min's interval is used for the recalls of two classes of 6 patients, with b = 5 and c = 0 in each.

    b' = 5.5, c' = 0.5, N = 8: v = (6 - 25 / 8) / 64 = 0.04492, for the mean of both classes sd = sqrt(v / 2) = 0.14987
    and df = 2 x 5 = 10. The difference 5/6 has t = 5.5605 and a two-sided p of 0.000241; a normal p would be 2.7e-8.
    """
    outcomes = np.array([True] * 6 + [False] * 6)
    best, worst = outcomes.copy(), outcomes.copy()
    worst[[0, 1, 2, 3, 4, 6, 7, 8, 9, 10]] ^= True
    metrics = [
        make_weighted_balanced_accuracy(Outcomes(outcomes.astype(np.int64)), answers) for answers in (best, worst)
    ]
    (estimate,) = estimate_unranked({"d": Difference(*metrics)}, 12, 10, 1).by_metric.values()
    assert estimate.value == pytest.approx(5 / 6)
    assert estimate.p == pytest.approx(2 * stats.t.sf(5 / 6 / np.sqrt(0.044921875 / 2), 10), rel=1e-9)
    assert estimate.p == pytest.approx(2.41e-4, rel=0.01)


def test_images_against_both_comparators_and_undefined_differences() -> None:
    clinical, volume = make_estimate(0.1, 0.05, 0.15), make_estimate(0.0, -0.05, 0.05)
    text = describe_benefit_of_images(make_comparison(clinical=clinical, tumour_volume=volume, suv_max=clinical))
    assert (
        "better than clinical variables alone (C-index +0.100, 95% interval +0.050 to +0.150; leave-one-centre-out agrees) and not"
        in text
    )
    assert "not significantly different from tumour volume alone (C-index +0.000" in text
    assert "SUVmax" not in text
    assert "not comparable with clinical variables alone (the difference is undefined)" in describe_benefit_of_images(
        make_comparison(clinical=Estimate(None, None, None))
    )
    assert describe_benefit_of_images(make_comparison(suv_max=clinical)) == describe_benefit_of_images([]) == ""
