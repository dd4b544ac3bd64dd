"""Dose of an RT plan in Gy, and the planning CT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from contract.editions.inputs import CT_PLANNING, RT_DOSE
from contract.errors import Finding, InputError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from convert.dicom.files import read_pixels
from convert.dicom.headers import DicomHeader, tag_name
from convert.dicom.series import ImageSeries
from convert.dicom.slices import SlicePlane, stack_slices
from convert.dicom.volumes import SeriesVolume, read_ct

_TOLERANCE_MM: Final = 0.02


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
    images = {RT_DOSE: SeriesVolume(read_dose(dose), dose.text("SeriesInstanceUID"))}
    frame = dose.text("FrameOfReferenceUID")
    if frame == ct.frame_of_reference:
        return Radiotherapy(images, ignored)
    planning = [series for series in other_ct if series.frame_of_reference == frame]
    if planning and CT_PLANNING in inputs:
        series = max(planning, key=lambda one: len(one.headers))
        images[CT_PLANNING] = SeriesVolume(read_ct(stack_slices(series.headers))[0], series.uid)
    name = tag_name("FrameOfReferenceUID")
    finding = Finding(
        dose.name, f"found another {name} than that of the CT", "a dose aligned with the CT", "taken as such"
    )
    return Radiotherapy(images, ignored, (finding,))


def _choose_dose(doses: Sequence[DicomHeader]) -> tuple[DicomHeader | None, tuple[str, ...]]:
    """The dose of the whole plan, and a line for each ignored one."""
    plans = [one for one in doses if one.text("DoseSummationType").upper() in ("PLAN", "MULTI_PLAN", "")]
    if len(plans) > 1:
        listed = ", ".join(f"{one.name} ({one.text('SeriesDescription') or 'no description'})" for one in plans)
        raise InputError("input folder", f"found {len(plans)} RT doses: {listed}", "one")
    lines = [
        f"RT dose {one.name}: {tag_name('DoseSummationType')} {one.text('DoseSummationType')}"
        for one in doses
        if one not in plans
    ]
    return (plans[0] if plans else None), tuple(lines)


def read_dose(header: DicomHeader) -> Volume:
    """Dose in Gy, float32, on its own grid.

    Raises:
        InputError: not in Gy, planes at irregular distances, or pixels that cannot be read.
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
    plane = SlicePlane.of(header)
    offsets = np.array(header.numbers("GridFrameOffsetVector", len(stored), f"{len(stored)} distances in mm"))
    order = np.argsort(offsets)
    gaps = np.diff(offsets[order])
    if gaps.min() < _TOLERANCE_MM or np.ptp(gaps) > _TOLERANCE_MM:
        found = f"{tag_name('GridFrameOffsetVector')} has distances from {gaps.min():g} to {gaps.max():g} mm"
        raise InputError(header.name, found, "equal distances")
    # The first offset is 0 or the plane's own height.
    origin = plane.position_mm + (offsets[order[0]] - offsets[0]) * plane.normal
    geometry = Geometry(
        (*plane.size, len(stored)),
        (*plane.spacing_mm, round(float(gaps.mean()), 6)),
        (float(origin[0]), float(origin[1]), float(origin[2])),
        tuple(map(float, np.column_stack([plane.x_axis, plane.y_axis, plane.normal]).ravel())),
    )
    return Volume((stored[order] * scaling).astype(np.float32), geometry)
