"""Compute SUV by body weight, as QIBA's FDG-PET/CT profile and the IBSI-SUV manual define it (docs/formats.md).

Some scanners store SUV by lean mass, ideal weight or body surface; the manual (CC BY 4.0) has the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from contract.errors import Finding, InputError
from convert.dicom.files import DicomHeader, format_tag, read_shared
from convert.dicom.times import compute_count_moment, find_injection, find_scan_start

F18_HALF_LIFE_S: Final = 6586.2
_F18_CODES: Final = ("C-111A1", "77004003", "18F")
_F18_NAMES: Final = ("fluorine", "f-18", "f18", "18f", "^18^f", "fdg", "fluorodeoxyglucose")
# A dose below 10 kBq is not injected, and a dose of F-18 is below 10 GBq. So a number below 10,000 is a dose in MBq, as
# older scanners wrote it.
_MAX_DOSE_MBQ: Final = 10_000.0
_DOSE_RANGE_BQ: Final = (1e6, 1e10)
# SUVType of stored SUV by units; the first type applies if the attribute is absent.
_SUV_TYPES: Final = {"GML": ("BW", "LBMJAMES128", "LBMJANMA", "IBW"), "CM2ML": ("BSA",)}


@dataclass(frozen=True)
class SuvScale:
    """SUV per unit of the rescaled pixel values, one factor per slice, and the derivation in words."""

    factors: tuple[float, ...]
    derivation: str
    findings: tuple[Finding, ...] = ()


def compute_suv_scale(headers: Sequence[DicomHeader]) -> SuvScale:
    """Compute the factors from rescaled pixel values to SUV for the slices of a PET series.

    Units BQML require weight, dose, times and half-life; units CNTS require Philips' private factors. Pixels in GML and
    CM2ML are SUV; SUV by any other body measure than weight is converted.

    Raises:
        InputError: An attribute is missing or impossible, the PET is not corrected for attenuation, or its decay
            correction contradicts DecayCorrection.
    """
    first = headers[0]
    units = str(_read_uniform(headers, "Units", "BQML, CNTS, GML or CM2ML")).strip().upper()
    _check_uniform(headers, "DecayCorrection")
    findings = _check_corrections(headers, is_activity=units not in _SUV_TYPES)
    if units in _SUV_TYPES:
        return _scale_stored_suv(headers, units, findings)
    if units == "CNTS":
        return _scale_philips_counts(headers, findings)
    if units != "BQML":
        expected = "BQML, CNTS with Philips' factors, GML or CM2ML"
        raise InputError(first.name, f"found {format_tag('Units')} {units}", expected)
    scale = _compute_suv_per_becquerel(headers)
    return SuvScale(scale.factors, f"Bq/ml, {scale.derivation}", (*findings, *scale.findings))


def _check_corrections(headers: Sequence[DicomHeader], *, is_activity: bool) -> tuple[Finding, ...]:
    """Check CorrectedImage.

    An activity with DecayCorrection NONE is corrected for decay here, so its CorrectedImage must not list DECY.
    """
    name = format_tag("CorrectedImage")
    first = headers[0]
    expected = "ATTN and DECY (corrected for attenuation and decay)"
    has_uncorrected_decay = is_activity and first.text("DecayCorrection").upper() == "NONE"
    if has_uncorrected_decay:
        expected = "ATTN without DECY, since DecayCorrection is NONE"
    if not any(header.words("CorrectedImage") for header in headers):
        return (Finding(first.name, f"found no {name}", expected.partition(" (")[0], "assumed to be corrected"),)
    for header in headers:
        corrections = header.words("CorrectedImage")
        if "ATTN" not in corrections or bool({"DECY", "DECAY"} & set(corrections)) == has_uncorrected_decay:
            raise InputError(header.name, f"found {name} {', '.join(corrections) or 'absent'}", expected)
    return ()


def _scale_stored_suv(headers: Sequence[DicomHeader], units: str, findings: tuple[Finding, ...]) -> SuvScale:
    """Scale stored SUV to SUV by weight: SUV by another body measure is multiplied by weight over that measure."""
    _check_uniform(headers, "SUVType")
    first = headers[0]
    allowed = _SUV_TYPES[units]
    suv_type = first.text("SUVType").upper() or allowed[0]
    if suv_type not in allowed:
        expected = f"{' or '.join(allowed)} with {format_tag('Units')} {units}"
        raise InputError(first.name, f"found {format_tag('SUVType')} {suv_type}", expected)
    if suv_type == "BW":
        return SuvScale((1.0,) * len(headers), "stored as SUV (GML)", findings)
    weight = read_shared(headers, format_tag("PatientWeight"), read_weight_kg)
    measure = read_shared(
        headers, f"a body measure {suv_type}", lambda header: compute_body_measure(header, suv_type)[0]
    )
    _, measure_findings = compute_body_measure(first, suv_type)
    shown = f"surface {measure:.5g} cm2" if suv_type == "BSA" else f"{measure / 1000:.4g} kg"
    derivation = f"stored as SUV by {suv_type} ({units}), {shown}, weight {weight:g} kg"
    return SuvScale((weight * 1000 / measure,) * len(headers), derivation, (*findings, *measure_findings))


def _scale_philips_counts(headers: Sequence[DicomHeader], findings: tuple[Finding, ...]) -> SuvScale:
    """Scale counts by Philips' SUV factor (7053,1000), or else by its activity factor (7053,1009) to Bq/ml."""
    suv_factors = [_read_philips_factor(header, 0x00) for header in headers]
    if all(suv_factors):
        return SuvScale(tuple(suv_factors), "counts, Philips' SUV factor (7053,1000)", findings)
    activity_factors = [_read_philips_factor(header, 0x09) for header in headers]
    if not all(activity_factors):
        index = next(index for index, factor in enumerate(activity_factors) if not factor)
        problem = f"found {format_tag('Units')} CNTS without (7053,1000) and (7053,1009)"
        raise InputError(headers[index].name, problem, "Philips' SUV factor or activity factor")
    scale = _compute_suv_per_becquerel(headers)
    factors = tuple(factor * suv for factor, suv in zip(activity_factors, scale.factors, strict=True))
    derivation = f"counts, Philips' activity factor (7053,1009), {scale.derivation}"
    return SuvScale(factors, derivation, (*findings, *scale.findings))


def _read_philips_factor(header: DicomHeader, element: int) -> float:
    """Read a positive factor, 0 if it is absent or unusable."""
    try:
        factor = float(header.get_private(0x7053, "Philips PET Private Group", element) or 0)
    except ValueError:
        return 0.0
    return factor if math.isfinite(factor) and factor > 0 else 0.0


def _compute_suv_per_becquerel(headers: Sequence[DicomHeader]) -> SuvScale:
    """Compute the SUV of 1 Bq/ml for each slice.

    It is the body weight in g divided by the dose in Bq at the time to which the pixels are corrected.
    """
    first = headers[0]
    weight = read_shared(headers, format_tag("PatientWeight"), read_weight_kg)
    dose_bq = read_shared(
        headers, format_tag("RadionuclideTotalDose"), lambda header: _read_dose_bq(_read_injected_drug(header))[0]
    )
    _, findings = _read_dose_bq(_read_injected_drug(first))
    correction = str(_read_uniform(headers, "DecayCorrection", "START, ADMIN or NONE")).strip().upper()
    shown = f"dose {dose_bq / 1e6:.4g} MBq, weight {weight:g} kg"
    if correction == "ADMIN":
        factors = (weight * 1000 / dose_bq,) * len(headers)
        return SuvScale(factors, f"{shown}, corrected to the injection (ADMIN)", tuple(findings))
    if correction not in ("START", "NONE"):
        problem = f"found {format_tag('DecayCorrection')} {correction}"
        raise InputError(first.name, problem, "START, ADMIN or NONE")
    half_life_s = read_shared(
        headers, format_tag("RadionuclideHalfLife"), lambda header: _read_half_life_s(_read_injected_drug(header))
    )
    if correction == "START":
        start = find_scan_start(headers, half_life_s)
        moments, source = [start.moment] * len(headers), f"{start.source} (START)"
        findings += start.findings
    else:
        moments = [compute_count_moment(header, half_life_s) for header in headers]
        source = "the average count of each slice (NONE)"
    injection_time = read_shared(
        headers, "injection at", lambda header: find_injection(header, _read_injected_drug(header), min(moments))[0]
    )
    _, time_findings = find_injection(first, _read_injected_drug(first), min(moments))
    uptakes_s = [(moment - injection_time).total_seconds() for moment in moments]
    remaining_bq = [dose_bq * math.exp(-math.log(2) * uptake_s / half_life_s) for uptake_s in uptakes_s]
    uptake_min = _format_range([uptake_s / 60 for uptake_s in uptakes_s], ".1f")
    dose_mbq = _format_range([dose / 1e6 for dose in remaining_bq], ".4g")
    derivation = (
        f"{shown}, {uptake_min} min from injection to {source}, "
        f"half-life {half_life_s:g} s, dose at the scan {dose_mbq} MBq"
    )
    factors = tuple(weight * 1000 / dose for dose in remaining_bq)
    return SuvScale(factors, derivation, (*findings, *time_findings))


def _format_range(values: Sequence[float], style: str) -> str:
    low, high = format(min(values), style), format(max(values), style)
    return low if low == high else f"{low} to {high}"


def _read_injected_drug(header: DicomHeader) -> DicomHeader:
    keyword = "RadiopharmaceuticalInformationSequence"
    header.require(keyword, "dose and time of injection")
    items = header.items(keyword)
    if len(items) != 1:
        raise InputError(header.name, f"found {len(items)} items in {format_tag(keyword)}", "one injection")
    return items[0]


def _read_dose_bq(item: DicomHeader) -> tuple[float, list[Finding]]:
    """Read the injected dose; a dose in MBq is converted with a finding."""
    name = format_tag("RadionuclideTotalDose")
    dose = item.require_number("RadionuclideTotalDose", "the injected dose in Bq")
    if 1 <= dose < _MAX_DOSE_MBQ:
        return dose * 1e6, [Finding(item.name, f"found {name} {dose:g}", "a dose in Bq", "assumed to be in MBq")]
    if not _DOSE_RANGE_BQ[0] <= dose <= _DOSE_RANGE_BQ[1]:
        raise InputError(item.name, f"found {name} {dose:g}", "the injected dose in Bq")
    return dose, []


def _read_half_life_s(item: DicomHeader) -> float:
    """Read the half-life in seconds; it may be absent if the tracer is labelled with F-18."""
    name = format_tag("RadionuclideHalfLife")
    half_life = item.get_number("RadionuclideHalfLife")
    is_f18 = _is_f18(item)
    if half_life is None and is_f18:
        return F18_HALF_LIFE_S
    if half_life is None:
        raise InputError(item.name, f"found no {name}", "the half-life in seconds")
    if half_life <= 0 or (is_f18 and abs(half_life / F18_HALF_LIFE_S - 1) > 0.02):
        expected = f"{F18_HALF_LIFE_S} s, the half-life of F-18" if is_f18 else "the half-life in seconds"
        raise InputError(item.name, f"found {name} {half_life:g}", expected)
    return half_life


def _is_f18(item: DicomHeader) -> bool:
    codes = item.items("RadionuclideCodeSequence")
    if {code.text("CodeValue").upper() for code in codes} & set(_F18_CODES):
        return True
    names = (*(code.text("CodeMeaning") for code in codes), item.text("Radiopharmaceutical"))
    return any(known in name.lower() for known in _F18_NAMES for name in names)


def _read_uniform(headers: Sequence[DicomHeader], keyword: str, expected: str) -> object:
    """Read the value that all slices share."""
    value = headers[0].require(keyword, expected)
    _check_uniform(headers, keyword)
    return value


def _check_uniform(headers: Sequence[DicomHeader], keyword: str) -> None:
    first = headers[0].text(keyword) or "absent"
    for header in headers:
        value = header.text(keyword) or "absent"
        if value != first:
            raise InputError(header.name, f"found {format_tag(keyword)} {value}", f"{first} as in {headers[0].name}")


_WEIGHT_RANGE_KG: Final = (2.0, 500.0)
_HEIGHT_RANGE_M: Final = (0.3, 2.5)

# Function of weight in kg and height in cm.
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


def read_weight_kg(header: DicomHeader) -> float:
    """Read PatientWeight; raise `InputError` if it is absent or impossible."""
    weight = header.require_number("PatientWeight", "the weight in kg")
    if not _WEIGHT_RANGE_KG[0] <= weight <= _WEIGHT_RANGE_KG[1]:
        raise InputError(header.name, f"found {format_tag('PatientWeight')} {weight:g}", "the weight in kg")
    return weight


def compute_body_measure(header: DicomHeader, suv_type: str) -> tuple[float, tuple[Finding, ...]]:
    """Compute lean mass or ideal weight in g, or body surface in cm2.

    For sex O the result is the mean of the formulas of both sexes, with a warning.

    Args:
        header: Attributes with weight, height and, except for the surface, sex.
        suv_type: LBMJAMES128, LBMJANMA, IBW or BSA, as in `SUVType`.

    Raises:
        InputError: An attribute is missing or impossible, or the result of the formula is not positive.
    """
    formulas = _MEASURES[suv_type]
    weight = read_weight_kg(header)
    height = header.require_number("PatientSize", "the height in m")
    if not _HEIGHT_RANGE_M[0] <= height <= _HEIGHT_RANGE_M[1]:
        raise InputError(header.name, f"found {format_tag('PatientSize')} {height:g}", "the height in m")
    findings: tuple[Finding, ...] = ()
    sex = "F" if suv_type == "BSA" else header.text("PatientSex").upper()
    if sex == "O":
        problem = f"found {format_tag('PatientSex')} O"
        findings = (Finding(header.name, problem, f"M or F for {suv_type}", "the mean of both formulas is used"),)
    elif sex not in formulas:
        problem = f"{format_tag('PatientSex')} {sex}" if sex else f"no {format_tag('PatientSex')}"
        raise InputError(header.name, f"found {problem}", f"M, F or O for SUV by {suv_type}")
    formulas_of_sex = formulas.values() if sex == "O" else (formulas[sex],)
    measure = sum(formula(weight, height * 100) for formula in formulas_of_sex) / len(formulas_of_sex)
    if measure <= 0:
        problem = f"found weight {weight:g} kg and height {height:g} m, for which {suv_type} is {measure / 1000:.3g} kg"
        raise InputError(header.name, problem, "a positive mass")
    return measure, findings
