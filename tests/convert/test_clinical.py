"""Age, sex and weight in `ehr.json`."""

from __future__ import annotations

from typing import Any

import pytest
from pydicom import Dataset

from contract.editions import load_edition
from contract.editions.clinical import CodedNumber
from convert.dicom.files import read_folder
from convert.pipeline import read_clinical_values
from tests.convert.conftest import Convert
from tests.convert.studies import StudyFolder


def read_values(study: StudyFolder, **changes: Any) -> dict[str, Any]:
    study.add_pet(**changes)
    return read_clinical_values(read_folder(study.root).headers, load_edition().clinical)[0]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"Age": 61.0, "Gender": 1}),
        ({"PatientSex": "F"}, {"Age": 61.0, "Gender": 0}),
        ({"PatientSex": "O"}, {"Age": 61.0}),
        ({"PatientSex": None, "PatientAge": "018M"}, {"Age": 1.0}),
        ({"PatientAge": "000Y"}, {"Gender": 1}),
        ({"PatientAge": None, "PatientBirthDate": "19600301"}, {"Age": 65.0, "Gender": 1}),  # on the day of the study
        ({"PatientAge": None, "PatientBirthDate": "19600302"}, {"Age": 64.0, "Gender": 1}),
        ({"PatientAge": None, "PatientSex": None}, {}),
    ],
)
def test_age_and_sex(study: StudyFolder, changes: dict[str, Any], expected: dict[str, Any]) -> None:
    assert read_values(study, **changes) == expected


@pytest.mark.parametrize("age", ["old ", "060 ", "61  "])
def test_an_invalid_age_is_left_out_and_named(study: StudyFolder, convert: Convert, age: str) -> None:
    study.add_ct()
    for path in study.add_pet():
        content = path.read_bytes()
        assert content.count(b"061Y") == 1
        path.write_bytes(content.replace(b"061Y", age.encode()))
    case = convert().case
    assert case.ehr == {"Gender": 1}
    assert [finding.found for finding in case.findings] == [f"found PatientAge (0010,1010) {age.strip()}"]


@pytest.mark.parametrize(
    ("changes", "left", "message"),
    [
        ({"PatientAge": "000Y"}, {"Gender": 1}, "found PatientAge (0010,1010) 000Y"),
        ({"PatientSex": "O"}, {"Age": 61.0}, "found PatientSex (0010,0040) O"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(
    study: StudyFolder, convert: Convert, changes: dict[str, str], left: dict[str, Any], message: str
) -> None:
    study.add_ct()
    study.add_pet(**changes)
    case = convert().case
    assert case.ehr == left
    assert [finding.found for finding in case.findings] == [message]


def test_an_age_that_differs_between_slices_is_left_out(study: StudyFolder, convert: Convert) -> None:
    def edit(dataset: Dataset, index: int) -> None:
        if index == 5:
            dataset.PatientAge = "062Y"

    study.add_ct()
    study.add_pet(edit=edit)
    case = convert().case
    assert case.ehr == {"Gender": 1}
    assert [finding.found for finding in case.findings] == ["found PatientAge (0010,1010) 061Y and 062Y"]


def test_weight_if_the_edition_declares_it(study: StudyFolder) -> None:
    weight = CodedNumber(name="weight_kg", key="Weight", type="code", codes=(20, 300))
    study.add_pet()
    assert read_clinical_values(read_folder(study.root).headers, [weight]) == ({"Weight": 75}, [])
