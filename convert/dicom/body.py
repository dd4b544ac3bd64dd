"""Lean mass, ideal weight and body surface, by which some scanners normalise SUV (IBSI-SUV manual, CC BY 4.0)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from contract.errors import Finding, InputError
from convert.dicom.headers import DicomHeader, tag_name

_WEIGHTS_KG: Final = (2.0, 500.0)
_HEIGHTS_M: Final = (0.3, 2.5)

# From weight in kg and height in cm.
_Measure = Callable[[float, float], float]


def _body_mass_index(weight_kg: float, height_cm: float) -> float:
    return weight_kg / (height_cm / 100) ** 2


def _surface_cm2(weight_kg: float, height_cm: float) -> float:
    return float(71.84 * weight_kg**0.425 * height_cm**0.725)  # Du Bois


# Mass in g or surface in cm2 by `SUVType` and sex.
_MEASURES: Final[Mapping[str, Mapping[str, _Measure]]] = {
    "LBMJAMES128": {
        "M": lambda weight, height: 1100 * weight - 128_000 * (weight / height) ** 2,
        "F": lambda weight, height: 1070 * weight - 148_000 * (weight / height) ** 2,
    },
    "LBMJANMA": {
        "M": lambda weight, height: 9.27e6 * weight / (6680 + 216 * _body_mass_index(weight, height)),
        "F": lambda weight, height: 9.27e6 * weight / (8780 + 244 * _body_mass_index(weight, height)),
    },
    "IBW": {
        "M": lambda _, height: 48_000 + 1060 * (height - 152),
        "F": lambda _, height: 45_500 + 910 * (height - 152),
    },
    "BSA": {"M": _surface_cm2, "F": _surface_cm2},
}


def weight_kg(header: DicomHeader) -> float:
    """PatientWeight; raises InputError if it is absent or impossible."""
    weight = header.number("PatientWeight", "the weight in kg")
    if not _WEIGHTS_KG[0] <= weight <= _WEIGHTS_KG[1]:
        raise InputError(header.name, f"found {tag_name('PatientWeight')} {weight:g}", "the weight in kg")
    return weight


def body_measure(header: DicomHeader, suv_type: str) -> tuple[float, tuple[Finding, ...]]:
    """Lean mass or ideal weight in g, body surface in cm2; with sex O the mean of both sexes and a warning.

    Args:
        header: gives weight, height and, except for the surface, sex.
        suv_type: LBMJAMES128, LBMJANMA, IBW or BSA, as in `SUVType`.

    Raises:
        InputError: an attribute is missing or impossible, or the formula gives nothing positive.
    """
    formulas, weight = _MEASURES[suv_type], weight_kg(header)
    height = header.number("PatientSize", "the height in m")
    if not _HEIGHTS_M[0] <= height <= _HEIGHTS_M[1]:
        raise InputError(header.name, f"found {tag_name('PatientSize')} {height:g}", "the height in m")
    findings: tuple[Finding, ...] = ()
    sex = "F" if suv_type == "BSA" else header.text("PatientSex").upper()
    if sex == "O":
        found = f"found {tag_name('PatientSex')} O"
        findings = (Finding(header.name, found, f"M or F for {suv_type}", "the mean of both formulas is used"),)
    elif sex not in formulas:
        found = f"{tag_name('PatientSex')} {sex}" if sex else f"no {tag_name('PatientSex')}"
        raise InputError(header.name, f"found {found}", f"M, F or O for SUV by {suv_type}")
    used = formulas.values() if sex == "O" else (formulas[sex],)
    measure = sum(formula(weight, height * 100) for formula in used) / len(used)
    if measure <= 0:
        found = f"found weight {weight:g} kg and height {height:g} m, for which {suv_type} is {measure / 1000:.3g} kg"
        raise InputError(header.name, found, "a positive mass")
    return measure, findings
