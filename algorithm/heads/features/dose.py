"""Planned radiation dose in the lesions."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from algorithm.heads.features.structure import Feature, Structure
from algorithm.region.grids import resample
from contract.images.geometry import Geometry
from contract.images.volumes import Volume

LEVELS_GY: Final = (60, 66)
NAMES: Final = ("dose_mean_gy", "dose_d95_gy", *(f"dose_v{level}_share" for level in LEVELS_GY))


def dose_on(dose: Volume, grid: Geometry) -> npt.NDArray[np.float32]:
    """A dose in Gy on `grid`, linearly interpolated; NaN beyond the dose's own voxels."""
    return resample(dose, grid, float("nan"))


def dose_volume(structure: Structure | None, dose: npt.NDArray[np.float32] | None) -> dict[str, Feature]:
    """Mean dose and D95 (minimum dose to 95% of the volume) in Gy, V60 and V66 (share of the volume with at least 60
    and 66 Gy).

    Args:
        structure: GTVp or GTVn, None where absent.
        dose: `dose_on` the whole grid, or None. Every value is None without structure or dose, and if part of the
            structure lies beyond the dose.
    """
    if structure is None or dose is None:
        return dict.fromkeys(NAMES)
    gray = structure.cut(dose)[structure.inside].astype(np.float64)
    if not np.isfinite(gray).all():
        return dict.fromkeys(NAMES)
    shares = (float(np.mean(gray >= level)) for level in LEVELS_GY)
    return dict(zip(NAMES, (float(gray.mean()), float(np.percentile(gray, 5)), *shares), strict=True))
