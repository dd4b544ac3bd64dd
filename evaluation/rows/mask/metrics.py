"""Every metric of masks from their rows, and the DSC of the primary tumour by its volume."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from evaluation.editions.rules import SURFACE_METRICS, SURFACES_OF, MaskRules
from evaluation.metrics.lesions import f1_agg_metric
from evaluation.metrics.overlap import (
    Floats,
    WeightedMetric,
    average_metric,
    dsc_agg_metric,
    harmonic_mean_metric,
    mean_metric,
    median_metric,
    weighted_ratio,
)
from evaluation.rows.mask.pair import MaskRow

VOLUME_BINS: Final = 5
_MM3_A_ML: Final = 1000.0


def mask_metrics(rows: Sequence[MaskRow], rules: MaskRules) -> dict[str, WeightedMetric]:
    """Every metric that `rules` measure, as a function of case weights."""
    precision = mean_metric(_column(rows, lambda row: row.gtvp_precision))
    recall = mean_metric(_column(rows, lambda row: row.gtvp_recall))
    gtvp_agg, gtvn_agg = (_dsc_agg(rows, name, rules) for name in ("gtvp", "gtvn"))
    tp, fp, fn = _counts(rows, "gtvn_lesions")
    metrics: dict[str, WeightedMetric] = {
        "gtvp_dsc_mean": mean_metric(_column(rows, lambda row: row.gtvp_dsc)),
        "gtvn_dsc_mean": mean_metric(_column(rows, lambda row: row.gtvn_dsc)),
        "gtvn_dsc_agg": gtvn_agg,
        "gtvn_f1_agg": f1_agg_metric(tp, fp, fn),
        "gtvp_dsc_agg": gtvp_agg,
        "dsc_agg_mean": average_metric(gtvp_agg, gtvn_agg),
        "gtvn_precision_agg": lambda weights: weighted_ratio(weights, tp, tp + fp),
        "gtvn_recall_agg": lambda weights: weighted_ratio(weights, tp, tp + fn),
        "gtvp_precision_mean": precision,
        "gtvp_recall_mean": recall,
        "gtvp_f1": harmonic_mean_metric(precision, recall),
    }
    for label in SURFACES_OF[rules.surfaces]:
        metrics |= _surface_metrics(rows, label)
    return metrics


def _dsc_agg(rows: Sequence[MaskRow], label: str, rules: MaskRules) -> WeightedMetric:
    unit = np.array([row.voxel_volume_mm3 if rules.volume_unit == "mm3" else 1.0 for row in rows])
    intersections, references, predictions = _counts(rows, label)
    return dsc_agg_metric(intersections * unit, references * unit, predictions * unit)


def _counts(rows: Sequence[MaskRow], part: str) -> Floats:
    """The three counts of an overlap or of lesions, shape (3, cases)."""
    return (
        np.array([tuple(vars(getattr(row, part)).values()) for row in rows], dtype=np.float64).reshape(-1, 3).T.copy()
    )


def _surface_metrics(rows: Sequence[MaskRow], label: str) -> dict[str, WeightedMetric]:
    hd95, asd, surface_dsc = SURFACE_METRICS[label]
    return {
        hd95: median_metric(_column(rows, lambda row: row.surfaces[label].hd95_mm)),
        asd: median_metric(_column(rows, lambda row: row.surfaces[label].asd_mm)),
        surface_dsc: mean_metric(_column(rows, lambda row: row.surfaces[label].surface_dsc)),
    }


def dsc_by_volume(rows: Sequence[MaskRow]) -> dict[str, Any] | None:
    """Spearman's correlation of GTVp DSC with reference volume, and the mean DSC in five bins of rising volume.

    Bins hold equal numbers of cases, the first also the remainder. Cases with a reference volume and a DSC count.
    None with fewer cases than bins; the correlation is None if all DSCs or all volumes are equal.
    Source: the HECKTOR 2021 overview.
    """
    counted = [row for row in rows if row.gtvp_dsc is not None and row.gtvp.reference > 0]
    if len(counted) < VOLUME_BINS:
        return None
    volume = _column(counted, lambda row: row.gtvp.reference * row.voxel_volume_mm3 / _MM3_A_ML)
    dsc = _column(counted, lambda row: row.gtvp_dsc)
    parts = equal_bins(volume, VOLUME_BINS)
    bins = [
        {
            "cases": int(part.size),
            "dsc_mean": float(dsc[part].mean()),
            "volume_ml_low": float(volume[part].min()),
            "volume_ml_high": float(volume[part].max()),
        }
        for part in parts
    ]
    return {"cases": len(counted), "spearman": spearman(volume, dsc), "bins": bins}


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
    mine, theirs = (rankdata(values) - (len(values) + 1) / 2 for values in (first, second))
    scale = float(np.sqrt((mine @ mine) * (theirs @ theirs)))
    return float(mine @ theirs) / scale if scale > 0 else None


def _column(rows: Sequence[MaskRow], of: Callable[[MaskRow], float | None]) -> Floats:
    values = (of(row) for row in rows)
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
