"""Clinical variables of editions other than the shipped one."""

from __future__ import annotations

import pytest

from contract.editions.clinical import ClinicalVariable, ImpossibleValueError, centre_code, normalised_key

T_STAGE = ClinicalVariable(name="t_stage", key="T-stage", type="stage", stages=("T1", "T2", "T4a", "T4b"))
GRADE = ClinicalVariable(name="grade", key="Grade", type="code", codes=(1, 3), words={"low": 1, "high": 3})


@pytest.mark.parametrize(
    ("raw", "stage"),
    [("T4a", "T4a"), ("t4B", "T4b"), ("4a", "T4a"), ("cT2", "T2"), ("pT1", "T1"), (1, "T1"), ("?", None)],
)
def test_stages_with_lower_case_suffixes(raw: object, stage: str | None) -> None:
    assert T_STAGE.read(raw) == stage


@pytest.mark.parametrize(("raw", "code"), [("Low", 1), (" HIGH ", 3), ("2", 2), (None, None)])
def test_codes_with_words(raw: object, code: int | None) -> None:
    assert GRADE.read(raw) == code


def test_impossible_values_name_the_expectation() -> None:
    with pytest.raises(ImpossibleValueError, match=r"^T1 or T2 or T4a or T4b$"):
        T_STAGE.read("T3")
    with pytest.raises(ImpossibleValueError, match=r"^a whole number from 1 to 3$"):
        GRADE.read(0)


def test_features_are_the_index_of_a_stage_and_the_number_of_a_code() -> None:
    assert [T_STAGE.as_feature(stage) for stage in ("T1", "T4b", None)] == [0.0, 3.0, None]
    assert GRADE.as_feature(3) == 3.0


def test_normalised_spellings() -> None:
    assert {normalised_key(key) for key in ("M-stage", "m_stage", "M STAGE")} == {"mstage"}
    assert [centre_code(text) for text in (" mda ", "3.0", "3.5")] == ["MDA", "3", "3.5"]
