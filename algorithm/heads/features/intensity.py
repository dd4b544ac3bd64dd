"""Intensities of a structure: density in HU, uptake in SUV (statistics, volume, glycolysis) and planned dose in Gy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from algorithm.heads.features.structure import TOUCHING, Feature, Structure
from algorithm.region.grids import resample
from contract.images.geometry import Geometry
from contract.images.volumes import Volume

# Within a structure, voxels below this share of its SUVmax count as cold (necrotic or cystic).
COLD_SHARE: Final = 0.4
THRESHOLDS_SUV: Final = (2.5, 4.0)
# Of each lesion's own SUVmax.
THRESHOLD_SHARE: Final = 0.41
PEAK_ML: Final = 1.0

_Image = npt.NDArray[np.float32]
STATISTICS: Final = ("suv_max", "suv_mean", "suv_peak", "suv_cv", "cold_share")
THRESHOLD_NAMES: Final = tuple(
    name.format(threshold) for threshold in ("2.5", "4.0", "41pct") for name in ("mtv_over_{}_ml", "tlg_over_{}")
)


def statistics(structure: Structure | None, pet: _Image | None) -> dict[str, Feature]:
    """SUVmax, mean, peak, coefficient of variation (IBSI 84IY, Q4LE, 0F91, 7TET) and share of cold voxels.

    Args:
        structure: GTVp or GTVn, None where absent.
        pet: SUV on the whole grid, or None; without either every value is None.
    """
    if structure is None or pet is None:
        return dict.fromkeys(STATISTICS)
    image = structure.cut(pet)
    suv = image[structure.inside].astype(np.float64)
    mean, highest = float(suv.mean()), float(suv.max())
    return {
        "suv_max": highest,
        "suv_mean": mean,
        "suv_peak": intensity_peak(structure, image),
        "suv_cv": float(suv.std()) / mean if mean > 0 else None,
        "cold_share": float(np.mean(suv < COLD_SHARE * highest)),
    }


def measure_thresholds(structure: Structure | None, pet: _Image | None) -> dict[str, Feature]:
    """Return the volume in ml (`mtv`) and SUV x ml (`tlg`) of the structure's voxels above three thresholds.

    The thresholds are SUV 2.5, SUV 4.0, and 41% of the SUVmax of the 26-connected lesion that a voxel belongs to. An
    absent structure has the values 0. Without PET every value is None.
    """
    if pet is None:
        return dict.fromkeys(THRESHOLD_NAMES)
    if structure is None:
        return dict.fromkeys(THRESHOLD_NAMES, 0.0)
    image = structure.cut(pet)
    hot = [structure.inside & (image >= threshold) for threshold in THRESHOLDS_SUV]
    hot.append(_over_share(structure.inside, image))
    sizes = ((float(np.count_nonzero(part)), float(image[part].sum(dtype=np.float64))) for part in hot)
    values = [value * structure.voxel_ml for size in sizes for value in size]
    return dict(zip(THRESHOLD_NAMES, values, strict=True))


def glycolysis(structure: Structure | None, pet: _Image | None) -> Feature:
    """Return the mean SUV times volume of the whole structure, in SUV x ml; 0 for an absent one, None without PET."""
    if structure is None:
        return 0.0
    if pet is None:
        return None
    return float(structure.cut(pet)[structure.inside].sum(dtype=np.float64)) * structure.voxel_ml


def intensity_peak(structure: Structure, image: npt.NDArray[np.floating]) -> float:
    """Return the highest mean over a sphere of 1 ml around any voxel of the structure (IBSI 0F91).

    The sphere holds all voxels with centres within 6.2 mm, inside the structure or not, but fewer at the image's edge.
    `image` is the structure's box.
    """
    from scipy.signal import oaconvolve  # the import takes longer than the computation

    sphere = _sphere(structure.spacing_mm)
    sums = oaconvolve(image.astype(np.float64), sphere, mode="same")
    counts = np.rint(oaconvolve(np.ones(image.shape), sphere, mode="same"))
    return float((sums[structure.inside] / counts[structure.inside]).max())


def _sphere(spacing_mm: Sequence[float]) -> npt.NDArray[np.float64]:
    radius = (PEAK_ML * 750 / np.pi) ** (1 / 3)
    axes = [np.arange(-int(radius / step), int(radius / step) + 1) * step for step in spacing_mm]
    z, y, x = np.meshgrid(*axes, indexing="ij")
    return np.asarray(z**2 + y**2 + x**2 <= radius**2, dtype=np.float64)


def _over_share(inside: npt.NDArray[np.bool_], image: _Image) -> npt.NDArray[np.bool_]:
    parts, count = ndimage.label(inside, structure=TOUCHING)
    highest = np.zeros(count + 1)
    highest[1:] = ndimage.maximum(image, parts, np.arange(1, count + 1))
    return np.asarray(inside & (image >= THRESHOLD_SHARE * highest[parts]))


DENSITY: Final = ("hu_mean", "hu_sd", "hu_p10", "hu_median", "hu_p90")


def density(structure: Structure | None, ct: npt.NDArray[np.float32]) -> dict[str, Feature]:
    """Mean, standard deviation, 10th percentile, median and 90th percentile (IBSI Q4LE, the root of ECT3, QG58,
    Y12H, 8DWT); None for an absent structure. `ct` is HU on the whole grid.
    """
    if structure is None:
        return dict.fromkeys(DENSITY)
    hu = structure.cut(ct)[structure.inside].astype(np.float64)
    low, median, high = np.percentile(hu, (10, 50, 90))
    return dict(zip(DENSITY, (float(hu.mean()), float(hu.std()), float(low), float(median), float(high)), strict=True))


LEVELS_GY: Final = (60, 66)
DOSE: Final = ("dose_mean_gy", "dose_d95_gy", *(f"dose_v{level}_share" for level in LEVELS_GY))


def dose_on(dose: Volume, grid: Geometry) -> npt.NDArray[np.float32]:
    """Return a dose in Gy on `grid`, linearly interpolated; NaN beyond the dose's own voxels."""
    return resample(dose, grid, float("nan"))


def dose_volume(structure: Structure | None, dose: npt.NDArray[np.float32] | None) -> dict[str, Feature]:
    """Return the mean dose and D95 (minimum dose to 95% of the volume) in Gy, V60 and V66 (share with at least 60
    and 66 Gy).

    Args:
        structure: GTVp or GTVn, None where absent.
        dose: `dose_on` the whole grid, or None. Every value is None without structure or dose, and if part of the
            structure lies beyond the dose.
    """
    if structure is None or dose is None:
        return dict.fromkeys(DOSE)
    gray = structure.cut(dose)[structure.inside].astype(np.float64)
    if not np.isfinite(gray).all():
        return dict.fromkeys(DOSE)
    shares = (float(np.mean(gray >= level)) for level in LEVELS_GY)
    return dict(zip(DOSE, (float(gray.mean()), float(np.percentile(gray, 5)), *shares), strict=True))
