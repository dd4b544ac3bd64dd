"""The part of a case that is shown, and volumes resampled onto it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk

from contract.images.geometry import Geometry
from contract.images.volumes import Volume, to_sitk
from evaluation.metrics.overlap import Floats

# A head with its neck; around the outermost lesions.
SHOWN_MM: Final = 255.0
_LESION_MARGIN_MM: Final = 30.0
# A browser holds about 16 bytes for each.
MOST_VOXELS: Final = 2**24


def to_mm(geometry: Geometry, index_xyz: npt.NDArray[Any]) -> Floats:
    """LPS mm of voxel indices of shape (..., 3) in (x, y, z) order."""
    matrix = geometry.index_to_physical_matrix()
    return np.asarray(index_xyz @ matrix[:3, :3].T + matrix[:3, 3], dtype=np.float64)


def to_index(geometry: Geometry, points_mm: Floats) -> Floats:
    """Voxel indices (x, y, z), with fractions, of LPS points of shape (..., 3)."""
    matrix = geometry.physical_to_index_matrix()
    return np.asarray(points_mm @ matrix[:3, :3].T + matrix[:3, 3], dtype=np.float64)


def find_display_grid(ct: Geometry, lesions: Floats | None) -> Geometry:
    """The CT's own voxels around the lesions, 255 mm along each axis, or more if the lesions extend further.

    `lesions` are the lowest and the highest index (x, y, z) of all of them, shape (2, 3). Without any (None) the region
    is the upper end of the scan, where head and neck are. As long as there are more than `MOST_VOXELS`, every second
    voxel along the axis with the finest steps is left out.
    """
    if lesions is None:
        corners = ct.corners_mm()
        lesions = to_index(ct, np.array([[*corners.mean(axis=0)[:2], corners[:, 2].max()]] * 2))
    spacing, size = np.asarray(ct.spacing_mm), np.asarray(ct.size)
    low, high = lesions
    length = np.maximum(high - low + 2 * _LESION_MARGIN_MM / spacing, SHOWN_MM / spacing)
    count = np.minimum(np.ceil(length).astype(int) + 1, size)
    start = np.clip(np.rint((low + high - count + 1) / 2).astype(int), 0, size - count)
    step = np.ones(3, dtype=int)
    while (-(-count // step)).prod() > MOST_VOXELS:
        step[(step * spacing).argmin()] *= 2
    x, y, z = to_mm(ct, start).tolist()
    dx, dy, dz = (step * spacing).tolist()
    width, height, depth = (-(-count // step)).tolist()
    return Geometry((width, height, depth), (dx, dy, dz), (x, y, z), ct.direction)


def resampled(
    volume: Volume, grid: Geometry, interpolator: int, outside: float, label: int | None = None
) -> npt.NDArray[np.float32]:
    """A volume on another grid, (z, y, x), `outside` beyond its border; of a mask only the voxels with a `label`."""
    region = _region(grid, volume.geometry)
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


def _region(inner: Geometry, outer: Geometry) -> tuple[tuple[int, int, int], tuple[int, int, int]] | None:
    """Start and size (x, y, z) of the part of `outer` that `inner` covers, two voxels wider; None if nothing."""
    index = to_index(outer, inner.corners_mm())
    low = np.maximum(np.floor(index.min(axis=0)).astype(int) - 2, 0)
    high = np.minimum(np.ceil(index.max(axis=0)).astype(int) + 3, outer.size)
    if (high <= low).any():
        return None
    (x0, y0, z0), (x1, y1, z1) = low.tolist(), high.tolist()
    return (x0, y0, z0), (x1 - x0, y1 - y0, z1 - z0)
