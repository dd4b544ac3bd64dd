"""Which candidates enter the mean, on which scale, and what the mean is worth."""

from __future__ import annotations

import numpy as np
import pytest

from algorithm.heads.linear import LinearHead
from baseline.heads.cohort import HeadCohort, Outcomes
from baseline.heads.metrics import c_index
from baseline.heads.models.averaging import average, fit_average, passing, scale_of
from baseline.heads.models.classes import NEVER
from baseline.heads.models.kinds import only
from baseline.heads.models.risk import fit_cox, unfitted
from baseline.heads.models.selection import Chosen, Family, candidates_of, scores_of
from baseline.heads.models.targets import targets_of
from contract.editions import load_edition
from tests.baseline.prepared import RFS

T_STAGE = targets_of(load_edition("hecktor2026"))[0]


def candidate(name: str, metric: float, scores: np.ndarray | None = None, harmonised: bool = False) -> Chosen:
    family = Family(name, unfitted, ({},), {"x": "identity"})
    return Chosen(family, {}, harmonised, np.zeros(3) if scores is None else scores, metric)


def names_of(candidates: list[Chosen], single: Chosen, least_share: float = 0.5) -> list[str]:
    return [one.name for one in passing(candidates, single, 0.5, least_share)]


def test_the_floor_by_hand() -> None:
    """Best 0.70, chance 0.5: half of the distance is 0.10, so the floor is 0.60."""
    rivals = [candidate("a", 0.7), candidate("b", 0.61), candidate("c", 0.59)]
    assert names_of(rivals, rivals[0]) == ["a", "b"]
    assert names_of(rivals, rivals[0], 0.95) == ["a"]


def test_hardly_better_than_chance_is_not_enough() -> None:
    """Best 0.53: half of the distance is 0.015, but at least 0.02 is needed."""
    rivals = [candidate("a", 0.53), candidate("b", 0.518)]
    assert names_of(rivals, rivals[0]) == ["a"]
    assert names_of([candidate("a", 0.51), candidate("b", 0.5)], rivals[0]) == []


def test_a_model_takes_part_with_or_without_harmonisation_but_not_both() -> None:
    plain, harmonised, other = candidate("a", 0.7), candidate("a", 0.75, harmonised=True), candidate("b", 0.7)
    assert names_of([plain, other, harmonised], plain) == ["a", "b"]
    assert names_of([plain, other, harmonised], harmonised) == ["b", "a, harmonised"]


def test_scales_by_hand() -> None:
    """Scores 1, 3: mean 2, standard deviation 1. Classes -1 and 1 around each patient's mean: 1; `NEVER` is left out.
    Constant scores are not stretched, although the mean of 0.1, 0.1 and 0.1 is not exactly 0.1."""
    assert scale_of(np.array([1.0, 3.0])) == (2.0, 1.0)
    assert scale_of(np.full(3, 0.1)) == (pytest.approx(0.1), 1.0)
    assert scale_of(np.array([[4.0, 6.0, NEVER], [11.0, 9.0, NEVER]])) == (0.0, 1.0)


def survivors(patients: int = 300, seed: int = 5) -> HeadCohort:
    """Two independent drivers of the hazard, each a feature, and a third feature of noise."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(patients, 3))
    time, censored = rng.exponential(1000 / np.exp(values[:, 0] + values[:, 1])), rng.exponential(1500, patients)
    outcomes = Outcomes((time <= censored).astype(int), np.minimum(time, censored))
    rows = tuple({"x": float(a), "y": float(b), "noise": float(c)} for a, b, c in values)
    return HeadCohort(tuple(f"P{n}" for n in range(patients)), ("A",) * patients, rows, outcomes)


FAMILIES = tuple(Family(name, fit_cox, ({"penalty": 0.1},), {name: "identity"}) for name in ("x", "y", "noise"))


def test_two_experts_that_see_half_of_the_truth_are_better_together() -> None:
    """Each driver alone gives a C-index near 0.67, their sum near 0.75; noise does not pass the floor. The mean is one
    linear head on the scale of a log partial hazard: refitted slopes are 1 each."""
    cohort, target = survivors(), only(RFS, FAMILIES)
    rng = np.random.default_rng(0)
    folds = target.folds(cohort, False, rng)
    chosen = average(target, cohort, candidates_of(cohort, FAMILIES, folds, target.judge, rng))
    assert [expert.name for expert in chosen.experts] == ["x", "y"]
    assert chosen.name == "mean of x + y"
    assert chosen.metric > chosen.single.metric + 0.05
    head, single = fit_average(chosen, cohort, rng)
    assert isinstance(head, LinearHead)
    assert {term.feature: term.weight for term in head.terms} == pytest.approx({"x": 1.0, "y": 1.0}, abs=0.25)
    assert isinstance(single, LinearHead)
    assert [term.feature for term in single.terms] in (["x"], ["y"])
    assert c_index(cohort.outcomes, scores_of(head, cohort)) == pytest.approx(chosen.metric, abs=0.03)


def test_of_permuted_outcomes_the_single_best_model_is_taken() -> None:
    """Without any effect at most one candidate passes the floor by luck, or the mean is worth no more than chance."""
    cohort, target, metrics = survivors(), only(RFS, FAMILIES), []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        shuffled = HeadCohort(
            cohort.ids, cohort.centres, cohort.rows, cohort.outcomes.pick(rng.permutation(len(cohort.ids)))
        )
        folds = target.folds(shuffled, False, rng)
        metrics.append(average(target, shuffled, candidates_of(shuffled, FAMILIES, folds, target.judge, rng)).metric)
    assert np.mean(metrics) == pytest.approx(0.5, abs=0.04)


def test_stages_need_nearly_the_best_metric() -> None:
    """Four classes: chance 1/4. Best 0.80: the floor is 0.25 + 0.95 x 0.55 = 0.7725."""
    stages = HeadCohort(
        tuple("abcd"), ("A",) * 4, ({},) * 4, Outcomes(np.arange(4), classes=tuple(map(str, T_STAGE.answer.classes)))
    )
    assert T_STAGE.chance(stages) == 0.25
    rivals = [candidate("a", 0.8), candidate("b", 0.773), candidate("c", 0.772)]
    passed = passing(rivals, rivals[0], T_STAGE.chance(stages), T_STAGE.least_share)
    assert [one.name for one in passed] == ["a", "b"]
