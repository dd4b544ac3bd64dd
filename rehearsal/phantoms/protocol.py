"""Scan protocol of one patient: field of view, grids and imperfections of CT and PET.

The upper ends and the lengths follow those of 150 real FDG PET/CTs (MIC-DKFZ/autopet-3-submission): the top of the
head is often cut, some scans show no brain, and some reach down to the feet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from contract.images.geometry import Geometry
from rehearsal.phantoms.anatomy.canvas import Axes, Frame
from rehearsal.phantoms.anatomy.heights import BLADDER_BOTTOM, BRAIN_BOTTOM
from rehearsal.phantoms.centres import Centre

# A scan ends at least this far beyond the lesions, and radiotherapy images further below.
BEYOND_LESIONS_MM, PLANNING_BELOW_LESIONS_MM = 15, 30
# A longer scan reaches from skull to thigh, and one of more than `FEET_SCAN_MM` to the feet; thinnest slices of both.
LONG_SCAN_MM, LONG_SCAN_SLICE_MM = 600, 2.5
FEET_SCAN_MM, FEET_SCAN_SLICE_MM = 1250, 3.0
# CT pixels of less than this are doubled for a grid that CT and PET share.
NARROW_PIXEL_MM: Final = 1.1
# Spread of the patient's height in the scanner, to both sides of its axis.
OFF_CENTRE_MM, FURTHEST_OFF_CENTRE_MM = 22, 60
Range = tuple[float, float]


@dataclass(frozen=True)
class Quantiles:
    """A distribution by some of its quantiles, linear between them."""

    shares: tuple[float, ...]
    values: tuple[float, ...]

    def draw(self, rng: np.random.Generator) -> float:
        """Draw a value."""
        return float(np.interp(rng.random(), self.shares, self.values))


# Upper end of a scan in mm above the brain's lower end.
_SHARES = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)
TOP = Quantiles(_SHARES, (44, 63, 70, 79, 92, 105, 134, 148, 200))
TOP_OF_LONG_SCAN = Quantiles(_SHARES, (58, 63, 73, 88, 130, 155, 205, 230, 265))
TOP_BELOW_BRAIN = Quantiles((0.0, 1.0), (-40, -2))
CUT_TOP = Quantiles((0.0, 1.0), (6, 66))
# Length of scans that end at the thighs, and of those that go on to the feet.
LENGTH = Quantiles((0.0, 0.05, 0.09, 0.41, 0.5, 0.59, 0.93, 1.0), (726, 777, 852, 852, 915, 978, 978, 1227))
LENGTH_OF_LONG_SCAN = Quantiles(_SHARES, (1353, 1479, 1529, 1605, 1731, 1767, 1857, 1857, 1857))
NO_BRAIN_SHARE, LONG_SCAN_SHARE = 0.05, 0.17
BELOW_BLADDER_MM = 30
# Upper end, and anatomical heights between which the lower end lies; a whole-body scan is drawn with a length instead.
VIEWS: dict[str, tuple[Quantiles, Range]] = {
    "head_and_neck": (TOP, (-230, -120)),
    "head": (TOP, (-105, -75)),
    "cut": (CUT_TOP, (-230, -100)),
}
WHOLE_BODY = "whole_body"


def random_view(rng: np.random.Generator, centre: Centre) -> str:
    """Draw a field of view by the centre's shares."""
    shares = {WHOLE_BODY: centre.whole_body_share, "head": centre.head_only_share, "cut": centre.cut_share}
    draw = float(rng.random())
    for name, share in shares.items():
        if draw < share:
            return name
        draw -= share
    return "head_and_neck"


def random_extent(rng: np.random.Generator, view: str, frame: Frame) -> Range:
    """Patient z of a scan's lower and upper end."""
    brain = frame.height_mm(BRAIN_BOTTOM)
    if view == WHOLE_BODY:
        return _whole_body_extent(rng, brain, frame.height_mm(BLADDER_BOTTOM))
    top, (low, high) = VIEWS[view]
    return frame.height_mm(float(rng.uniform(low, high))), brain + top.draw(rng)


def _whole_body_extent(rng: np.random.Generator, brain: float, bladder: float) -> Range:
    long = rng.random() < LONG_SCAN_SHARE
    top = TOP_OF_LONG_SCAN if long else TOP
    if rng.random() < NO_BRAIN_SHARE:
        top = TOP_BELOW_BRAIN
    upper = brain + top.draw(rng)
    lower = upper - (LENGTH_OF_LONG_SCAN if long else LENGTH).draw(rng)
    return min(lower, bladder - BELOW_BLADDER_MM), upper


@dataclass(frozen=True)
class Protocol:
    """Grids in LPS mm and imperfections of the scan.

    ``pet_shift_mm`` (x, y, z) is how far the patient moved between CT and PET; ``suv_factor`` multiplies all SUV;
    ``padding_hu`` stands in the corners of the CT outside the scanner's circle;
    ``planning`` and ``dose`` are None without radiotherapy data.
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


def axes_of(geometry: Geometry) -> Axes:
    """Voxel centres along z, y and x of a grid with identity direction."""
    x, y, z = (
        (origin + spacing * np.arange(size)).astype(np.float32)
        for origin, spacing, size in zip(geometry.origin_mm, geometry.spacing_mm, geometry.size, strict=True)
    )
    return Axes(z, y, x)


def coarsened(protocol: Protocol, factor: int) -> Protocol:
    """The same scan with a CT matrix ``factor`` times smaller in plane, for quick tests."""

    def coarse(geometry: Geometry) -> Geometry:
        (columns, rows, slices), (across, along, thickness) = geometry.size, geometry.spacing_mm
        size, spacing = (columns // factor, rows // factor, slices), (across * factor, along * factor, thickness)
        return replace(geometry, size=size, spacing_mm=spacing)

    planning = protocol.planning and coarse(protocol.planning)
    return replace(protocol, ct=coarse(protocol.ct), planning=planning)


def on_common_grid(protocol: Protocol) -> Protocol:
    """The same scan with CT pixels of about 1.4 to 2.1 mm, on which a release can have the PET as well."""
    columns, rows, slices = protocol.ct.size
    across, along, thickness = protocol.ct.spacing_mm
    factor = 2.0 if across < NARROW_PIXEL_MM else 1.5
    size, spacing = (int(columns / factor), int(rows / factor), slices), (across * factor, along * factor, thickness)
    return replace(protocol, ct=replace(protocol.ct, size=size, spacing_mm=spacing))


def random_protocol(
    rng: np.random.Generator, centre: Centre, frame: Frame, lesions_mm: Range, only: str | None
) -> Protocol:
    """Draw a scan; it reaches at least 15 mm beyond the lesions, whose lower and upper end are given in patient mm."""
    drawn = random_view(rng, centre)
    view = only or drawn
    bottom, top = random_extent(rng, view, frame)
    extent = min(bottom, lesions_mm[0] - BEYOND_LESIONS_MM), max(top, lesions_mm[1] + BEYOND_LESIONS_MM)
    offset = float(np.clip(rng.normal(0, OFF_CENTRE_MM), -FURTHEST_OFF_CENTRE_MM, FURTHEST_OFF_CENTRE_MM))
    middle = frame.origin_mm[0], frame.origin_mm[1] + 20 + offset
    ct = _ct_grid(rng, centre, middle, extent)
    pet = _pet_grid(rng, centre, middle, extent)
    radiotherapy = rng.random() < centre.rt_dose_share
    planning, dose = _radiotherapy_grids(rng, frame, min(extent[0], lesions_mm[0] - PLANNING_BELOW_LESIONS_MM))
    return Protocol(
        field_of_view=view,
        ct=ct,
        pet=pet,
        psf_fwhm_mm=float(rng.uniform(*centre.psf_fwhm_mm)),
        pet_noise=float(rng.uniform(*centre.pet_noise)),
        ct_noise_hu=float(rng.uniform(*centre.ct_noise_hu)),
        padding_hu=int(rng.choice(centre.padding_hu)),
        suv_factor=centre.suv_bias * float(np.exp(rng.normal(0, 0.05))),
        pet_shift_mm=(float(rng.normal(0, 0.7)), float(rng.normal(0, 0.7)), float(rng.normal(0, 0.9))),
        planning=planning if radiotherapy else None,
        dose=dose if radiotherapy else None,
    )


def _grid(
    size: tuple[int, int, int], spacing: tuple[float, float, float], middle: tuple[float, float], bottom: float
) -> Geometry:
    x, y = (round(middle[axis] - spacing[axis] * (size[axis] - 1) / 2, 3) for axis in (0, 1))
    return Geometry(size, spacing, (x, y, round(bottom, 3)))


def thinnest_slice_mm(length_mm: float) -> float:
    """Smallest slice thickness of a CT of this length."""
    if length_mm > FEET_SCAN_MM:
        return FEET_SCAN_SLICE_MM
    return LONG_SCAN_SLICE_MM if length_mm > LONG_SCAN_MM else 0.0


def _ct_grid(rng: np.random.Generator, centre: Centre, middle: tuple[float, float], extent: Range) -> Geometry:
    pixel, thickness = float(rng.choice(centre.ct_pixel_mm)), float(rng.choice(centre.ct_slice_mm))
    thickness = max(thickness, thinnest_slice_mm(extent[1] - extent[0]))
    count = int((extent[1] - extent[0]) / thickness) + 1
    middle = middle[0] + float(rng.normal(0, 5)), middle[1] + float(rng.normal(0, 4))
    return _grid((512, 512, count), (pixel, pixel, thickness), middle, extent[0])


def _pet_grid(rng: np.random.Generator, centre: Centre, middle: tuple[float, float], extent: Range) -> Geometry:
    matrix, pixel = int(rng.choice(centre.pet_matrix)), float(rng.choice(centre.pet_pixel_mm))
    thickness = float(rng.choice(centre.pet_slice_mm))
    bottom, top = extent[0] + float(rng.uniform(-18, 8)), extent[1] + float(rng.uniform(-8, 18))
    middle = middle[0] + float(rng.normal(0, 3)), middle[1] + float(rng.normal(0, 4))
    return _grid((matrix, matrix, int((top - bottom) / thickness) + 1), (pixel, pixel, thickness), middle, bottom)


def _radiotherapy_grids(rng: np.random.Generator, frame: Frame, bottom: float) -> tuple[Geometry, Geometry]:
    low = max(bottom, frame.origin_mm[2] - 190)
    length = frame.height_mm(150) - low
    pixel = float(rng.choice((0.98, 1.17)))
    middle = frame.origin_mm[0] + float(rng.normal(0, 10)), frame.origin_mm[1] + 25 + float(rng.normal(0, 10))
    planning = _grid((512, 512, int(length / 3) + 1), (pixel, pixel, 3.0), middle, low)
    step = float(rng.choice((2.5, 3.0)))
    size = int(300 / step), int(270 / step), int((length - 20) / step) + 1
    return planning, _grid(size, (step, step, step), middle, low + 10)
