"""The part of a case that is shown, and volumes resampled onto it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk

from contract.images.geometry import Geometry
from contract.images.volumes import Volume, to_sitk
from evaluation.metrics.overlap import Floats

# A head with its neck, and a margin around the outermost lesions.
MIN_SHOWN_MM: Final = 255.0
_LESION_MARGIN_MM: Final = 30.0
# A browser holds about 16 bytes for each voxel.
MAX_VOXELS: Final = 2**24


def to_mm(geometry: Geometry, index_xyz: npt.NDArray[Any]) -> Floats:
    """Convert voxel indices (x, y, z) of shape (..., 3) to LPS mm."""
    matrix = geometry.index_to_physical_matrix()
    return np.asarray(index_xyz @ matrix[:3, :3].T + matrix[:3, 3], dtype=np.float64)


def to_index(geometry: Geometry, points_mm: Floats) -> Floats:
    """Convert LPS points in mm of shape (..., 3) to voxel indices (x, y, z), with fractions."""
    matrix = geometry.physical_to_index_matrix()
    return np.asarray(points_mm @ matrix[:3, :3].T + matrix[:3, 3], dtype=np.float64)


def find_display_grid(ct: Geometry, lesions: Floats | None) -> Geometry:
    """Return the CT's voxels around the lesions: 255 mm along each axis, or more if the lesions extend further.

    As long as there are more than `MAX_VOXELS` voxels, every second voxel along the axis with the finest steps is left
    out.

    Args:
        ct: Grid of the CT.
        lesions: Lowest and highest index (x, y, z) of all lesions, shape (2, 3). Without lesions (None) the region is
            the upper end of the scan, where head and neck are.
    """
    if lesions is None:
        corners = ct.corners_mm()
        lesions = to_index(ct, np.array([[*corners.mean(axis=0)[:2], corners[:, 2].max()]] * 2))
    spacing = np.asarray(ct.spacing_mm)
    size = np.asarray(ct.size)
    low, high = lesions
    length = np.maximum(high - low + 2 * _LESION_MARGIN_MM / spacing, MIN_SHOWN_MM / spacing)
    count = np.minimum(np.ceil(length).astype(int) + 1, size)
    start = np.clip(np.rint((low + high - count + 1) / 2).astype(int), 0, size - count)
    step = np.ones(3, dtype=int)
    while (-(-count // step)).prod() > MAX_VOXELS:
        step[(step * spacing).argmin()] *= 2
    x, y, z = to_mm(ct, start).tolist()
    dx, dy, dz = (step * spacing).tolist()
    width, height, depth = (-(-count // step)).tolist()
    return Geometry((width, height, depth), (dx, dy, dz), (x, y, z), ct.direction)


def resample_volume(
    volume: Volume, grid: Geometry, interpolator: int, outside: float, label: int | None = None
) -> npt.NDArray[np.float32]:
    """Return a volume on another grid, (z, y, x).

    Args:
        volume: An image or a mask.
        grid: The new grid.
        interpolator: An interpolator of SimpleITK.
        outside: Value beyond the volume's border.
        label: Resample 1 for the voxels with this label and 0 for all others, instead of the values.
    """
    region = _find_overlap(grid, volume.geometry)
    if region is None:
        return np.full(grid.array_shape, outside, dtype=np.float32)
    # Only the part that is shown is copied into an ITK image.
    (x, y, z), (width, height, depth) = region
    part = volume.array[z : z + depth, y : y + height, x : x + width]
    shown = np.ascontiguousarray(part) if label is None else (part == label).astype(np.float32)
    image = to_sitk(Volume(shown, volume.geometry.crop(*region)))
    placement = (grid.origin_mm, grid.spacing_mm, grid.direction)
    resampled = sitk.Resample(image, grid.size, sitk.Transform(), interpolator, *placement, outside, sitk.sitkFloat32)
    return np.asarray(sitk.GetArrayFromImage(resampled), dtype=np.float32)


def _find_overlap(inner: Geometry, outer: Geometry) -> tuple[tuple[int, int, int], tuple[int, int, int]] | None:
    """Return start and size (x, y, z) of the part of `outer` that `inner` covers, two voxels wider; None if empty."""
    index = to_index(outer, inner.corners_mm())
    low = np.maximum(np.floor(index.min(axis=0)).astype(int) - 2, 0)
    high = np.minimum(np.ceil(index.max(axis=0)).astype(int) + 3, outer.size)
    if (high <= low).any():
        return None
    (x0, y0, z0), (x1, y1, z1) = low.tolist(), high.tolist()
    return (x0, y0, z0), (x1 - x0, y1 - y0, z1 - z0)
