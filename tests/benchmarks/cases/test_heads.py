"""The lines that `python -m benchmarks --heads` prints."""

from __future__ import annotations

from benchmarks.cases.heads import _lines


def test_a_kind_that_the_cohort_does_not_allow() -> None:
    """A cohort of one centre has no cross-validation with centres left out; the nested one is printed as usual."""
    nested = {"c_index": 0.7126, "comparators": {"suv_max": {"c_index": 0.5555}}, "folds": [{"model": "Cox"}]}
    both = {"nested": nested, "leave_one_centre_out": {"why_not": "one centre"}}
    neither = {"nested": {"why_not": "1 relapse"}, "leave_one_centre_out": {"why_not": "1 relapse"}}
    assert _lines({"oracle": {}, "rfs": both, "hpv": neither})[1:] == [
        "rfs nested: c_index 0.713, {'suv_max': 0.555}, ['Cox']",
        "rfs leave_one_centre_out: none, one centre",
        "hpv nested: none, 1 relapse",
        "hpv leave_one_centre_out: none, 1 relapse",
    ]
