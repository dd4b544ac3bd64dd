"""Heads: scores by hand, ensembles with unavailable experts, and damaged content."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.heads.documents import CustomHead, EnsembleHead, Expert, Head, read_head
from algorithm.heads.parts import Calibration, Survival
from algorithm.heads.values import compute_head_answer
from algorithm.network.loaded_package import DEFAULT_PACKAGES
from contract.editions import load_edition
from contract.errors import ModelPackageError
from tests.algorithm.heads.head_parts import make_class_head, make_linear_head, score, term
from tests.damage import replace_at

HPV = load_edition("hecktor2025").find_algorithm("hpv").find_answer("hpv")
RFS_DAYS = load_edition("hecktor2026").find_algorithm().find_answer("rfs")
SURVIVAL = Survival(days=(100.0, 900.0), cumulative_hazard=(0.1, 0.5))
LINEAR = make_linear_head(
    term("gtvp_volume_ml", 0.4, transform="log1p", fill=math.e - 1, mean=2.0, sd=0.5),
    term("age_years", -0.3, fill=60.0, mean=61.0, sd=10.0),
    intercept=0.25,
    scale="log partial hazard",
)
ENSEMBLE = EnsembleHead(
    experts=(
        Expert(name="plain", mean=1.0, sd=2.0, head=make_linear_head(term("a", 2.0))),
        Expert(name="network", mean=-1.0, sd=0.5, head=make_linear_head(term("deep:rfs"))),
    ),
    threshold=0.25,
    calibration=Calibration(slope=2.0, offset=-1.0),
    survival=SURVIVAL,
)
STAGES = make_class_head({"T2": 1.0, "T1": 0.0, "T3": 0.0}, term("x", 0.0, -1.0, 1.0))
CUSTOM = CustomHead(hook="my_code:Head", folder="rfs/my_code.Head", features=("a", "b"), mean=3.0, survival=SURVIVAL)
SEVERAL = CustomHead(hook="my_code:Head", folder="t", features=(), classes=("T1", "T2", "T3"), fitted=("T1", "T3"))


def make_expert(name: str, sd: float, intercept: float) -> Expert:
    head = make_class_head({"T1": 0.0, "T2": intercept}, term(name, 1.0, 0.0))
    return Expert(name=f"by {name}", mean=0.0, sd=sd, head=head)


CLASSES = EnsembleHead(experts=(make_expert("a", 1.0, 1.5), make_expert("b", 4.0, 2.0)))

# Linear heads


def test_a_score_by_hand() -> None:
    """Volume e^3 - 1: log1p 3, (3 - 2) / 0.5 = 2, times 0.4 is 0.8. Age 71: +1, times -0.3. With 0.25: 0.75."""
    assert score(LINEAR, {"gtvp_volume_ml": math.exp(3) - 1, "age_years": 71.0}) == pytest.approx(0.75)


@pytest.mark.parametrize("missing", [{}, {"age_years": None, "gtvp_volume_ml": None}, {"age_years": math.nan}])
def test_missing_values_take_the_training_median(missing: dict[str, float | None]) -> None:
    """Volume e - 1: log1p 1, (1 - 2) / 0.5 = -2, times 0.4 is -0.8. Age 60: -0.1, times -0.3 is 0.03. Sum -0.52."""
    assert score(LINEAR, missing) == pytest.approx(0.25 - 0.8 + 0.03)
    assert [term.feature for term in LINEAR.list_missing_features({})] == ["gtvp_volume_ml", "age_years"]


def test_extreme_values_are_clipped_to_four_standard_deviations() -> None:
    """Volume e^40: clipped to +4, times 0.4 is 1.6. Age 0: clipped from -6.1 to -4, times -0.3 is 1.2. A negative
    volume counts as zero before the logarithm.
    """
    assert score(LINEAR, {"gtvp_volume_ml": math.exp(40), "age_years": 0.0}) == pytest.approx(0.25 + 1.6 + 1.2)
    assert score(LINEAR, {"gtvp_volume_ml": -5.0}) == score(LINEAR, {"gtvp_volume_ml": 0.0})


@given(st.dictionaries(st.sampled_from(["gtvp_volume_ml", "age_years", "a", "deep:rfs"]), st.none() | st.floats()))
def test_every_score_is_finite(features: dict[str, float | None]) -> None:
    """Standardised values are clipped to 4: in the ensemble plain is at most (8 - 1) / 2, network (4 + 1) / 0.5."""
    assert 0.25 - 4 * 0.7 - 1e-9 <= score(LINEAR, features) <= 0.25 + 4 * 0.7 + 1e-9
    assert -6 <= score(ENSEMBLE, features) <= 10


def test_standardising_a_column_is_standardising_each_value() -> None:
    """Both use the logarithm of the C library."""
    rng = np.random.default_rng(0)
    values = np.where(rng.random(200) < 0.1, np.nan, rng.normal(3, 4, 200))
    (volume, _) = LINEAR.terms
    expected = [volume.standardise(values[[number]])[0] for number in range(200)]
    assert volume.standardise(values).tolist() == expected
    known = max(float(values[np.flatnonzero(np.isfinite(values))[0]]), 0.0)
    assert expected[np.flatnonzero(np.isfinite(values))[0]] == max(-4.0, (math.log1p(known) - 2.0) / 0.5)


# Ensembles


def test_an_ensemble_by_hand() -> None:
    """Plain: 2 x 3 = 6, (6 - 1) / 2 = 2.5. Network: 0.5, (0.5 + 1) / 0.5 = 3. Mean 2.75."""
    assert score(ENSEMBLE, {"a": 3.0, "deep:rfs": 0.5}) == pytest.approx(2.75)
    assert ENSEMBLE.features == ("a", "deep:rfs")


def test_an_expert_without_features_is_left_out() -> None:
    """Without the network's output the score is 2.5, not a mean with the network's training median."""
    assert score(ENSEMBLE, {"a": 3.0, "deep:rfs": None}) == pytest.approx(2.5)
    assert ENSEMBLE.list_unavailable_experts({"a": 3.0}) == ("network",)
    assert ENSEMBLE.list_missing_features({"a": 3.0}) == ()


def test_all_experts_answer_if_none_has_a_feature() -> None:
    """Training medians are 0: plain (0 - 1) / 2 = -0.5, network (0 + 1) / 0.5 = 2. Mean 0.75."""
    assert score(ENSEMBLE, {}) == pytest.approx(0.75)
    assert ENSEMBLE.list_unavailable_experts({}) == ()
    assert [term.feature for term in ENSEMBLE.list_missing_features({})] == ["a", "deep:rfs"]


def test_classes_are_averaged_one_by_one() -> None:
    """T1: (1 + 2 / 4) / 2 = 0.75. T2: (1.5 + 2 / 4) / 2 = 1. So T2, although the second expert ties."""
    assert score(CLASSES, {"a": 1.0, "b": 2.0}) == pytest.approx({"T1": 0.75, "T2": 1.0})
    assert score(CLASSES, {"b": 4.0}) == pytest.approx({"T1": 1.0, "T2": 0.5})
    assert CLASSES.list_unavailable_experts({"b": 4.0}) == ("by a",)


def test_answers_of_an_ensemble() -> None:
    """A score of 2.75 gives the probability 1 / (1 + exp(-(2 x 2.75 - 1))) = 1 / (1 + exp(-4.5)), and its days."""
    features = {"a": 3.0, "deep:rfs": 0.5}
    assert compute_head_answer(HPV, ENSEMBLE, features).probability == pytest.approx(1 / (1 + math.exp(-4.5)))
    assert compute_head_answer(RFS_DAYS, ENSEMBLE, features).value == SURVIVAL.restricted_mean(2.75)


# Documents


@pytest.mark.parametrize(
    "head", [LINEAR, make_linear_head(survival=SURVIVAL), STAGES, CUSTOM, SEVERAL, ENSEMBLE, CLASSES]
)
def test_a_head_is_the_same_after_json(head: Head) -> None:
    assert read_head(json.loads(json.dumps(head.as_json())), "heads/x.json") == head
    assert "survival" not in LINEAR.as_json()


@pytest.mark.parametrize("path", sorted(DEFAULT_PACKAGES.glob("*/heads/*.json")), ids=lambda path: path.stem)
def test_heads_of_the_shipped_packages_are_written_as_they_were_read(path: Path) -> None:
    content = json.loads(path.read_text())
    assert json.dumps(read_head(content, path.name).as_json()) == json.dumps(content)


def change_head(head: Head, path: tuple[Any, ...], value: Any) -> Any:
    return replace_at(head.as_json(), path, value)


def add_survival(days: Any, hazard: Any) -> Any:
    return {**LINEAR.as_json(), "survival": {"days": days, "cumulative_hazard": hazard}}


RISING = "expected ascending days and hazards above 0"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], r": found \[\]"),
        ({**LINEAR.as_json(), "kind": "logit"}, ": found kind 'logit', expected a head of kind linear, forest, custom"),
        (change_head(LINEAR, ("intercepts", 0), 10**400), r"\.intercepts\[0\]: found 1000"),
        (change_head(LINEAR, ("intercepts", 0), 1e101), r"\.intercepts\[0\]: found 1e\+101"),
        (change_head(LINEAR, ("intercepts",), [0.0, 1.0]), r"expected 1 of intercepts and of each term's weights"),
        (change_head(STAGES, ("terms", 0, "weights"), [0.0]), r"expected 3 of intercepts and of each term's weights"),
        (change_head(SEVERAL, ("fitted", 1), "T4"), "expected in fitted at least two of the classes T1, T2, T3"),
        (change_head(LINEAR, ("terms", 1, "sd"), 0), r"\.terms\[1\]\.sd: found 0"),
        (change_head(LINEAR, ("terms", 1, "transform"), "eval"), r"\.transform: found \"eval\""),
        (add_survival([1.0, 2.0], [0.1]), r"\.survival: found .* expected as many values of cumulative_hazard"),
        (add_survival([float(n) for n in range(1, 66)], [0.1] * 65), r"\.survival\.days: .* at most 64"),
        (add_survival([2.0, 2.0], [0.1, 0.2]), RISING),
        (add_survival([0.0, 2.0], [0.1, 0.2]), RISING),
        (add_survival([1.0, 2.0], [0.2, 0.1]), RISING),
        (add_survival([1.0], [0.0]), RISING),
        ({**LINEAR.as_json(), "classes": ["T1"]}, "expected two different classes or more"),
        (change_head(ENSEMBLE, ("experts",), []), r"\.experts: found \[\]"),
        (change_head(ENSEMBLE, ("experts", 0, "name"), "network"), r"\.experts: .* not 'network' twice"),
        (change_head(ENSEMBLE, ("experts", 0, "head"), ENSEMBLE.as_json()), r"\.head: .* 'linear', 'forest', 'custom'"),
        (change_head(CLASSES, ("experts", 1, "head"), LINEAR.as_json()), "the classes of the first expert, T1, T2, in"),
    ],
)
def test_damaged_content_is_refused_in_plain_words(content: Any, message: str) -> None:
    with pytest.raises(ModelPackageError, match=message) as fault:
        read_head(content, "heads/rfs.json")
    assert str(fault.value).startswith("heads/rfs.json")
    assert len(str(fault.value).splitlines()) == 1
