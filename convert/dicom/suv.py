"""SUV normalised by body weight, as in the pseudo-code of the QIBA FDG-PET/CT profile (docs/cases.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from contract.errors import Finding, InputError
from convert.dicom.headers import DicomHeader, tag_name
from convert.dicom.times import injection, scan_start

F18_HALF_LIFE_S: Final = 6586.2
_F18_CODES: Final = ("C-111A1", "77004003", "18F")
_F18_NAMES: Final = ("fluorine", "f-18", "f18", "18f", "^18^f", "fdg", "fluorodeoxyglucose")
# No patient is injected with 10 kBq, and no F-18 dose reaches 10 GBq. Older scanners wrote MBq.
_LARGEST_MBQ: Final = 10_000.0
_DOSES_BQ: Final = (1e6, 1e10)
_WEIGHTS_KG: Final = (2.0, 500.0)


@dataclass(frozen=True)
class SuvScale:
    """SUV per unit of the rescaled pixel values, one factor a slice, and how it was derived."""

    factors: tuple[float, ...]
    derivation: str
    findings: tuple[Finding, ...] = ()


def suv_scale(headers: Sequence[DicomHeader]) -> SuvScale:
    """Factors from rescaled pixel values to SUV for the slices of a PET series.

    Units BQML need weight, dose, times and half-life; CNTS Philips' private factors; GML is SUV already.

    Raises:
        InputError: an attribute is missing or impossible, or the PET is not corrected for attenuation or decay.
    """
    first = headers[0]
    findings = _check_corrections(first)
    units = str(_uniform(headers, "Units", "BQML, CNTS or GML")).strip().upper()
    if units == "GML":
        _check_suv_type(first)
        return SuvScale((1.0,) * len(headers), "stored as SUV (GML)", findings)
    if units == "CNTS":
        return _philips_scale(headers, findings)
    if units != "BQML":
        raise InputError(first.name, f"found {tag_name('Units')} {units}", "BQML, CNTS with Philips' factors, or GML")
    per_becquerel, derivation, more = _suv_per_becquerel(headers)
    return SuvScale((per_becquerel,) * len(headers), f"Bq/ml, {derivation}", (*findings, *more))


def _check_corrections(header: DicomHeader) -> tuple[Finding, ...]:
    name, corrections = tag_name("CorrectedImage"), header.words("CorrectedImage")
    if not corrections:
        return (Finding(header.name, f"found no {name}", "ATTN and DECY", "taken as corrected"),)
    if "ATTN" not in corrections or not {"DECY", "DECAY"} & set(corrections):
        expected = "ATTN and DECY (corrected for attenuation and decay)"
        raise InputError(header.name, f"found {name} {', '.join(corrections)}", expected)
    return ()


def _check_suv_type(header: DicomHeader) -> None:
    suv_type = header.text("SUVType").upper()
    if suv_type not in ("", "BW"):
        raise InputError(header.name, f"found {tag_name('SUVType')} {suv_type}", "BW (by body weight)")


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
    factors = tuple(factor * per_becquerel for factor in activity_factors)
    return SuvScale(factors, f"counts, Philips' activity factor (7053,1009), {derivation}", (*findings, *more))


def _philips_factor(header: DicomHeader, element: int) -> float:
    """A positive factor, 0 if absent or unusable."""
    try:
        factor = float(header.private(0x7053, "Philips PET Private Group", element) or 0)
    except ValueError:
        return 0.0
    return factor if math.isfinite(factor) and factor > 0 else 0.0


def _suv_per_becquerel(headers: Sequence[DicomHeader]) -> tuple[float, str, list[Finding]]:
    """SUV of 1 Bq/ml: body weight in g by the dose in Bq at the time to which the pixels are corrected."""
    first = headers[0]
    weight_kg = first.number("PatientWeight", "the weight in kg")
    if not _WEIGHTS_KG[0] <= weight_kg <= _WEIGHTS_KG[1]:
        raise InputError(first.name, f"found {tag_name('PatientWeight')} {weight_kg:g}", "the weight in kg")
    item = _radiopharmaceutical(first)
    dose_bq, findings = _dose_bq(item)
    correction = str(_uniform(headers, "DecayCorrection", "START or ADMIN")).strip().upper()
    shown = f"dose {dose_bq / 1e6:.4g} MBq, weight {weight_kg:g} kg"
    if correction == "ADMIN":
        return weight_kg * 1000 / dose_bq, f"{shown}, corrected to the injection (ADMIN)", findings
    if correction != "START":
        raise InputError(first.name, f"found {tag_name('DecayCorrection')} {correction}", "START or ADMIN")
    scan, source = scan_start(headers)
    injected, time_findings = injection(first, item, scan)
    uptake_s, half_life_s = (scan - injected).total_seconds(), _half_life_s(item)
    remaining_bq = dose_bq * math.exp(-math.log(2) * uptake_s / half_life_s)
    derivation = (
        f"{shown}, {uptake_s / 60:.1f} min from injection to {source} (START), half-life {half_life_s:g} s, "
        f"dose at the scan {remaining_bq / 1e6:.4g} MBq"
    )
    return weight_kg * 1000 / remaining_bq, derivation, [*findings, *time_findings]


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
    for header in headers:
        if header.optional(keyword) != value:
            found = f"found {tag_name(keyword)} {header.text(keyword) or 'absent'}"
            raise InputError(header.name, found, f"{value} as in {headers[0].name}")
    return value
