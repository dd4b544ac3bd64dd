"""Clinical variables that DICOM knows: age, sex and weight."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from contract.editions.clinical import ClinicalValue, ClinicalVariable, ImpossibleValueError
from convert.dicom.headers import DicomHeader

_AGE: Final = re.compile(r"(\d{1,3})([DWMY])")
_PER_YEAR: Final = {"D": 365.25, "W": 52.18, "M": 12.0, "Y": 1.0}


def clinical_values(header: DicomHeader, clinical: Sequence[ClinicalVariable]) -> dict[str, ClinicalValue]:
    """Values by the edition's keys; a variable that the file does not give is absent."""
    raw = {
        "age_years": _age_years(header),
        "gender": header.text("PatientSex").lower() or None,
        "weight_kg": header.optional_number("PatientWeight") or None,
    }
    values: dict[str, ClinicalValue] = {}
    for variable in clinical:
        try:
            value = variable.read(raw.get(variable.name))
        except ImpossibleValueError:  # such as sex O
            continue
        if value is not None:
            values[variable.key] = value
    return values


def _age_years(header: DicomHeader) -> float | None:
    """Whole years at the study, by PatientAge or else by the date of birth."""
    match = _AGE.fullmatch(header.text("PatientAge").upper())
    if match:
        return float(int(int(match[1]) / _PER_YEAR[match[2]]))
    try:
        born, study = (datetime.strptime(header.text(key), "%Y%m%d") for key in ("PatientBirthDate", "StudyDate"))
    except ValueError:
        return None
    return float(study.year - born.year - ((study.month, study.day) < (born.month, born.day)))
