"""Density of a structure on the CT, in HU."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from algorithm.heads.features.structure import Feature, Structure

NAMES: Final = ("hu_mean", "hu_sd", "hu_p10", "hu_median", "hu_p90")


def density(structure: Structure | None, ct: npt.NDArray[np.float32]) -> dict[str, Feature]:
    """Mean, standard deviation, 10th percentile, median and 90th percentile (IBSI Q4LE, the root of ECT3, QG58,
    Y12H, 8DWT); None for an absent structure. `ct` is HU on the whole grid.
    """
    if structure is None:
        return dict.fromkeys(NAMES)
    hu = structure.cut(ct)[structure.inside].astype(np.float64)
    low, median, high = np.percentile(hu, (10, 50, 90))
    return dict(zip(NAMES, (float(hu.mean()), float(hu.std()), float(low), float(median), float(high)), strict=True))
