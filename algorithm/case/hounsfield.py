"""Detect a CT whose rescale intercept was not applied, from its peaks of air, fat and soft tissue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from contract.errors import Finding

# The lowest value of a CT: what scanners and resampling fill in beyond the image.
PADDING_HU: Final = -1024
# Intercepts in use: DICOM files store HU + 1024, some converters HU + 1000.
INTERCEPTS: Final = (1024, 1000)
MUSCLE_HU: Final = 50
_FAT_HU: Final = (-160, -40)
_BODY_HU: Final = -300
_SAMPLES: Final = 400_000
_BIN_HU: Final = 10
_LOWEST_EDGE_HU: Final = -1040
# Half width of a peak, and the smallest distance of two peaks.
_PEAK_HU: Final = 30
_APART_HU: Final = 60
# Smallest share of the voxels: of any peak, and of air around a patient.
_LEAST_SHARE: Final = 0.005
_AIR_SHARE: Final = 0.03

_Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Peak:
    """A peak of the histogram: its median in HU, and the share of the voxels within 30 HU of it."""

    hu: float
    share: float


def find_peaks(array: _Array) -> list[Peak]:
    """Peaks of the histogram from -1024 HU on (below lies padding), from low to high; every n-th voxel counts."""
    values = _sample(array)
    values = np.minimum(values[values >= PADDING_HU], 5000)
    if not values.size:
        return []
    edges = np.arange(_LOWEST_EDGE_HU, 5000 + 2 * _BIN_HU, _BIN_HU)
    counts = np.histogram(values, edges)[0]
    width = 2 * _PEAK_HU // _BIN_HU
    mass = np.convolve(counts, np.ones(width, dtype=np.int64), "same")
    highest = mass == ndimage.maximum_filter1d(mass, 2 * _APART_HU // _BIN_HU + 1)
    runs, count = ndimage.label(highest & (mass > _LEAST_SHARE * values.size))
    # Each sum covers three bins below its lower edge and three above: the edge is the centre.
    centres = [float(edges[:-1][runs == run].mean()) for run in range(1, count + 1)]
    near = [values[np.abs(values - centre) <= _PEAK_HU] for centre in centres]
    return [Peak(float(np.median(part)), part.size / values.size) for part in near if part.size]


def missing_intercept(array: _Array) -> tuple[int, str] | None:
    """Offset of a CT whose rescale intercept was not applied (1024 or 1000), and the peaks in words; else None.

    Such a CT has air near 0, soft tissue near 1,060 and fat below it, no voxel where a sound CT has fat and partial
    volume, and little between air and fat. All of this must hold, so that soft tissue and dense bone of a crop without
    air are not mistaken for air and soft tissue.
    """
    peaks = find_peaks(array)
    air = _largest([peak for peak in peaks if -30 <= peak.hu <= 60 and peak.share >= _AIR_SHARE])
    soft = _largest([peak for peak in peaks if 1010 <= peak.hu <= 1130])
    if air is None or soft is None:
        return None
    values = _sample(array)
    if _share(values, -1000, -50) > 0.01 or _share(values, 300, 700) > soft.share:
        return None
    air_hu = _air_hu(values, air)
    # Soft tissue counts more, since foam and blankets raise the peak of air.
    offset = min(INTERCEPTS, key=lambda value: 2 * abs(air_hu - value + 1000) + 3 * abs(soft.hu - value - MUSCLE_HU))
    fat_share = _share(values, offset + _FAT_HU[0], offset + _FAT_HU[1])
    if abs(air_hu - offset + 1000) > 40 or not 0 <= soft.hu - offset <= 100 or fat_share < 0.1 * soft.share:
        return None
    words = f"air near {air.hu:.0f} HU, soft tissue near {soft.hu:.0f} HU"
    return offset, f"{words}, fat in {fat_share:.1%} of the voxels"


def is_without_air_and_fat(array: _Array) -> bool:
    """True if hardly any voxel has the values of air, its partial volume or fat, with the intercept or without it.

    -1024 is no air: it may be what resampling fills in. An image of nothing else is empty, and no other scan.
    """
    values = _sample(array)
    shares = (_share(values, *limits) for limits in ((PADDING_HU, _BODY_HU), _FAT_HU))
    return max(shares) < _LEAST_SHARE and values.max() > _BODY_HU and missing_intercept(array) is None


def implausible_hu(array: _Array, name: str) -> Finding | None:
    """The finding for a CT whose rescale intercept is missing, else None. Nothing is corrected."""
    if (missing := missing_intercept(array)) is None:
        return None
    offset, words = missing
    expected = f"-1000, and {MUSCLE_HU - 50} to {MUSCLE_HU + 50}"
    return Finding(name, words, expected, f"the rescale intercept of -{offset} is missing; going on with these values")


def _sample(array: _Array) -> _Array:
    """Every n-th voxel along each axis, about 400,000 in all."""
    step = max(round((array.size / _SAMPLES) ** (1 / 3)), 1)
    z, y, x = (min(step, max(size // 8, 1)) for size in array.shape)
    return array[::z, ::y, ::x].astype(np.float32).ravel()


def _air_hu(values: _Array, peak: Peak) -> float:
    """Most frequent value of the air peak, in steps of 10 HU.

    The lowest value, at which scanners clip, does not count if the rest still holds a peak.
    """
    near = values[np.abs(values - peak.hu) <= _PEAK_HU]
    near = near[near > near.min()]
    if near.size <= _LEAST_SHARE * values.size:
        return peak.hu
    counts, edges = np.histogram(near, np.arange(near.min(), near.max() + _BIN_HU + 1, _BIN_HU))
    return float(edges[counts.argmax()]) + _BIN_HU / 2


def _share(values: _Array, low: float, high: float) -> float:
    return float(np.count_nonzero((values > low) & (values < high))) / values.size


def _largest(peaks: list[Peak]) -> Peak | None:
    return max(peaks, key=lambda peak: peak.share, default=None)
