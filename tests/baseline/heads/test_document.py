"""The record of both kinds of cross-validation, and what the summary shows of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from baseline.heads.cohort import HeadCohort, Outcomes
from baseline.heads.document import cross_validation_document, metrics_only, summary
from baseline.heads.models.kinds import Target, only
from baseline.heads.models.risk import fit_cox
from baseline.heads.models.selection import Family
from tests.baseline.heads.cohorts import head_cohort
from tests.baseline.prepared import RFS

FAMILIES = tuple(Family(name, fit_cox, ({"penalty": 0.1},), {name: "identity"}) for name in ("x", "y"))


@pytest.fixture(scope="module")
def target() -> Target:
    return replace(only(RFS, FAMILIES), comparators={})


@pytest.fixture(scope="module")
def cohort() -> HeadCohort:
    """Two drivers of the hazard, each a feature."""
    rng = np.random.default_rng(1)
    values = rng.normal(size=(80, 2))
    time, censored = rng.exponential(1000 / np.exp(values.sum(1))), rng.exponential(1500, 80)
    rows = [{"x": float(a), "y": float(b)} for a, b in values]
    outcomes = Outcomes((time <= censored).astype(int), np.minimum(time, censored))
    return head_cohort(rows, outcomes, "AB" * 40)


def test_both_kinds_are_recorded_and_shown(target: Target, cohort: HeadCohort) -> None:
    document = cross_validation_document([(target, cohort)], 3, {"hpv": "too few"})
    record = document["rfs"]
    lines = summary({}, document, [target]).splitlines()
    assert lines[0] == "hpv: no head (too few)"
    assert lines[1:] == [
        f"rfs, {kind.replace('_', ' ')}: c_index {record[kind]['c_index']:.3f}"
        for kind in ("nested", "leave_one_centre_out")
    ]
    fold = record["nested"]["folds"][0]
    assert [one["name"] for one in fold["experts"]] == ["x", "y"]
    assert set(fold["coefficients"]) == {"x", "y"}
    kept = metrics_only(document, [target])["rfs"]
    assert kept["nested"] == {name: record["nested"][name] for name in ("c_index", "by_centre")}


@pytest.mark.slow
def test_processes_change_nothing(target: Target, cohort: HeadCohort) -> None:
    few = cohort.pick(np.arange(24))
    assert cross_validation_document([(target, few)], 3, {}, jobs=2) == cross_validation_document(
        [(target, few)], 3, {}
    )
