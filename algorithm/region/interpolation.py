"""nnU-Net's interpolation of a scan, computed for a part of it.

Its interpolation is linear in the values and separable, so that one matrix for each axis, computed for the whole axis,
gives the same values for a crop: weights of a cubic spline fall to 1e-7 within 12 voxels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from algorithm.region.grids import slices, winner_of
from algorithm.region.lattice import Lattice, first_voxel, oriented
from contract.images.geometry import Geometry
from contract.images.volumes import Volume

_Float = npt.NDArray[np.float32]
_Voxels = tuple[int, int, int]
_Box = tuple[slice, slice, slice]
# Smaller weights are left out.
_NO_WEIGHT: Final = 1e-7
# A voxel of the scan is answered if this share of its weights lies in the crop.
_IN_CROP: Final = 0.999


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
