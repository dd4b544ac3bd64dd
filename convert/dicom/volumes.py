"""Pixels as volumes: CT in HU, PET in SUV, and the dose of an RT plan in Gy with its planning CT."""

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
from convert.dicom.files import DicomHeader, read_pixels, tag_name
from convert.dicom.series import ImageSeries
from convert.dicom.slices import SlicePlane, SliceStack, stack_slices
from convert.dicom.suv import SuvScale

PADDING_HU: Final = -1024
# Padding is air or less; a padding value of soft tissue is a fault of the file.
_HIGHEST_PADDING_HU: Final = -900
# Of distances of the dose's planes.
_TOLERANCE_MM: Final = 0.02
_TOLERANCE_COSINE: Final = 1e-3
# The highest dose of a plan for head and neck is 50 to 80 Gy; another unit or factor gives 0.07 or 7,000.
_HIGHEST_DOSES_GY: Final = (1.0, 200.0)


@dataclass(frozen=True)
class SeriesVolume:
    """A volume and the UID of its series."""

    volume: Volume
    uid: str


def read_ct(stack: SliceStack) -> tuple[Volume, tuple[Finding, ...]]:
    """CT in HU, int16. Padding (0028,0120) becomes air, -1024 HU.

    Raises:
        InputError: pixels that cannot be read, or no rescale slope and intercept.
    """
    array = np.empty(_shape(stack), dtype=np.int16)
    limits = np.iinfo(np.int16)
    findings: list[Finding] = []
    for index, header in enumerate(tqdm(stack.headers, desc="read CT", unit="slice", disable=None, leave=False)):
        stored, slope, intercept = _stored(header, stack)
        hu = stored * slope + intercept
        padding = _padding(header, stored.dtype)
        if padding is not None and max(padding) * slope + intercept <= _HIGHEST_PADDING_HU:
            hu[(stored >= padding[0]) & (stored <= padding[1])] = PADDING_HU
        elif padding is not None and not findings:
            found = f"{tag_name('PixelPaddingValue')} {padding[1]} is {max(padding) * slope + intercept:g} HU"
            findings.append(Finding(header.name, found, "air", "not taken as padding"))
        array[index] = np.rint(np.clip(hu, limits.min, limits.max))
    return Volume(array, stack.geometry), tuple(findings)


def read_pet(stack: SliceStack, scale: SuvScale) -> Volume:
    """PET in SUV, float32; `scale` has one factor a slice, in the order of `stack`.

    Raises:
        InputError: pixels that cannot be read, or no rescale slope and intercept.
    """
    array = np.empty(_shape(stack), dtype=np.float32)
    headers = tqdm(stack.headers, desc="read PET", unit="slice", disable=None, leave=False)
    for index, (header, factor) in enumerate(zip(headers, scale.factors, strict=True)):
        stored, slope, intercept = _stored(header, stack)
        array[index] = (stored * slope + intercept) * factor
    return Volume(array, stack.geometry)


def _shape(stack: SliceStack) -> tuple[int, int, int]:
    if stack.geometry.voxel_count > MAX_VOXELS:
        found = f"a series of {stack.geometry.voxel_count} voxels"
        raise InputError(stack.headers[0].name, found, f"at most {MAX_VOXELS}")
    return stack.geometry.array_shape


def _stored(header: DicomHeader, stack: SliceStack) -> tuple[npt.NDArray[Any], float, float]:
    """Stored values of a slice, rescale slope and rescale intercept."""
    slope = header.number("RescaleSlope", "the slope from stored values to HU or activity")
    if slope <= 0:
        raise InputError(header.name, f"found {tag_name('RescaleSlope')} {slope:g}", "a number above 0")
    intercept = header.number("RescaleIntercept", "the intercept from stored values to HU or activity")
    stored = read_pixels(header)
    if stored.shape != stack.geometry.array_shape[1:]:
        shape = " x ".join(map(str, stored.shape))
        raise InputError(header.name, f"found pixels of shape {shape}", "one frame of rows x columns")
    return stored, slope, intercept


def _padding(header: DicomHeader, dtype: np.dtype[Any]) -> tuple[int, int] | None:
    """Lowest and highest stored value of padding, None if not declared."""
    value = header.optional_number("PixelPaddingValue")
    if value is None:
        return None
    limit = header.optional_number("PixelPaddingRangeLimit")
    ends = [_wrapped(int(end), dtype) for end in (value, value if limit is None else limit)]
    return min(ends), max(ends)


def _wrapped(value: int, dtype: np.dtype[Any]) -> int:
    """The value in the pixels' type: some files write -2000 as 63536."""
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
        """Highest dose, None without a dose."""
        return float(self.images[RT_DOSE].volume.array.max()) if RT_DOSE in self.images else None


def read_radiotherapy(
    doses: Sequence[DicomHeader], ct: ImageSeries, other_ct: Sequence[ImageSeries], inputs: Set[str]
) -> Radiotherapy:
    """The dose of the plan, and the CT in its frame of reference if that is not `ct`; `inputs` are the edition's.

    Raises:
        InputError: several plans, or an unusable dose or planning CT.
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
        series = max(planning, key=lambda one: len(one.headers))
        planning_ct, ct_findings = read_ct(stack_slices(series.headers))
        images[CT_PLANNING] = SeriesVolume(planning_ct, series.uid)
        findings = (*findings, *ct_findings)
    name = tag_name("FrameOfReferenceUID")
    found = f"another {name} than that of the CT" if frame and ct.frame_of_reference else f"no {name} of dose or CT"
    finding = Finding(dose.name, f"found {found}", "a dose aligned with the CT", "taken as such")
    return Radiotherapy(images, ignored, (*findings, finding))


def _choose_dose(doses: Sequence[DicomHeader]) -> tuple[DicomHeader | None, tuple[str, ...]]:
    """The dose of the whole plan, and a line for each ignored one.

    A dose of type ERROR is the difference of two doses: it is ignored next to a dose of the plan.
    """
    plans, differences, lines = [], [], []
    for dose in doses:
        summation, kind = dose.text("DoseSummationType").upper(), dose.text("DoseType").upper()
        if summation not in ("PLAN", "MULTI_PLAN", ""):
            lines.append(f"RT dose {dose.name}: {tag_name('DoseSummationType')} {summation}")
        elif kind not in ("PHYSICAL", "EFFECTIVE", ""):
            differences.append(dose)
            lines.append(f"RT dose {dose.name}: {tag_name('DoseType')} {kind}")
        else:
            plans.append(dose)
    if len(plans) > 1:
        listed = ", ".join(f"{one.name} ({one.text('SeriesDescription') or 'no description'})" for one in plans)
        raise InputError("input folder", f"found {len(plans)} RT doses: {listed}", "one")
    if differences and not plans:
        kind = differences[0].text("DoseType")
        expected = "PHYSICAL; without a dose of the plan, remove this file"
        raise InputError(differences[0].name, f"found {tag_name('DoseType')} {kind}", expected)
    return (plans[0] if plans else None), tuple(lines)


def _check_dose(header: DicomHeader, dose: Volume) -> tuple[Finding, ...]:
    """Find an effective dose, and a highest dose that no plan has."""
    findings = []
    if header.text("DoseType").upper() == "EFFECTIVE":
        findings.append(Finding(header.name, f"found {tag_name('DoseType')} EFFECTIVE", "PHYSICAL", "taken as it is"))
    highest, (low, high) = float(dose.array.max()), _HIGHEST_DOSES_GY
    if not low <= highest <= high:
        found = f"found a highest dose of {highest:g} Gy"
        expected = f"{low:g} to {high:g} Gy; check {tag_name('DoseGridScaling')} and {tag_name('DoseUnits')}"
        findings.append(Finding(header.name, found, expected, "taken as it is"))
    return tuple(findings)


def read_dose(header: DicomHeader) -> Volume:
    """Dose in Gy, float32, on its own grid.

    Raises:
        InputError: not in Gy, negative, planes at irregular distances or at an unclear place, or pixels that cannot be
            read.
    """
    units = str(header.required("DoseUnits", "GY")).strip().upper()
    if units != "GY":
        raise InputError(header.name, f"found {tag_name('DoseUnits')} {units}", "GY")
    scaling = header.number("DoseGridScaling", "the factor to Gy")
    if scaling <= 0:
        raise InputError(header.name, f"found {tag_name('DoseGridScaling')} {scaling:g}", "a number above 0")
    stored = read_pixels(header)
    if stored.ndim != 3:
        raise InputError(header.name, f"found {stored.ndim} dimensions", "a dose of several planes")
    if stored.min() < 0:
        raise InputError(header.name, f"found a dose of {stored.min() * scaling:g} Gy", "no negative dose")
    plane = SlicePlane.of(header)
    offsets = np.array(header.numbers("GridFrameOffsetVector", len(stored), f"{len(stored)} distances in mm"))
    order = np.argsort(offsets)
    gaps = np.diff(offsets[order])
    if gaps.min() < _TOLERANCE_MM or np.ptp(gaps) > _TOLERANCE_MM:
        found = f"{tag_name('GridFrameOffsetVector')} has distances from {gaps.min():g} to {gaps.max():g} mm"
        raise InputError(header.name, found, "equal distances")
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

    It is 0, and the offsets go along the planes' normal; or it is the z of the first plane, and they are heights of
    axial planes whose normal points to the head.
    """
    height_mm = float(plane.position_mm[2])
    is_upright = float(plane.normal[2]) > 1 - _TOLERANCE_COSINE
    if abs(offset_mm) <= _TOLERANCE_MM or (is_upright and abs(offset_mm - height_mm) <= _TOLERANCE_MM):
        return
    found = f"found {tag_name('GridFrameOffsetVector')} that begins with {offset_mm:g}"
    expected = f"0{f' or {height_mm:g}, the height of the first plane' if is_upright else ''}"
    raise InputError(header.name, found, expected)
