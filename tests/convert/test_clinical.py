"""Age, sex and weight in `ehr.json`."""

from __future__ import annotations

from typing import Any

import pytest

from contract.editions import load_edition
from contract.editions.clinical import CodedNumber
from convert.dicom.files import read_folder
from convert.pipeline import clinical_values
from tests.convert.conftest import Convert
from tests.convert.studies import StudyFolder


def values(study: StudyFolder, **changes: Any) -> dict[str, Any]:
    study.pet(**changes)
    return clinical_values(read_folder(study.root).headers[0], load_edition().clinical)


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
    assert values(study, **changes) == expected


def test_invalid_age_counts_as_missing_without_a_warning(study: StudyFolder, convert: Convert) -> None:
    study.ct()
    for path in study.pet():
        content = path.read_bytes()
        assert content.count(b"061Y") == 1
        path.write_bytes(content.replace(b"061Y", b"old "))
    assert convert().case.ehr == {"Gender": 1}


def test_weight_if_the_edition_declares_it(study: StudyFolder) -> None:
    weight = CodedNumber(name="weight_kg", key="Weight", type="code", codes=(20, 300))
    study.pet()
    assert clinical_values(read_folder(study.root).headers[0], [weight]) == {"Weight": 75}
