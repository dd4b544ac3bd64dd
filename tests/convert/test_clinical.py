"""Age, sex and weight in `ehr.json`."""

from __future__ import annotations

from typing import Any

import pytest

from contract.editions import load_edition
from contract.editions.clinical import CodedNumber
from convert.dicom.files import read_folder
from convert.pipeline import read_clinical_values
from tests.convert.conftest import Convert
from tests.convert.studies import StudyFolder, edit_slice


@pytest.mark.parametrize(
    ("changes", "values", "problems"),
    [
        ({}, {"Age": 61.0, "Gender": 1}, []),
        ({"PatientSex": "F"}, {"Age": 61.0, "Gender": 0}, []),
        ({"PatientSex": None, "PatientAge": "018M"}, {"Age": 1.0}, []),
        # On the day of the study, and the day after it.
        ({"PatientAge": None, "PatientBirthDate": "19600301"}, {"Age": 65.0, "Gender": 1}, []),
        ({"PatientAge": None, "PatientBirthDate": "19600302"}, {"Age": 64.0, "Gender": 1}, []),
        ({"PatientAge": None, "PatientSex": None}, {}, []),
        ({"PatientSex": "O"}, {"Age": 61.0}, ["found PatientSex (0010,0040) O"]),
        ({"PatientAge": "000Y"}, {"Gender": 1}, ["found PatientAge (0010,1010) 000Y"]),
        ({"edit": edit_slice(5, PatientAge="062Y")}, {"Gender": 1}, ["found PatientAge (0010,1010) 061Y and 062Y"]),
    ],
)
def test_age_and_sex(study: StudyFolder, changes: dict[str, Any], values: dict[str, Any], problems: list[str]) -> None:
    """Values that cannot be used are left out and named."""
    study.add_pet(**changes)
    result, findings = read_clinical_values(read_folder(study.root).headers, load_edition().clinical)
    assert (result, [finding.found for finding in findings]) == (values, problems)


@pytest.mark.parametrize("age", ["old ", "060 "])
def test_an_invalid_age_is_left_out_and_named(study: StudyFolder, convert: Convert, age: str) -> None:
    study.add_ct()
    for path in study.add_pet():
        content = path.read_bytes()
        assert content.count(b"061Y") == 1
        path.write_bytes(content.replace(b"061Y", age.encode()))
    converted = convert()
    assert (converted.case.ehr, converted.found) == ({"Gender": 1}, [f"found PatientAge (0010,1010) {age.strip()}"])


def test_weight_if_the_edition_declares_it(study: StudyFolder) -> None:
    weight = CodedNumber(name="weight_kg", key="Weight", type="code", codes=(20, 300))
    study.add_pet()
    assert read_clinical_values(read_folder(study.root).headers, [weight]) == ({"Weight": 75}, [])
