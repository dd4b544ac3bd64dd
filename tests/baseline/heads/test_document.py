"""Nested cross-validations with other splits, and what the summary shows of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from baseline.heads.cohort import HeadCohort, Outcomes
from baseline.heads.cross_validation import HEADS, SINGLE_BEST
from baseline.heads.document import cross_validation_document, metrics_only, repeats_for, spread_of, summary
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


def test_repeats_by_hand() -> None:
    """0.6, 0.7 and 0.8: mean 0.7, standard deviation 0.1. Undefined figures and a single one have no spread."""
    record = {"repeats": {HEADS: [0.6, 0.7, 0.8, None], SINGLE_BEST: [0.6, None]}}
    assert spread_of(record) == pytest.approx((0.7, 0.1))
    assert spread_of(record, SINGLE_BEST) is None
    assert spread_of({"why_not": "rfs: 1 centre"}) is None


def test_repeats_follow_the_size_of_the_cohort() -> None:
    assert [repeats_for(patients) for patients in (0, 16, 40, 80, 100, 600)] == [1, 1, 2, 4, 5, 5]


def test_repeats_of_the_ensemble_and_of_the_single_best_model(target: Target, cohort: HeadCohort) -> None:
    document = cross_validation_document([(target, cohort)], 3, {})
    nested = document["rfs"]["nested"]
    repeats = nested["repeats"]
    assert {name: len(values) for name, values in repeats.items()} == {HEADS: 4, SINGLE_BEST: 4}
    assert repeats[HEADS][0] == nested["c_index"]
    assert repeats[SINGLE_BEST][0] == nested["comparators"][SINGLE_BEST]["c_index"]
    assert len(set(repeats[HEADS])) > 1
    assert np.mean(repeats[HEADS]) > np.mean(repeats[SINGLE_BEST])  # two drivers against one
    assert "repeats" not in document["rfs"]["leave_one_centre_out"]
    fold = nested["folds"][0]
    assert [one["name"] for one in fold["experts"]] == ["x", "y"]
    assert fold["single_best"] in ("x", "y")
    assert set(fold["coefficients"]) == {"x", "y"}
    heads, single = spread_of(nested), spread_of(nested, SINGLE_BEST)
    assert heads is not None
    assert single is not None
    line = f"{heads[0]:.3f} +- {heads[1]:.3f} over 4 splits (single best model {single[0]:.3f} +- {single[1]:.3f})"
    assert line in summary({}, document, [target])
    assert metrics_only(document, [target])["rfs"]["nested"]["repeats"] == repeats


@pytest.mark.slow
def test_processes_change_nothing(target: Target, cohort: HeadCohort) -> None:
    few = cohort.pick(np.arange(24))
    assert cross_validation_document([(target, few)], 3, {}, jobs=2) == cross_validation_document(
        [(target, few)], 3, {}
    )
