"""Candidates of the ensemble, their scales and weights, its metric, and the head that it becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithm.heads.documents import NEVER, EnsembleHead, Expert, LinearHead, Term
from baseline.heads.cohort import HeadCohort, Outcomes, c_index
from baseline.heads.cross_validation import cross_validate_nested
from baseline.heads.models.ensemble import (
    CandidateEnsemble,
    combine_experts,
    compute_scale,
    fit_ensemble,
    make_ensemble,
    select_ensemble,
)
from baseline.heads.models.forest import fit_risk_forest
from baseline.heads.models.risk import fit_cox, log_hazard_slope, make_unfitted_heads
from baseline.heads.models.selection import Candidate, Family, select_candidates
from baseline.heads.models.targets import make_targets, with_families
from contract.editions import load_edition
from tests.algorithm.heads.head_parts import make_class_head, make_linear_head, score, term
from tests.baseline.heads.cohorts import make_head_cohort
from tests.baseline.prepared import RFS

T_STAGE = make_targets(load_edition("hecktor2026"))[0]
FEATURES = ("age", "volume", "suv_max")

# The experts


def test_stages_need_nearly_the_best_metric_and_risks_are_weighted_by_skill() -> None:
    """Chance is 1/4 with four classes. If 0.80 is the best metric, the minimum is 0.25 + 0.95 x 0.55 = 0.7725.

    If 0.26 is the best, the minimum is 0.25 + 0.02. Risks are weighted by the squared distance of the C-index from 0.5;
    a C-index below 0.5 has the weight 0.
    """
    classes = tuple(map(str, T_STAGE.answer.classes))
    stages = make_head_cohort([{}] * 4, Outcomes(np.arange(4), classes=classes))

    def select_names(*metrics: float) -> str:
        candidates = [
            Candidate(Family(name, make_unfitted_heads, ({},)), {}, np.zeros(4), metric)
            for name, metric in zip("abc", metrics, strict=False)
        ]
        assert RFS.weigh_candidates(candidates, stages) == pytest.approx([max(m - 0.5, 0) ** 2 for m in metrics])
        weights = T_STAGE.weigh_candidates(candidates, stages)
        return "".join(candidate.name for candidate, weight in zip(candidates, weights, strict=True) if weight)

    assert select_names(0.8, 0.773, 0.772) == "ab"
    assert select_names(0.26, 0.265) == ""


def test_scales_by_hand() -> None:
    """Scores of 1 and 3 have the mean 2 and the standard deviation 1. Constant scores are not stretched.

    Classes at -1 and 1 around the mean of each patient have the standard deviation 1, and `NEVER` is left out. The
    mean of 0.1, 0.1 and 0.1 is not exactly 0.1.
    """
    assert compute_scale(np.array([1.0, 3.0])) == (2.0, 1.0)
    assert compute_scale(np.full(3, 0.1)) == (pytest.approx(0.1), 1.0)
    assert compute_scale(np.array([[4.0, 6.0, NEVER], [11.0, 9.0, NEVER]])) == (0.0, 1.0)


def make_cohort(patients: int = 300, seed: int = 5) -> HeadCohort:
    """Return patients with two features that drive the hazard independently, and a feature of noise."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(patients, 3))
    time, censored = rng.exponential(1000 / np.exp(values[:, 0] + values[:, 1])), rng.exponential(1500, patients)
    outcomes = Outcomes((time <= censored).astype(int), np.minimum(time, censored))
    return make_head_cohort([{"x": float(a), "y": float(b), "noise": float(c)} for a, b, c in values], outcomes)


FAMILIES = tuple(Family(name, fit_cox, ({"penalty": 0.1},), {name: "identity"}) for name in ("x", "y", "noise"))


def build_ensemble(families: tuple[Family, ...], cohort: HeadCohort, rng: np.random.Generator) -> CandidateEnsemble:
    target = with_families(RFS, families)
    folds = target.make_folds(cohort, rng)
    candidates = select_candidates(cohort, families, folds, target.selection_metric, rng)
    return make_ensemble(target, cohort, candidates)


def test_two_experts_that_see_half_of_the_truth_are_better_together() -> None:
    """A single driver gives a C-index near 0.67, the sum of both near 0.75.

    The ensemble is a linear head on the scale of a log partial hazard, so that both refitted slopes are 1.
    """
    cohort, rng = make_cohort(), np.random.default_rng(0)
    ensemble = build_ensemble(FAMILIES[:2], cohort, rng)
    assert ensemble.name == "weighted mean of x (48%) + y (52%)"
    assert ensemble.weights == pytest.approx((0.5, 0.5), abs=0.1)
    assert ensemble.metric > max(ensemble.tried.values()) + 0.05
    head = fit_ensemble(ensemble, cohort, rng)
    assert c_index(cohort.outcomes, head.scores(cohort)) == pytest.approx(ensemble.metric, abs=0.03)
    assert isinstance(head, LinearHead)
    assert {term.feature: term.weights[0] for term in head.terms} == pytest.approx({"x": 1.0, "y": 1.0}, abs=0.25)


def test_the_best_candidate_answers_if_no_candidate_is_an_expert() -> None:
    """No model predicts four stages better than chance, 0.25; of the two best models the first is used."""
    classes = tuple(map(str, T_STAGE.answer.classes))
    stages = make_head_cohort([{}] * 4, Outcomes(np.arange(4), classes=classes))
    metrics = {"a": 0.2, "b": 0.25, "c": 0.25}
    candidates = [
        Candidate(Family(name, make_unfitted_heads, ({},)), {}, np.zeros((4, 4)), metric)
        for name, metric in metrics.items()
    ]
    ensemble = make_ensemble(T_STAGE, stages, candidates)
    assert (ensemble.name, ensemble.metric, ensemble.tried) == ("b", 0.25, metrics)


def test_weights_by_hand() -> None:
    """C-indices of 0.7, 0.6 and 0.4 have squared distances of 0.04, 0.01 and 0 from 0.5: the shares are 80% and 20%."""
    cohort, rng = make_cohort(50), np.random.default_rng(0)
    scores = {"a": rng.normal(size=50), "b": rng.normal(size=50), "c": rng.normal(size=50)}
    candidates = [
        Candidate(make_family(name), {}, scores[name], metric) for name, metric in (("a", 0.7), ("b", 0.6), ("c", 0.4))
    ]
    ensemble = make_ensemble(RFS, cohort, candidates)
    assert ensemble.name == "weighted mean of a (80%) + b (20%)"
    assert [record.weight for record in ensemble.records] == pytest.approx([0.8, 0.2])
    a, b = ((scores[name] - scores[name].mean()) / scores[name].std() for name in "ab")
    np.testing.assert_allclose(ensemble.scores, ensemble.slope * (0.8 * a + 0.2 * b))


def make_family(name: str) -> Family:
    return Family(name, make_unfitted_heads, ({},), {name: "identity"})


def test_the_clinical_family_answers_if_no_family_has_skill() -> None:
    """Scores of the only family fall with the hazard, so the family on clinical variables answers."""
    cohort = make_cohort()
    reverse = Family("reverse", fit_reversed, ({},), {"x": "identity"})
    target = replace(with_families(RFS, [reverse]), fallback_family=make_family("y"))
    ensemble = select_ensemble(target, cohort, np.random.default_rng(0))
    assert ensemble.tried["reverse"] < 0.5
    assert ensemble.name == "y"
    [metric] = [record.metric for record in ensemble.records]
    start = "No candidate was better than chance (1 tried); the out-of-fold C-index of"
    assert ensemble.reason == f"{start} y is {metric:.3f}."
    assert fit_ensemble(ensemble, cohort, np.random.default_rng(0)).features == ("y",)
    without_fallback = select_ensemble(with_families(RFS, [reverse]), cohort, np.random.default_rng(0))
    assert (without_fallback.name, without_fallback.reason) == ("reverse", "")  # as a comparator without skill


def test_a_fallback_without_features_answers_nothing() -> None:
    """Without clinical variables all patients have equal scores, which are no better than a model without skill."""
    reverse = Family("reverse", fit_reversed, ({},), {"x": "identity"})
    empty = Family("clinical variables", fit_cox, ({"penalty": 0.1},), {})
    target = replace(with_families(RFS, [reverse]), fallback_family=empty)
    ensemble = select_ensemble(target, make_cohort(), np.random.default_rng(0))
    assert (ensemble.name, ensemble.reason) == ("reverse", "")


def test_a_single_forest_scores_log_partial_hazards() -> None:
    """Only the forest learns that the hazard follows x times y. Martingale residuals vary less than hazards.

    A Cox regression on the ensemble's out-of-fold scores has the slope 1, so that the predicted days vary correctly.
    """
    rng = np.random.default_rng(3)
    values = rng.normal(size=(300, 2))
    hazard = np.exp(1.5 * values[:, 0] * values[:, 1])
    time, censored = rng.exponential(1000 / hazard), rng.exponential(1500, 300)
    outcomes = Outcomes((time <= censored).astype(int), np.minimum(time, censored))
    cohort = make_head_cohort([{"x": float(x), "y": float(y)} for x, y in values], outcomes)
    (forest,) = (family for family in RFS.families if family.fit is fit_risk_forest)
    reverse = Family("reverse", fit_reversed, ({},), {"x": "identity"})
    target = with_families(RFS, [reverse, forest])
    folds = target.make_folds(cohort, rng)
    candidates = select_candidates(cohort, target.families, folds, target.selection_metric, rng)
    candidates[0] = replace(candidates[0], metric=0.4)
    ensemble = make_ensemble(target, cohort, candidates)
    assert ensemble.name == "forest, all features"
    assert log_hazard_slope(ensemble.scores, cohort) == pytest.approx(1.0, rel=1e-3)
    head = fit_ensemble(ensemble, cohort, rng)
    assert isinstance(head, EnsembleHead)
    ((mean, sd),), scores = ensemble.scales, head.experts[0].head.scores(cohort)
    np.testing.assert_allclose(head.scores(cohort), ensemble.slope * (scores - mean) / sd)


def fit_reversed(
    cohort: HeadCohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], _rng: np.random.Generator
) -> list[LinearHead]:
    return [make_linear_head(*(term.model_copy(update={"weights": (-1.0,)}) for term in terms)) for _ in settings]


def test_weights_by_skill_are_not_optimistic_without_an_effect() -> None:
    """The mean nested C-index of 40 cohorts is 0.5 if outcomes do not depend on the features.

    The standard deviation of a C-index is near 0.05, and the standard error of the mean near 0.008.
    """
    values = []
    for seed in range(40):
        rng, cohort = np.random.default_rng(seed), make_cohort(60, seed)
        cohort = replace(cohort, outcomes=cohort.outcomes.pick(rng.permutation(60)))
        predictions = cross_validate_nested(with_families(RFS, FAMILIES), cohort, rng)
        values.append(c_index(cohort.outcomes, predictions.scores))
    assert abs(np.mean(values) - 0.5) < 0.025


# The head


def draw_head(rng: np.random.Generator, shared: list[Term]) -> LinearHead:
    """Draw a head with new weights for some of the shared terms, and a term of its own."""
    terms = [known.model_copy(update={"weights": (float(rng.normal()),)}) for known in shared if rng.random() < 0.7]
    own = term("age", float(rng.normal()), fill=1.0, mean=float(rng.normal()), sd=2.0)
    return make_linear_head(*terms, own, intercept=float(rng.normal()))


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_the_folded_head_scores_as_the_weighted_mean_of_its_experts(seed: int, count: int) -> None:
    """Scores equal the weighted mean of the single heads' scores, with missing and extreme (clipped) values."""
    rng = np.random.default_rng(seed)
    shared = [
        term(name, transform=kind, fill=rng.normal(), mean=rng.normal(), sd=rng.uniform(0.1, 3))
        for name, kind in zip(FEATURES, ("identity", "log1p", "identity"), strict=True)
    ]
    heads = [draw_head(rng, shared) for _ in range(count)]
    scales = [(float(rng.normal()), float(rng.uniform(0.1, 5))) for _ in heads]
    weights = rng.uniform(0.1, 3, count)
    experts = [
        make_expert(str(number), *scale, head, weight)
        for number, (scale, head, weight) in enumerate(zip(scales, heads, weights.tolist(), strict=True))
    ]
    combined = combine_experts(experts)
    for _ in range(5):
        values = rng.normal(0, 1, 3) * rng.choice([1.0, 100.0])
        row = {name: None if rng.random() < 0.2 else float(v) for name, v in zip(FEATURES, values, strict=True)}
        naive = [(score(head, row) - mean) / sd for (mean, sd), head in zip(scales, heads, strict=True)]
        assert score(combined, row) == pytest.approx(weights @ naive / weights.sum(), rel=1e-9, abs=1e-9)
        complete = row | {"age": 0.5}  # an expert without a known feature would be left out
        assert score(EnsembleHead(experts=tuple(experts)), complete) == pytest.approx(
            score(combined, complete), rel=1e-9
        )
    assert len(combined.terms) <= len(FEATURES) + count


def make_expert(name: str, mean: float, sd: float, head: LinearHead, weight: float = 1.0) -> Expert:
    return Expert(name=name, mean=mean, sd=sd, weight=weight, head=head)


def test_heads_of_classes_are_folded_class_by_class() -> None:
    """T1 scores (1 / 2 + 3) / 2 = 1.75. T3 has no training patients in either head and never wins."""

    def make_classes(weight: float) -> LinearHead:
        return make_class_head({"T1": 0.0, "T3": NEVER}, term("x", weight, 0.0))

    head = combine_experts(
        [make_expert("a", 0.0, 2.0, make_classes(1.0)), make_expert("b", 0.0, 1.0, make_classes(3.0))]
    )
    assert score(head, {"x": 1.0}) == {"T1": 1.75, "T3": NEVER}
