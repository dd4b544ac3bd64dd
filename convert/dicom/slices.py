"""Compute the regular grid of a series from the positions of its slices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from contract.errors import InputError
from contract.images.geometry import Geometry
from convert.dicom.files import DicomHeader, format_tag

_Vector = npt.NDArray[np.float64]
# Slices at a smaller distance are at the same position.
_DUPLICATE_MM: Final = 0.02
# The distances of slices may differ from the median distance by this length or this fraction, whichever is larger.
_SPACING_TOLERANCE_MM: Final = 0.02
_SPACING_TOLERANCE_FRACTION: Final = 0.01
# Slices may be shifted in plane by this fraction of a pixel.
_SHIFT_TOLERANCE_FRACTION: Final = 0.25
_COSINE_TOLERANCE: Final = 1e-3


@dataclass(frozen=True, eq=False)
class SlicePlane:
    """Position and pixels of one slice.

    Attributes:
        header: Header of the slice.
        position_mm: Centre of the first pixel.
        x_axis, y_axis: Unit vectors along x and y of the array.
        spacing_mm, size: Pixel spacing and number of pixels along x and y.
    """

    header: DicomHeader
    position_mm: _Vector
    x_axis: _Vector
    y_axis: _Vector
    spacing_mm: tuple[float, float]
    size: tuple[int, int]

    @classmethod
    def from_header(cls, header: DicomHeader) -> SlicePlane:
        """Read the plane of an image.

        Raises:
            InputError: An attribute is missing or impossible.
        """
        position = np.array(header.require_numbers("ImagePositionPatient", 3, "x, y, z in mm"))
        cosines = np.array(header.require_numbers("ImageOrientationPatient", 6, "two unit vectors")).reshape(2, 3)
        if np.abs(cosines @ cosines.T - np.eye(2)).max() > _COSINE_TOLERANCE:
            problem = f"found {format_tag('ImageOrientationPatient')} {header.text('ImageOrientationPatient')}"
            raise InputError(header.name, problem, "perpendicular unit vectors")
        x_axis = cosines[0] / np.linalg.norm(cosines[0])
        y_axis = cosines[1] - (cosines[1] @ x_axis) * x_axis
        rows_mm, columns_mm = header.require_numbers("PixelSpacing", 2, "distances of rows and columns in mm")
        if min(rows_mm, columns_mm) <= 0:
            problem = f"found {format_tag('PixelSpacing')} {rows_mm:g}, {columns_mm:g}"
            raise InputError(header.name, problem, "positive distances in mm")
        size = (int(header.require_number("Columns", "an image")), int(header.require_number("Rows", "an image")))
        return cls(header, position, x_axis, y_axis / np.linalg.norm(y_axis), (columns_mm, rows_mm), size)

    @property
    def normal(self) -> _Vector:
        """Return the unit vector across the slice, along which slices are sorted."""
        return np.cross(self.x_axis, self.y_axis)

    @property
    def is_axial(self) -> bool:
        """Return whether the slice lies within 45 degrees of the patient's axial plane."""
        return abs(float(self.normal[2])) > math.sqrt(0.5)

    def corners_mm(self) -> _Vector:
        """Compute the four outer corners, shape (4, 3)."""
        x, y = (
            np.array([-0.5, size - 0.5]) * spacing for size, spacing in zip(self.size, self.spacing_mm, strict=True)
        )
        return np.array([self.position_mm + a * self.x_axis + b * self.y_axis for a in x for b in y])


@dataclass(frozen=True)
class SliceStack:
    """Slices in ascending order along their normal, and their grid."""

    headers: tuple[DicomHeader, ...]
    geometry: Geometry


def stack_slices(headers: Sequence[DicomHeader]) -> SliceStack:
    """Sort slices by position and check that they form a regular grid.

    Raises:
        InputError: Orientations or sizes differ, two slices have the same position, a slice is missing, distances are
            irregular, or slices are shifted against each other.
    """
    planes = [SlicePlane.from_header(header) for header in headers]
    first = planes[0]
    for plane in planes[1:]:
        _check_same_grid(first, plane)
    planes.sort(key=lambda plane: float(plane.position_mm @ first.normal))
    positions = np.array([plane.position_mm for plane in planes])
    heights = (positions - positions[0]) @ first.normal
    spacing_mm = _compute_spacing_mm(planes, heights)
    geometry = Geometry(
        (*first.size, len(planes)),
        (*first.spacing_mm, spacing_mm),
        _to_triple(positions[0]),
        tuple(map(float, np.column_stack([first.x_axis, first.y_axis, first.normal]).ravel())),
    )
    _check_straight(planes, positions - positions[0])
    return SliceStack(tuple(plane.header for plane in planes), geometry)


def _check_same_grid(first: SlicePlane, plane: SlicePlane) -> None:
    axis_change = np.abs(np.array([first.x_axis - plane.x_axis, first.y_axis - plane.y_axis])).max()
    for keyword, differs in (
        ("ImageOrientationPatient", bool(axis_change > _COSINE_TOLERANCE)),
        ("FrameOfReferenceUID", first.header.text("FrameOfReferenceUID") != plane.header.text("FrameOfReferenceUID")),
        ("PixelSpacing", not np.allclose(first.spacing_mm, plane.spacing_mm, rtol=_COSINE_TOLERANCE)),
        ("Rows", first.size[1] != plane.size[1]),
        ("Columns", first.size[0] != plane.size[0]),
    ):
        if differs:
            problem = f"found {format_tag(keyword)} {plane.header.text(keyword)}"
            expected = f"{first.header.text(keyword)} as in {first.header.name} of the same series"
            raise InputError(plane.header.name, problem, expected)


def _compute_spacing_mm(planes: Sequence[SlicePlane], heights: _Vector) -> float:
    """Compute the distance of the slices in mm, rounded to a nanometre; raise `InputError` if it is irregular."""
    gaps = np.diff(heights)
    usual = float(np.median(gaps))
    tolerance = max(_SPACING_TOLERANCE_MM, _SPACING_TOLERANCE_FRACTION * usual)
    for index, gap in enumerate(gaps):
        before, after = planes[index], planes[index + 1]
        where = f"{_format_position(before)} and {_format_position(after)}"
        if gap < _DUPLICATE_MM:
            expected = "one slice at each position; the series contains two acquisitions or time points"
            raise InputError(
                after.header.name, f"found the position of {before.header.name} {_format_position(before)}", expected
            )
        if abs(gap - usual) > tolerance:
            missing = round(gap / usual) - 1
            if missing >= 1 and abs(gap - (missing + 1) * usual) <= (missing + 1) * tolerance:
                expected = f"{usual:.4g} mm: {missing} slice{'s are' if missing > 1 else ' is'} missing"
            else:
                expected = f"{usual:.4g} mm as between the other slices"
            names = f"{before.header.name} and {after.header.name}"
            raise InputError(names, f"found {gap:.4g} mm between the slices {where}", expected)
    return round(float(heights[-1]) / (len(planes) - 1), 6)


def _format_position(plane: SlicePlane) -> str:
    return "at (" + ", ".join(f"{value:.6g}" for value in plane.position_mm) + ") mm"


def _check_straight(planes: Sequence[SlicePlane], offsets: _Vector) -> None:
    """Check that the slices are directly above each other, within a fraction of a pixel."""
    first = planes[0]
    shifts = np.abs(np.column_stack([offsets @ first.x_axis, offsets @ first.y_axis])).max(axis=1)
    worst = int(shifts.argmax())
    if shifts[worst] > _SHIFT_TOLERANCE_FRACTION * min(first.spacing_mm):
        problem = (
            f"found a slice {shifts[worst]:.3g} mm off the line along the normal {_format_position(planes[worst])}"
        )
        expected = "slices directly above each other; resample a CT with a tilted gantry first"
        raise InputError(planes[worst].header.name, problem, expected)


def _to_triple(vector: _Vector) -> tuple[float, float, float]:
    return (float(vector[0]), float(vector[1]), float(vector[2]))
