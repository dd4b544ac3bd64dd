"""Read the volumes of a study: CT in HU, PET in SUV, and the dose of an RT plan in Gy with its planning CT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from contract.editions.inputs import CT_PLANNING, RT_DOSE
from contract.errors import Finding, InputError
from contract.images.geometry import Geometry
from contract.images.volumes import MAX_VOXELS, Volume
from convert.dicom.files import DicomHeader, format_tag, read_pixels
from convert.dicom.series import ImageSeries
from convert.dicom.slices import SlicePlane, SliceStack, stack_slices
from convert.dicom.suv import SuvScale

PADDING_HU: Final = -1024
# Padding is air or less; a higher padding value is an error of the file.
_MAX_PADDING_HU: Final = -900
# Tolerance of the distances between planes of a dose.
_TOLERANCE_MM: Final = 0.02
_TOLERANCE_COSINE: Final = 1e-3
# The highest dose of a head and neck plan is 50 to 80 Gy; a wrong unit or factor gives values such as 0.07 or 7,000.
_MAX_DOSE_RANGE_GY: Final = (1.0, 200.0)


@dataclass(frozen=True)
class SeriesVolume:
    """A volume and the UID of its series."""

    volume: Volume
    uid: str


def read_ct(stack: SliceStack) -> tuple[Volume, tuple[Finding, ...]]:
    """Read a CT in HU as int16; padding (0028,0120) becomes air, -1024 HU.

    Raises:
        InputError: Pixels cannot be read, or rescale slope or intercept is absent.
    """
    array = np.empty(_get_shape(stack), dtype=np.int16)
    limits = np.iinfo(np.int16)
    findings: list[Finding] = []
    for index, header in enumerate(tqdm(stack.headers, desc="read CT", unit="slice", disable=None, leave=False)):
        stored, slope, intercept = _read_slice(header, stack)
        hu = stored * slope + intercept
        padding = _read_padding(header, stored.dtype)
        if padding is not None and max(padding) * slope + intercept <= _MAX_PADDING_HU:
            hu[(stored >= padding[0]) & (stored <= padding[1])] = PADDING_HU
        elif padding is not None and not findings:
            problem = f"{format_tag('PixelPaddingValue')} {padding[1]} is {max(padding) * slope + intercept:g} HU"
            findings.append(Finding(header.name, problem, "air", "not treated as padding"))
        array[index] = np.rint(np.clip(hu, limits.min, limits.max))
    return Volume(array, stack.geometry), tuple(findings)


def read_pet(stack: SliceStack, scale: SuvScale) -> Volume:
    """Read a PET in SUV as float32; `scale` has one factor per slice, in the order of `stack`.

    Raises:
        InputError: Pixels cannot be read, or rescale slope or intercept is absent.
    """
    array = np.empty(_get_shape(stack), dtype=np.float32)
    headers = tqdm(stack.headers, desc="read PET", unit="slice", disable=None, leave=False)
    for index, (header, factor) in enumerate(zip(headers, scale.factors, strict=True)):
        stored, slope, intercept = _read_slice(header, stack)
        array[index] = (stored * slope + intercept) * factor
    return Volume(array, stack.geometry)


def _get_shape(stack: SliceStack) -> tuple[int, int, int]:
    """Return the array shape of a series; raise `InputError` if it has too many voxels."""
    if stack.geometry.voxel_count > MAX_VOXELS:
        problem = f"a series of {stack.geometry.voxel_count} voxels"
        raise InputError(stack.headers[0].name, problem, f"at most {MAX_VOXELS}")
    return stack.geometry.array_shape


def _read_slice(header: DicomHeader, stack: SliceStack) -> tuple[npt.NDArray[Any], float, float]:
    """Read stored values, rescale slope and rescale intercept of a slice."""
    slope = header.require_number("RescaleSlope", "the slope from stored values to HU or activity")
    if slope <= 0:
        raise InputError(header.name, f"found {format_tag('RescaleSlope')} {slope:g}", "a number above 0")
    intercept = header.require_number("RescaleIntercept", "the intercept from stored values to HU or activity")
    stored = read_pixels(header)
    if stored.shape != stack.geometry.array_shape[1:]:
        shape = " x ".join(map(str, stored.shape))
        raise InputError(header.name, f"found pixels of shape {shape}", "one frame of rows x columns")
    return stored, slope, intercept


def _read_padding(header: DicomHeader, dtype: np.dtype[Any]) -> tuple[int, int] | None:
    """Read the lowest and highest stored value of padding; None if no padding is declared."""
    value = header.get_number("PixelPaddingValue")
    if value is None:
        return None
    limit = header.get_number("PixelPaddingRangeLimit")
    ends = [_wrap(int(end), dtype) for end in (value, value if limit is None else limit)]
    return min(ends), max(ends)


def _wrap(value: int, dtype: np.dtype[Any]) -> int:
    """Convert a value to the pixels' type: some files write -2000 as 63536."""
    bits = dtype.itemsize * 8
    value %= 1 << bits
    return value - (1 << bits) if dtype.kind == "i" and value >= 1 << (bits - 1) else value


@dataclass(frozen=True)
class Radiotherapy:
    """Images by the name of the input: the dose in Gy and the planning CT; empty without a dose."""

    images: Mapping[str, SeriesVolume] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def dose_max_gy(self) -> float | None:
        """Return the highest dose in Gy, None without a dose."""
        return float(self.images[RT_DOSE].volume.array.max()) if RT_DOSE in self.images else None


def read_radiotherapy(
    doses: Sequence[DicomHeader], ct: ImageSeries, other_ct: Sequence[ImageSeries], inputs: Set[str]
) -> Radiotherapy:
    """Read the dose of the plan, and the planning CT in the dose's frame of reference if it is not `ct`.

    Args:
        doses: Headers of the dose files.
        ct: The CT of the case.
        other_ct: Other CT series, which may include the planning CT.
        inputs: Names of the edition's inputs.

    Raises:
        InputError: There are several plans, or the dose or the planning CT is unusable.
    """
    if RT_DOSE not in inputs:
        return Radiotherapy(ignored=tuple(f"RT dose {dose.name}: not an input of the edition" for dose in doses))
    dose, ignored = _choose_dose(doses)
    if dose is None:
        return Radiotherapy(ignored=ignored)
    volume = read_dose(dose)
    images = {RT_DOSE: SeriesVolume(volume, dose.text("SeriesInstanceUID"))}
    findings = _check_dose(dose, volume)
    frame = dose.text("FrameOfReferenceUID")
    if frame and frame == ct.frame_of_reference:
        return Radiotherapy(images, ignored, findings)
    planning = [series for series in other_ct if frame and series.frame_of_reference == frame]
    if planning and CT_PLANNING in inputs:
        series = max(planning, key=lambda candidate: len(candidate.headers))
        planning_ct, ct_findings = read_ct(stack_slices(series.headers))
        images[CT_PLANNING] = SeriesVolume(planning_ct, series.uid)
        findings = (*findings, *ct_findings)
    name = format_tag("FrameOfReferenceUID")
    problem = (
        f"another {name} than the CT has" if frame and ct.frame_of_reference else f"no {name} of the dose or the CT"
    )
    finding = Finding(dose.name, f"found {problem}", "a dose aligned with the CT", "assumed to be aligned")
    return Radiotherapy(images, ignored, (*findings, finding))


def _choose_dose(doses: Sequence[DicomHeader]) -> tuple[DicomHeader | None, tuple[str, ...]]:
    """Choose the dose of the whole plan; return with it a line for each ignored dose.

    A dose of type ERROR is the difference of two doses. It is ignored if there is a dose of the plan.
    """
    plans: list[DicomHeader] = []
    differences: list[DicomHeader] = []
    lines: list[str] = []
    for dose in doses:
        summation, kind = dose.text("DoseSummationType").upper(), dose.text("DoseType").upper()
        if summation not in ("PLAN", "MULTI_PLAN", ""):
            lines.append(f"RT dose {dose.name}: {format_tag('DoseSummationType')} {summation}")
        elif kind not in ("PHYSICAL", "EFFECTIVE", ""):
            differences.append(dose)
            lines.append(f"RT dose {dose.name}: {format_tag('DoseType')} {kind}")
        else:
            plans.append(dose)
    if len(plans) > 1:
        listed = ", ".join(f"{dose.name} ({dose.text('SeriesDescription') or 'no description'})" for dose in plans)
        raise InputError("input folder", f"found {len(plans)} RT doses: {listed}", "one")
    if differences and not plans:
        kind = differences[0].text("DoseType")
        expected = "PHYSICAL; without a dose of the plan, remove this file"
        raise InputError(differences[0].name, f"found {format_tag('DoseType')} {kind}", expected)
    return (plans[0] if plans else None), tuple(lines)


def _check_dose(header: DicomHeader, dose: Volume) -> tuple[Finding, ...]:
    """Return findings for an effective dose, and for a highest dose that is implausible for a plan."""
    findings = []
    if header.text("DoseType").upper() == "EFFECTIVE":
        findings.append(Finding(header.name, f"found {format_tag('DoseType')} EFFECTIVE", "PHYSICAL", "used unchanged"))
    highest, (low, high) = float(dose.array.max()), _MAX_DOSE_RANGE_GY
    if not low <= highest <= high:
        problem = f"found a highest dose of {highest:g} Gy"
        expected = f"{low:g} to {high:g} Gy; check {format_tag('DoseGridScaling')} and {format_tag('DoseUnits')}"
        findings.append(Finding(header.name, problem, expected, "used unchanged"))
    return tuple(findings)


def read_dose(header: DicomHeader) -> Volume:
    """Read a dose in Gy as float32 on its own grid.

    Raises:
        InputError: The dose is not in Gy or negative, its planes have irregular distances or an unclear position, or
            its pixels cannot be read.
    """
    units = str(header.require("DoseUnits", "GY")).strip().upper()
    if units != "GY":
        raise InputError(header.name, f"found {format_tag('DoseUnits')} {units}", "GY")
    scaling = header.require_number("DoseGridScaling", "the factor to Gy")
    if scaling <= 0:
        raise InputError(header.name, f"found {format_tag('DoseGridScaling')} {scaling:g}", "a number above 0")
    stored = read_pixels(header)
    if stored.ndim != 3:
        raise InputError(header.name, f"found {stored.ndim} dimensions", "a dose of several planes")
    if stored.min() < 0:
        raise InputError(header.name, f"found a dose of {stored.min() * scaling:g} Gy", "no negative dose")
    plane = SlicePlane.from_header(header)
    offsets = np.array(header.require_numbers("GridFrameOffsetVector", len(stored), f"{len(stored)} distances in mm"))
    order = np.argsort(offsets)
    gaps = np.diff(offsets[order])
    if gaps.min() < _TOLERANCE_MM or np.ptp(gaps) > _TOLERANCE_MM:
        problem = f"{format_tag('GridFrameOffsetVector')} has distances from {gaps.min():g} to {gaps.max():g} mm"
        raise InputError(header.name, problem, "equal distances")
    _check_first_offset(header, plane, float(offsets[0]))
    origin = plane.position_mm + (offsets[order[0]] - offsets[0]) * plane.normal
    geometry = Geometry(
        (*plane.size, len(stored)),
        (*plane.spacing_mm, round(float(gaps.mean()), 6)),
        (float(origin[0]), float(origin[1]), float(origin[2])),
        tuple(map(float, np.column_stack([plane.x_axis, plane.y_axis, plane.normal]).ravel())),
    )
    return Volume((stored[order] * scaling).astype(np.float32), geometry)


def _check_first_offset(header: DicomHeader, plane: SlicePlane, offset_mm: float) -> None:
    """Check the first offset by DICOM PS3.3, C.8.8.3.2.

    Either it is 0, and the offsets are distances along the planes' normal; or it is the z coordinate of the first
    plane, and the offsets are heights of axial planes whose normal points to the head.
    """
    height_mm = float(plane.position_mm[2])
    is_upright = float(plane.normal[2]) > 1 - _TOLERANCE_COSINE
    if abs(offset_mm) <= _TOLERANCE_MM or (is_upright and abs(offset_mm - height_mm) <= _TOLERANCE_MM):
        return
    problem = f"found {format_tag('GridFrameOffsetVector')} that begins with {offset_mm:g}"
    expected = f"0 or {height_mm:g}, the height of the first plane" if is_upright else "0"
    raise InputError(header.name, problem, expected)
