"""Dose of an RT plan in Gy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from contract.errors import InputError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from convert.dicom.files import read_pixels
from convert.dicom.headers import DicomHeader, tag_name
from convert.dicom.series import ImageSeries
from convert.dicom.slices import SlicePlane

_TOLERANCE_MM: Final = 0.02


def choose_dose(doses: Sequence[DicomHeader]) -> tuple[DicomHeader | None, list[str]]:
    """The dose of the whole plan, and a line for each ignored one.

    Raises:
        InputError: several doses of whole plans.
    """
    plans = [one for one in doses if one.text("DoseSummationType").upper() in ("PLAN", "MULTI_PLAN", "")]
    if len(plans) > 1:
        listed = ", ".join(f"{one.name} ({one.text('SeriesDescription') or 'no description'})" for one in plans)
        raise InputError("input folder", f"found {len(plans)} RT doses: {listed}", "one")
    lines = [
        f"RT dose {one.name}: {tag_name('DoseSummationType')} {one.text('DoseSummationType')}"
        for one in doses
        if one not in plans
    ]
    return (plans[0] if plans else None), lines


def planning_ct(dose: DicomHeader, ct: ImageSeries, others: Sequence[ImageSeries]) -> ImageSeries | None:
    """The CT on which the dose was planned, by frame of reference, if it is not `ct`; None if there is none."""
    frame = dose.text("FrameOfReferenceUID")
    if not frame or frame == ct.frame_of_reference:
        return None
    candidates = [series for series in others if series.frame_of_reference == frame]
    return max(candidates, key=lambda series: len(series.headers), default=None)


def read_dose(header: DicomHeader) -> Volume:
    """Dose in Gy, float32, on its own grid.

    Raises:
        InputError: not in Gy, planes at irregular distances, or pixels that cannot be read.
    """
    units = str(header.required("DoseUnits", "GY")).strip().upper()
    if units != "GY":
        raise InputError(header.name, f"found {tag_name('DoseUnits')} {units}", "GY")
    scaling = header.number("DoseGridScaling", "the factor to Gy")
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
