"""SUV normalised by body weight, by QIBA's FDG-PET/CT profile and the IBSI-SUV manual (docs/formats.md).

Some scanners store SUV by lean mass, ideal weight or body surface; the manual (CC BY 4.0) has the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from contract.errors import Finding, InputError
from convert.dicom.files import DicomHeader, read_shared, tag_name
from convert.dicom.times import count_moment, injection, scan_start

F18_HALF_LIFE_S: Final = 6586.2
_F18_CODES: Final = ("C-111A1", "77004003", "18F")
_F18_NAMES: Final = ("fluorine", "f-18", "f18", "18f", "^18^f", "fdg", "fluorodeoxyglucose")
# No patient is injected with 10 kBq, and no F-18 dose reaches 10 GBq. Older scanners wrote MBq.
_LARGEST_MBQ: Final = 10_000.0
_DOSES_BQ: Final = (1e6, 1e10)
# SUVType of stored SUV by units, the first one where the attribute is absent.
_SUV_TYPES: Final = {"GML": ("BW", "LBMJAMES128", "LBMJANMA", "IBW"), "CM2ML": ("BSA",)}


@dataclass(frozen=True)
class SuvScale:
    """SUV per unit of the rescaled pixel values, one factor a slice, and how it was derived."""

    factors: tuple[float, ...]
    derivation: str
    findings: tuple[Finding, ...] = ()


def suv_scale(headers: Sequence[DicomHeader]) -> SuvScale:
    """Factors from rescaled pixel values to SUV for the slices of a PET series.

    Units BQML need weight, dose, times and half-life; CNTS Philips' private factors. GML and CM2ML are SUV already,
    by body weight or by another measure of the body, which is then converted.

    Raises:
        InputError: an attribute is missing or impossible, or the PET is not corrected for attenuation or, against its
            own DecayCorrection, for decay.
    """
    first = headers[0]
    units = str(_uniform(headers, "Units", "BQML, CNTS, GML or CM2ML")).strip().upper()
    _check_uniform(headers, "DecayCorrection")
    findings = _check_corrections(headers, decays=units not in _SUV_TYPES)
    if units in _SUV_TYPES:
        return _stored_suv(headers, units, findings)
    if units == "CNTS":
        return _philips_scale(headers, findings)
    if units != "BQML":
        expected = "BQML, CNTS with Philips' factors, GML or CM2ML"
        raise InputError(first.name, f"found {tag_name('Units')} {units}", expected)
    factors, derivation, more = _suv_per_becquerel(headers)
    return SuvScale(factors, f"Bq/ml, {derivation}", (*findings, *more))


def _check_corrections(headers: Sequence[DicomHeader], *, decays: bool) -> tuple[Finding, ...]:
    """Check CorrectedImage; with `decays` a PET of DecayCorrection NONE is corrected here, and must not list DECY."""
    name, first = tag_name("CorrectedImage"), headers[0]
    expected = "ATTN and DECY (corrected for attenuation and decay)"
    uncorrected = decays and first.text("DecayCorrection").upper() == "NONE"
    if uncorrected:
        expected = "ATTN without DECY, since DecayCorrection is NONE"
    if not any(header.words("CorrectedImage") for header in headers):
        return (Finding(first.name, f"found no {name}", expected.partition(" (")[0], "taken as corrected"),)
    for header in headers:
        corrections = header.words("CorrectedImage")
        if "ATTN" not in corrections or bool({"DECY", "DECAY"} & set(corrections)) == uncorrected:
            raise InputError(header.name, f"found {name} {', '.join(corrections) or 'absent'}", expected)
    return ()


def _stored_suv(headers: Sequence[DicomHeader], units: str, findings: tuple[Finding, ...]) -> SuvScale:
    """SUV by weight from stored SUV: unchanged, or times weight over the measure that normalised it."""
    _check_uniform(headers, "SUVType")
    first, allowed = headers[0], _SUV_TYPES[units]
    suv_type = first.text("SUVType").upper() or allowed[0]
    if suv_type not in allowed:
        expected = f"{' or '.join(allowed)} with {tag_name('Units')} {units}"
        raise InputError(first.name, f"found {tag_name('SUVType')} {suv_type}", expected)
    if suv_type == "BW":
        return SuvScale((1.0,) * len(headers), "stored as SUV (GML)", findings)
    weight = read_shared(headers, tag_name("PatientWeight"), weight_kg)
    measure = read_shared(headers, f"a body measure {suv_type}", lambda header: body_measure(header, suv_type)[0])
    _, more = body_measure(first, suv_type)
    shown = f"surface {measure:.5g} cm2" if suv_type == "BSA" else f"{measure / 1000:.4g} kg"
    derivation = f"stored as SUV by {suv_type} ({units}), {shown}, weight {weight:g} kg"
    return SuvScale((weight * 1000 / measure,) * len(headers), derivation, (*findings, *more))


def _philips_scale(headers: Sequence[DicomHeader], findings: tuple[Finding, ...]) -> SuvScale:
    """Philips' SUV factor (7053,1000), or else its activity factor (7053,1009) to Bq/ml."""
    suv_factors = [_philips_factor(header, 0x00) for header in headers]
    if all(suv_factors):
        return SuvScale(tuple(suv_factors), "counts, Philips' SUV factor (7053,1000)", findings)
    activity_factors = [_philips_factor(header, 0x09) for header in headers]
    if not all(activity_factors):
        index = next(index for index, factor in enumerate(activity_factors) if not factor)
        found = f"found {tag_name('Units')} CNTS without (7053,1000) and (7053,1009)"
        raise InputError(headers[index].name, found, "Philips' SUV factor or activity factor")
    per_becquerel, derivation, more = _suv_per_becquerel(headers)
    factors = tuple(factor * suv for factor, suv in zip(activity_factors, per_becquerel, strict=True))
    return SuvScale(factors, f"counts, Philips' activity factor (7053,1009), {derivation}", (*findings, *more))


def _philips_factor(header: DicomHeader, element: int) -> float:
    """A positive factor, 0 if absent or unusable."""
    try:
        factor = float(header.private(0x7053, "Philips PET Private Group", element) or 0)
    except ValueError:
        return 0.0
    return factor if math.isfinite(factor) and factor > 0 else 0.0


def _suv_per_becquerel(headers: Sequence[DicomHeader]) -> tuple[tuple[float, ...], str, list[Finding]]:
    """SUV of 1 Bq/ml by slice: body weight in g by the dose in Bq at the time to which the pixels are corrected."""
    first = headers[0]
    weight = read_shared(headers, tag_name("PatientWeight"), weight_kg)
    dose_bq = read_shared(
        headers, tag_name("RadionuclideTotalDose"), lambda header: _dose_bq(_radiopharmaceutical(header))[0]
    )
    _, findings = _dose_bq(_radiopharmaceutical(first))
    correction = str(_uniform(headers, "DecayCorrection", "START, ADMIN or NONE")).strip().upper()
    shown = f"dose {dose_bq / 1e6:.4g} MBq, weight {weight:g} kg"
    if correction == "ADMIN":
        factors = (weight * 1000 / dose_bq,) * len(headers)
        return factors, f"{shown}, corrected to the injection (ADMIN)", findings
    if correction not in ("START", "NONE"):
        found = f"found {tag_name('DecayCorrection')} {correction}"
        raise InputError(first.name, found, "START, ADMIN or NONE")
    half_life_s = read_shared(
        headers, tag_name("RadionuclideHalfLife"), lambda header: _half_life_s(_radiopharmaceutical(header))
    )
    if correction == "START":
        start = scan_start(headers, half_life_s)
        moments, source = [start.moment] * len(headers), f"{start.source} (START)"
        findings += start.findings
    else:
        moments = [count_moment(header, half_life_s) for header in headers]
        source = "the average count of each slice (NONE)"
    injected = read_shared(
        headers, "injection at", lambda header: injection(header, _radiopharmaceutical(header), min(moments))[0]
    )
    _, time_findings = injection(first, _radiopharmaceutical(first), min(moments))
    uptakes_s = [(moment - injected).total_seconds() for moment in moments]
    remaining_bq = [dose_bq * math.exp(-math.log(2) * uptake_s / half_life_s) for uptake_s in uptakes_s]
    derivation = (
        f"{shown}, {_range([uptake_s / 60 for uptake_s in uptakes_s], '.1f')} min from injection to {source}, "
        f"half-life {half_life_s:g} s, dose at the scan {_range([dose / 1e6 for dose in remaining_bq], '.4g')} MBq"
    )
    return tuple(weight * 1000 / dose for dose in remaining_bq), derivation, [*findings, *time_findings]


def _range(values: Sequence[float], style: str) -> str:
    low, high = format(min(values), style), format(max(values), style)
    return low if low == high else f"{low} to {high}"


def _radiopharmaceutical(header: DicomHeader) -> DicomHeader:
    keyword = "RadiopharmaceuticalInformationSequence"
    header.required(keyword, "dose and time of injection")
    items = header.items(keyword)
    if len(items) != 1:
        raise InputError(header.name, f"found {len(items)} items in {tag_name(keyword)}", "one injection")
    return items[0]


def _dose_bq(item: DicomHeader) -> tuple[float, list[Finding]]:
    name = tag_name("RadionuclideTotalDose")
    dose = item.number("RadionuclideTotalDose", "the injected dose in Bq")
    if 1 <= dose < _LARGEST_MBQ:
        return dose * 1e6, [Finding(item.name, f"found {name} {dose:g}", "a dose in Bq", "taken as MBq")]
    if not _DOSES_BQ[0] <= dose <= _DOSES_BQ[1]:
        raise InputError(item.name, f"found {name} {dose:g}", "the injected dose in Bq")
    return dose, []


def _half_life_s(item: DicomHeader) -> float:
    """Half-life in seconds; F-18's if it is absent and the tracer is labelled with F-18."""
    name, half_life = tag_name("RadionuclideHalfLife"), item.optional_number("RadionuclideHalfLife")
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


def _uniform(headers: Sequence[DicomHeader], keyword: str, expected: str) -> object:
    """The value that all slices share."""
    value = headers[0].required(keyword, expected)
    _check_uniform(headers, keyword)
    return value


def _check_uniform(headers: Sequence[DicomHeader], keyword: str) -> None:
    first = headers[0].text(keyword) or "absent"
    for header in headers:
        value = header.text(keyword) or "absent"
        if value != first:
            raise InputError(header.name, f"found {tag_name(keyword)} {value}", f"{first} as in {headers[0].name}")


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
