"""Resample scans and masks onto the grid that is shown."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk
from scipy import ndimage

from contract.images.geometry import Geometry
from contract.images.volumes import Volume, to_sitk
from evaluation.metrics.overlap import Floats
from evaluation.viewer.grid import to_index
from evaluation.viewer.lesions import LesionVoxels

AIR_HU: Final = -1024.0
_MOST_HU: Final = 3071.0
# Finer steps hold noise alone, which does not compress.
_LEAST_PET_STEP: Final = 0.01
_MOST_PET_STEPS: Final = 32_767
# A sphere of 1 ml at the edge of the grid is measured whole.
_MEASURED_MARGIN_MM: Final = 10.0
_LEAST_MEASURED_STEP: Final = 0.001
_BITS_A_STEP: Final = 0.01


def shown_ct(ct: Volume, grid: Geometry) -> tuple[npt.NDArray[np.int16], float]:
    """The CT in HU on the grid, linearly interpolated, air beyond its border; the second value is its step of 1."""
    hu = resampled(ct, grid, sitk.sitkLinear, AIR_HU)
    np.nan_to_num(hu, copy=False, nan=AIR_HU, posinf=_MOST_HU, neginf=AIR_HU)
    return np.rint(np.clip(hu, AIR_HU, _MOST_HU, out=hu), out=hu).astype(np.int16), 1.0


def shown_pet(pet: Volume, grid: Geometry) -> tuple[npt.NDArray[np.int16], float]:
    """The PET on the grid, linearly interpolated, in steps of 0.01 (larger if int16 cannot hold it), and the step."""
    return _in_steps(resampled(pet, grid, sitk.sitkLinear, 0.0), _LEAST_PET_STEP)


def measured_pet(pet: Volume, grid: Geometry) -> tuple[npt.NDArray[np.int16], Geometry, float] | None:
    """The PET's own voxels around the grid in steps of 0.001 or larger, their geometry and the step.

    None if the PET does not reach the grid.
    """
    region = _region(grid, pet.geometry, int(np.ceil(_MEASURED_MARGIN_MM / min(pet.geometry.spacing_mm))))
    if region is None:
        return None
    (x, y, z), (width, height, depth) = region
    part = pet.array[z : z + depth, y : y + height, x : x + width]
    array, step = _in_steps(part, _LEAST_MEASURED_STEP)
    return array, pet.geometry.cropped(*region), step


def _in_steps(uptake: npt.NDArray[np.float32], least: float) -> tuple[npt.NDArray[np.int16], float]:
    step = max(float(np.abs(uptake).max(initial=0.0)) / _MOST_PET_STEPS, least)
    return np.rint(uptake / step).astype(np.int16), step


def shown_map(volume: Volume, grid: Geometry) -> tuple[npt.NDArray[np.uint8], float]:
    """A map of uint8 on the grid, linearly interpolated, 0 beyond its border, and its step in bits."""
    return np.rint(resampled(volume, grid, sitk.sitkLinear, 0.0)).astype(np.uint8), _BITS_A_STEP


def shown_mask(mask: LesionVoxels, grid: Geometry) -> npt.NDArray[np.uint8]:
    """A label mask on the grid by nearest neighbour, with every lesion of it.

    On a grid coarser than the mask, a small lesion may lie between the points of the grid. A lesion of which less than
    half of the voxels would be shown is drawn with each voxel at its nearest point.
    """
    target = np.zeros(grid.array_shape, dtype=np.uint8)
    if not len(mask.index):
        return target
    cropped = _cropped(mask)
    region = _region(cropped.geometry, grid)
    if region is not None:
        (x, y, z), (width, height, depth) = region
        nearest = resampled(cropped, grid.cropped(*region), sitk.sitkNearestNeighbor, 0.0)
        target[z : z + depth, y : y + height, x : x + width] = nearest
    _draw_lost_lesions(target, mask, grid)
    return target


def _cropped(mask: LesionVoxels) -> Volume:
    """The mask as an array around its foreground."""
    first = mask.index.min(axis=0)
    width, height, depth = (mask.index.max(axis=0) - first + 1).tolist()
    array = np.zeros((depth, height, width), dtype=np.uint8)
    x, y, z = (mask.index - first).T
    array[z, y, x] = mask.labels
    x0, y0, z0 = first.tolist()
    return Volume(array, mask.geometry.cropped((x0, y0, z0), (width, height, depth)))


def _draw_lost_lesions(target: npt.NDArray[np.uint8], mask: LesionVoxels, grid: Geometry) -> None:
    nearest = np.rint(to_index(grid, mask.points_mm)).astype(np.intp)
    x, y, z = np.clip(nearest, 0, np.asarray(grid.size) - 1).T
    is_shown = target[z, y, x] == mask.labels
    shown = np.bincount(mask.numbers[is_shown], minlength=mask.sizes.size)
    lost = (2 * shown < mask.sizes)[mask.numbers]
    target[z[lost], y[lost], x[lost]] = mask.labels[lost]


def values_at(volume: Volume, points_mm: Floats) -> Floats:
    """Values of a volume at LPS points of shape (n, 3), linearly interpolated, 0 outside of it."""
    index = to_index(volume.geometry, points_mm)[:, ::-1]
    last = np.asarray(volume.array.shape) - 1
    inside = ((index >= -0.5) & (index <= last + 0.5)).all(axis=1)
    values = ndimage.map_coordinates(volume.array, index.T, np.float64, order=1, mode="nearest")
    return np.where(inside, values, 0.0)


def resampled(
    volume: Volume, grid: Geometry, interpolator: int, outside: float, label: int | None = None
) -> npt.NDArray[np.float32]:
    """A volume on another grid, (z, y, x), `outside` beyond its border; of a mask only the voxels with a `label`."""
    region = _region(grid, volume.geometry, margin=2)
    if region is None:
        return np.full(grid.array_shape, outside, dtype=np.float32)
    # Only the part that is shown is copied into an ITK image.
    (x, y, z), (width, height, depth) = region
    part = volume.array[z : z + depth, y : y + height, x : x + width]
    shown = np.ascontiguousarray(part) if label is None else (part == label).astype(np.float32)
    image = to_sitk(Volume(shown, volume.geometry.cropped(*region)))
    frame = (grid.origin_mm, grid.spacing_mm, grid.direction)
    moved = sitk.Resample(image, grid.size, sitk.Transform(), interpolator, *frame, outside, sitk.sitkFloat32)
    return np.asarray(sitk.GetArrayFromImage(moved), dtype=np.float32)


def _region(
    inner: Geometry, outer: Geometry, margin: int = 1
) -> tuple[tuple[int, int, int], tuple[int, int, int]] | None:
    """Start and size (x, y, z) of the part of `outer` that `inner` covers, with a margin in voxels; None if nothing."""
    index = to_index(outer, inner.corners_mm())
    low = np.maximum(np.floor(index.min(axis=0)).astype(int) - margin, 0)
    high = np.minimum(np.ceil(index.max(axis=0)).astype(int) + margin + 1, outer.size)
    if (high <= low).any():
        return None
    (x0, y0, z0), (x1, y1, z1) = low.tolist(), high.tolist()
    return (x0, y0, z0), (x1 - x0, y1 - y0, z1 - z0)
