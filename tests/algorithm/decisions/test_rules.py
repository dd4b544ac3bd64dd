"""The rules on lesions as plain data: only what differs from the argmax is written, and damaged rules are refused."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from algorithm.decisions.rules import NO_DECISIONS, WORDS, Decisions, read_decisions
from contract.errors import ModelPackageError

CHANGED = {
    "foreground_threshold": 0.4,
    "gtvp_threshold": 0.65,
    "one_label_share": 0.2,
    "largest_gtvp_only": True,
    "gtvp_volume_ml": 0.5,
    "gtvp_mean_probability": 0.6,
    "gtvp_max_probability": 0.7,
    "gtvn_volume_ml": 0.3,
    "gtvn_mean_probability": 0.65,
    "gtvn_max_probability": 0.95,
    "gtvn_suv_max": 2.5,
    "gtvn_suv_peak": 2.0,
    "gtvn_distance_mm": 120.0,
    "gtvn_contralateral_probability": 0.8,
}


def test_rules_are_read_as_they_were_written() -> None:
    assert read_decisions(CHANGED, "manifest.json").as_json() == CHANGED
    assert CHANGED.keys() == {field.name for field in fields(Decisions)} == set(WORDS)


def test_rules_that_change_nothing_are_not_written() -> None:
    assert read_decisions({}, "manifest.json") == NO_DECISIONS
    assert read_decisions({"gtvn_volume_ml": 0, "gtvn_distance_mm": 5}, "manifest.json").as_json() == {
        "gtvn_distance_mm": 5
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "decisions [], expected an object of rules"),
        ({"gtvn_colour": 1}, "unknown rule 'gtvn_colour'"),
        ({"gtvn_volume_ml": -1}, "gtvn_volume_ml -1, expected a number from 0 to 1e+06"),
        ({"gtvn_volume_ml": "0.5"}, "gtvn_volume_ml '0.5', expected a number"),
        ({"gtvn_volume_ml": True}, "gtvn_volume_ml True, expected a number"),
        ({"gtvn_suv_max": float("nan")}, "gtvn_suv_max nan, expected a number"),
        ({"gtvn_max_probability": 1.5}, "gtvn_max_probability 1.5, expected a number from 0 to 1"),
        ({"foreground_threshold": 0}, "foreground_threshold 0, expected a number between 0 and 1"),
        ({"largest_gtvp_only": 1}, "largest_gtvp_only 1, expected true or false"),
        ({"gtvn_distance_mm": None}, "gtvn_distance_mm None, expected a number"),
    ],
)
def test_damaged_rules_are_refused_in_plain_words(content: Any, message: str) -> None:
    with pytest.raises(ModelPackageError) as problem:
        read_decisions(content, "manifest.json")
    assert message in str(problem.value)
    assert "manifest.json" in str(problem.value)
