"""nnU-Net's input image: normalised over the whole scan and then resampled, here for a region.

A whole scan is read in slabs, so that only the region's slices are ever in memory as floating-point numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from nnunetv2.inference.sliding_window_prediction import compute_steps_for_sliding_window

from algorithm.case.read import Case
from algorithm.network.normalisation import Scale, normaliser
from algorithm.network.package import ModelPackage
from algorithm.network.windows import TILE_STEP, Starts
from algorithm.region.grids import sampled
from algorithm.region.lattice import (
    Lattice,
    Spline,
    along_z,
    first_voxel,
    in_plane,
    lattice_over,
    lattice_weights,
    oriented,
)
from algorithm.region.localise import Region
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, to_sitk

_Float = npt.NDArray[np.float32]
_Voxels = tuple[int, int, int]
# Voxels of a slab: 16 MB in float32.
_SLAB_VOXELS: Final = 2**22
# nnU-Net's splines by the name of the resampling function: default order, and default of `force_separate_z`.
_DEFAULTS: Final = {"resample_data_or_seg_to_shape": (3, False), "resample_torch_fornnunet": (1, None)}
_SPACING_RATIO: Final = 3


def nnunet_lattice(case: Case, region: Region, package: ModelPackage) -> Lattice:
    """nnU-Net's grid of the scan's part with values that are not zero, cropped to the region."""
    return lattice_over(nonzero_part(case), region.lower_mm, region.upper_mm, package.spacing_mm)


def tiled(lattice: Lattice, patches: Collection[_Voxels]) -> Lattice:
    """The smallest box around a lattice's box that holds nnU-Net's own tiles of the whole scan there.

    The network normalises each tile by itself, so tiles in other places give other logits. Along each axis the tile
    with the largest weight at a voxel of the lattice's box is in. Tiles further out have little weight an eighth of a
    patch inside the box. Patches in (z, y, x), of all networks that see the image.
    """
    sizes = [{patch[axis] for patch in patches} for axis in (2, 1, 0)]
    ranges = [
        _tiles(n, of_axis, start, start + count)
        for n, of_axis, start, count in zip(lattice.whole.size, sizes, lattice.start, lattice.grid.size, strict=True)
    ]
    return lattice.box(tuple(first for first, _ in ranges), tuple(stop for _, stop in ranges))


def _tiles(whole: int, sizes: Iterable[int], low: int, high: int) -> tuple[int, int]:
    """First and last end of the tiles of an axis with a centre in the voxels from `low` to before `high`, or nearby.

    Nearby is a quarter of a patch, half the distance of two tiles.
    """
    ends = [(low, high)]
    for patch in sizes:
        starts = _starts(whole, patch)
        near = [start for start in starts if low - patch / 4 <= start + patch // 2 < high + patch / 4]
        chosen = near or [min(starts, key=lambda start: abs(start + patch // 2 - low))]
        ends.append((chosen[0], min(chosen[-1] + patch, whole)))
    return min(first for first, _ in ends), max(stop for _, stop in ends)


def _starts(whole: int, patch: int) -> list[int]:
    """First voxels of nnU-Net's tiles along an axis."""
    if whole <= patch:
        return [0]
    starts: list[int] = compute_steps_for_sliding_window((whole,), (patch,), TILE_STEP)[0]
    return starts


def starts_in(tiles: Lattice, patch: _Voxels) -> Starts:
    """First voxels, along (z, y, x) of a box of tiles, of those tiles of a patch (z, y, x) that lie in the box.

    nnU-Net rounds them in the whole scan. Dividing the box anew would move some by a voxel, which changes the logits of
    a network with strides.
    """
    x, y, z = (
        [start - first for start in _starts(n, size) if start >= first and min(start + size, n) <= first + count]
        for n, size, first, count in zip(tiles.whole.size, patch[::-1], tiles.start, tiles.grid.size, strict=True)
    )
    return (z, y, x)


def spline_of(configuration: Mapping[str, Any], kind: str, lattice: Lattice) -> Spline:
    """nnU-Net's interpolation from a scan to its lattice (`kind` is `data`), or back (`probabilities`)."""
    # Loads scikit-image and pandas: half a second and 50 MB that packages with another resampling do not need.
    from nnunetv2.preprocessing.resampling.default_resampling import determine_do_sep_z_and_axis

    order, separate = _DEFAULTS[configuration[f"resampling_fn_{kind}"]]
    options = configuration.get(f"resampling_fn_{kind}_kwargs") or {}
    order = options.get("order", order)
    spacings = lattice.scan.array_spacing_mm, tuple(configuration["spacing"])
    by_slice, axis = determine_do_sep_z_and_axis(
        options.get("force_separate_z", separate),
        *(spacings if kind == "data" else spacings[::-1]),
        options.get("separate_z_anisotropy_threshold", _SPACING_RATIO),
    )
    orders = [order] * 3
    if by_slice:
        orders[int(axis)] = options.get("order_z", 0)
    z, y, x = orders
    return Spline((z, y, x), by_slice and int(axis) == 0)


def nnunet_channels(case: Case, lattice: Lattice, package: ModelPackage) -> _Float:
    """The channels (channel, z, y, x) on the lattice, each normalised over the whole scan before it is resampled."""
    spline = spline_of(package.configuration, "data", lattice)
    others = case.channels[1:]
    readers = [_ct_reader(case, lattice.scan), *(_reader_of(one, lattice.scan) for one in others)]
    sources = enumerate(package.channel_sources)
    return np.stack([_channel(number, readers[source], lattice, spline, package) for number, source in sources])


def nonzero_part(case: Case) -> Geometry:
    """The box of the scan's voxels in which any channel is not zero, to which nnU-Net crops a scan; usually all of it.

    A scan without such a voxel stays whole. Holes, which nnU-Net fills first, do not change the box. Its axes run
    nearest to LPS, as the axes of the training's images do.
    """
    ct = oriented(case.scan)
    readers = [_reader_of(one, ct.geometry) for one in case.channels[1:]]

    def has_values(axis: int, number: int) -> bool:
        plane = tuple(slice(number, number + 1) if one == axis else slice(0, n) for one, n in enumerate(shape))
        return bool(ct.array[plane].any()) or any(read(plane).any() for read in readers)

    shape = ct.array.shape
    low, high = [0, 0, 0], list(shape)
    for axis, n in enumerate(shape):
        low[axis] = next((number for number in range(n) if has_values(axis, number)), 0)
        high[axis] = next((number + 1 for number in range(n - 1, low[axis] - 1, -1) if has_values(axis, number)), n)
    start, size = low[::-1], [last - first for first, last in zip(low, high, strict=True)][::-1]
    return ct.geometry.cropped((start[0], start[1], start[2]), (size[0], size[1], size[2]))


_Reader = Callable[[tuple[slice, ...]], _Float]


def _ct_reader(case: Case, scan: Geometry) -> _Reader:
    """Reader of a box (z, y, x) of the part `scan` of the CT, in HU."""
    ct = oriented(case.scan)
    z, y, x = first_voxel(scan, ct.geometry)
    array = ct.array[z:, y:, x:]
    return lambda box: np.asarray(array[box], dtype=np.float32)


def _reader_of(channel: Volume | None, scan: Geometry) -> _Reader:
    """Reader of a box (z, y, x) of another channel, interpolated linearly on the scan's voxels; zero beyond it."""
    if channel is None:
        return lambda box: np.zeros([part.stop - part.start for part in box], dtype=np.float32)
    image = to_sitk(channel)

    def read(box: tuple[slice, ...]) -> _Float:
        z, y, x = box
        size = x.stop - x.start, y.stop - y.start, z.stop - z.start
        return sampled(image, scan.cropped((x.start, y.start, z.start), size), 0.0)

    return read


def _channel(number: int, read: _Reader, lattice: Lattice, spline: Spline, package: ModelPackage) -> _Float:
    """One channel on the lattice. Values beyond the range of the scan, or of a slice, are clipped as nnU-Net does."""
    z, y, x = lattice_weights(lattice, spline)
    range_of = _range_of(read, lattice.scan.array_shape)
    normalise = normaliser(package, number, range_of.scale)
    slices = np.empty((z.matrix.shape[1], y.matrix.shape[0], x.matrix.shape[0]), dtype=np.float32)
    for planes in _slabs((slices.shape[0], y.matrix.shape[1], x.matrix.shape[1])):
        box = (slice(z.first + planes.start, z.first + planes.stop), y.source, x.source)
        slices[planes] = in_plane(normalise(read(box)), y, x)
    if not spline.by_slice:
        low, high = normalise(np.array([range_of.low.min(), range_of.high.max()], dtype=np.float32))
        return np.clip(along_z(slices, z), low, high)
    low, high = (normalise(values[z.source])[:, None, None] for values in (range_of.low, range_of.high))
    return along_z(np.clip(slices, low, high), z)


@dataclass(frozen=True)
class _Range:
    """Scale of a whole channel, and the smallest and largest value of each of its slices."""

    scale: Scale
    low: _Float
    high: _Float


def _range_of(read: _Reader, shape: tuple[int, int, int]) -> _Range:
    lows, highs, total, squares = [], [], 0.0, 0.0
    for planes in _slabs(shape):
        slab = read((planes, slice(0, shape[1]), slice(0, shape[2])))
        lows.append(slab.min(axis=(1, 2)))
        highs.append(slab.max(axis=(1, 2)))
        total += float(slab.sum(dtype=np.float64))
        squares += float(np.einsum("zyx,zyx->", slab, slab, dtype=np.float64))
    low, high = np.concatenate(lows), np.concatenate(highs)
    count = float(np.prod(shape))
    mean = total / count
    spread = max(squares / count - mean**2, 0.0) ** 0.5
    return _Range(Scale(mean, spread, float(low.min()), float(high.max())), low, high)


def _slabs(shape: tuple[int, ...]) -> Iterator[slice]:
    """Ranges of planes that together make `shape`, each with a bounded number of voxels."""
    step = max(_SLAB_VOXELS // (shape[1] * shape[2]), 1)
    for start in range(0, shape[0], step):
        yield slice(start, min(start + step, shape[0]))
