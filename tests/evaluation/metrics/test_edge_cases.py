"""The table of empty and failed masks, row by row."""

from __future__ import annotations

import pytest

from evaluation.metrics.overlap import dsc_of_case


@pytest.mark.parametrize(
    ("rule", "both_empty", "only_predicted", "failed"),
    [
        ("skip", None, 0.0, 0.0),
        ("one", 1.0, 0.0, 0.0),
        ("zero", 0.0, 0.0, 0.0),
        ("drop_empty_reference", None, None, None),
    ],
)
def test_empty_reference(rule, both_empty, only_predicted, failed):
    assert dsc_of_case(0, 0, 0, failed=False, rule=rule) == both_empty
    assert dsc_of_case(0, 0, 9, failed=False, rule=rule) == only_predicted
    assert dsc_of_case(0, 0, 0, failed=True, rule=rule) == failed


@pytest.mark.parametrize("rule", ["skip", "one", "zero", "drop_empty_reference"])
def test_present_reference_counts_by_the_formula(rule):
    """2 * 3 / (4 + 8) = 0.5; an empty or failed prediction shares nothing."""
    assert dsc_of_case(3, 4, 8, failed=False, rule=rule) == 0.5
    assert dsc_of_case(0, 4, 0, failed=False, rule=rule) == 0.0
    assert dsc_of_case(0, 4, 0, failed=True, rule=rule) == 0.0
