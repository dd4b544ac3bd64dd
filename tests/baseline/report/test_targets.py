"""The section of a target: its tables, charts and figures as plain data."""

from __future__ import annotations

import numpy as np
import pytest

from baseline.heads.models.targets import targets_of
from baseline.report.targets import target_section
from contract.editions import load_edition
from tests.baseline.prepared import HPV, RFS, head_record
from tests.baseline.report.records import PATIENTS, PERFECT, charts_of, hpv_record, parsed, rfs_record, stage_record
from tests.conftest import head_json


def test_the_sections_show_every_part() -> None:
    head = head_json(("total_volume_ml", 0.5))
    tried = {"Cox, few features": 0.7, "signs, all features": 0.6}
    shipped = head_record(head, tried=tried, out_of_fold=0.7, setting={"penalty": 0.1})
    record = rfs_record(PERFECT, np.zeros(PATIENTS)) | {"left_out_features": ["total_volume_ml"]}
    content, plain = target_section(RFS, parsed(record), shipped, bootstraps=20, seed=0)
    chosen = (
        "Shipped head: Cox, few features, penalty 0.1, chosen from 2 by C-index (in this selection 0.700, which is "
    )
    assert chosen in content
    assert '<td data-sort="30">30</td><td data-sort="0.9">0.900</td><td>-</td>' in content
    assert charts_of(content) == ["rfs-survival"]
    left_out = "have learnt from held-out patients (total_volume_ml); the shipped head uses total_volume_ml."
    for text in ("tumour volume alone", left_out, "2 of 2"):
        assert text in content
    assert plain["models"]["heads"]["nested"]["value"] == 1
    content, _ = target_section(HPV, parsed(hpv_record()), None, bootstraps=20, seed=0)
    assert charts_of(content) == ["hpv-calibration"]


def test_the_section_of_a_class_with_four_values() -> None:
    """Mean recall of the heads 2/3, of the most frequent class 1/3, of the rule 1."""
    target = targets_of(load_edition("hecktor2026"))[0]
    content, plain = target_section(target, parsed(stage_record()), None, bootstraps=20, seed=0)
    values = {name: one["nested"]["value"] for name, one in plain["models"].items()}
    assert values == pytest.approx({"heads": 2 / 3, "most_frequent": 1 / 3, "rule": 1.0})
    assert "7th edition&#x27;s rule on the mask" in content
    assert charts_of(content) == ["t_stage-confusion"]
    assert "random answers reach 0.25." in content


def test_a_kind_of_cross_validation_that_was_not_possible_is_named() -> None:
    record = rfs_record(PERFECT, PERFECT) | {"leave_one_centre_out": {"why_not": "rfs: 1 centre"}}
    content, _ = target_section(RFS, parsed(record), None, bootstraps=10, seed=0)
    assert "No leave one centre out: rfs: 1 centre." in content


def test_a_target_without_results_still_has_its_section() -> None:
    why = {"why_not": "rfs: 1 training patients with a relapse, expected at least 2"}
    record = rfs_record(PERFECT, PERFECT) | {"nested": why, "leave_one_centre_out": why}
    content, _ = target_section(RFS, parsed(record), None, bootstraps=10, seed=0)
    assert "expected at least 2" in content
    assert "No head is shipped for this target." in content
    assert "No feature has a weight." in content
    assert charts_of(content) == []
