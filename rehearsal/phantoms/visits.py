"""MR of two visits: T2-weighted images before and during radiotherapy, with the masks of both.

Between the visits lesions shrink, move by millimetres or vanish, and the neck turns and bends. There is also a copy of
the earlier image and mask that is registered to the later visit with a small error. Intensities and changes are
invented within the clinical range.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from rehearsal.phantoms.anatomy.lesions import Lesion, compute_lesion_extent
from rehearsal.phantoms.anatomy.shapes import Floats, point
from rehearsal.phantoms.anatomy.surfaces import Surface
from rehearsal.phantoms.cohort import PhantomCase
from rehearsal.phantoms.protocol import BEYOND_LESIONS_MM, make_axes
from rehearsal.phantoms.scanner import BONE_LIMIT_HU, find_lesion_box, paint_body, sample_hu

# Hounsfield units of tissues and their signal with and without fat suppression: air, fat, glands, water, muscle, bone.
_HU: Final = (-1000, -400, -130, -60, -10, 10, 25, 40, 60, 90, 200, 1000)
_SIGNAL: Final = (0, 10, 320, 300, 260, 400, 260, 150, 110, 130, 60, 15)
_SIGNAL_FAT_SUPPRESSED: Final = (0, 10, 60, 60, 160, 400, 260, 150, 110, 130, 60, 15)
_FAT_SUPPRESSED_FRACTION: Final = 0.3
# Mean and standard deviation of the signal of lesions.
_LESION_SIGNAL: Final = (230.0, 15.0)
# The images reach from the clavicles to the nasal septum, in anatomical heights.
_HEIGHTS: Final = (-112.0, 36.0)
_HALF_WIDTH_MM: Final = 112.0
_HALF_DEPTH_MM: Final = 120.0
_SPACING_MM: Final = (1.0, 1.0, 2.0)
_PADDING_MM: Final = 16.0
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
_BIAS: Final = 0.15
_NOISE: Final = 8.0


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
    signal = _SIGNAL_FAT_SUPPRESSED if rng.random() < _FAT_SUPPRESSED_FRACTION else _SIGNAL
    responses = [_draw_response(rng, lesion) for lesion in case.disease.lesions]
    remaining = [lesion for lesion in responses if lesion is not None]
    grid = _make_grid(case, coarsening)
    wide = _pad(grid)
    hu = _render_hu(case, wide, rng)
    body = _Body(Volume(np.interp(hu, _HU, signal).astype(np.float32), wide), hu < BONE_LIMIT_HU)
    before = _paint_lesions(case, body, list(case.disease.lesions), rng)
    image, mask = _paint_lesions(case, body, remaining, rng)
    pose = sitk.CompositeTransform([_draw_rotation(rng, wide), _draw_deformation(rng, wide, _BEND_MM)])
    pairs: dict[tuple[Visit, bool], tuple[Volume, Volume]] = {
        ("earlier", False): _move(before, grid, pose),
        ("earlier", True): _move(before, grid, _draw_deformation(rng, wide, _RESIDUAL_MM)),
        ("later", False): (_crop(image, grid), _crop(mask, grid)),
    }
    return Visits({key: (_add_noise(image, rng), mask) for key, (image, mask) in pairs.items()})


def _draw_response(rng: np.random.Generator, lesion: Lesion) -> Lesion | None:
    """Draw a lesion at the later visit; None after a complete response. Reactive nodes do not change."""
    if lesion.label == labels.BACKGROUND:
        return lesion
    remaining = float(np.clip(_REMAINING_MEDIAN * np.exp(rng.normal(0, _REMAINING_LOG_SD)), *_REMAINING_RANGE))
    place = point(np.add(lesion.place, rng.normal(0, _SHIFT_MM, 3)))
    if rng.random() < _COMPLETE_RESPONSE[lesion.label]:
        return None
    return replace(lesion, volume_ml=lesion.volume_ml * remaining, place=place)


def _make_grid(case: PhantomCase, coarsening: int) -> Geometry:
    lowest, highest = compute_lesion_extent(case.disease, case.frame)
    low = min(case.frame.height_mm(_HEIGHTS[0]), lowest - BEYOND_LESIONS_MM)
    high = max(case.frame.height_mm(_HEIGHTS[1]), highest + BEYOND_LESIONS_MM)
    spacing = (_SPACING_MM[0] * coarsening, _SPACING_MM[1] * coarsening, _SPACING_MM[2])
    x, y, _ = case.frame.origin_mm
    extent = (2 * _HALF_WIDTH_MM, 2 * _HALF_DEPTH_MM, high - low)
    columns, rows, slices = (round(length / step) for length, step in zip(extent, spacing, strict=True))
    return Geometry((columns, rows, slices), spacing, (x - _HALF_WIDTH_MM, y - _HALF_DEPTH_MM, low))


def _pad(grid: Geometry) -> Geometry:
    x, y, z = (int(np.ceil(_PADDING_MM / step)) for step in grid.spacing_mm)
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
class _Body:
    """T2 signal of a body without lesions, and the voxels that are not bone."""

    signal: Volume
    is_soft: NDArray[np.bool_]


def _paint_lesions(
    case: PhantomCase, body: _Body, lesions: list[Lesion], rng: np.random.Generator
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
        image[box] += alpha * (np.float32(rng.normal(*_LESION_SIGNAL)) - image[box])
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


def _add_noise(image: Volume, rng: np.random.Generator) -> Volume:
    """Add the coil's slow bias and Rician noise, and round to whole numbers."""
    bias: NDArray[np.float32] = np.ones(1, dtype=np.float32)
    for axis, count in enumerate(image.array.shape):
        wave = np.cos(np.linspace(0, np.pi, count) + rng.uniform(0, 2 * np.pi)) * rng.normal(0, _BIAS)
        bias = bias * np.exp(wave).astype(np.float32).reshape(
            [-1 if dimension == axis else 1 for dimension in range(3)]
        )
    real, imaginary = np.float32(_NOISE) * rng.standard_normal((2, *image.array.shape), dtype=np.float32)
    return Volume(np.rint(np.hypot(image.array * bias + real, imaginary)).astype(np.float32), image.geometry)
