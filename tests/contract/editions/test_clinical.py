"""Clinical variables of a custom edition."""

from __future__ import annotations

import math
from typing import Any

import pytest

from contract.documents import Document, parse_document
from contract.editions.clinical import (
    ClinicalVariable,
    CodedNumber,
    FreeNumber,
    ImpossibleValueError,
    Stage,
    normalise_centre,
    normalise_key,
)
from contract.errors import InputError
from contract.patient import parse_ehr

T_STAGE = Stage(name="t_stage", key="T-stage", type="stage", stages=("T1", "T2", "T4a", "T4b"))
WEIGHT = FreeNumber(name="weight_kg", key="Weight", type="number", unit="kg", range=(20.5, 300))


class Declaration(Document):
    weight: ClinicalVariable


GRADE = CodedNumber(name="grade", key="Grade", type="code", codes=(1, 3), words={"low": 1, "high": 3})


T_STAGES = ("T1", "T2", "T4a", "T4b")


@pytest.mark.parametrize(
    ("stages", "raw", "stage"),
    [
        *((T_STAGES, raw, "T4a") for raw in ("T4a", "4a", "t4A")),
        *((T_STAGES, raw, stage) for raw, stage in (("cT2", "T2"), ("pT1", "T1"), (1, "T1"), ("?", None))),
        # A whole stage comes before its parts.
        (("A", "B", "C"), "c", "C"),
        (("CR", "PR"), "PR", "PR"),
        (("T0", "N0"), "cN0", "N0"),
        (("M0", "M1"), "1", "M1"),
        (("I", "II"), "cII", "II"),
    ],
)
def test_spellings_of_stages(stages: tuple[str, ...], raw: object, stage: str | None) -> None:
    assert Stage(name="s", key="S", type="stage", stages=stages).read(raw) == stage


@pytest.mark.parametrize(
    ("stages", "raw"), [(("I", "II"), "P"), (("II", "III"), "I"), (("T1", "N1"), "1"), (("IIIA", "IVA"), "IIA")]
)
def test_parts_of_stages_that_are_no_stage(stages: tuple[str, ...], raw: str) -> None:
    """A prefix alone is no stage. Only the letter of all stages may be absent: the 1 of T1 is also the 1 of N1."""
    with pytest.raises(ImpossibleValueError, match=" or ".join(stages)):
        Stage(name="s", key="S", type="stage", stages=stages).read(raw)


@pytest.mark.parametrize(("raw", "code"), [("Low", 1), (" HIGH ", 3), ("2", 2), (None, None)])
def test_codes_with_words(raw: object, code: int | None) -> None:
    assert GRADE.read(raw) == code


def test_features_are_the_index_of_a_stage_and_the_number_of_a_code() -> None:
    with pytest.raises(ImpossibleValueError, match=r"^a whole number from 1 to 3$"):
        GRADE.read(0)
    assert [T_STAGE.as_feature(stage) for stage in ("T1", "T4b", None)] == [0.0, 3.0, None]
    assert GRADE.as_feature(3) == 3.0


def test_normalised_spellings() -> None:
    assert {normalise_key(key) for key in ("M-stage", "m_stage", "M STAGE")} == {"mstage"}
    assert [normalise_centre(text) for text in (" mda ", "3.0", "3.5")] == ["MDA", "3", "3.5"]


@pytest.mark.parametrize(
    ("raw", "number"), [(20.5, 20.5), ("300", 300.0), ("71,5", 71.5), (80, 80.0), (None, None), ("n/a", None)]
)
def test_a_free_number_is_read_and_is_a_feature(raw: object, number: float | None) -> None:
    value = WEIGHT.read(raw)
    assert value == number
    assert WEIGHT.as_feature(value) == number


@pytest.mark.parametrize("raw", [20.4, "300.5", math.inf, True])
def test_a_free_number_out_of_range(raw: object) -> None:
    with pytest.raises(ImpossibleValueError, match=r"^a number from 20\.5 to 300 kg$"):
        WEIGHT.read(raw)


def test_a_word_for_a_free_number_is_one_line() -> None:
    record = parse_ehr({"weight": "heavy"}, "ehr.json", [WEIGHT])
    assert record.patient.values == {"weight_kg": None}
    assert [str(warning) for warning in record.warnings] == [
        "ehr.json: Weight 'heavy' is not a number, expected a number from 20.5 to 300 kg; counts as missing"
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"range": [9, 9]}, r"x\.weight\.range: found \[9, 9\]"),
        ({"unit": ""}, r'x\.weight\.unit: found ""'),
    ],
)
def test_invalid_declarations_of_a_number(changes: dict[str, Any], message: str) -> None:
    declared = {"name": "weight_kg", "key": "Weight", "type": "number", "unit": "kg", "range": [20, 300], **changes}
    with pytest.raises(InputError, match=message):
        parse_document({"weight": declared}, Declaration, "x")
