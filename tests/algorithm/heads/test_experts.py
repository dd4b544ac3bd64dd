"""Heads that average experts: scores by hand, unavailable experts, and damaged content in plain words."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.heads.classes import ClassHead, read_head
from algorithm.heads.experts import ClassExpertHead, Expert, ExpertHead
from algorithm.heads.linear import Calibration, LinearHead, Term
from algorithm.heads.survival import Survival
from algorithm.heads.values import answer_value, check_head, class_probability
from contract.editions import load_edition
from contract.errors import ModelPackageError
from tests.damage import damaged

RFS_DAYS = load_edition("hecktor2026").algorithm().answer("rfs")
T_STAGE = load_edition("hecktor2026").algorithm().answer("t_stage")


def linear(feature: str, weight: float = 1.0, intercept: float = 0.0) -> LinearHead:
    return LinearHead("test", intercept, (Term(feature, "identity", 0.0, 0.0, 1.0, weight),), None)


HEAD = ExpertHead(
    (Expert("plain", 1.0, 2.0, linear("a", 2.0)), Expert("network", -1.0, 0.5, linear("outcome_rfs"))),
    0.25,
    Calibration(2.0, -1.0),
    Survival((100.0, 900.0), (0.1, 0.5)),
)
CLASSES = ClassExpertHead(
    (
        Expert("first", 0.0, 1.0, ClassHead({"T1": linear("a"), "T2": linear("a", 0.0, 1.5)})),
        Expert("second", 0.0, 4.0, ClassHead({"T1": linear("b"), "T2": linear("b", 0.0, 2.0)})),
    )
)


def test_a_score_by_hand() -> None:
    """Plain: 2 x 3 = 6, (6 - 1) / 2 = 2.5. Network: 0.5, (0.5 + 1) / 0.5 = 3. Mean 2.75."""
    assert HEAD.score({"a": 3.0, "outcome_rfs": 0.5}) == pytest.approx(2.75)
    assert HEAD.features == ("a", "outcome_rfs")


def test_an_expert_without_any_feature_is_left_out() -> None:
    """Without the network's output the score is 2.5 alone, not a mean with the network's training median."""
    assert HEAD.score({"a": 3.0, "outcome_rfs": None}) == pytest.approx(2.5)
    assert HEAD.unavailable({"a": 3.0}) == ("network",)
    assert HEAD.missing({"a": 3.0}) == ()


def test_all_experts_answer_if_none_has_a_feature() -> None:
    """Training medians are 0: plain (0 - 1) / 2 = -0.5, network (0 + 1) / 0.5 = 2. Mean 0.75."""
    assert HEAD.score({}) == pytest.approx(0.75)
    assert HEAD.unavailable({}) == ()
    assert [term.feature for term in HEAD.missing({})] == ["a", "outcome_rfs"]


def test_classes_are_averaged_one_by_one() -> None:
    """T1: (1 + 2 / 4) / 2 = 0.75. T2: (1.5 + 2 / 4) / 2 = 1. So T2, although the second expert ties."""
    features = {"a": 1.0, "b": 2.0}
    assert CLASSES.scores(features) == pytest.approx({"T1": 0.75, "T2": 1.0})
    assert CLASSES.scores({"b": 4.0}) == pytest.approx({"T1": 1.0, "T2": 0.5})
    assert CLASSES.unavailable({"b": 4.0}) == ("first",)


@pytest.mark.parametrize("head", [HEAD, CLASSES])
def test_the_same_after_json(head: ExpertHead | ClassExpertHead) -> None:
    assert read_head(json.loads(json.dumps(head.as_json())), "heads/x.json") == head


def test_answers_of_a_mean() -> None:
    """Score 2.75: probability 1 / (1 + exp(-(2 x 2.75 - 1))) = 1 / (1 + exp(-4.5)); the days are those of the score."""
    features = {"a": 3.0, "outcome_rfs": 0.5}
    assert class_probability(HEAD, HEAD.score(features)) == pytest.approx(1 / (1 + math.exp(-4.5)))
    assert HEAD.survival is not None
    assert answer_value(RFS_DAYS, HEAD, features) == HEAD.survival.restricted_mean(2.75)
    check_head(RFS_DAYS, HEAD, "rfs")
    with pytest.raises(ModelPackageError, match="expected a head for each of 4 classes"):
        check_head(T_STAGE, HEAD, "t_stage")
    with pytest.raises(ModelPackageError, match="classes T1, T2"):
        check_head(T_STAGE, CLASSES, "t_stage")


@given(st.dictionaries(st.sampled_from(["a", "outcome_rfs", "other"]), st.none() | st.floats()))
def test_every_score_is_finite(features: dict[str, float | None]) -> None:
    """Standardised values are clipped to 4: plain at most (8 - 1) / 2, network at most (4 + 1) / 0.5."""
    score = HEAD.score(features)
    assert math.isfinite(score)
    assert -6 <= score <= 10


def changed(head: ExpertHead | ClassExpertHead, path: tuple[Any, ...], value: Any) -> Any:
    return damaged(head.as_json(), path, value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"experts": []}, "no experts, expected `experts`, a list of one or more"),
        ({"experts": 3}, "experts that are no list"),
        ({"experts": None}, "experts that are no list"),
        ({**HEAD.as_json(), "terms": []}, "keys experts, threshold, calibration, survival, terms"),
        (changed(HEAD, ("experts", 0), 3), "no expert, expected an object with head, mean, name, sd"),
        (changed(HEAD, ("experts", 0, "sd"), KeyError), "an expert with name, mean, head, expected an object"),
        (changed(HEAD, ("experts", 0, "weight"), 2.0), "an expert with name, mean, sd, head, weight"),
        (changed(HEAD, ("experts", 0, "sd"), 0.0), "sd 0.0, expected a positive number"),
        (changed(HEAD, ("experts", 0, "sd"), -1.0), "sd -1.0, expected a positive number"),
        (changed(HEAD, ("experts", 0, "mean"), math.nan), "found nan, expected a finite number"),
        (changed(HEAD, ("experts", 0, "mean"), "1"), "found 1, expected a finite number"),
        (changed(HEAD, ("experts", 0, "name"), ""), "expert named '', expected a name"),
        (changed(HEAD, ("experts", 0, "name"), 7), "expert named '7', expected a name"),
        (changed(HEAD, ("experts", 0, "name"), "network"), "two experts named 'network'"),
        (changed(HEAD, ("experts", 0, "head"), {}), "expert 'plain'.*no 'terms', expected a head"),
        (changed(HEAD, ("experts", 0, "head"), HEAD.as_json()), "an average of experts, expected a single head"),
        (changed(HEAD, ("threshold",), math.inf), "found inf"),
        (changed(HEAD, ("calibration",), {"slope": 1.0}), "no 'offset', expected a head"),
        (changed(HEAD, ("survival", "days"), [5.0, 1.0]), "survival that does not rise"),
        (changed(CLASSES, ("experts", 0, "head"), linear("a").as_json()), "experts with one score and experts of cl"),
        (changed(CLASSES, ("experts", 0, "head", "classes", "T3"), linear("a").as_json()), "expert 'second' with cl"),
        ({**CLASSES.as_json(), "threshold": 0.0}, "keys experts, threshold, expected `experts` alone"),
    ],
)
def test_damaged_experts_are_refused_in_plain_words(content: Any, message: str) -> None:
    with pytest.raises(ModelPackageError, match=message):
        read_head(content, "heads/rfs.json")
