"""Render the images of a scanner and a treatment planning system from a painted body."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contract import labels
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from rehearsal.phantoms.anatomy.canvas import AIR_HU, Axes, Box, Canvas, make_regular_axes, sample
from rehearsal.phantoms.anatomy.lesions import Lesion
from rehearsal.phantoms.anatomy.parts import build_body_parts
from rehearsal.phantoms.anatomy.shapes import Floats
from rehearsal.phantoms.anatomy.surfaces import Surface
from rehearsal.phantoms.cohort import PhantomCase
from rehearsal.phantoms.protocol import LONG_SCAN_MM, make_axes

SLAB = 8
BONE_LIMIT_HU = 250
# An invading tumour destroys bone up to this value, that is jaw and vertebra but no teeth.
INVADED_LIMIT_HU = 1500
TISSUE_TEXTURE_HU = 5.0
FWHM_TO_SIGMA = 1 / 2.3548
# A dead or cystic core is water on CT and has a fifth of the rim's uptake.
CORE_HU = 18.0
CORE_SUV_SHARE = 0.2
# Standard deviation of the horizontal stripes where the shoulders absorb most photons.
STARVED_NOISE_HU = 14
# PET noise is smoothed over less than a voxel. Its variance is proportional to uptake, with a little noise in air.
PET_NOISE_SMOOTHING_VOXELS = 0.7
PET_NOISE_FLOOR_SUV = 0.03
# Plateau (Gy) and margin (mm) of the dose to the lesions and to the elective node levels.
LESION_DOSE = (70.5, 8.0)
ELECTIVE_DOSE = (55.0, 6.0)


@dataclass(frozen=True)
class Rendered:
    """The images of one patient: CT int16 HU, PET float32 SUV, mask uint8 on the CT's grid, dose float32 Gy."""

    ct: Volume
    pet: Volume
    mask: Volume
    planning: Volume | None
    dose: Volume | None


def render(case: PhantomCase) -> Rendered:
    """Make a patient's images; the same case gives the same voxels."""
    streams = np.random.SeedSequence(case.noise_seed).spawn(4)
    shape_rng, ct_rng, pet_rng, plan_rng = (np.random.default_rng(stream) for stream in streams)
    protocol = case.protocol
    canvas = paint_body(case, shape_rng)
    surfaces = [(lesion, Surface(lesion, case.frame.to_patient(lesion.place))) for lesion in case.disease.lesions]
    ct, mask = _render_ct(canvas, case, protocol.ct, surfaces, ct_rng)
    planning = None if protocol.planning is None else _render_ct(canvas, case, protocol.planning, surfaces, plan_rng)[0]
    pet = _render_pet(canvas, case, surfaces, pet_rng)
    return Rendered(
        ct, pet, mask, planning, None if protocol.dose is None else _render_dose(case, protocol.dose, surfaces)
    )


def sample_hu(canvas: Canvas, grid: Geometry) -> Floats:
    """Sample the Hounsfield units (z, y, x) of a painted body on a grid with identity direction."""
    return sample(canvas.hu, canvas.axes, make_axes(grid), AIR_HU)


def paint_body(case: PhantomCase, rng: np.random.Generator) -> Canvas:
    """Paint the body without lesions on a canvas around the protocol's scans."""
    grids = [grid for grid in (case.protocol.ct, case.protocol.pet, case.protocol.planning) if grid is not None]
    bottoms = [grid.origin_mm[2] for grid in grids]
    tops = [grid.origin_mm[2] + grid.spacing_mm[2] * grid.size[2] for grid in grids]
    x, y, _ = case.frame.origin_mm
    long = max(tops) - min(bottoms) > LONG_SCAN_MM
    axes = make_regular_axes(
        (x - 300, y - 145, min(bottoms) - 12), (x + 300, y + 195, max(tops) + 12), (2.0, 2.0, 2.5 if long else 2.0)
    )
    canvas = Canvas(axes, case.frame, rng)
    for part in build_body_parts(case.body):
        canvas.paint(part)
    canvas.hu += canvas.unevenness * np.where(np.abs(canvas.hu) < 200, np.float32(TISSUE_TEXTURE_HU), np.float32(0))
    return canvas


def find_lesion_box(axes: Axes, surface: Surface) -> tuple[Box, Floats, Floats, Floats] | None:
    """Find the box of a lesion on a grid and its coordinates x, y and z; None outside the grid."""
    box = axes.box(*surface.corners())
    if any(cut.stop <= cut.start for cut in box):
        return None
    return box, *axes.coordinates(box)


def _render_ct(
    canvas: Canvas, case: PhantomCase, grid: Geometry, surfaces: list[tuple[Lesion, Surface]], rng: np.random.Generator
) -> tuple[Volume, Volume]:
    """Render CT and mask on `grid`."""
    axes = make_axes(grid)
    ct = np.empty(axes.shape, dtype=np.int16)
    mask = np.zeros(axes.shape, dtype=np.uint8)
    for cut in _split_slabs(len(axes.z)):
        part = sample(canvas.hu, canvas.axes, Axes(axes.z[cut], axes.y, axes.x), AIR_HU)
        ct[cut] = np.rint(part, out=part)
    # The primary tumour is painted last, so a voxel that it shares with a node belongs to it.
    for lesion, surface in reversed(surfaces):
        _paint_lesion_on_ct(ct, mask, axes, lesion, surface)
    _add_ct_noise(ct, axes, case, rng)
    return Volume(ct, grid), Volume(mask, grid)


def _split_slabs(count: int) -> Iterator[slice]:
    for start in range(0, count, SLAB):
        yield slice(start, min(start + SLAB, count))


def _paint_lesion_on_ct(
    ct: NDArray[np.int16], mask: NDArray[np.uint8], axes: Axes, lesion: Lesion, surface: Surface
) -> None:
    region = find_lesion_box(axes, surface)
    if region is None:
        return
    box, x, y, z = region
    level = surface.level(x, y, z)
    here = ct[box].astype(np.float32)
    soft = here < (INVADED_LIMIT_HU if lesion.invades_bone else BONE_LIMIT_HU)
    edge = np.float32(surface.radius_mm / 1.5)
    target = np.full_like(level, lesion.hu)
    if lesion.core_share:
        core = np.clip(0.5 - (level - lesion.core_share) * edge, 0, 1)
        target += core * np.float32(CORE_HU - lesion.hu)
    alpha = np.clip(0.5 - (level - 1) * edge, 0, 1) * soft
    ct[box] = np.rint(here + alpha * (target - here))
    if lesion.label != labels.BACKGROUND:
        mask[box][(level < 1) & soft] = lesion.label


def _add_ct_noise(ct: NDArray[np.int16], axes: Axes, case: PhantomCase, rng: np.random.Generator) -> None:
    """Add noise, photon starvation at the shoulders and the round field of view, in place."""
    frame = case.frame
    height = frame.anatomical_height(axes.z)
    shoulders = np.clip((-95 - height) / 40, 0, 1) * (height > -290)
    rows, columns = ct.shape[1:]
    middle_y, middle_x = axes.y[rows // 2], axes.x[columns // 2]
    radius = columns / 2 * (axes.x[1] - axes.x[0])
    outside = (axes.y[:, None] - middle_y) ** 2 + (axes.x[None, :] - middle_x) ** 2 > radius**2
    for cut in _split_slabs(len(axes.z)):
        noise = rng.standard_normal((cut.stop - cut.start, rows + 1, columns + 1), dtype=np.float32)
        noise = noise[:, 1:, 1:] + noise[:, :-1, 1:] + noise[:, 1:, :-1] + noise[:, :-1, :-1]
        noise *= (case.protocol.ct_noise_hu / 2 * (1 + 0.8 * shoulders[cut])).astype(np.float32)[:, None, None]
        starved = rng.standard_normal((cut.stop - cut.start, rows, 1), dtype=np.float32)
        noise += starved * (STARVED_NOISE_HU * shoulders[cut]).astype(np.float32)[:, None, None]
        noise += ct[cut]
        np.clip(np.rint(noise, out=noise), -1024, 3071, out=noise)
        noise[:, outside] = case.protocol.padding_hu
        ct[cut] = noise


def _render_pet(
    canvas: Canvas, case: PhantomCase, surfaces: list[tuple[Lesion, Surface]], rng: np.random.Generator
) -> Volume:
    from scipy import ndimage

    protocol, axes = case.protocol, canvas.axes
    for lesion, surface in reversed(surfaces):
        region = find_lesion_box(axes, surface)
        if region is None:
            continue
        box, x, y, z = region
        level = surface.level(x, y, z)
        uptake = lesion.suv * surface.texture(x, y, z)
        if lesion.core_share:
            uptake *= np.where(level < lesion.core_share, np.float32(CORE_SUV_SHARE), np.float32(1))
        alpha = np.clip(0.5 - (level - 1) * np.float32(surface.radius_mm / 2), 0, 1)
        canvas.suv[box] += alpha * (uptake - canvas.suv[box])
    sigmas = [protocol.psf_fwhm_mm * FWHM_TO_SIGMA / step for step in axes.spacing_mm]
    blurred = ndimage.gaussian_filter(canvas.suv, sigmas, truncate=2.5)
    target = make_axes(protocol.pet)
    shift = protocol.pet_shift_mm
    moved = Axes(target.z - np.float32(shift[2]), target.y - np.float32(shift[1]), target.x - np.float32(shift[0]))
    clean = sample(blurred, axes, moved, 0.0)
    noise = ndimage.gaussian_filter(rng.standard_normal(clean.shape, dtype=np.float32), PET_NOISE_SMOOTHING_VOXELS)
    noise /= noise.std()
    clean += protocol.pet_noise * np.sqrt(clean + np.float32(PET_NOISE_FLOOR_SUV)) * noise
    clean *= np.float32(protocol.suv_factor)
    return Volume(np.maximum(clean, 0, out=clean), protocol.pet)


def resample(volume: Volume, grid: Geometry) -> Volume:
    """Resample an image linearly to another grid, with 0 outside its own; both grids have identity direction."""
    return Volume(sample(volume.array, make_axes(volume.geometry), make_axes(grid), 0.0), grid)


def _render_dose(case: PhantomCase, grid: Geometry, surfaces: list[tuple[Lesion, Surface]]) -> Volume:
    """Render a dose of about 70 Gy to the lesions and 54 Gy to the neck's node levels, with a fall-off of 1 to 2 cm."""
    axes = make_axes(grid)
    target = np.zeros(axes.shape, dtype=bool)
    elective = np.zeros(axes.shape, dtype=bool)
    for lesion, surface in surfaces:
        region = find_lesion_box(axes, surface)
        if lesion.label and region is not None:
            box, x, y, z = region
            target[box] |= surface.level(x, y, z) < 1
    for side in (-1, 1):
        for height in range(-105, 15, 10):
            place = case.frame.to_patient((side * 33.0, 10.0, float(height)))
            coordinates = axes.coordinates((slice(None), slice(None), slice(None)))
            x, y, z = (((line - centre) / np.float32(17)) ** 2 for line, centre in zip(coordinates, place, strict=True))
            elective |= x + y + z < 1
    step = grid.spacing_mm[0]
    high = _compute_dose(target, step, *LESION_DOSE)
    low = _compute_dose(elective | target, step, *ELECTIVE_DOSE)
    return Volume(np.maximum(high, low).astype(np.float32), grid)


def _compute_dose(target: NDArray[np.bool_], step_mm: float, dose_gy: float, margin_mm: float) -> Floats:
    from scipy import ndimage

    if not target.any():
        return np.zeros(target.shape, dtype=np.float32)
    distance = ndimage.distance_transform_edt(~target, sampling=step_mm).astype(np.float32)
    return np.asarray(dose_gy / (1 + np.exp(np.clip((distance - margin_mm - 6) / 5, -30, 30))), dtype=np.float32)
