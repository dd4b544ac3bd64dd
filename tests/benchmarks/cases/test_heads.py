"""The lines that `python -m benchmarks --heads` prints."""

from __future__ import annotations

from baseline.heads.models.targets import targets_of
from benchmarks.cases.heads import _lines
from contract.editions import load_edition


def test_a_kind_that_the_cohort_does_not_allow() -> None:
    """A cohort of one centre has no cross-validation with centres left out; the nested one is printed as usual."""
    repeats = {"heads": [0.70, 0.72], "single_best": [0.6, 0.6]}  # sample standard deviations: 0.0141 and 0
    nested = {
        "c_index": 0.7126, "comparators": {"suv_max": {"c_index": 0.5555}}, "folds": [{"model": "Cox"}],
        "repeats": repeats,
    }  # fmt: skip
    both = {"nested": nested, "leave_one_centre_out": {"why_not": "one centre"}}
    neither = {"nested": {"why_not": "1 relapse"}, "leave_one_centre_out": {"why_not": "1 relapse"}}
    assert _lines({"rfs": both, "hpv": neither}, targets_of(load_edition())) == [
        "rfs nested: c_index 0.713, 0.710 +- 0.014 over 2 splits (single best model 0.600 +- 0.000), {'suv_max': 0.555}, ['Cox']",
        "rfs leave_one_centre_out: none, one centre",
        "hpv nested: none, 1 relapse",
        "hpv leave_one_centre_out: none, 1 relapse",
    ]
