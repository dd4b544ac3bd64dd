"""Bins of equal size and Spearman's correlation, for values of cases by volume."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from evaluation.metrics.overlap import Floats

VOLUME_BINS: Final = 5


def dsc_by_volume(volumes_ml: Floats, dsc: Floats) -> dict[str, Any] | None:
    """Spearman's correlation of DSC with reference volume, and the mean DSC in five bins of rising volume.

    Bins hold equal numbers of cases, the first also the remainder. None with fewer cases than bins; the correlation is
    None if all DSCs or all volumes are equal.
    Source: the HECKTOR 2021 overview.
    """
    if len(dsc) < VOLUME_BINS:
        return None
    bins = [
        {
            "cases": int(part.size),
            "dsc_mean": float(dsc[part].mean()),
            "volume_ml_low": float(volumes_ml[part].min()),
            "volume_ml_high": float(volumes_ml[part].max()),
        }
        for part in equal_bins(volumes_ml, VOLUME_BINS)
    ]
    return {"cases": len(dsc), "spearman": spearman(volumes_ml, dsc), "bins": bins}


def equal_bins(values: Floats, n_bins: int) -> list[npt.NDArray[np.intp]]:
    """The places of rising values in bins of equal size, the first bin also with the remainder.

    Equal values keep their order. With fewer values than bins the first bin holds all of them.
    Source: the HECKTOR 2021 overview (101 cases in bins of 21, 20, 20, 20 and 20).
    """
    order = np.argsort(values, kind="stable")
    size = order.size // n_bins
    return np.split(order, [order.size - size * (n_bins - number) for number in range(1, n_bins)])


def spearman(first: Floats, second: Floats) -> float | None:
    """Spearman's rank correlation, average ranks for ties; None if either side is constant."""
    mine, theirs = (_average_ranks(values) - (len(values) + 1) / 2 for values in (first, second))
    scale = float(np.sqrt((mine @ mine) * (theirs @ theirs)))
    return float(mine @ theirs) / scale if scale > 0 else None


def _average_ranks(values: Floats) -> Floats:
    """As `scipy.stats.rankdata`, whose import alone takes a second of every evaluation."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return ranks
