"""Values of submissions: numbers, booleans and unusable ones."""

from __future__ import annotations

import pytest

from contract.errors import PredictionError
from evaluation.inputs.submission import PredictedClass, read_class, read_risk
from tests.evaluation.tasks import STATUS


@pytest.mark.parametrize(("text", "value"), [("0.7", 0.7), ("-3", -3.0), ("1e-300", 1e-300), (" 0.25\n", 0.25)])
def test_risks(tmp_path, text, value):
    (tmp_path / "rfs.json").write_text(text)
    assert read_risk(tmp_path / "rfs.json") == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("NaN", "found NaN"),
        ("1e999", "too large"),
        ('"0.7"', "found a string"),
        ("true", "found a boolean"),
        ("null", "found a null"),
        ("[0.7]", "found a list"),
        ('{"risk": 0.7}', "found a object"),
        ('{"a": ' * 5000 + "1" + "}" * 5000, "nested too deeply|found a object"),
        ("0." + "7" * 70_000, "bytes, expected at most"),
    ],
)
def test_unusable_risks(tmp_path, text, message):
    (tmp_path / "rfs.json").write_text(text)
    with pytest.raises(PredictionError, match=message):
        read_risk(tmp_path / "rfs.json")


@pytest.mark.parametrize("text", ["1", "0", "0.9", '"true"', "null", "[true]", "True"])
def test_unusable_classes(tmp_path, text):
    (tmp_path / "hpv-status.json").write_text(text)
    with pytest.raises(PredictionError):
        read_class(tmp_path / "hpv-status.json", STATUS)


def test_statuses(tmp_path):
    (tmp_path / "hpv-status.json").write_text("true")
    assert read_class(tmp_path / "hpv-status.json", STATUS) == PredictedClass(True)


def test_a_probability_is_not_read_from_the_platform(tmp_path):
    (tmp_path / "hpv-status.json").write_text('{"hpv": true, "probability": 0.9}')
    with pytest.raises(PredictionError, match=r'found {"hpv": true, "probability": 0.9}'):
        read_class(tmp_path / "hpv-status.json", STATUS)
