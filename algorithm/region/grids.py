"""Resampling from scanner grids to the network's grid and back.

The network's grid is axis-aligned in LPS, so that flipped and oblique scans look alike to the network. Training and
inference share this module.

The grid is a part of nnU-Net's own grid of the scan: nnU-Net resamples n voxels to round(n * spacing / new spacing)
voxels along each axis. The outer faces stay in place, so the new spacing is not exactly the requested spacing. A scan
that already has the network's spacing is not interpolated on this grid.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk

from contract import labels
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, to_sitk

_Float = npt.NDArray[np.float32]
_Triple = tuple[float, float, float]
_Voxels = tuple[int, int, int]

OUTSIDE_LOGIT: Final = -1e4
# Maximum difference of a direction cosine from the patient's axes for a scan that is not oblique: 0.1 mm over a metre.
_AXIS_TOLERANCE: Final = 1e-4
# A face of a box coincides with the face of a voxel if they are within this fraction of a voxel.
_FACE_TOLERANCE: Final = 1e-6


def make_grid_over(lower_mm: npt.ArrayLike, upper_mm: npt.ArrayLike, spacing_mm: _Triple) -> Geometry:
    """Make the axis-aligned LPS grid of `spacing_mm` whose voxels cover the box from `lower_mm` to `upper_mm`.

    Both corners are (x, y, z) in millimetres. The grid is centred on the box and covers all of it.
    """
    low, high, step = (np.asarray(v, dtype=np.float64) for v in (lower_mm, upper_mm, spacing_mm))
    count = np.maximum(np.ceil((high - low) / step - 1e-9), 1)
    origin = (low + high) / 2 - (count - 1) / 2 * step
    return Geometry(to_voxels(count), spacing_mm, to_triple(origin))


def resample(volume: Volume, target: Geometry, outside: float) -> _Float:
    """Interpolate `volume` linearly at the voxel centres of `target`, after block averaging if `target` is coarser.

    Returns:
        float32 in (z, y, x), `outside` beyond the volume's own voxels.
    """
    window = _find_window(volume.geometry, target)
    if window is None:
        return np.full(target.array_shape, outside, dtype=np.float32)
    source = _average_blocks(Volume(volume.array[make_slices(*window)], volume.geometry.crop(*window)), target)
    return interpolate(to_sitk(source), target, outside)


def interpolate(image: sitk.Image, target: Geometry, outside: float) -> _Float:
    """Interpolate an image linearly at the voxels of `target`, (z, y, x), without averaging."""
    axes = list(target.origin_mm), list(target.spacing_mm), list(target.direction)
    options = float(outside), sitk.sitkFloat32
    resampled = sitk.Resample(image, list(target.size), sitk.Transform(), sitk.sitkLinear, *axes, *options)
    return np.asarray(sitk.GetArrayFromImage(resampled), dtype=np.float32)


def resample_mask(mask: Volume, target: Geometry) -> npt.NDArray[np.uint8]:
    """Resample a label mask to `target`: the coverage of each label is interpolated, and the largest coverage wins.

    A voxel is background if no label covers more than half of it.
    """
    parts = ((label, Volume((mask.array == label).astype(np.float32), mask.geometry)) for label in labels.FOREGROUND)
    coverages = ((label, resample(part, target, 0.0)) for label, part in parts)
    return pick_winner(np.full(target.array_shape, 0.5, dtype=np.float32), coverages)


def pick_winner(best: _Float, values: Iterable[tuple[int, _Float]]) -> npt.NDArray[np.uint8]:
    """Return the label with the largest value at each voxel, 0 where no value exceeds `best`, which is overwritten."""
    winner = np.zeros(best.shape, dtype=np.uint8)
    for label, value in values:
        wins = value > best
        winner[wins] = label
        best[wins] = value[wins]
    return winner


def restore_labels(logits: _Float, grid: Geometry, ct: Geometry) -> npt.NDArray[np.uint8]:
    """Return the label of every CT voxel from logits (label, z, y, x) on `grid`; background beyond `grid`."""
    result = np.zeros(ct.array_shape, dtype=np.uint8)
    around = _crop_to_foreground(logits, grid, ct)
    window = None if around is None else _find_window(ct, around)
    if window is None:
        return result
    part = ct.crop(*window)
    background = resample(Volume(logits[0], grid), part, -OUTSIDE_LOGIT)
    values = (resample(Volume(of_label, grid), part, OUTSIDE_LOGIT) for of_label in logits[1:])
    result[make_slices(*window)] = pick_winner(background, enumerate(values, start=1))
    return result


def _crop_to_foreground(logits: _Float, grid: Geometry, ct: Geometry) -> Geometry | None:
    """Return the part of the grid that determines all labels of the CT; None without a labelled voxel.

    An interpolated value is a mean of voxels with non-negative weights, so the background wins between two
    background voxels. The part is therefore the box of all labelled voxels with a margin of one voxel, or of one
    block if blocks are averaged.
    """
    labelled = np.argwhere(logits.argmax(0))[:, ::-1]
    if not len(labelled):
        return None
    margin = _find_block_size(grid, ct)
    low = np.maximum(labelled.min(0) - margin, 0)
    high = np.minimum(labelled.max(0) + 1 + margin, grid.size)
    return grid.crop(to_voxels(low), to_voxels(high - low))


def _find_window(source: Geometry, target: Geometry) -> tuple[_Voxels, _Voxels] | None:
    """Find the source voxels that overlap `target`, with a margin for interpolation and block averaging.

    Returns:
        Start and size (x, y, z) of their box; None if no voxel overlaps.
    """
    matrix = source.physical_to_index_matrix()
    index = target.corners_mm() @ matrix[:3, :3].T + matrix[:3, 3]
    shrink = _find_block_size(source, target)
    low = np.floor(index.min(0)).astype(int) - 1 - shrink
    high = np.ceil(index.max(0)).astype(int) + 2 + shrink
    low, high = np.maximum(low, 0), np.minimum(high, source.size)
    if np.any(high <= low):
        return None
    return to_voxels(low), to_voxels(high - low)


def to_triple(values: npt.NDArray[Any]) -> _Triple:
    """Convert three numbers (x, y, z) to a tuple, as `Geometry` stores them."""
    x, y, z = values.tolist()
    return (x, y, z)


def to_voxels(values: npt.NDArray[Any]) -> _Voxels:
    """Convert three whole numbers (x, y, z) to a tuple."""
    x, y, z = values.astype(int).tolist()
    return (x, y, z)


def make_slices(start: _Voxels, size: _Voxels) -> tuple[slice, slice, slice]:
    """Return the box (z, y, x) of `size` voxels (x, y, z) from `start`."""
    x, y, z = (slice(s, s + n) for s, n in zip(start, size, strict=True))
    return (z, y, x)


def _find_block_size(source: Geometry, target: Geometry) -> npt.NDArray[np.int64]:
    """Return the number of source voxels per target voxel along each source axis (x, y, z), at least 1."""
    axes = np.asarray(source.direction).reshape(3, 3)
    target_axes = np.asarray(target.direction).reshape(3, 3) * np.asarray(target.spacing_mm)
    nearest = np.abs(axes.T @ target_axes).max(axis=1)
    return np.asarray(np.maximum(np.floor(nearest / np.asarray(source.spacing_mm) + 1e-6), 1), dtype=np.int64)


def _average_blocks(volume: Volume, target: Geometry) -> Volume:
    """Average blocks of voxels so that linear interpolation does not alias; an incomplete last block is padded."""
    factors = np.minimum(_find_block_size(volume.geometry, target), volume.geometry.size)
    array: npt.NDArray[Any] = volume.array
    if not np.issubdtype(array.dtype, np.floating):
        array = array.astype(np.float32)
    if np.all(factors == 1):
        return Volume(array, volume.geometry)
    fx, fy, fz = (int(f) for f in factors)
    pad = [(0, -n % f) for n, f in zip(array.shape, (fz, fy, fx), strict=True)]
    if any(after for _, after in pad):
        array = np.pad(array, pad, mode="edge")
    blocks = np.zeros([n // f for n, f in zip(array.shape, (fz, fy, fx), strict=True)], dtype=np.float32)
    for dz, dy, dx in itertools.product(range(fz), range(fy), range(fx)):
        blocks += array[dz::fz, dy::fy, dx::fx]
    blocks /= fx * fy * fz
    old = volume.geometry
    matrix = old.index_to_physical_matrix()
    origin = matrix[:3, :3] @ ((factors - 1) / 2) + matrix[:3, 3]
    size, spacing = blocks.shape[::-1], np.multiply(old.spacing_mm, factors)
    return Volume(blocks, Geometry(to_voxels(np.array(size)), to_triple(spacing), to_triple(origin), old.direction))


def make_scan_grid(scan: Geometry, spacing_mm: _Triple) -> Geometry:
    """Make the grid to which nnU-Net resamples a scan; `spacing_mm` is along the scan's own axes (x, y, z)."""
    # The order of operations is nnU-Net's, so that ties are rounded in the same way.
    count = [max(round(old / new * n), 1) for old, new, n in zip(scan.spacing_mm, spacing_mm, scan.size, strict=True)]
    step = np.asarray(scan.size) / np.asarray(count)
    matrix = scan.index_to_physical_matrix()
    origin = matrix[:3, :3] @ (step / 2 - 0.5) + matrix[:3, 3]
    return Geometry(to_voxels(np.array(count)), to_triple(step * scan.spacing_mm), to_triple(origin), scan.direction)


def crop_to_box(grid: Geometry, lower_mm: npt.ArrayLike, upper_mm: npt.ArrayLike) -> Geometry:
    """Return the part of a grid that overlaps a box, at least one voxel; corners (x, y, z) in LPS millimetres."""
    matrix = grid.physical_to_index_matrix()
    index = list_box_corners(lower_mm, upper_mm) @ matrix[:3, :3].T + matrix[:3, 3] + 0.5
    last = np.asarray(grid.size) - 1
    start = np.clip(np.floor(index.min(0) + _FACE_TOLERANCE), 0, last)
    stop = np.clip(np.ceil(index.max(0) - _FACE_TOLERANCE), start + 1, last + 1)
    return grid.crop(to_voxels(start), to_voxels(stop - start))


def make_upright_grid(
    scan: Geometry, lower_mm: npt.ArrayLike, upper_mm: npt.ArrayLike, spacing_mm: _Triple
) -> Geometry:
    """Make the network's grid over a box, axis-aligned in LPS for any axes of the scan.

    The grid is a part of nnU-Net's grid of the scan, which divides the field of view into whole voxels, so its spacing
    differs slightly from `spacing_mm`: by less than half a voxel over the whole field. An oblique scan has no such
    grid; its grid depends only on the box. Spacing and corners are (x, y, z) in mm.
    """
    upright = _make_upright(scan)
    if upright is None:
        return make_grid_over(lower_mm, upper_mm, spacing_mm)
    return crop_to_box(make_scan_grid(upright, spacing_mm), lower_mm, upper_mm)


def reorient(volume: Volume) -> Volume:
    """Reverse and exchange the axes of a volume so that they run nearest to LPS x, y, z; return a view of the array."""
    grid = volume.geometry
    axes = np.asarray(grid.direction).reshape(3, 3)
    order = max(
        itertools.permutations(range(3)), key=lambda axis_order: float(np.abs(axes[range(3), axis_order]).sum())
    )
    turned = axes[range(3), order] < 0
    array = volume.array.transpose([2 - order[axis] for axis in (2, 1, 0)])
    array = array[tuple(slice(None, None, -1 if turned[axis] else 1) for axis in (2, 1, 0))]
    first = np.zeros(3)
    first[list(order)] = np.where(turned, np.asarray(grid.size)[list(order)] - 1, 0)
    matrix = grid.index_to_physical_matrix()
    origin = matrix[:3, :3] @ first + matrix[:3, 3]
    direction = tuple(float(v) for v in (axes[:, order] * np.where(turned, -1, 1)).ravel())
    size, spacing = (np.asarray(values)[list(order)] for values in (grid.size, grid.spacing_mm))
    return Volume(array, Geometry(to_voxels(size), to_triple(spacing), to_triple(origin), direction))


def _make_upright(scan: Geometry) -> Geometry | None:
    """Return the grid of the same voxels with axes along LPS; None for an oblique scan."""
    grid = reorient(Volume(np.broadcast_to(np.uint8(0), scan.array_shape), scan)).geometry
    if np.abs(np.asarray(grid.direction) - np.eye(3).ravel()).max() > _AXIS_TOLERANCE:
        return None
    return Geometry(grid.size, grid.spacing_mm, grid.origin_mm)


def find_first_voxel(part: Geometry, scan: Geometry) -> _Voxels:
    """Return the index (z, y, x) in the scan of the first voxel of a part of the scan."""
    matrix = scan.physical_to_index_matrix()
    x, y, z = to_voxels(np.rint(matrix[:3, :3] @ np.asarray(part.origin_mm) + matrix[:3, 3]))
    return (z, y, x)


def list_box_corners(lower_mm: npt.ArrayLike, upper_mm: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the eight corners (8, 3) of a box between two corners (x, y, z)."""
    ends = np.stack([np.asarray(lower_mm, dtype=np.float64), np.asarray(upper_mm, dtype=np.float64)])
    return np.stack(np.meshgrid(*ends.T, indexing="ij"), axis=-1).reshape(8, 3)
