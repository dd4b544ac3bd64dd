"""Scan protocol of one patient: field of view, grids and imperfections of CT and PET.

The upper ends follow 150 real FDG PET/CTs (MIC-DKFZ/autopet-3-submission), in which the top of the head is often cut.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from contract.images.geometry import Geometry
from rehearsal.phantoms.anatomy.body import BLADDER_BOTTOM, BRAIN_BOTTOM
from rehearsal.phantoms.anatomy.canvas import Axes, Frame
from rehearsal.phantoms.centres import FIELDS_OF_VIEW, Centre

# A scan ends at least this far beyond the lesions; radiotherapy images end further below.
BEYOND_LESIONS_MM = 15
PLANNING_BELOW_LESIONS_MM = 30
# A longer scan reaches from the head to the pelvis and has slices of at least this thickness.
LONG_SCAN_MM = 600
LONG_SCAN_SLICE_MM = 2.5
# Smaller CT pixels are doubled for a grid that CT and PET share.
NARROW_PIXEL_MM: Final = 1.1
# Standard deviation and maximum of the distance between the patient and the scanner's axis.
OFF_CENTRE_MM = 22
MAX_OFF_CENTRE_MM = 60
CT_NOISE_HU: Final = (8.0, 20.0)
PADDING_HU: Final = (-1024, -1024, -2000, -3024)
Range = tuple[float, float]

# Upper end of a scan in mm above the brain's lower end: values at these quantiles, linear between them.
_QUANTILES: Final = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)
_TOPS_MM: Final = (44, 62, 70, 82, 94, 116, 158, 172, 268)
# Range of the upper end of a cut scan, which shows little of the brain.
_CUT_TOP_MM: Final = (6, 66)
# Range of the lower end in anatomical heights.
_BOTTOM: Final = (-230, -120)
_BELOW_BLADDER_MM: Final = 30
# Frequencies of the fields of view.
_VIEWS: Final = dict(zip(FIELDS_OF_VIEW, (0.75, 0.1, 0.15), strict=True))


@dataclass(frozen=True)
class Protocol:
    """Grids in LPS mm and imperfections of the scan.

    Attributes:
        padding_hu: Value of the corners of the CT, outside the scanner's circle.
        suv_factor: Factor of all SUV.
        pet_shift_mm: Movement (x, y, z) of the patient between CT and PET.
        planning, dose: Grids of the planning CT and the dose; None without radiotherapy data.
    """

    field_of_view: str
    ct: Geometry
    pet: Geometry
    psf_fwhm_mm: float
    pet_noise: float
    ct_noise_hu: float
    padding_hu: int
    suv_factor: float
    pet_shift_mm: tuple[float, float, float]
    planning: Geometry | None
    dose: Geometry | None


def make_axes(geometry: Geometry) -> Axes:
    """Make the voxel centres along z, y and x of a grid with identity direction."""
    x, y, z = (
        (origin + spacing * np.arange(size)).astype(np.float32)
        for origin, spacing, size in zip(geometry.origin_mm, geometry.spacing_mm, geometry.size, strict=True)
    )
    return Axes(z, y, x)


def coarsen_protocol(protocol: Protocol, factor: int) -> Protocol:
    """Return the same scan with a CT matrix that is `factor` times smaller in plane, for quick tests."""

    def coarse(geometry: Geometry) -> Geometry:
        columns, rows, slices = geometry.size
        across, along, thickness = geometry.spacing_mm
        size = (columns // factor, rows // factor, slices)
        return replace(geometry, size=size, spacing_mm=(across * factor, along * factor, thickness))

    planning = protocol.planning and coarse(protocol.planning)
    return replace(protocol, ct=coarse(protocol.ct), planning=planning)


def widen_ct_pixels(protocol: Protocol) -> Protocol:
    """Return the same scan with CT pixels of about 1.4 to 2.1 mm, for a release with CT and PET on one grid."""
    columns, rows, slices = protocol.ct.size
    across, along, thickness = protocol.ct.spacing_mm
    factor = 2.0 if across < NARROW_PIXEL_MM else 1.5
    size = (int(columns / factor), int(rows / factor), slices)
    spacing = (across * factor, along * factor, thickness)
    return replace(protocol, ct=replace(protocol.ct, size=size, spacing_mm=spacing))


def draw_protocol(
    rng: np.random.Generator, centre: Centre, frame: Frame, lesions_mm: Range, only: str | None
) -> Protocol:
    """Draw a scan, which reaches at least 15 mm beyond the lesions.

    `lesions_mm` are the lower and the upper end of the lesions in patient mm. `only` is a field of view that replaces
    the drawn one.
    """
    drawn_view = str(rng.choice(FIELDS_OF_VIEW, p=list(_VIEWS.values())))
    view = only or drawn_view
    bottom, top = _draw_extent(rng, view, frame)
    extent = min(bottom, lesions_mm[0] - BEYOND_LESIONS_MM), max(top, lesions_mm[1] + BEYOND_LESIONS_MM)
    offset = float(np.clip(rng.normal(0, OFF_CENTRE_MM), -MAX_OFF_CENTRE_MM, MAX_OFF_CENTRE_MM))
    middle = frame.origin_mm[0], frame.origin_mm[1] + 20 + offset
    radiotherapy = rng.random() < centre.rt_dose_share
    planning, dose = _draw_radiotherapy_grids(rng, frame, min(extent[0], lesions_mm[0] - PLANNING_BELOW_LESIONS_MM))
    return Protocol(
        field_of_view=view,
        ct=_draw_ct_grid(rng, centre, middle, extent),
        pet=_draw_pet_grid(rng, centre, middle, extent),
        psf_fwhm_mm=centre.psf_fwhm_mm * float(rng.uniform(0.9, 1.1)),
        pet_noise=centre.pet_noise * float(rng.uniform(0.75, 1.25)),
        ct_noise_hu=float(rng.uniform(*CT_NOISE_HU)),
        padding_hu=int(rng.choice(PADDING_HU)),
        suv_factor=centre.suv_bias * float(np.exp(rng.normal(0, 0.05))),
        pet_shift_mm=(float(rng.normal(0, 0.7)), float(rng.normal(0, 0.7)), float(rng.normal(0, 0.9))),
        planning=planning if radiotherapy else None,
        dose=dose if radiotherapy else None,
    )


def _draw_extent(rng: np.random.Generator, view: str, frame: Frame) -> Range:
    """Draw the lower and the upper end of a scan in patient z."""
    above_mm = float(np.interp(rng.random(), _QUANTILES, _TOPS_MM))
    bottom = frame.height_mm(float(rng.uniform(*_BOTTOM)))
    if view == "cut":
        above_mm = float(rng.uniform(*_CUT_TOP_MM))
    if view == "whole_body":
        bottom = frame.height_mm(BLADDER_BOTTOM) - _BELOW_BLADDER_MM
    return bottom, frame.height_mm(BRAIN_BOTTOM) + above_mm


def _make_grid(
    size: tuple[int, int, int], spacing: tuple[float, float, float], middle: tuple[float, float], bottom: float
) -> Geometry:
    x, y = (round(middle[axis] - spacing[axis] * (size[axis] - 1) / 2, 3) for axis in (0, 1))
    return Geometry(size, spacing, (x, y, round(bottom, 3)))


def choose_min_slice_mm(length_mm: float) -> float:
    """Choose the minimum slice thickness of a CT of this length."""
    return LONG_SCAN_SLICE_MM if length_mm > LONG_SCAN_MM else 0.0


def _draw_ct_grid(rng: np.random.Generator, centre: Centre, middle: tuple[float, float], extent: Range) -> Geometry:
    pixel, thickness = centre.ct_mm
    thickness = max(thickness, choose_min_slice_mm(extent[1] - extent[0]))
    count = int((extent[1] - extent[0]) / thickness) + 1
    middle = middle[0] + float(rng.normal(0, 5)), middle[1] + float(rng.normal(0, 4))
    return _make_grid((512, 512, count), (pixel, pixel, thickness), middle, extent[0])


def _draw_pet_grid(rng: np.random.Generator, centre: Centre, middle: tuple[float, float], extent: Range) -> Geometry:
    matrix, pixel, thickness = centre.pet
    bottom, top = extent[0] + float(rng.uniform(-18, 8)), extent[1] + float(rng.uniform(-8, 18))
    middle = middle[0] + float(rng.normal(0, 3)), middle[1] + float(rng.normal(0, 4))
    return _make_grid((matrix, matrix, int((top - bottom) / thickness) + 1), (pixel, pixel, thickness), middle, bottom)


def _draw_radiotherapy_grids(rng: np.random.Generator, frame: Frame, bottom: float) -> tuple[Geometry, Geometry]:
    low = max(bottom, frame.origin_mm[2] - 190)
    length = frame.height_mm(150) - low
    middle = frame.origin_mm[0] + float(rng.normal(0, 10)), frame.origin_mm[1] + 25 + float(rng.normal(0, 10))
    planning = _make_grid((512, 512, int(length / 3) + 1), (1.17, 1.17, 3.0), middle, low)
    dose = _make_grid((100, 90, int((length - 20) / 3) + 1), (3.0, 3.0, 3.0), middle, low + 10)
    return planning, dose
