"""Units of the images: a PET that is not in SUV, and a CT whose rescale intercept was not applied.

The scale of a PET is judged by the FDG uptake of muscle and fat, which are found on the CT without landmarks.

The expected medians over all blocks of a scan are SUV 0.7 in muscle and 0.4 in fat. They are 0.61 and 0.36 in patient
STS_001, and 0.81 and 0.48 in patient STS_035 of the open Soft-tissue-Sarcoma collection (Vallieres et al. 2015,
10.7937/K9/TCIA.2015.7GO2GSKS). Published SUV of normal tissues: Wang et al., Standardized uptake value atlas, Mol
Imaging Biol 2007;9:83-90; Dias et al., Normal values for 18F-FDG uptake in organs and tissues, EJNMMI Research 2022,
10.1186/s13550-022-00884-0. Exercise, food and insulin raise the uptake of muscle, but hardly of fat. The liver (1.9 +/-
0.4, Liu et al., Iran J Radiol 2019;16(2):e84881) is as stable, but cannot be distinguished from muscle by its HU; the
brain (cerebellum 8.0 +/- 2.2, Wang et al.) would dominate a mean over all tissue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from contract.errors import Finding
from contract.images.volumes import Volume

# Even a hot bladder has a lower SUV; activity concentrations in Bq/ml start in the thousands.
MAX_PLAUSIBLE_SUV: Final = 500.0
# SUV averages 1 over a body that contains all of the injected activity, so the highest value of a scan is at least 1.
MIN_SUV_MAX: Final = 1.0

# Lowest and highest mean HU of a block of each tissue, and its expected SUV. Muscle is denser than the brain, and less
# dense than enhanced vessels.
TISSUES: Final = {"muscle": (45.0, 75.0, 0.7), "fat": (-125.0, -75.0, 0.4)}
# Relative error of a scale estimated from both tissues, or from one, that most patients do not exceed.
_UNCERTAINTY_OF_BOTH: Final = 0.3
_UNCERTAINTY_OF_ONE: Final = 0.5
# Scales estimated from the two tissues that differ by more than this factor are not averaged.
_MAX_TISSUE_RATIO: Final = 2.0
# Maximum ratio of a given factor from Bq/ml to SUV to the estimate, or the reverse; the estimate may be 50% off.
MAX_FACTOR_RATIO: Final = 3.0
# Uptake divided by the expected SUV: a PET is not accepted as SUV if both tissues lie below or both above this range.
_MIN_RATIO: Final = 1 / 3
_MAX_RATIO: Final = 2.5
# Tissue is classified in homogeneous blocks, on a limited number of slices.
_BLOCK_MM: Final = 4.0
_MAX_BLOCK_SD_HU: Final = 40.0
_MAX_SLICES: Final = 40
_MIN_BLOCKS: Final = 200

# Ranges of air and fat in HU, and the minimum fraction of each in an image that is taken for a CT.
_AIR_OF_CT_HU: Final = (-1100.0, -900.0)
_FAT_OF_CT_HU: Final = (-200.0, -20.0)
_MIN_CT_FRACTION: Final = 0.005

_Array = npt.NDArray[Any]


@dataclass(frozen=True)
class TissueUptake:
    """Median uptake of a tissue in the unit of the PET, and the SUV that is expected there."""

    name: str
    median: float
    expected_suv: float

    @property
    def ratio(self) -> float:
        """Return the median uptake divided by the expected SUV."""
        return self.median / self.expected_suv


def convert_to_suv(pet: Volume, ct: Volume, name: str, factor: float | None = None) -> tuple[Volume, list[Finding]]:
    """Scale a PET to SUV if its values can only be in Bq/ml; also return findings about implausible values.

    `factor` is the factor from Bq/ml to SUV that comes with the case. If it is None or cannot be right, the scale is
    estimated. A PET that may be in kBq/ml is not scaled, because an unusual patient could also explain its values.
    """
    highest = float(pet.array.max())
    findings = list[Finding]()
    tissues = measure_tissue_uptake(ct, pet)
    if factor is not None and (why := _find_reason_against(factor, highest, tissues)):
        actual = f"highest value {highest:.6g} with a factor of {factor:.3g} from Bq/ml to SUV"
        findings.append(Finding(name, actual, action=f"the factor is not applied: {why}"))
        factor = None
    if highest > MAX_PLAUSIBLE_SUV:
        scale, basis = _choose_scale(pet, tissues) if factor is None else (factor, "with the factor of the case")
        action = f"assumed to be in Bq/ml and scaled by {scale:.3g} {basis}"
        findings.append(Finding(name, f"highest value {highest:.6g}", "SUV", action))
        return Volume(pet.array * np.float32(scale), pet.geometry), findings
    if is_implausible_suv(tissues):
        actual = "median uptake of " + ", ".join(f"{tissue.name} {tissue.median:.3g}" for tissue in tissues)
        expected = "SUV of about " + ", ".join(f"{tissue.name} {tissue.expected_suv:g}" for tissue in tissues)
        unit = "possibly kBq/ml; " if tissues[0].ratio > 1 else ""
        findings.append(Finding(name, actual, expected, f"{unit}not scaled"))
    return pet, findings


def is_ct(array: _Array) -> bool:
    """Return whether an image has the values of a CT, with air near -1000 and fat.

    A PET may be padded with -1024, but has no fat.
    """
    sample = array[tuple(slice(None, None, max(1, size // 64)) for size in array.shape)]
    shares = (np.mean((sample > low) & (sample < high)) for low, high in (_AIR_OF_CT_HU, _FAT_OF_CT_HU))
    return all(share >= _MIN_CT_FRACTION for share in shares)


def describe_factor_error(factor: float, highest: float, tissues: tuple[TissueUptake, ...]) -> str:
    """Describe why a factor from Bq/ml to SUV cannot be right for a PET with this highest value; empty if it can."""
    estimate = estimate_suv_scale(tissues)
    if estimate and not 1 / MAX_FACTOR_RATIO <= factor / estimate[0] <= MAX_FACTOR_RATIO:
        return f"is {factor / estimate[0]:.3g} times the scale that muscle and fat suggest ({estimate[0]:.4g})"
    is_plausible = MIN_SUV_MAX <= highest * factor <= MAX_PLAUSIBLE_SUV
    return "" if is_plausible else f"gives a highest SUV of {highest * factor:.4g}"


def _find_reason_against(factor: float, highest: float, tissues: tuple[TissueUptake, ...]) -> str:
    if highest <= MAX_PLAUSIBLE_SUV:
        return "the PET is already in SUV"
    fault = describe_factor_error(factor, highest, tissues)
    return f"it {fault}" if fault else ""


def measure_tissue_uptake(ct: Volume, pet: Volume) -> tuple[TissueUptake, ...]:
    """Measure the uptake of muscle and fat.

    Blocks of 4 mm are classified by their mean HU, which distinguishes muscle from brain despite the noise; blocks that
    are not homogeneous are left out. Voxels of the PET without uptake do not count, because the PET may be cropped.

    Args:
        ct: CT in HU.
        pet: PET in any unit, on its own grid.

    Returns:
        The uptake of muscle and of fat; a tissue is left out if the images show too little of it.
    """
    sx, sy = (max(round(_BLOCK_MM / spacing), 1) for spacing in ct.geometry.spacing_mm[:2])
    sz = max(-(-ct.array.shape[0] // _MAX_SLICES), 1)
    slices = ct.array[::sz]
    depth, height, width = slices.shape[0], slices.shape[1] // sy, slices.shape[2] // sx
    blocks = slices[:, : height * sy, : width * sx].reshape(depth, height, sy, width, sx).astype(np.float32)
    means, deviations = blocks.mean((2, 4)), blocks.std((2, 4))
    tissues = []
    for name, (low, high, expected_suv) in TISSUES.items():
        chosen = np.argwhere((means > low) & (means < high) & (deviations < _MAX_BLOCK_SD_HU))[:, ::-1]
        uptake = _sample_nearest(pet, ct, chosen * (sx, sy, sz) + ((sx - 1) / 2, (sy - 1) / 2, 0))
        uptake = uptake[uptake > 0]
        if uptake.size >= _MIN_BLOCKS:
            tissues.append(TissueUptake(name, float(np.median(uptake)), expected_suv))
    return tuple(tissues)


def estimate_suv_scale(tissues: tuple[TissueUptake, ...]) -> tuple[float, float] | None:
    """Estimate the factor from the PET's unit to SUV, and its relative uncertainty; None without muscle and fat.

    If the scales of the two tissues differ by more than a factor of 2, they are not averaged. The tissue with the lower
    uptake counts then, because exercise, insulin or a brain next to a tissue only raise its uptake.
    """
    ratios = [tissue.ratio for tissue in tissues]
    if not ratios:
        return None
    if len(ratios) < len(TISSUES) or max(ratios) > _MAX_TISSUE_RATIO * min(ratios):
        return 1.0 / min(ratios), _UNCERTAINTY_OF_ONE
    return float(1.0 / np.exp(np.mean(np.log(ratios)))), _UNCERTAINTY_OF_BOTH


def is_implausible_suv(tissues: tuple[TissueUptake, ...]) -> bool:
    """Return whether muscle and fat both exceed 2.5 times the expected SUV, or are both below a third of it.

    A single tissue is no proof: muscle can be hot after exercise or insulin, and in the head it is next to the brain.
    """
    ratios = [tissue.ratio for tissue in tissues]
    return len(ratios) == len(TISSUES) and (min(ratios) > _MAX_RATIO or max(ratios) < _MIN_RATIO)


def _choose_scale(pet: Volume, tissues: tuple[TissueUptake, ...]) -> tuple[float, str]:
    """Estimate the factor to SUV; return it with a description of the estimate for messages.

    Without muscle and fat the mean over the warm voxels (above a hundredth of the 99.9th percentile) is set to 1,
    because SUV averages 1 over a body that contains all of the injected activity.
    """
    if estimate := estimate_suv_scale(tissues):
        names = " and ".join(tissue.name for tissue in tissues)
        return estimate[0], f"from the uptake of {names}, uncertain by about {estimate[1]:.0%}"
    high = float(np.percentile(pet.array, 99.9))
    warm = pet.array[pet.array > high / 100]
    scale = 1.0 / float(warm.mean()) if warm.size else 1.0 / high
    return scale, "to a mean of 1, because neither muscle nor fat was found: uncertain by a factor of 5"


def _sample_nearest(pet: Volume, ct: Volume, index: _Array) -> _Array:
    """Return the values of the PET at CT indices (n, 3) in (x, y, z), by nearest neighbour.

    Positions outside the PET are left out, so there may be fewer than n values.
    """
    matrix = pet.geometry.physical_to_index_matrix() @ ct.geometry.index_to_physical_matrix()
    there = np.rint(index @ matrix[:3, :3].T + matrix[:3, 3]).astype(np.int64)
    x, y, z = there[((there >= 0) & (there < pet.geometry.size)).all(axis=1)].T
    return np.asarray(pet.array[z, y, x])


# The lowest value of a CT. Scanners and resampling fill the space outside the image with it.
PADDING_HU: Final = -1024
# Intercepts in use: DICOM files store HU + 1024, some converters HU + 1000.
INTERCEPTS: Final = (1024, 1000)
MUSCLE_HU: Final = 50
_FAT_HU: Final = (-160, -40)
_SAMPLES: Final = 400_000
_BIN_HU: Final = 10
_MIN_EDGE_HU: Final = -1040
# Half width of a peak, and the minimum distance between two peaks.
_PEAK_HU: Final = 30
_APART_HU: Final = 60
# Minimum fraction of the voxels in any peak, and in the peak of the air around a patient.
_MIN_PEAK_FRACTION: Final = 0.005
_MIN_AIR_FRACTION: Final = 0.03


@dataclass(frozen=True)
class Peak:
    """A peak of the histogram: its median in HU, and the fraction of the voxels within 30 HU of its centre."""

    hu: float
    share: float


def find_peaks(array: _Array) -> list[Peak]:
    """Find the peaks of the histogram above the padding, in ascending order, from a sample of the voxels."""
    values = _take_sample(array)
    values = np.minimum(values[values >= PADDING_HU], 5000)
    if not values.size:
        return []
    edges = np.arange(_MIN_EDGE_HU, 5000 + 2 * _BIN_HU, _BIN_HU)
    counts = np.histogram(values, edges)[0]
    width = 2 * _PEAK_HU // _BIN_HU
    mass = np.convolve(counts, np.ones(width, dtype=np.int64), "same")
    highest = mass == ndimage.maximum_filter1d(mass, 2 * _APART_HU // _BIN_HU + 1)
    runs, count = ndimage.label(highest & (mass > _MIN_PEAK_FRACTION * values.size))
    # Each sum covers three bins below its lower edge and three above: the edge is the centre.
    centres = [float(edges[:-1][runs == run].mean()) for run in range(1, count + 1)]
    near = [values[np.abs(values - centre) <= _PEAK_HU] for centre in centres]
    return [Peak(float(np.median(part)), part.size / values.size) for part in near if part.size]


def find_missing_intercept(array: _Array) -> tuple[int, str] | None:
    """Find the offset of a CT whose rescale intercept was not applied.

    Such a CT has air near 0, soft tissue near 1,060 with fat below it, almost no voxels where a correct CT has fat and
    partial volume, and few voxels between air and fat. All of this must hold, so that soft tissue and dense bone of a
    crop without air are not mistaken for air and soft tissue.

    Returns:
        The offset (1024 or 1000) and a description of the peaks; None if no intercept is missing.
    """
    peaks = find_peaks(array)
    air = _find_largest_peak([peak for peak in peaks if -30 <= peak.hu <= 60 and peak.share >= _MIN_AIR_FRACTION])
    soft = _find_largest_peak([peak for peak in peaks if 1010 <= peak.hu <= 1130])
    if air is None or soft is None:
        return None
    values = _take_sample(array)
    if _compute_share(values, -1000, -50) > 0.01 or _compute_share(values, 300, 700) > soft.share:
        return None
    air_hu = _find_air_peak(values, air)
    # Soft tissue counts more, since foam and blankets raise the peak of air.
    offset = min(INTERCEPTS, key=lambda value: 2 * abs(air_hu - value + 1000) + 3 * abs(soft.hu - value - MUSCLE_HU))
    fat_share = _compute_share(values, offset + _FAT_HU[0], offset + _FAT_HU[1])
    if abs(air_hu - offset + 1000) > 40 or not 0 <= soft.hu - offset <= 100 or fat_share < 0.1 * soft.share:
        return None
    words = f"air near {air.hu:.0f} HU, soft tissue near {soft.hu:.0f} HU"
    return offset, f"{words}, fat in {fat_share:.1%} of the voxels"


def check_hu(array: _Array, name: str) -> Finding | None:
    """Return a finding for a CT whose rescale intercept is missing, else None; the CT is not corrected."""
    if (missing := find_missing_intercept(array)) is None:
        return None
    offset, words = missing
    expected = f"-1000, and {MUSCLE_HU - 50} to {MUSCLE_HU + 50}"
    return Finding(
        name, words, expected, f"the rescale intercept of -{offset} is missing; continuing with these values"
    )


def _take_sample(array: _Array) -> _Array:
    """Return every n-th voxel along each axis, about 400,000 in all."""
    step = max(round((array.size / _SAMPLES) ** (1 / 3)), 1)
    z, y, x = (min(step, max(size // 8, 1)) for size in array.shape)
    return array[::z, ::y, ::x].astype(np.float32).ravel()


def _find_air_peak(values: _Array, peak: Peak) -> float:
    """Return the most frequent value of the air peak, in steps of 10 HU.

    The lowest value, at which scanners clip, does not count if enough voxels remain without it.
    """
    near = values[np.abs(values - peak.hu) <= _PEAK_HU]
    near = near[near > near.min()]
    if near.size <= _MIN_PEAK_FRACTION * values.size:
        return peak.hu
    counts, edges = np.histogram(near, np.arange(near.min(), near.max() + _BIN_HU + 1, _BIN_HU))
    return float(edges[counts.argmax()]) + _BIN_HU / 2


def _compute_share(values: _Array, low: float, high: float) -> float:
    return float(np.count_nonzero((values > low) & (values < high))) / values.size


def _find_largest_peak(peaks: list[Peak]) -> Peak | None:
    return max(peaks, key=lambda peak: peak.share, default=None)
