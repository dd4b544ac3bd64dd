from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.heads.linear import Calibration, CentreShift, LinearHead, Term, parse_head
from algorithm.heads.survival import Survival
from algorithm.network.package import DEFAULT_PACKAGE
from contract.errors import ModelPackageError
from tests.damage import damaged

HEAD = LinearHead(
    "log partial hazard",
    0.25,
    (
        Term("gtvp_volume_ml", "log1p", fill=math.e - 1, mean=2.0, sd=0.5, weight=0.4),
        Term("age_years", "identity", fill=60.0, mean=61.0, sd=10.0, weight=-0.3),
    ),
    None,
)


def test_a_score_by_hand() -> None:
    """Volume e^3 - 1: log1p 3, (3 - 2) / 0.5 = 2, times 0.4 is 0.8. Age 71: +1, times -0.3. With 0.25: 0.75."""
    assert HEAD.score({"gtvp_volume_ml": math.exp(3) - 1, "age_years": 71.0}) == pytest.approx(0.75)


@pytest.mark.parametrize("missing", [{}, {"age_years": None, "gtvp_volume_ml": None}, {"age_years": math.nan}])
def test_missing_values_take_the_training_median(missing: dict[str, float | None]) -> None:
    """Volume e - 1: log1p 1, (1 - 2) / 0.5 = -2, times 0.4 is -0.8. Age 60: -0.1, times -0.3 is 0.03. Sum -0.52."""
    assert HEAD.score(missing) == pytest.approx(0.25 - 0.8 + 0.03)
    assert [term.feature for term in HEAD.missing({})] == ["gtvp_volume_ml", "age_years"]


def test_extreme_values_are_clipped_to_four_standard_deviations() -> None:
    """Volume e^40: clipped to +4, times 0.4 is 1.6. Age 0: clipped from -6.1 to -4, times -0.3 is 1.2."""
    assert HEAD.score({"gtvp_volume_ml": math.exp(40), "age_years": 0.0}) == pytest.approx(0.25 + 1.6 + 1.2)


def test_negative_values_count_as_zero_before_the_logarithm() -> None:
    assert HEAD.score({"gtvp_volume_ml": -5.0, "age_years": 61.0}) == HEAD.score(
        {"gtvp_volume_ml": 0.0, "age_years": 61.0}
    )


@given(st.dictionaries(st.sampled_from(["gtvp_volume_ml", "age_years", "other"]), st.none() | st.floats()))
def test_every_score_is_finite(features: dict[str, float | None]) -> None:
    score = HEAD.score(features)
    assert math.isfinite(score)
    assert 0.25 - 4 * 0.7 - 1e-9 <= score <= 0.25 + 4 * 0.7 + 1e-9


def test_a_head_is_the_same_after_json() -> None:
    for head in (HEAD, replace(HEAD, survival=Survival((100.0, 900.0), (0.1, 0.5)))):
        assert parse_head(json.loads(json.dumps(head.as_json())), "heads/rfs.json") == head
    assert "survival" not in HEAD.as_json()


HARMONISED = LinearHead(
    "logit",
    0.0,
    (Term("x", "identity", 7.0, 5.0, 2.0, 1.0, {"CHUM": CentreShift(0.5, 2.0)}),),
    0.0,
    Calibration(2.0, -1.0),
)


def test_only_training_centres_are_corrected() -> None:
    """Value 8: (8 - 5) / 2 = 1.5; at CHUM (1.5 - 0.5) / 2 = 0.5. A missing value takes the median 7: 1, uncorrected."""
    assert HARMONISED.score({"x": 8.0}) == 1.5
    assert HARMONISED.score({"x": 8.0}, "CHUM") == 0.5
    assert HARMONISED.score({"x": 8.0}, "USZ") == 1.5
    assert HARMONISED.score({"x": None}, "CHUM") == 1.0
    assert parse_head(json.loads(json.dumps(HARMONISED.as_json())), "heads/hpv.json") == HARMONISED


@pytest.mark.skipif(not DEFAULT_PACKAGE.is_dir(), reason="no default model package in this checkout")
def test_heads_of_the_shipped_package_are_written_as_they_were_read() -> None:
    paths = sorted((DEFAULT_PACKAGE / "heads").glob("*.json"))
    assert paths
    for path in paths:
        content = json.loads(path.read_text())
        assert parse_head(content, path.name).as_json() == content


def changed(path: tuple[Any, ...], value: Any) -> Any:
    return damaged(HEAD.as_json(), path, value)


def with_survival(days: list[Any], hazard: list[Any]) -> Any:
    return {**HEAD.as_json(), "survival": {"days": days, "cumulative_hazard": hazard}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "not a head"),
        (None, "not a head"),
        (changed(("terms",), KeyError), "no 'terms', expected a head"),
        (changed(("threshold",), KeyError), "no 'threshold', expected a head"),
        (changed(("terms",), 3), "not a head"),
        (changed(("terms", 0), 3), "not a head"),
        (changed(("terms", 0, "fill"), KeyError), "no 'fill', expected a head"),
        (changed(("intercept",), "0.1"), "found 0.1, expected a finite number"),
        (changed(("intercept",), math.nan), "found nan"),
        (changed(("intercept",), 10**400), "found 1000"),
        (changed(("threshold",), math.inf), "found inf"),
        (changed(("terms", 1, "weight"), True), "found True"),
        (changed(("terms", 1, "weight"), None), "found None"),
        (changed(("terms", 1, "sd"), 0), "sd 0.0 of age_years, expected a positive number"),
        (with_survival([], []), "survival with 0 days and 0 values of cumulative_hazard, expected the same number"),
        (with_survival([1.0, 2.0], [0.1]), "survival with 2 days and 1 values of cumulative_hazard"),
        (with_survival([float(n) for n in range(1, 66)], [0.1] * 65), "survival with 65 days .* 1 to 64"),
        (with_survival([2.0, 2.0], [0.1, 0.2]), "survival that does not rise, expected ascending days and hazards"),
        (with_survival([0.0, 2.0], [0.1, 0.2]), "survival that does not rise"),
        (with_survival([1.0, 2.0], [0.2, 0.1]), "survival that does not rise"),
        (with_survival([1.0], [0.0]), "survival that does not rise"),
        (with_survival(["900"], [0.1]), "found 900, expected a finite number"),
        (with_survival([900.0], [math.inf]), "found inf, expected a finite number"),
        ({**HEAD.as_json(), "survival": {"days": [1.0]}}, "no 'cumulative_hazard', expected a head"),
        ({**HEAD.as_json(), "survival": 900.0}, "not a head"),
        ({**HEAD.as_json(), "calibration": 3}, "not a head"),
        ({**HEAD.as_json(), "calibration": {"slope": "1", "offset": 0}}, "found 1, expected a finite number"),
        (changed(("terms", 0, "centres"), {"A": {"shift": 0, "scale": 0}}), "scale 0.0 of gtvp_volume_ml, expected a"),
        (changed(("terms", 0, "centres"), [1]), "not a head"),
        (changed(("terms", 1, "transform"), "eval"), "transform 'eval', expected one of identity, log1p"),
        (changed(("terms", 1, "feature"), "encoder_017"), "the encoder feature 'encoder_017', .*expected a"),
    ],
)
def test_content_that_is_no_head(content: Any, message: str) -> None:
    with pytest.raises(ModelPackageError, match=rf"^heads/rfs\.json: {message}"):
        parse_head(content, "heads/rfs.json")
