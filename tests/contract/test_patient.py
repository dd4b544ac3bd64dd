"""Clinical variables may be missing, spelled in many ways, or impossible."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.editions import load_edition
from contract.errors import Finding, InputError
from contract.patient import (
    Patient,
    PatientRecord,
    describe_id_difference,
    find_centres,
    parse_centre,
    parse_ehr,
    read_ehr,
)

FULL = {
    "Age": 61,
    "Gender": 1,
    "Tobacco Consumption": 0,
    "Alcohol Consumption": 1,
    "Performance Status": 2,
    "Treatment": 1,
    "M-stage": "M0",
    "CenterID": "CHUM",
}
NAMES = ("age_years", "gender", "tobacco", "alcohol", "performance_status", "treatment", "m_stage")
PATIENT = Patient(dict(zip(NAMES, (61.0, 1, 0, 1, 2, 1, "M0"), strict=True)), "CHUM")
CLINICAL = load_edition().clinical


def read_value(patient: Patient, key: str) -> Any:
    """Return the value of the variable with this key."""
    name = next(variable.name for variable in CLINICAL if variable.key == key)
    return patient.as_json()[name]


def list_missing(patient: Patient) -> list[str]:
    return [name for name, value in patient.as_json().items() if value is None]


def parse_with(key: str, value: Any) -> PatientRecord:
    return parse_ehr(FULL | {key: value}, "ehr.json", CLINICAL)


@pytest.mark.parametrize("key", ["Age", "Gender", "M-stage", "CenterID"])
@pytest.mark.parametrize("value", [None, "", "  ", "nan", "NaN", "N/A", "unknown", "?", math.nan], ids=repr)
def test_spellings_of_missing(key: str, value: Any) -> None:
    record = parse_with(key, value)
    assert read_value(record.patient, key) is None
    assert len(list_missing(record.patient)) == 1
    assert record.warnings == (() if key == "CenterID" else (Finding("ehr.json", f"missing {key}"),))


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        *(("Age", value, 61.5) for value in ("61.5", "61,5", " 61.5 ", 61.5)),
        *(("Gender", value, 0) for value in (0, 0.0, "0", "0.0", "female", False)),
        *(("Gender", value, 1) for value in ("1.0", "M", True)),
        ("Tobacco Consumption", "yes", 1),
        ("Alcohol Consumption", "No", 0),
        ("Performance Status", "4.0", 4),
        *(("M-stage", value, "M0") for value in ("cM0", 0, 0.0)),
        *(("M-stage", value, "M1") for value in ("m1", "1")),
        *(("CenterID", value, "3") for value in (3, 3.0, "3.0")),
        *(("CenterID", value, "MDA") for value in (" MDA ", "mda")),
        ("CenterID", 1e300, "1E+300"),
    ],
)
def test_spellings_of_a_value(key: str, value: Any, expected: Any) -> None:
    record = parse_with(key, value)
    parsed_value = read_value(record.patient, key)
    assert (parsed_value, type(parsed_value)) == (expected, type(expected))
    assert record.warnings == ()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("Age", value) for value in (0, -5, 121, True, "old", [61], 10**400, math.inf)),
        *(("Gender", value) for value in (2, 0.5, "divers")),
        ("Alcohol Consumption", {"drinks": 3}),
        ("Performance Status", "1.5"),
        *(("M-stage", value) for value in ("MX", 2, ["M0"])),
        *(("CenterID", value) for value in (["CHUM"], True)),
    ],
    ids=lambda value: str(value)[:20],
)
def test_impossible_values_count_as_missing_with_a_warning(key: str, value: Any) -> None:
    record = parse_with(key, value)
    assert read_value(record.patient, key) is None
    warning = record.warnings[0]
    assert str(warning).startswith(f"ehr.json: {key} ")
    assert str(warning).endswith(f"expected {warning.expected}; counts as missing")


def test_spellings_of_keys() -> None:
    record = parse_ehr({"age": 50, "m_stage": "M1", "performance-status": 1, "Center": "USZ"}, "x", CLINICAL)
    assert (record.patient.values["age_years"], record.patient.values["m_stage"]) == (50.0, "M1")
    assert (record.patient.values["performance_status"], record.patient.centre) == (1, "USZ")


def test_an_unknown_key_gives_a_warning_but_patient_id_does_not() -> None:
    record = parse_ehr(FULL | {"Shoe size": 44, "PatientID": "CHUM-001"}, "ehr.json", CLINICAL)
    assert record == PatientRecord(PATIENT, (Finding("ehr.json", "unknown key 'Shoe size'", action="ignored"),))


@given(
    st.dictionaries(
        st.sampled_from([*FULL, "other"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
            max_leaves=3,
        ),
    )
)
def test_no_value_raises(content: dict[str, Any]) -> None:
    record = parse_ehr(content, "ehr.json", CLINICAL)
    assert all("\n" not in str(warning) for warning in record.warnings)
    age = record.patient.values["age_years"]
    assert age is None or 0 < age <= 120


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: path.write_text("[1, 2]"), "found a JSON list"),
        (lambda path: path.write_text("[" * 100_000), "nested too deeply|not valid JSON"),
        (lambda path: path.write_bytes(b"\xff\xfe\x00{"), "not UTF-8"),
        (lambda path: path.mkdir(), "not a regular file"),
        (lambda _: None, "not found"),
    ],
    ids=["list", "nested", "binary", "folder", "absent"],
)
def test_unusable_files(tmp_path: Path, write: Callable[[Path], object], message: str) -> None:
    write(tmp_path / "ehr.json")
    with pytest.raises(InputError, match=rf"^ehr\.json: .*({message})"):
        read_ehr(tmp_path / "ehr.json", CLINICAL)


def test_non_finite_numbers_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "ehr.json"
    path.write_text('{"Age": NaN, "Gender": 1e999, "Treatment": -Infinity, "Performance Status": 1}')
    patient = read_ehr(path, CLINICAL).patient
    assert patient == Patient(dict.fromkeys(NAMES) | {"performance_status": 1})


FACTOR = ("SUV Factor", "bqml_to_suvbw_factor")


@pytest.mark.parametrize(
    ("raw", "factor"),
    [(0.00025, 0.00025), ("2.5e-4", 0.00025), ("0,00025", 0.00025), (1, 1.0), (None, None), ("", None), ("NaN", None)],
)
@pytest.mark.parametrize("key", [*FACTOR, "suv_factor"])
def test_a_factor_is_read_and_its_absence_is_normal(key: str, raw: Any, factor: float | None) -> None:
    record = parse_ehr(FULL | {key: raw}, "ehr.json", CLINICAL, FACTOR)
    assert (record.suv_factor, record.warnings, record.patient) == (factor, (), PATIENT)
    assert parse_ehr(FULL, "ehr.json", CLINICAL, FACTOR) == PatientRecord(PATIENT, ())


def test_the_first_of_two_spellings_counts_and_a_contradiction_gives_a_warning() -> None:
    assert parse_ehr(FULL | {"AGE": None}, "ehr.json", CLINICAL) == PatientRecord(PATIENT, ())
    record = parse_ehr(FULL | {"AGE": 62, "SUV Factor": 2, "suv_factor": 3}, "ehr.json", CLINICAL, FACTOR)
    assert (record.patient, record.suv_factor) == (PATIENT, 2)
    assert [str(warning) for warning in record.warnings] == [
        "ehr.json: AGE '62' in addition to '61.0', expected one value; the first one is used",
        "ehr.json: suv_factor '3' in addition to '2.0', expected one value; the first one is used",
    ]


@pytest.mark.parametrize("raw", [0, -1.0, "high", True, [1.0], math.inf, 10**400])
def test_an_impossible_factor_counts_as_missing(raw: Any) -> None:
    record = parse_ehr(FULL | {"SUV Factor": raw}, "ehr.json", CLINICAL, FACTOR)
    assert record.suv_factor is None
    assert [(w.expected, w.action) for w in record.warnings] == [("a number above 0", "counts as missing")]


def test_a_trailing_comma_is_ignored_with_a_warning(tmp_path: Path) -> None:
    """The organisers' sample has such a comma; a comma within a text stays."""
    path = tmp_path / "ehr.json"
    path.write_text(json.dumps(FULL | {"CenterID": "a,}"}, indent=4)[:-2] + ",\n}")
    record = read_ehr(path, CLINICAL)
    assert record.patient == Patient(PATIENT.values, "A,}")
    assert [str(warning) for warning in record.warnings] == [
        "ehr.json: a comma before a closing bracket, expected standard JSON; the comma is ignored"
    ]
    path.write_text('{"Age": 61,,}')
    with pytest.raises(InputError, match="not valid JSON"):
        read_ehr(path, CLINICAL)


@pytest.mark.parametrize(
    ("patient", "centre"),
    [
        *((patient, "CHUV") for patient in ("CHUV-001", "CHUV001", "CHUV_001", "chuv-7b")),
        *((patient, "") for patient in ("case001", "P1", "CHUV", "1-CHUV", "")),
    ],
)
def test_the_centre_in_an_id(patient, centre):
    assert parse_centre(patient) == centre


def test_a_table_of_centres_precedes_the_ids():
    """CHUM is 3 throughout; MDA has two codes, so that its third patient keeps the name in the ID."""
    codes = {"CHUM-1": "3", "MDA-1": "5", "MDA-2": "6", "x": "7"}
    patients = ["CHUM-1", "CHUM-2", "MDA-2", "MDA-3", "CHUV1", "x", "y"]
    assert find_centres(patients, codes) == {
        "CHUM-1": "3", "CHUM-2": "3", "MDA-2": "6", "MDA-3": "MDA", "CHUV1": "CHUV", "x": "7"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("ids", "expected", "difference"),
    [
        (["x", "A1.mha"], ["B1", "A1"], "A1.mha differs from A1 by the ending '.mha'"),
        (["A1"], ["A1_gtv"], "A1 differs from A1_gtv by the ending '_gtv'"),
        (["hn-A1"], ["A1"], "hn-A1 differs from A1 by the prefix 'hn-'"),
        (["a1"], ["A1"], "a1 differs from A1 in upper and lower case"),
        (["A_1"], ["A-1"], "A_1 differs from A-1 in characters such as - and _"),
        (["A11"], ["A1"], ""),
        (["BA1"], ["A1"], ""),
        (["x"], [""], ""),
        ([], ["A1"], ""),
    ],
)
def test_how_ids_differ(ids, expected, difference):
    assert describe_id_difference(ids, expected) == (f"; {difference}" if difference else "")
