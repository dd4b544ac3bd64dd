"""MR of two visits: T2-weighted images before and during radiotherapy, with the masks of both.

Between the visits lesions shrink, move by millimetres or vanish, and the neck turns and bends. The earlier image and
mask are also given registered to the later ones, with a small error. Intensities and changes are invented within
clinical range.
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
from rehearsal.phantoms.anatomy.lesions import Lesion, lesion_extent
from rehearsal.phantoms.anatomy.shapes import Floats, point
from rehearsal.phantoms.anatomy.surfaces import Surface
from rehearsal.phantoms.cohort import PhantomCase
from rehearsal.phantoms.protocol import BEYOND_LESIONS_MM, axes_of
from rehearsal.phantoms.scanner import BONE_LIMIT_HU, in_box, painted_body, sampled_hu

# Hounsfield units of tissues and their signal with and without fat suppression: air, fat, glands, water, muscle, bone.
_HU: Final = (-1000, -400, -130, -60, -10, 10, 25, 40, 60, 90, 200, 1000)
_SIGNAL: Final = (0, 10, 320, 300, 260, 400, 260, 150, 110, 130, 60, 15)
_SIGNAL_FAT_SUPPRESSED: Final = (0, 10, 60, 60, 160, 400, 260, 150, 110, 130, 60, 15)
_FAT_SUPPRESSED_SHARE: Final = 0.3
_LESION_SIGNAL: Final = (230.0, 15.0)
# Anatomical heights of the clavicles and of the nasal septum, between which the images are cropped.
_HEIGHTS: Final = (-112.0, 36.0)
_HALF_WIDTH_MM, _HALF_DEPTH_MM = 112.0, 120.0
_SPACING_MM: Final = (1.0, 1.0, 2.0)
_PADDING_MM: Final = 16.0
# Share of the volume that is left: median and spread of its logarithm, bounds; shares of complete responses.
_LEFT_MEDIAN, _LEFT_LOG_SIGMA, _LEFT_RANGE = 0.45, 0.35, (0.1, 1.2)
_COMPLETE_RESPONSE: Final = {labels.GTVP: 0.12, labels.GTVN: 0.06}
_SHIFT_MM: Final = 2.0
# The neck's pose at the earlier visit, and the errors of its registration.
_TURN_DEGREES, _MOVE_MM, _BEND_MM, _RESIDUAL_MM = 3.0, 5.0, 3.0, 1.0
_BIAS, _NOISE = 0.15, 8.0


@dataclass(frozen=True)
class Visits:
    """Image (float32) and mask (uint8, on its grid) of each visit; the earlier one also registered to the later one."""

    pairs: Mapping[tuple[Visit, bool], tuple[Volume, Volume]]

    def volume(self, one: Input) -> Volume:
        """The content of an input: an MR, or a mask."""
        image, mask = self.pairs[one.visit, one.registered]
        return image if one.modality == MR else mask

    def reference(self, scan: Input) -> Volume:
        """The mask on a scan's grid."""
        return self.pairs[scan.visit, scan.registered][1]


def render_visits(case: PhantomCase, coarsening: int = 1) -> Visits:
    """Make a patient's MR of both visits; in plane, voxels are `coarsening` mm wide."""
    rng = np.random.default_rng((case.noise_seed, 1))
    signal = _SIGNAL_FAT_SUPPRESSED if rng.random() < _FAT_SUPPRESSED_SHARE else _SIGNAL
    later = [one for one in (_after_therapy(rng, lesion) for lesion in case.disease.lesions) if one is not None]
    grid = _grid(case, coarsening)
    wide = _padded(grid)
    hu = _hounsfield(case, wide, rng)
    body = np.interp(hu, _HU, signal).astype(np.float32), hu < BONE_LIMIT_HU
    before = _painted(case, *body, wide, list(case.disease.lesions), rng)
    image, mask = _painted(case, *body, wide, later, rng)
    pose = sitk.CompositeTransform([_turn(rng, wide), _bend(rng, wide, _BEND_MM)])
    pairs: dict[tuple[Visit, bool], tuple[Volume, Volume]] = {
        ("earlier", False): _moved(before, grid, pose),
        ("earlier", True): _moved(before, grid, _bend(rng, wide, _RESIDUAL_MM)),
        ("later", False): (_cropped(image, grid), _cropped(mask, grid)),
    }
    return Visits({key: (_spoiled(image, rng), mask) for key, (image, mask) in pairs.items()})


def _after_therapy(rng: np.random.Generator, lesion: Lesion) -> Lesion | None:
    """The lesion at the later visit, None after a complete response; reactive nodes stay as they are."""
    if lesion.label == labels.BACKGROUND:
        return lesion
    left = float(np.clip(_LEFT_MEDIAN * np.exp(rng.normal(0, _LEFT_LOG_SIGMA)), *_LEFT_RANGE))
    place = point(np.add(lesion.place, rng.normal(0, _SHIFT_MM, 3)))
    if rng.random() < _COMPLETE_RESPONSE[lesion.label]:
        return None
    return replace(lesion, volume_ml=lesion.volume_ml * left, place=place)


def _grid(case: PhantomCase, coarsening: int) -> Geometry:
    lowest, highest = lesion_extent(case.disease, case.frame)
    low = min(case.frame.height_mm(_HEIGHTS[0]), lowest - BEYOND_LESIONS_MM)
    high = max(case.frame.height_mm(_HEIGHTS[1]), highest + BEYOND_LESIONS_MM)
    spacing = (_SPACING_MM[0] * coarsening, _SPACING_MM[1] * coarsening, _SPACING_MM[2])
    x, y, _ = case.frame.origin_mm
    extent = (2 * _HALF_WIDTH_MM, 2 * _HALF_DEPTH_MM, high - low)
    columns, rows, slices = (round(length / step) for length, step in zip(extent, spacing, strict=True))
    return Geometry((columns, rows, slices), spacing, (x - _HALF_WIDTH_MM, y - _HALF_DEPTH_MM, low))


def _padded(grid: Geometry) -> Geometry:
    x, y, z = (int(np.ceil(_PADDING_MM / step)) for step in grid.spacing_mm)
    columns, rows, slices = grid.size
    return grid.crop((-x, -y, -z), (columns + 2 * x, rows + 2 * y, slices + 2 * z))


def _cropped(volume: Volume, grid: Geometry) -> Volume:
    margin = [(wide - narrow) // 2 for wide, narrow in zip(volume.array.shape, grid.array_shape, strict=True)]
    cut = tuple(slice(first, first + n) for first, n in zip(margin, grid.array_shape, strict=True))
    return Volume(volume.array[cut], grid)


def _hounsfield(case: PhantomCase, grid: Geometry, rng: np.random.Generator) -> Floats:
    protocol = replace(case.protocol, ct=grid, pet=grid, planning=None)
    return sampled_hu(painted_body(replace(case, protocol=protocol), rng), grid)


def _painted(
    case: PhantomCase,
    body: Floats,
    is_soft: NDArray[np.bool_],
    grid: Geometry,
    lesions: list[Lesion],
    rng: np.random.Generator,
) -> tuple[Volume, Volume]:
    """The T2 signal of a body with lesions, and their mask; the primary tumour is painted last."""
    axes = axes_of(grid)
    image, mask = body.copy(), np.zeros(body.shape, dtype=np.uint8)
    for lesion in reversed(lesions):
        surface = Surface(lesion, case.frame.to_patient(lesion.place))
        region = in_box(axes, surface)
        if region is None:
            continue
        box, x, y, z = region
        level, soft = surface.level(x, y, z), is_soft[box]
        alpha = np.clip(0.5 - (level - 1) * np.float32(surface.radius_mm / 1.5), 0, 1) * soft
        image[box] += alpha * (np.float32(rng.normal(*_LESION_SIGNAL)) - image[box])
        if lesion.label != labels.BACKGROUND:
            mask[box][(level < 1) & soft] = lesion.label
    return Volume(image, grid), Volume(mask, grid)


def _turn(rng: np.random.Generator, grid: Geometry) -> sitk.Transform:
    angles = np.deg2rad(rng.normal(0, _TURN_DEGREES, 3).clip(-8, 8))
    centre = grid.corners_mm().mean(0)
    return sitk.Euler3DTransform(centre.tolist(), *angles.tolist(), rng.normal(0, _MOVE_MM, 3).clip(-12, 12).tolist())


def _bend(rng: np.random.Generator, grid: Geometry, size_mm: float) -> sitk.Transform:
    """A smooth random deformation with control points of the spread `size_mm`."""
    blank = to_sitk(Volume(np.zeros(grid.array_shape, np.uint8), grid))
    bend: sitk.Transform = sitk.BSplineTransformInitializer(blank, [3, 3, 3])
    bend.SetParameters(rng.normal(0, size_mm, len(bend.GetParameters())).tolist())
    return bend


def _moved(pair: tuple[Volume, Volume], grid: Geometry, transform: sitk.Transform) -> tuple[Volume, Volume]:
    target = to_sitk(Volume(np.zeros(grid.array_shape, np.uint8), grid))
    image, mask = pair
    moved = sitk.Resample(to_sitk(image), target, transform, sitk.sitkLinear)
    moved_mask = sitk.Resample(to_sitk(mask), target, transform, sitk.sitkNearestNeighbor)
    return Volume(sitk.GetArrayFromImage(moved), grid), Volume(sitk.GetArrayFromImage(moved_mask), grid)


def _spoiled(image: Volume, rng: np.random.Generator) -> Volume:
    """Add the coil's slow bias and Rician noise, in whole numbers."""
    bias: NDArray[np.float32] = np.ones(1, dtype=np.float32)
    for axis, count in enumerate(image.array.shape):
        wave = np.cos(np.linspace(0, np.pi, count) + rng.uniform(0, 2 * np.pi)) * rng.normal(0, _BIAS)
        bias = bias * np.exp(wave).astype(np.float32).reshape([-1 if one == axis else 1 for one in range(3)])
    real, imaginary = np.float32(_NOISE) * rng.standard_normal((2, *image.array.shape), dtype=np.float32)
    return Volume(np.rint(np.hypot(image.array * bias + real, imaginary)).astype(np.float32), image.geometry)
