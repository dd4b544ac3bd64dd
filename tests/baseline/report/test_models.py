"""Figures of the heads, by hand."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from algorithm.heads.documents import read_head
from baseline.heads.record import KindRecord
from baseline.report.models import (
    BEHIND,
    GAP,
    coefficients,
    estimate_models,
    estimate_on_references,
    high_risk,
)
from tests.baseline.prepared import HPV, RFS
from tests.baseline.report.records import PATIENTS, PERFECT, hpv_record, parsed, rfs_record
from tests.conftest import class_head_json, head_json


def test_both_kinds_side_by_side() -> None:
    """The perfect risk inside, none outside: C 1 and 0.5, whatever patients are drawn; the volume is always 0.5.

    A difference that no sample changes has no deviation, and so no interval.
    """
    heads, volume = estimate_models(RFS, parsed(rfs_record(PERFECT, np.zeros(PATIENTS))), bootstraps=50, seed=0)
    exactly = {"nested": 1.0, "leave_one_centre_out": 0.5, GAP: 0.5}
    for model, expected in (
        (heads, exactly),
        (volume, {"nested": 0.5, "leave_one_centre_out": 0.5, GAP: 0, BEHIND: 0.5}),
    ):
        assert {what: found.value for what, found in model.estimates.items()} == pytest.approx(expected)
        for what, found in model.estimates.items():
            ends = (None, None) if what in (GAP, BEHIND) else pytest.approx((expected[what], expected[what]))
            assert (found.ci95_low, found.ci95_high) == ends
    (hpv,) = estimate_models(HPV, parsed(hpv_record()), bootstraps=50, seed=0)
    assert {what: found.value for what, found in hpv.estimates.items()} == pytest.approx(exactly)


def test_a_kind_that_was_not_possible_is_absent() -> None:
    record = rfs_record(PERFECT, PERFECT) | {"leave_one_centre_out": {"why_not": "rfs: 1 centre"}}
    heads, volume = estimate_models(RFS, parsed(record), bootstraps=10, seed=0)
    assert set(heads.estimates) == {"nested"}
    assert set(volume.estimates) == {"nested", BEHIND}
    both = {kind: {"why_not": "rfs: no relapse"} for kind in ("nested", "leave_one_centre_out")}
    assert estimate_models(RFS, parsed(record | both), bootstraps=10, seed=0) == []


def test_risk_groups_are_dealt_within_each_outer_fold() -> None:
    """The second fold's scores are on another scale: its lower half stays the lower one."""
    scores = [1.0, 2.0, 3.0, 4.0, 101.0, 102.0, 103.0, 104.0]
    kind = KindRecord(score=scores, fold_of_patient=[0] * 4 + [1] * 4, folds=[], comparators={})
    assert high_risk(kind).tolist() == [False, False, True, True] * 2


def test_steadiness_of_coefficients() -> None:
    head = read_head(head_json(("volume", 0.5), ("age", -0.1)), "head")
    folds = [{"volume": 0.4, "age": 0.2}, {"volume": 0.6, "noise": -1.2}]
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
    head = class_head_json(dict.fromkeys(("T1", "T2", "T3"), 0.5), volume=(0.1, 0.4, 1.3))
    (volume,) = coefficients(read_head(head, "head"), [{"volume": 0.5}])
    assert volume.shipped == pytest.approx(0.6)
    assert (volume.folds, volume.same_sign) == ((0.5,), 1)


def test_the_cost_of_automatic_masks_by_hand() -> None:
    """Reversed scores have a C-index of 0, perfect ones of 1; only patients of both records count."""
    automatic, reference = rfs_record(-PERFECT, -PERFECT), rfs_record(PERFECT, PERFECT)
    fewer = copy.deepcopy(reference)
    fewer["patients"] = fewer["patients"][1:]
    for kind in ("nested", "leave_one_centre_out"):
        fewer[kind]["score"] = fewer[kind]["score"][1:]
    patients, estimates = estimate_on_references(RFS, parsed(automatic), parsed(fewer), 100, 0)
    assert patients == PATIENTS - 1
    values = {name: one.value for name, one in estimates["nested"].items()}
    assert values == pytest.approx({"automatic": 0.0, "reference": 1.0, "cost": 1.0})


def test_without_a_common_cross_validation_automatic_masks_have_no_cost() -> None:
    record = rfs_record(PERFECT, PERFECT)
    nothing = {**record, "nested": {"why_not": "x"}, "leave_one_centre_out": {"why_not": "y"}}
    assert estimate_on_references(RFS, parsed(record), parsed(nothing), 100, 0) == (0, {})
    others = {**record, "patients": [{**row, "id": f"other {n}"} for n, row in enumerate(record["patients"])]}
    assert estimate_on_references(RFS, parsed(record), parsed(others), 100, 0) == (0, {})
