"""nnU-Net's own grid of a scan, its part over a region, and labels on the way back.

nnU-Net resamples a scan of n voxels to round(n * spacing / new spacing) voxels along each axis of the array. The outer
faces stay in place, so the new spacing is not exactly the one that was asked for. On this grid a scan that has the
network's spacing is not interpolated at all.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from algorithm.region.grids import grid_over, slices, triple, voxels
from contract.images.geometry import Geometry
from contract.images.volumes import Volume

_Float = npt.NDArray[np.float32]
_Triple = tuple[float, float, float]
_Voxels = tuple[int, int, int]
# Axes within this of the patient's own are not oblique: 0.1 mm over a metre.
_AXIS_TOLERANCE: Final = 1e-4
# Faces of a box within this share of a voxel of a voxel's face coincide with it.
_FACE_TOLERANCE: Final = 1e-6


def whole_lattice(scan: Geometry, spacing_mm: _Triple) -> Geometry:
    """The grid to which nnU-Net resamples a scan; `spacing_mm` along the scan's own axes (x, y, z)."""
    # In nnU-Net's order of operations, so that ties are rounded alike.
    count = [max(round(old / new * n), 1) for old, new, n in zip(scan.spacing_mm, spacing_mm, scan.size, strict=True)]
    step = np.asarray(scan.size) / np.asarray(count)
    matrix = scan.index_to_physical_matrix()
    origin = matrix[:3, :3] @ (step / 2 - 0.5) + matrix[:3, 3]
    return Geometry(voxels(np.array(count)), triple(step * scan.spacing_mm), triple(origin), scan.direction)


def cropped_over(grid: Geometry, lower_mm: npt.ArrayLike, upper_mm: npt.ArrayLike) -> Geometry:
    """The voxels of a grid that reach into a box, at least one; corners (x, y, z) in LPS millimetres."""
    matrix = grid.physical_to_index_matrix()
    index = box_corners(lower_mm, upper_mm) @ matrix[:3, :3].T + matrix[:3, 3] + 0.5
    last = np.asarray(grid.size) - 1
    start = np.clip(np.floor(index.min(0) + _FACE_TOLERANCE), 0, last)
    stop = np.clip(np.ceil(index.max(0) - _FACE_TOLERANCE), start + 1, last + 1)
    return grid.cropped(voxels(start), voxels(stop - start))


def upright_grid(scan: Geometry, lower_mm: npt.ArrayLike, upper_mm: npt.ArrayLike, spacing_mm: _Triple) -> Geometry:
    """The network's grid over a box, axis-aligned in LPS whatever the scan's axes; spacing and corners (x, y, z) in mm.

    It is part of nnU-Net's grid of the scan, whose field is divided into whole voxels: the spacing differs from
    `spacing_mm` by less than half a voxel over the whole field. An oblique scan has no such grid, so there the box
    alone decides.
    """
    upright = _upright(scan)
    if upright is None:
        return grid_over(lower_mm, upper_mm, spacing_mm)
    return cropped_over(whole_lattice(upright, spacing_mm), lower_mm, upper_mm)


def oriented(volume: Volume) -> Volume:
    """The same voxels with axes reversed and exchanged so that they run nearest to LPS x, y, z; a view of the array."""
    grid = volume.geometry
    axes = np.asarray(grid.direction).reshape(3, 3)
    order = max(itertools.permutations(range(3)), key=lambda one: float(np.abs(axes[range(3), one]).sum()))
    turned = axes[range(3), order] < 0
    array = volume.array.transpose([2 - order[axis] for axis in (2, 1, 0)])
    array = array[tuple(slice(None, None, -1 if turned[axis] else 1) for axis in (2, 1, 0))]
    first = np.zeros(3)
    first[list(order)] = np.where(turned, np.asarray(grid.size)[list(order)] - 1, 0)
    matrix = grid.index_to_physical_matrix()
    origin = matrix[:3, :3] @ first + matrix[:3, 3]
    direction = tuple(float(v) for v in (axes[:, order] * np.where(turned, -1, 1)).ravel())
    size, spacing = (np.asarray(values)[list(order)] for values in (grid.size, grid.spacing_mm))
    return Volume(array, Geometry(voxels(size), triple(spacing), triple(origin), direction))


def _upright(scan: Geometry) -> Geometry | None:
    """The same voxels with axes along LPS; None for an oblique scan."""
    grid = oriented(Volume(np.broadcast_to(np.uint8(0), scan.array_shape), scan)).geometry
    if np.abs(np.asarray(grid.direction) - np.eye(3).ravel()).max() > _AXIS_TOLERANCE:
        return None
    return Geometry(grid.size, grid.spacing_mm, grid.origin_mm)


def first_voxel(part: Geometry, scan: Geometry) -> _Voxels:
    """First voxel (z, y, x) of a part of a scan."""
    matrix = scan.physical_to_index_matrix()
    x, y, z = voxels(np.rint(matrix[:3, :3] @ np.asarray(part.origin_mm) + matrix[:3, 3]))
    return (z, y, x)


def box_corners(lower_mm: npt.ArrayLike, upper_mm: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """The eight corners (8, 3) of a box between two corners (x, y, z)."""
    ends = np.stack([np.asarray(lower_mm, dtype=np.float64), np.asarray(upper_mm, dtype=np.float64)])
    return np.stack(np.meshgrid(*ends.T, indexing="ij"), axis=-1).reshape(8, 3)


@dataclass(frozen=True)
class Restoration:
    """nnU-Net's way back: the part of the oriented scan, and a function from logits to logits at its voxels."""

    part: Geometry
    resample: Callable[[_Float], npt.NDArray[Any]]


def restored_labels(logits: _Float, restoration: Restoration, ct: Geometry) -> npt.NDArray[np.uint8]:
    """The label of every CT voxel, from logits (label, z, y, x); background outside the part."""
    result = np.zeros(ct.array_shape, dtype=np.uint8)
    if logits.argmax(0).any():
        upright = oriented(Volume(result, ct))
        z, y, x = first_voxel(restoration.part, upright.geometry)
        upright.array[slices((x, y, z), restoration.part.size)] = restoration.resample(logits).argmax(0)
    return result
