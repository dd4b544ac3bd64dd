"""Several linear experts become one linear head with the same score."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.heads.classes import ClassHead
from algorithm.heads.experts import ClassExpertHead, Expert, ExpertHead
from algorithm.heads.linear import CentreShift, LinearHead, Term
from baseline.heads.models.classes import NEVER
from baseline.heads.models.folding import average_of, folded

FEATURES = ("age", "volume", "suv_max")


def random_head(rng: np.random.Generator, shared: list[Term]) -> LinearHead:
    """Some of the shared terms with weights of its own, and a term that only this head has."""
    terms = [
        Term(one.feature, one.transform, one.fill, one.mean, one.sd, float(rng.normal()), one.centres)
        for one in shared
        if rng.random() < 0.7
    ]
    own = Term("age", "identity", 1.0, float(rng.normal()), 2.0, float(rng.normal()))
    return LinearHead("log partial hazard", float(rng.normal()), (*terms, own), None)


def shared_terms(rng: np.random.Generator) -> list[Term]:
    shifts = [{}, {}, {"A": CentreShift(float(rng.normal()), float(rng.uniform(0.5, 2)))}]
    return [
        Term(name, transform, float(rng.normal()), float(rng.normal()), float(rng.uniform(0.1, 3)), 0.0, shift)
        for name, transform, shift in zip(FEATURES, ("identity", "log1p", "identity"), shifts, strict=True)
    ]


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_the_folded_head_scores_as_the_mean_of_its_experts(seed: int, count: int) -> None:
    """Naive oracle: each head scores on its own, with missing, extreme (clipped) and harmonised values."""
    rng = np.random.default_rng(seed)
    shared = shared_terms(rng)
    heads = [random_head(rng, shared) for _ in range(count)]
    scales = [(float(rng.normal()), float(rng.uniform(0.1, 5))) for _ in heads]
    one = folded([(mean, sd, head) for (mean, sd), head in zip(scales, heads, strict=True)])
    for _ in range(5):
        values = rng.normal(0, 1, 3) * rng.choice([1.0, 100.0])
        row = {name: None if rng.random() < 0.2 else float(v) for name, v in zip(FEATURES, values, strict=True)}
        for centre in (None, "A", "B"):
            naive = [(h.score(row, centre) - mean) / sd for (mean, sd), h in zip(scales, heads, strict=True)]
            assert one.score(row, centre) == pytest.approx(sum(naive) / count, rel=1e-9, abs=1e-9)
    assert len(one.terms) <= len(FEATURES) + count


def test_equal_terms_are_added_by_hand() -> None:
    """Weights 2 / 4 and 1 / 1, halved: 0.25 + 0.5 = 0.75. Intercepts (3 - 1) / 4 and (0 - 2) / 1, halved: -0.75."""
    first = LinearHead("a", 3.0, (Term("x", "identity", 0.0, 0.0, 1.0, 2.0),), None)
    second = LinearHead("b", 0.0, (Term("x", "identity", 0.0, 0.0, 1.0, 1.0),), None)
    head = folded([(1.0, 4.0, first), (2.0, 1.0, second)])
    assert head == LinearHead("a and b", -0.75, (Term("x", "identity", 0.0, 0.0, 1.0, 0.75),), None)


def test_terms_that_differ_in_their_scaling_stay_apart() -> None:
    first = LinearHead("a", 0.0, (Term("x", "identity", 0.0, 0.0, 1.0, 2.0),), None)
    second = LinearHead("a", 0.0, (Term("x", "identity", 0.0, 0.0, 1.5, 1.0),), None)
    assert len(folded([(0.0, 1.0, first), (0.0, 1.0, second)]).terms) == 2


def test_a_single_expert_on_its_own_scale_is_its_own_head() -> None:
    head = LinearHead("a", 0.0, (Term("x", "identity", 0.0, 0.0, 1.0, 2.0),), None)
    assert average_of([("only", 0.0, 1.0, head)]) is head


def test_an_expert_that_may_be_left_out_is_not_folded() -> None:
    """The output of an outcome network is absent where there is no time; the others then answer alone."""
    plain = LinearHead("a", 0.0, (Term("x", "identity", 0.0, 0.0, 1.0, 2.0),), None)
    network = LinearHead("a", 0.0, (Term("outcome_rfs", "identity", 0.0, 0.0, 1.0, 1.0),), None)
    head = average_of([("plain", 0.0, 1.0, plain), ("network", 0.0, 1.0, network)])
    assert head == ExpertHead((Expert("plain", 0.0, 1.0, plain), Expert("network", 0.0, 1.0, network)))
    assert head.score({"x": 1.0}) == 2.0


def test_heads_of_classes_are_folded_class_by_class() -> None:
    """T1: (1 / 2 + 3) / 2 = 1.75. T3 has no training patients in either head and never wins."""

    def classes(weight: float) -> ClassHead:
        one = LinearHead("logit of T1", 0.0, (Term("x", "identity", 0.0, 0.0, 1.0, weight),), None)
        never = LinearHead("logit of T3", NEVER, (), None)
        return ClassHead({"T1": one, "T3": never})

    head = average_of([("a", 0.0, 2.0, classes(1.0)), ("b", 0.0, 1.0, classes(3.0))])
    assert isinstance(head, ClassHead)
    assert head.scores({"x": 1.0}) == {"T1": 1.75, "T3": NEVER}


def test_class_experts_that_may_be_left_out_stay_a_list() -> None:
    one = LinearHead("logit", 0.0, (Term("x", "identity", 0.0, 0.0, 1.0, 1.0),), None)
    other = LinearHead("logit", 0.0, (Term("outcome_t", "identity", 0.0, 0.0, 1.0, 1.0),), None)
    heads = [ClassHead({"T1": one, "T2": one}), ClassHead({"T1": other, "T2": other})]
    head = average_of([("a", 0.0, 1.0, heads[0]), ("b", 0.0, 1.0, heads[1])])
    assert isinstance(head, ClassExpertHead)
    assert head.scores({"x": 3.0}) == {"T1": 3.0, "T2": 3.0}
