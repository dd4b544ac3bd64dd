"""Boosted trees and the outcome network as candidates of a training."""

from __future__ import annotations

import json

import numpy as np
import pytest

from algorithm.heads.classes import ClassHead, read_head
from baseline.heads.cohort import HeadCohort, Outcomes
from baseline.heads.metrics import area_under_curve, c_index
from baseline.heads.models.extra import with_extra_families
from baseline.heads.models.selection import scores_of
from baseline.heads.models.targets import targets_of
from baseline.heads.models.terms import scaled_terms, usual_transforms
from baseline.heads.models.trees import fit_class_trees, fit_classes_trees, fit_survival_trees
from contract.editions import load_edition

pytest.importorskip("xgboost")
SETTING = {"depth": 2, "rounds": 40}


def cohort(outcomes: Outcomes, values: np.ndarray) -> HeadCohort:
    """Patients with a feature, every seventh of which is missing, and a feature of noise."""
    noise = np.random.default_rng(5).normal(size=len(values))
    rows = [
        {"a": None if n % 7 == 0 else float(v), "b": float(w)}
        for n, (v, w) in enumerate(zip(values, noise, strict=True))
    ]
    return HeadCohort(tuple(map(str, range(len(values)))), ("X",) * len(values), tuple(rows), outcomes)


def test_risk_where_the_middle_is_worst() -> None:
    """Patients whose feature is within 0.7 of 0 relapse early, about half of them: a model that knows the group and no
    more has a C-index of 1/2 + 1/4. No linear head can rank them, trees come near. The written head gives the same
    scores patient by patient; a second fit is equal to the last digit.
    """
    values = np.random.default_rng(1).normal(size=200)
    days = np.where(np.abs(values) < 0.7, 100.0, 1000.0) + np.arange(200)
    patients = cohort(Outcomes(np.ones(200, dtype=np.int64), days), values)
    terms = scaled_terms(patients, usual_transforms(patients))
    head, again = (fit_survival_trees(patients, terms, [SETTING], np.random.default_rng(3))[0] for _ in range(2))
    scores = scores_of(head, patients)
    assert c_index(patients.outcomes, scores) > 0.7
    assert c_index(patients.outcomes, values) < 0.6
    written = read_head(json.loads(json.dumps(head.as_json())), "rfs")
    assert not isinstance(written, ClassHead)
    assert [written.score(row) for row in patients.rows] == scores.tolist()
    assert head.as_json() == again.as_json()


def test_two_classes_weigh_alike() -> None:
    """180 positives and 20 negatives without any signal: the mean logit is near 0, not near log 9 = 2.2."""
    outcomes = Outcomes(np.array([0] * 20 + [1] * 180))
    patients = cohort(outcomes, np.random.default_rng(2).normal(size=200))
    terms = scaled_terms(patients, usual_transforms(patients))
    scores = scores_of(fit_class_trees(patients, terms, [SETTING], np.random.default_rng(3))[0], patients)
    assert abs(scores.mean()) < 0.8
    assert area_under_curve(outcomes, scores) > 0.5


def test_each_class_against_the_others() -> None:
    """Thirds of a feature are three classes, the fourth never occurs: its score never wins."""
    values = np.random.default_rng(1).normal(size=210)
    codes = np.digitize(values, np.quantile(values, [1 / 3, 2 / 3])).astype(np.int64)
    patients = cohort(Outcomes(codes, classes=("A", "B", "C", "D")), values)
    head = fit_classes_trees(
        patients, scaled_terms(patients, usual_transforms(patients)), [SETTING], np.random.default_rng(3)
    )[0]
    scores = scores_of(head, patients)
    assert scores.shape == (210, 4)
    assert (scores.argmax(1) == codes).mean() > 0.85
    assert scores[:, 3].max() < scores[:, :3].min()
    assert read_head(head.as_json(), "n").scores(patients.rows[1]) == pytest.approx(
        dict(zip("ABCD", scores[1], strict=True))
    )


def test_outcome_network_is_a_candidate_of_its_own_answer_only() -> None:
    """A target tries the network if the patients have its feature; no other model uses an outcome feature."""
    rfs, hpv = targets_of(load_edition("hecktor2025"))
    with_network = with_extra_families(rfs, {"outcome_rfs"})
    assert [family.name for family in with_network.families] == [*(f.name for f in rfs.families), "outcome network"]
    assert with_network.families[-1].transforms == {"outcome_rfs": "identity"}
    assert with_extra_families(hpv, {"outcome_rfs"}) == hpv
    assert with_extra_families(hpv, set(), trees=True).families[-1].name == "trees, all features"
    row = {"outcome_rfs": 1.0, "total_volume_ml": 2.0}
    patients = HeadCohort(("1",), ("X",), (row,), Outcomes(np.array([1])))
    assert usual_transforms(patients) == {"total_volume_ml": "log1p"}
