"""Render the images of a phantom from its painted body.

A patient has either CT, PET, mask and planned dose, or T2-weighted MR of two visits, before and during radiotherapy,
with the masks of both. Between the visits lesions shrink, move by millimetres or vanish, and the neck turns and bends.
There is also a copy of the earlier image and mask that is registered to the later visit with a small error. Intensities
and changes of MR are invented within the clinical range.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import SimpleITK as sitk
from numpy.typing import NDArray

from contract import labels
from contract.editions import Input
from contract.editions.inputs import MR, Visit
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, to_sitk
from rehearsal.phantoms.body import build_body_parts
from rehearsal.phantoms.canvas import AIR_HU, Axes, Box, Canvas, Floats, make_regular_axes, sample, to_point
from rehearsal.phantoms.cohort import BEYOND_LESIONS_MM, LONG_SCAN_MM, PhantomCase, make_axes
from rehearsal.phantoms.lesions import Lesion, Surface, compute_lesion_extent

SLAB = 8
BONE_LIMIT_HU = 250
# An invading tumour destroys bone up to this value, that is, jaw and vertebrae but not teeth.
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

# Hounsfield units of tissues (air, fat, glands, water, muscle, bone), and their MR signal without and with fat
# suppression.
_MR_HU: Final = (-1000, -400, -130, -60, -10, 10, 25, 40, 60, 90, 200, 1000)
_MR_SIGNAL: Final = (0, 10, 320, 300, 260, 400, 260, 150, 110, 130, 60, 15)
_MR_SIGNAL_FAT_SUPPRESSED: Final = (0, 10, 60, 60, 160, 400, 260, 150, 110, 130, 60, 15)
_MR_FAT_SUPPRESSED_FRACTION: Final = 0.3
# Mean and standard deviation of the signal of lesions.
_MR_LESION_SIGNAL: Final = (230.0, 15.0)
# The MR images reach from the clavicles to the nasal septum, in anatomical heights.
_MR_HEIGHTS: Final = (-112.0, 36.0)
_MR_HALF_WIDTH_MM: Final = 112.0
_MR_HALF_DEPTH_MM: Final = 120.0
_MR_SPACING_MM: Final = (1.0, 1.0, 2.0)
_MR_PADDING_MM: Final = 16.0
# Fraction of a lesion's volume at the later visit: median, standard deviation of its logarithm, and range.
_REMAINING_MEDIAN: Final = 0.45
_REMAINING_LOG_SD: Final = 0.35
_REMAINING_RANGE: Final = (0.1, 1.2)
# Fraction of lesions with a complete response.
_COMPLETE_RESPONSE: Final = {labels.GTVP: 0.12, labels.GTVN: 0.06}
_SHIFT_MM: Final = 2.0
# Standard deviations of the neck's pose at the earlier visit, and of the errors of its registration.
_TURN_DEGREES: Final = 3.0
_MOVE_MM: Final = 5.0
_BEND_MM: Final = 3.0
_RESIDUAL_MM: Final = 1.0
# Standard deviations of the logarithm of the coil's bias, and of the noise.
_MR_BIAS_LOG_SD: Final = 0.15
_MR_NOISE_SD: Final = 8.0


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
    """Resample an image linearly to another grid, with 0 outside its own grid; both grids have identity direction."""
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


@dataclass(frozen=True)
class Visits:
    """Image (float32) and mask (uint8) of each visit, and of the earlier visit registered to the later visit.

    The keys are a visit and whether its image is registered.
    """

    pairs: Mapping[tuple[Visit, bool], tuple[Volume, Volume]]

    def select_volume(self, source: Input) -> Volume:
        """Select the content of an input: an MR, or a mask."""
        image, mask = self.pairs[source.visit, source.registered]
        return image if source.modality == MR else mask

    def select_mask(self, scan: Input) -> Volume:
        """Select the mask on a scan's grid."""
        return self.pairs[scan.visit, scan.registered][1]


def render_visits(case: PhantomCase, coarsening: int = 1) -> Visits:
    """Make a patient's MR of both visits; in plane, voxels are `coarsening` mm wide."""
    rng = np.random.default_rng((case.noise_seed, 1))
    signal = _MR_SIGNAL_FAT_SUPPRESSED if rng.random() < _MR_FAT_SUPPRESSED_FRACTION else _MR_SIGNAL
    responses = [_draw_response(rng, lesion) for lesion in case.disease.lesions]
    remaining = [lesion for lesion in responses if lesion is not None]
    grid = _make_mr_grid(case, coarsening)
    wide = _pad(grid)
    hu = _render_hu(case, wide, rng)
    body = _MrBody(Volume(np.interp(hu, _MR_HU, signal).astype(np.float32), wide), hu < BONE_LIMIT_HU)
    before = _paint_mr_lesions(case, body, list(case.disease.lesions), rng)
    image, mask = _paint_mr_lesions(case, body, remaining, rng)
    pose = sitk.CompositeTransform([_draw_rotation(rng, wide), _draw_deformation(rng, wide, _BEND_MM)])
    pairs: dict[tuple[Visit, bool], tuple[Volume, Volume]] = {
        ("earlier", False): _move(before, grid, pose),
        ("earlier", True): _move(before, grid, _draw_deformation(rng, wide, _RESIDUAL_MM)),
        ("later", False): (_crop(image, grid), _crop(mask, grid)),
    }
    return Visits({key: (_add_mr_noise(image, rng), mask) for key, (image, mask) in pairs.items()})


def _draw_response(rng: np.random.Generator, lesion: Lesion) -> Lesion | None:
    """Draw a lesion at the later visit; None after a complete response. Reactive nodes do not change."""
    if lesion.label == labels.BACKGROUND:
        return lesion
    remaining = float(np.clip(_REMAINING_MEDIAN * np.exp(rng.normal(0, _REMAINING_LOG_SD)), *_REMAINING_RANGE))
    place = to_point(np.add(lesion.place, rng.normal(0, _SHIFT_MM, 3)))
    if rng.random() < _COMPLETE_RESPONSE[lesion.label]:
        return None
    return replace(lesion, volume_ml=lesion.volume_ml * remaining, place=place)


def _make_mr_grid(case: PhantomCase, coarsening: int) -> Geometry:
    lowest, highest = compute_lesion_extent(case.disease, case.frame)
    low = min(case.frame.height_mm(_MR_HEIGHTS[0]), lowest - BEYOND_LESIONS_MM)
    high = max(case.frame.height_mm(_MR_HEIGHTS[1]), highest + BEYOND_LESIONS_MM)
    spacing = (_MR_SPACING_MM[0] * coarsening, _MR_SPACING_MM[1] * coarsening, _MR_SPACING_MM[2])
    x, y, _ = case.frame.origin_mm
    extent = (2 * _MR_HALF_WIDTH_MM, 2 * _MR_HALF_DEPTH_MM, high - low)
    columns, rows, slices = (round(length / step) for length, step in zip(extent, spacing, strict=True))
    return Geometry((columns, rows, slices), spacing, (x - _MR_HALF_WIDTH_MM, y - _MR_HALF_DEPTH_MM, low))


def _pad(grid: Geometry) -> Geometry:
    x, y, z = (int(np.ceil(_MR_PADDING_MM / step)) for step in grid.spacing_mm)
    columns, rows, slices = grid.size
    return grid.crop((-x, -y, -z), (columns + 2 * x, rows + 2 * y, slices + 2 * z))


def _crop(volume: Volume, grid: Geometry) -> Volume:
    margin = [(wide - narrow) // 2 for wide, narrow in zip(volume.array.shape, grid.array_shape, strict=True)]
    cut = tuple(slice(first, first + n) for first, n in zip(margin, grid.array_shape, strict=True))
    return Volume(volume.array[cut], grid)


def _render_hu(case: PhantomCase, grid: Geometry, rng: np.random.Generator) -> Floats:
    protocol = replace(case.protocol, ct=grid, pet=grid, planning=None)
    return sample_hu(paint_body(replace(case, protocol=protocol), rng), grid)


@dataclass(frozen=True)
class _MrBody:
    """T2 signal of a body without lesions, and the voxels that are not bone."""

    signal: Volume
    is_soft: NDArray[np.bool_]


def _paint_mr_lesions(
    case: PhantomCase, body: _MrBody, lesions: list[Lesion], rng: np.random.Generator
) -> tuple[Volume, Volume]:
    """Paint lesions into the T2 signal of a body, the primary tumour last; return the image and the mask."""
    grid = body.signal.geometry
    axes = make_axes(grid)
    image = body.signal.array.copy()
    mask = np.zeros(image.shape, dtype=np.uint8)
    for lesion in reversed(lesions):
        surface = Surface(lesion, case.frame.to_patient(lesion.place))
        region = find_lesion_box(axes, surface)
        if region is None:
            continue
        box, x, y, z = region
        level = surface.level(x, y, z)
        soft = body.is_soft[box]
        alpha = np.clip(0.5 - (level - 1) * np.float32(surface.radius_mm / 1.5), 0, 1) * soft
        image[box] += alpha * (np.float32(rng.normal(*_MR_LESION_SIGNAL)) - image[box])
        if lesion.label != labels.BACKGROUND:
            mask[box][(level < 1) & soft] = lesion.label
    return Volume(image, grid), Volume(mask, grid)


def _draw_rotation(rng: np.random.Generator, grid: Geometry) -> sitk.Transform:
    angles = np.deg2rad(rng.normal(0, _TURN_DEGREES, 3).clip(-8, 8))
    centre = grid.corners_mm().mean(0)
    return sitk.Euler3DTransform(centre.tolist(), *angles.tolist(), rng.normal(0, _MOVE_MM, 3).clip(-12, 12).tolist())


def _draw_deformation(rng: np.random.Generator, grid: Geometry, size_mm: float) -> sitk.Transform:
    """Draw a smooth deformation, whose control points move by a standard deviation of `size_mm`."""
    blank = to_sitk(Volume(np.zeros(grid.array_shape, np.uint8), grid))
    bend: sitk.Transform = sitk.BSplineTransformInitializer(blank, [3, 3, 3])
    bend.SetParameters(rng.normal(0, size_mm, len(bend.GetParameters())).tolist())
    return bend


def _move(pair: tuple[Volume, Volume], grid: Geometry, transform: sitk.Transform) -> tuple[Volume, Volume]:
    target = to_sitk(Volume(np.zeros(grid.array_shape, np.uint8), grid))
    image, mask = pair
    new_image = sitk.Resample(to_sitk(image), target, transform, sitk.sitkLinear)
    new_mask = sitk.Resample(to_sitk(mask), target, transform, sitk.sitkNearestNeighbor)
    return Volume(sitk.GetArrayFromImage(new_image), grid), Volume(sitk.GetArrayFromImage(new_mask), grid)


def _add_mr_noise(image: Volume, rng: np.random.Generator) -> Volume:
    """Add the coil's slow bias and Rician noise, and round to whole numbers."""
    bias: NDArray[np.float32] = np.ones(1, dtype=np.float32)
    for axis, count in enumerate(image.array.shape):
        wave = np.cos(np.linspace(0, np.pi, count) + rng.uniform(0, 2 * np.pi)) * rng.normal(0, _MR_BIAS_LOG_SD)
        bias = bias * np.exp(wave).astype(np.float32).reshape(
            [-1 if dimension == axis else 1 for dimension in range(3)]
        )
    real, imaginary = np.float32(_MR_NOISE_SD) * rng.standard_normal((2, *image.array.shape), dtype=np.float32)
    return Volume(np.rint(np.hypot(image.array * bias + real, imaginary)).astype(np.float32), image.geometry)
