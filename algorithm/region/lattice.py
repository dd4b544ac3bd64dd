"""nnU-Net's own grid of a whole scan, cropped to a region, and its interpolation between the two.

nnU-Net resamples a scan of n voxels to round(n * spacing / new spacing) voxels along each axis of the array. The outer
faces stay in place, so the new spacing is not exactly the one that was asked for. On this grid a scan that has the
network's spacing is not interpolated at all.

The interpolation is linear in the values and separable, so that one matrix for each axis, computed for the whole axis,
gives the same values for a crop: weights of a cubic spline fall to 1e-7 within 12 voxels.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from algorithm.region.grids import grid_over, slices, triple, voxels, winner_of
from contract.images.geometry import Geometry
from contract.images.volumes import Volume

_Float = npt.NDArray[np.float32]
_Box = tuple[slice, slice, slice]
_Triple = tuple[float, float, float]
_Voxels = tuple[int, int, int]
# Axes within this of the patient's own are not oblique: 0.1 mm over a metre.
_AXIS_TOLERANCE: Final = 1e-4
# Faces of the region within this share of a voxel of a lattice voxel's face coincide with it.
_FACE_TOLERANCE: Final = 1e-6
# Smaller weights are left out.
_NO_WEIGHT: Final = 1e-7
# A voxel of the scan is answered if this share of its weights lies in the crop.
_IN_CROP: Final = 0.999


@dataclass(frozen=True)
class Lattice:
    """A box of nnU-Net's grid of a scan.

    Attributes:
        scan: the grid that is resampled.
        whole: nnU-Net's grid of all of `scan`.
        start: first voxel (x, y, z) of the box in `whole`.
        grid: the box.
    """

    scan: Geometry
    whole: Geometry
    start: _Voxels
    grid: Geometry

    def box(self, start: tuple[int, ...], stop: tuple[int, ...]) -> Lattice:
        """Another box of the same grid, voxels (x, y, z)."""
        first = voxels(np.array(start))
        return Lattice(self.scan, self.whole, first, self.whole.cropped(first, voxels(np.subtract(stop, start))))


def whole_lattice(scan: Geometry, spacing_mm: _Triple) -> Geometry:
    """The grid to which nnU-Net resamples a scan; `spacing_mm` along the scan's own axes (x, y, z)."""
    # In nnU-Net's order of operations, so that ties are rounded alike.
    count = [max(round(old / new * n), 1) for old, new, n in zip(scan.spacing_mm, spacing_mm, scan.size, strict=True)]
    step = np.asarray(scan.size) / np.asarray(count)
    matrix = scan.index_to_physical_matrix()
    origin = matrix[:3, :3] @ (step / 2 - 0.5) + matrix[:3, 3]
    return Geometry(voxels(np.array(count)), triple(step * scan.spacing_mm), triple(origin), scan.direction)


def lattice_over(scan: Geometry, lower_mm: npt.ArrayLike, upper_mm: npt.ArrayLike, spacing_mm: _Triple) -> Lattice:
    """The voxels of nnU-Net's grid of `scan` that reach into a box, corners (x, y, z) in LPS millimetres."""
    whole = whole_lattice(scan, spacing_mm)
    matrix = whole.physical_to_index_matrix()
    index = box_corners(lower_mm, upper_mm) @ matrix[:3, :3].T + matrix[:3, 3] + 0.5
    last = np.asarray(whole.size) - 1
    start = np.clip(np.floor(index.min(0) + _FACE_TOLERANCE), 0, last)
    stop = np.clip(np.ceil(index.max(0) - _FACE_TOLERANCE), start + 1, last + 1)
    return Lattice(scan, whole, voxels(start), whole.cropped(voxels(start), voxels(stop - start)))


def upright_grid(scan: Geometry, lower_mm: npt.ArrayLike, upper_mm: npt.ArrayLike, spacing_mm: _Triple) -> Geometry:
    """The network's grid over a box, axis-aligned in LPS whatever the scan's axes; spacing and corners (x, y, z) in mm.

    It is part of nnU-Net's grid of the scan, whose field is divided into whole voxels: the spacing differs from
    `spacing_mm` by less than half a voxel over the whole field. An oblique scan has no such grid, so there the box
    alone decides.
    """
    upright = _upright(scan)
    if upright is None:
        return grid_over(lower_mm, upper_mm, spacing_mm)
    return lattice_over(upright, lower_mm, upper_mm, spacing_mm).grid


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
class Spline:
    """Orders of the splines along (z, y, x); `by_slice` if z is interpolated after the slices."""

    orders: tuple[int, int, int]
    by_slice: bool = False


@dataclass(frozen=True)
class AxisWeights:
    """Weights (target, source) of one axis, for source voxels from `first` on."""

    first: int
    matrix: _Float

    @property
    def source(self) -> slice:
        """The source voxels with weights."""
        return slice(self.first, self.first + self.matrix.shape[1])


@dataclass(frozen=True)
class Restoration:
    """The interpolation of logits from a lattice to its scan."""

    lattice: Lattice
    spline: Spline


def axis_weights(source: int, target: int, order: int, part: slice = slice(None)) -> AxisWeights:
    """Weights with which nnU-Net resamples an axis of `source` voxels to `target`, for the targets in `part`.

    As `skimage.transform.resize` with `mode="edge"` and without smoothing: voxels are aligned by their outer faces.
    """
    rows = _weights(source, target, order)[part]
    used = np.flatnonzero((np.abs(rows) > _NO_WEIGHT).any(0))
    first, stop = int(used[0]), int(used[-1]) + 1
    return AxisWeights(first, rows[:, first:stop].astype(np.float32))


def lattice_weights(lattice: Lattice, spline: Spline) -> tuple[AxisWeights, AxisWeights, AxisWeights]:
    """Weights (z, y, x) of the scan's voxels for the lattice's."""
    sizes = zip(lattice.scan.array_shape, lattice.whole.array_shape, spline.orders, _box(lattice), strict=True)
    z, y, x = (axis_weights(source, target, order, part) for source, target, order, part in sizes)
    return z, y, x


def in_plane(slices: _Float, y: AxisWeights, x: AxisWeights) -> _Float:
    """Slices (z, y, x), cut to the weights' source voxels, interpolated along y and x."""
    return np.asarray(y.matrix @ (slices @ x.matrix.T), dtype=np.float32)


def along_z(slices: _Float, z: AxisWeights) -> _Float:
    """Slices (z, y, x), cut to the weights' source voxels, interpolated along z."""
    return np.asarray(np.tensordot(z.matrix, slices, axes=1), dtype=np.float32)


def restored_labels(logits: _Float, restoration: Restoration, ct: Geometry) -> npt.NDArray[np.uint8]:
    """The label of every CT voxel as nnU-Net computes it; background outside the lattice and the scan.

    `logits` are (label, z, y, x) on the lattice's grid, `restoration` that of the oriented CT or of a part of it.
    """
    lattice, spline = restoration.lattice, restoration.spline
    result = np.zeros(ct.array_shape, dtype=np.uint8)
    upright = oriented(Volume(result, ct))
    near = _near_foreground(logits, spline)
    if near is None:
        return result
    parts, weights = [], []
    for start, (size, source), target, order, cut in zip(
        _box(lattice),
        zip(logits.shape[1:], lattice.whole.array_shape, strict=True),
        lattice.scan.array_shape,
        spline.orders,
        near,
        strict=True,
    ):
        rows = _weights(source, target, order)[:, start.start : start.start + size][:, cut]
        answered = np.flatnonzero(rows.sum(1) > _IN_CROP)
        if not len(answered):
            return result
        parts.append(slice(int(answered[0]), int(answered[-1]) + 1))
        weights.append(AxisWeights(cut.start, rows[parts[-1]].astype(np.float32)))
    window = _shifted(parts, first_voxel(lattice.scan, upright.geometry))
    values = (along_z(in_plane(one[near], *weights[1:]), weights[0]) for one in logits)
    upright.array[window] = winner_of(next(values), enumerate(values, start=1))
    return result


def _weights(source: int, target: int, order: int) -> npt.NDArray[np.float64]:
    """All weights (target, source) of an axis."""
    if order == 0:
        nearest = np.floor((np.arange(target) + 0.5) * (source / target)).astype(int)
        return np.asarray(np.eye(source)[np.clip(nearest, 0, source - 1)])
    units: npt.NDArray[np.float64] = np.eye(source)
    factors = np.array([target / source, 1.0])
    return np.asarray(ndimage.zoom(units, factors, order=order, mode="nearest", grid_mode=True))  # type: ignore[call-overload]


def _box(lattice: Lattice) -> _Box:
    """The lattice's box (z, y, x) in nnU-Net's whole grid."""
    return slices(lattice.start, lattice.grid.size)


def _near_foreground(logits: _Float, spline: Spline) -> _Box | None:
    """The box (z, y, x) of voxels that can give a label between them; None without a labelled voxel.

    Between voxels in which the background wins it wins too, for weights that are not negative.
    """
    labelled = np.argwhere(logits.argmax(0))
    if not len(labelled):
        return None
    margin = max(logits.shape) if max(spline.orders) > 1 else 2
    low = np.maximum(labelled.min(0) - margin, 0)
    high = np.minimum(labelled.max(0) + 1 + margin, logits.shape[1:])
    z, y, x = (slice(int(a), int(b)) for a, b in zip(low, high, strict=True))
    return (z, y, x)


def _shifted(parts: Iterable[slice], offset: _Voxels) -> _Box:
    z, y, x = (slice(part.start + start, part.stop + start) for part, start in zip(parts, offset, strict=True))
    return (z, y, x)
