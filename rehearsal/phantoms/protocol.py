"""Scan protocol of one patient: grids and imperfections of CT and PET."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from contract.images.geometry import Geometry
from rehearsal.phantoms.anatomy.canvas import Axes, Frame
from rehearsal.phantoms.centres import Centre

Range = tuple[float, float]
# Anatomical heights (mm above the tonsils) between which the top and the bottom of a scan lie.
HEIGHTS: dict[str, tuple[Range, Range]] = {
    "head_and_neck": ((168, 190), (-230, -120)),
    "head": ((168, 190), (-105, -75)),
    "cut": ((45, 105), (-230, -100)),
    "whole_body": ((70, 190), (-1060, -860)),
}
# A scan ends at least this far below the lowest lesion, and radiotherapy images further below.
BELOW_LESIONS_MM, PLANNING_BELOW_LESIONS_MM = 15, 30
# A longer scan reaches from skull to thigh, in slices of at least `LONG_SCAN_SLICE_MM`.
LONG_SCAN_MM, LONG_SCAN_SLICE_MM = 600, 2.5


@dataclass(frozen=True)
class Protocol:
    """Grids in LPS mm and imperfections of the scan.

    ``pet_shift_mm`` (x, y, z) is how far the patient moved between CT and PET; ``suv_factor`` multiplies all SUV;
    ``planning`` and ``dose`` are None without radiotherapy data.
    """

    field_of_view: str
    ct: Geometry
    pet: Geometry
    psf_fwhm_mm: float
    pet_noise: float
    ct_noise_hu: float
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


def random_protocol(
    rng: np.random.Generator, centre: Centre, frame: Frame, lowest_lesion_mm: float, only: str | None
) -> Protocol:
    """Draw a scan; it reaches at least 15 mm below the lowest lesion, given in patient mm."""
    drawn = _random_view(rng, centre)
    view = only or drawn
    (top_low, top_high), (bottom_low, bottom_high) = HEIGHTS[view]
    top = frame.origin_mm[2] + frame.scale[2] * float(rng.uniform(top_low, top_high))
    bottom = frame.origin_mm[2] + frame.scale[2] * float(rng.uniform(bottom_low, bottom_high))
    bottom = min(bottom, lowest_lesion_mm - BELOW_LESIONS_MM)
    ct = _ct_grid(rng, centre, frame, (bottom, top))
    pet = _pet_grid(rng, centre, frame, (bottom, top))
    radiotherapy = rng.random() < centre.rt_dose_share
    planning, dose = _radiotherapy_grids(rng, frame, min(bottom, lowest_lesion_mm - PLANNING_BELOW_LESIONS_MM))
    return Protocol(
        field_of_view=view,
        ct=ct,
        pet=pet,
        psf_fwhm_mm=float(rng.uniform(*centre.psf_fwhm_mm)),
        pet_noise=float(rng.uniform(*centre.pet_noise)),
        ct_noise_hu=float(rng.uniform(*centre.ct_noise_hu)),
        suv_factor=centre.suv_bias * float(np.exp(rng.normal(0, 0.05))),
        pet_shift_mm=(float(rng.normal(0, 0.7)), float(rng.normal(0, 0.7)), float(rng.normal(0, 0.9))),
        planning=planning if radiotherapy else None,
        dose=dose if radiotherapy else None,
    )


def _random_view(rng: np.random.Generator, centre: Centre) -> str:
    shares = {"whole_body": centre.whole_body_share, "head": centre.head_only_share, "cut": centre.cut_share}
    draw = float(rng.random())
    for name, share in shares.items():
        if draw < share:
            return name
        draw -= share
    return "head_and_neck"


def _grid(
    size: tuple[int, int, int], spacing: tuple[float, float, float], middle: tuple[float, float], bottom: float
) -> Geometry:
    x, y = (round(middle[axis] - spacing[axis] * (size[axis] - 1) / 2, 3) for axis in (0, 1))
    return Geometry(size, spacing, (x, y, round(bottom, 3)))


def _ct_grid(rng: np.random.Generator, centre: Centre, frame: Frame, extent: Range) -> Geometry:
    pixel, thickness = float(rng.choice(centre.ct_pixel_mm)), float(rng.choice(centre.ct_slice_mm))
    if extent[1] - extent[0] > LONG_SCAN_MM:
        thickness = max(thickness, LONG_SCAN_SLICE_MM)
    count = int((extent[1] - extent[0]) / thickness) + 1
    middle = frame.origin_mm[0] + float(rng.normal(0, 5)), frame.origin_mm[1] + 20 + float(rng.normal(0, 6))
    return _grid((512, 512, count), (pixel, pixel, thickness), middle, extent[0])


def _pet_grid(rng: np.random.Generator, centre: Centre, frame: Frame, extent: Range) -> Geometry:
    matrix, pixel = int(rng.choice(centre.pet_matrix)), float(rng.choice(centre.pet_pixel_mm))
    thickness = float(rng.choice(centre.pet_slice_mm))
    bottom, top = extent[0] + float(rng.uniform(-18, 8)), extent[1] + float(rng.uniform(-8, 18))
    middle = frame.origin_mm[0] + float(rng.normal(0, 3)), frame.origin_mm[1] + 20 + float(rng.normal(0, 4))
    return _grid((matrix, matrix, int((top - bottom) / thickness) + 1), (pixel, pixel, thickness), middle, bottom)


def _radiotherapy_grids(rng: np.random.Generator, frame: Frame, bottom: float) -> tuple[Geometry, Geometry]:
    low = max(bottom, frame.origin_mm[2] - 190)
    length = frame.origin_mm[2] + 150 * frame.scale[2] - low
    pixel = float(rng.choice((0.98, 1.17)))
    middle = frame.origin_mm[0] + float(rng.normal(0, 10)), frame.origin_mm[1] + 25 + float(rng.normal(0, 10))
    planning = _grid((512, 512, int(length / 3) + 1), (pixel, pixel, 3.0), middle, low)
    step = float(rng.choice((2.5, 3.0)))
    size = int(300 / step), int(270 / step), int((length - 20) / step) + 1
    return planning, _grid(size, (step, step, step), middle, low + 10)
