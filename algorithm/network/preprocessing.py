"""Preprocess a case for the networks: resample it by this project's functions or by nnU-Net's, and normalise it.

A channel is normalised by one of nnU-Net's schemes, by a fixed window, or by a custom function. Schemes that take their
scale from the image may take it from the whole scan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from algorithm.case.read import Case
from algorithm.masks.segmentation import Restore
from algorithm.network.networks import HookFailedError
from algorithm.network.nnunet import find_normalisation, find_resampling
from algorithm.network.package import CUSTOM_FUNCTION, HOOK, ModelPackage
from algorithm.region.grids import (
    crop_to_box,
    find_first_voxel,
    interpolate,
    make_grid_over,
    make_scan_grid,
    make_slices,
    make_upright_grid,
    reorient,
    resample,
)
from algorithm.region.localise import Region
from contract.code import describe_failure
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, to_sitk

_Float = npt.NDArray[np.float32]
_MIN_SPREAD: Final = 1e-8
# Spacing at which a whole scan is measured: its mean, SD and range change little at finer spacings.
SCAN_MM: Final = 4.0
# Maximum number of voxels of a whole scan that are read at once: 64 MB in float32.
_AT_ONCE: Final = 2**24
# Reads a channel at the voxels of a part of the oriented scan, float32 (z, y, x).
_Reader = Callable[[Geometry], _Float]


@dataclass(frozen=True)
class Scale:
    """Mean, standard deviation, and smallest and largest value of an image."""

    mean: float
    spread: float
    low: float
    high: float

    @classmethod
    def from_image(cls, image: _Float) -> Scale:
        """Return the scale of an image."""
        return cls(float(image.mean()), float(image.std()), float(image.min()), float(image.max()))


def _z_score(channel: _Float, scale: Scale) -> _Float:
    return np.asarray((channel - np.float32(scale.mean)) / np.float32(max(scale.spread, _MIN_SPREAD)))


def _from_0_to_1(channel: _Float, scale: Scale) -> _Float:
    span = max(scale.high - scale.low, _MIN_SPREAD)
    return np.asarray((channel - np.float32(scale.low)) / np.float32(span))


# Schemes that take their scale from the image.
OWN_SCALE: Final = {"ZScoreNormalization": _z_score, "RescaleTo01Normalization": _from_0_to_1}


def make_normaliser(package: ModelPackage, number: int, scale: Scale | None) -> Callable[[_Float], _Float]:
    """Return the function that normalises channel `number` by the scheme of the plans, into a new array.

    `scale` is the scale of the whole scan; with None the scale is taken from the image that is normalised.
    """
    scheme = package.configuration["normalization_schemes"][number]
    if scheme == CUSTOM_FUNCTION:
        return _make_custom_normaliser(package, number)
    if not isinstance(scheme, str):
        low, high = (np.float32(limit) for limit in scheme)
        return lambda channel: (np.clip(channel, low, high) - low) / (high - low)
    if scale is not None and scheme in OWN_SCALE:
        own, known = OWN_SCALE[scheme], scale
        return lambda channel: own(channel, known)
    properties = package.intensities[str(number)] if package.intensities else {}
    plain = find_normalisation(scheme)(use_mask_for_norm=False, intensityproperties=properties)
    return lambda channel: np.asarray(plain.run(channel.copy(), None), dtype=np.float32)


def _make_custom_normaliser(package: ModelPackage, number: int) -> Callable[[_Float], _Float]:
    """Return the custom normalisation of a channel; it raises `HookFailedError` if it fails or its values are bad."""
    reference = package.configuration["architecture"][HOOK]
    network = package.code.find(reference, "network")

    def normalise(channel: _Float) -> _Float:
        try:
            normalised = np.asarray(network.channels[number][1](channel.copy()))
        except MemoryError:
            raise
        except (Exception, SystemExit) as problem:
            raise HookFailedError(f"normalisation {number} of {reference}: {describe_failure(problem)}") from problem
        if normalised.shape != channel.shape or normalised.dtype.kind != "f" or not np.isfinite(normalised).all():
            actual = f"{normalised.dtype} of shape {normalised.shape}"
            raise HookFailedError(f"normalisation {number} of {reference}: {actual}, expected finite {channel.shape}")
        return normalised.astype(np.float32, copy=False)

    return normalise


def has_own_scale(scheme: str | list[float]) -> bool:
    """Return whether a scheme takes its scale from the image."""
    return isinstance(scheme, str) and scheme in OWN_SCALE


@dataclass(frozen=True)
class CaseImage:
    """The part of a case in a region, on the grid of the package's training.

    Attributes:
        grid: The part of nnU-Net's grid of the scan that covers the region.
        scans: The case's channels on this grid, CT in HU and PET in SUV, for the features.
        channels: Computes the networks' channels (channel, z, y, x), resampled and normalised as in training.
        restore: Converts logits on `grid` to labels of the scan by nnU-Net's resampling; None for linear interpolation.
    """

    grid: Geometry
    scans: tuple[_Float, ...]
    channels: Callable[[], _Float]
    restore: Restore | None = None


def make_case_image(case: Case, region: Region, package: ModelPackage) -> CaseImage:
    """Make the image of a case that the networks of a package see."""
    if package.manifest.resampling == "nnunet":
        part = ScanPart(case, region, package)
        return CaseImage(part.grid, make_network_channels(case, part.grid), part.channels, part.restore)
    grid = make_upright_grid(case.scan.geometry, region.lower_mm, region.upper_mm, package.spacing_mm)
    scans = make_network_channels(case, grid)
    return CaseImage(grid, scans, lambda: normalise(scans, package, make_scan_channels(case, package)))


def make_network_channels(case: Case, grid: Geometry) -> tuple[_Float, ...]:
    """Resample the case's channels to a grid, float32 (z, y, x): CT in HU and PET in SUV, or MR and masks.

    Outside the scans a CT has the value of air, and other channels are 0. A PET that cannot be used is 0 everywhere.
    """
    _, *others = case.channels
    rest = (np.zeros(grid.array_shape, np.float32) if image is None else resample(image, grid, 0.0) for image in others)
    return resample(case.scan, grid, case.outside), *rest


def normalise(channels: tuple[_Float, ...], package: ModelPackage, scan: tuple[_Float, ...] | None = None) -> _Float:
    """Normalise the channels and stack them in the order of the plans, shape (channel, z, y, x).

    Args:
        channels: Channels of the case, CT in HU and PET in SUV, or MR.
        package: The package, whose plans name the schemes.
        scan: Channels of the whole scan, from which schemes that depend on the image take their scale; None takes the
            scale from `channels`.
    """
    sources = package.channel_sources
    scales = [None] * len(channels) if scan is None else [Scale.from_image(channel) for channel in scan]
    stacked = [
        make_normaliser(package, number, scales[source])(channels[source]) for number, source in enumerate(sources)
    ]
    return np.stack(stacked).astype(np.float32, copy=False)


def make_scan_channels(case: Case, package: ModelPackage) -> tuple[_Float, ...] | None:
    """Return coarse channels of the whole scan if the package takes the scale from the whole scan, else None."""
    schemes = package.configuration["normalization_schemes"]
    if package.manifest.normalised_over != "scan" or not any(map(has_own_scale, schemes)):
        return None
    corners = case.scan.geometry.corners_mm()
    grid = make_grid_over(corners.min(0), corners.max(0), (SCAN_MM, SCAN_MM, SCAN_MM))
    return make_network_channels(case, grid)


class ScanPart:
    """The scan's voxels in a region, which nnU-Net's functions resample to `grid` and back.

    As in nnU-Net, a channel is normalised with mean, SD and range of the whole scan without its margin of zeros. The
    axes are the ones nearest to LPS, as in the images of the training.
    """

    def __init__(self, case: Case, region: Region, package: ModelPackage) -> None:
        self._package = package
        ct = reorient(case.scan)
        self._readers = [_make_stored_reader(ct), *(_make_interpolating_reader(image) for image in case.channels[1:])]
        self._scan = _find_nonzero_part(ct.geometry, self._readers)
        self.part = crop_to_box(self._scan, region.lower_mm, region.upper_mm)
        self.grid = make_scan_grid(self.part, package.spacing_mm)

    def channels(self) -> _Float:
        """Return the channels (channel, z, y, x) on `grid`, normalised before they are resampled."""
        data = np.stack([self._normalise_channel(number) for number in range(len(self._package.channel_sources))])
        spacings = self.part.array_spacing_mm, self._package.spacing_mm[::-1]
        resampled = find_resampling(self._package.configuration, "data")(data, self.grid.array_shape, *spacings)
        return np.asarray(resampled, dtype=np.float32)

    def restore(self, logits: _Float, ct: Geometry) -> npt.NDArray[np.uint8]:
        """Return the label of every CT voxel, (z, y, x), from logits on `grid`; background outside the part."""
        result = np.zeros(ct.array_shape, dtype=np.uint8)
        if logits.argmax(0).any():
            spacings = self._package.spacing_mm[::-1], self.part.array_spacing_mm
            resampled = find_resampling(self._package.configuration, "probabilities")(
                logits, self.part.array_shape, *spacings
            )
            upright = reorient(Volume(result, ct))
            z, y, x = find_first_voxel(self.part, upright.geometry)
            upright.array[make_slices((x, y, z), self.part.size)] = resampled.argmax(0)
        return result

    def _normalise_channel(self, number: int) -> _Float:
        read = self._readers[self._package.channel_sources[number]]
        scheme = self._package.configuration["normalization_schemes"][number]
        scale = _measure_scale(read, self._scan) if has_own_scale(scheme) else None
        return make_normaliser(self._package, number, scale)(read(self.part))


def _make_stored_reader(volume: Volume) -> _Reader:
    """Make the reader of the scan itself, which needs no interpolation."""

    def read(part: Geometry) -> _Float:
        z, y, x = find_first_voxel(part, volume.geometry)
        return volume.array[make_slices((x, y, z), part.size)].astype(np.float32)

    return read


def _make_interpolating_reader(volume: Volume | None) -> _Reader:
    """Make the reader of another channel, which interpolates it linearly at the scan's voxels.

    The channel is 0 outside its own grid, and everywhere if it is None.
    """
    if volume is None:
        return lambda part: np.zeros(part.array_shape, dtype=np.float32)
    image = to_sitk(volume)
    return lambda part: interpolate(image, part, 0.0)


def _find_nonzero_part(scan: Geometry, readers: list[_Reader]) -> Geometry:
    """Find the box of all voxels where any channel is not zero, to which nnU-Net crops a scan; usually the whole scan.

    If all voxels are zero, the box is the whole scan. Holes, which nnU-Net fills first, do not change the box.
    """

    def has_values(axis: int, number: int) -> bool:
        start, size = [0, 0, 0], list(scan.size)
        start[axis], size[axis] = number, 1
        plane = scan.crop((start[0], start[1], start[2]), (size[0], size[1], size[2]))
        return any(bool(read(plane).any()) for read in readers)

    low, high = [0, 0, 0], list(scan.size)
    for axis, n in enumerate(scan.size):
        low[axis] = next((number for number in range(n) if has_values(axis, number)), 0)
        high[axis] = next((number + 1 for number in range(n - 1, low[axis] - 1, -1) if has_values(axis, number)), n)
    size = [stop - start for start, stop in zip(low, high, strict=True)]
    return scan.crop((low[0], low[1], low[2]), (size[0], size[1], size[2]))


def _measure_scale(read: _Reader, scan: Geometry) -> Scale:
    """Measure mean, SD and range of a channel over the whole scan, which is read in slabs to save memory."""
    slabs = [Scale.from_image(read(slab)) for slab in _split_into_slabs(scan)]
    weights = np.array([slab.size[2] for slab in _split_into_slabs(scan)]) / scan.size[2]
    means, spreads = (np.array(values) for values in zip(*((slab.mean, slab.spread) for slab in slabs), strict=True))
    mean = float(weights @ means)
    spread = float(weights @ (spreads**2 + (means - mean) ** 2)) ** 0.5
    return Scale(mean, spread, min(slab.low for slab in slabs), max(slab.high for slab in slabs))


def _split_into_slabs(scan: Geometry) -> Iterator[Geometry]:
    """Split a scan into slabs of whole axial planes."""
    x, y, z = scan.size
    step = max(_AT_ONCE // (x * y), 1)
    for start in range(0, z, step):
        yield scan.crop((0, 0, start), (x, y, min(step, z - start)))
