"""The cost of automatic masks: paired figures of heads on automatic and on reference masks."""

from __future__ import annotations

import copy

import pytest

from baseline.report.reference_masks import reference_masks
from tests.baseline.prepared import RFS
from tests.baseline.report.records import PATIENTS, PERFECT, rfs_record


def test_the_difference_by_hand() -> None:
    """Reversed scores have a C-index of 0, perfect ones of 1; only patients of both records count."""
    automatic, reference = rfs_record(-PERFECT, -PERFECT), rfs_record(PERFECT, PERFECT)
    fewer = copy.deepcopy(reference)
    fewer["patients"] = fewer["patients"][1:]
    for kind in ("nested", "leave_one_centre_out"):
        fewer[kind]["score"] = fewer[kind]["score"][1:]
    (html,), figures = reference_masks(RFS, automatic, fewer, 100, 0)
    values = {name: one["value"] for name, one in figures["reference_masks"]["nested"].items()}
    assert values == pytest.approx({"automatic": 0.0, "reference": 1.0, "cost": 1.0})
    assert f"C-index of the same {PATIENTS - 1} patients" in html


def test_without_a_common_cross_validation_there_is_no_table() -> None:
    record = rfs_record(PERFECT, PERFECT)
    nothing = {**record, "nested": {"why_not": "x"}, "leave_one_centre_out": {"why_not": "y"}}
    assert reference_masks(RFS, record, nothing, 100, 0) == ([], {})
    others = {**record, "patients": [{**row, "id": f"other {n}"} for n, row in enumerate(record["patients"])]}
    assert reference_masks(RFS, record, others, 100, 0) == ([], {})
