"""Metrics of masks: one record each, a function of case weights from the rows of a cohort."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from contract import labels
from evaluation.metrics import surface
from evaluation.metrics.lesions import f1_agg_metric
from evaluation.metrics.overlap import (
    MM3_PER_ML,
    Floats,
    WeightedMetric,
    average_metric,
    dsc_agg_metric,
    harmonic_mean_metric,
    mean_metric,
    weighted_ratio,
)
from evaluation.metrics.rules import SIGNED_RANK, SURFACES_OF, MaskRules, Metric

LABELS: Final = {"gtvp": labels.GTVP, "gtvn": labels.GTVN}
PARTS: Final = ("intersection", "reference", "predicted")
LESION_KEYS: Final = ("tp", "fp", "fn")
# The label of each distance in a row.
DISTANCES: Final = {
    f"{label}_{one.key}": label for label in LABELS for one in surface.SURFACE_METRICS if one.unit == "mm"
}


@dataclass(frozen=True)
class MaskColumns:
    """The rows of a cohort (`MaskRow`) as columns, shape (cases,), under the rules of an evaluation."""

    rows: Sequence[Any]
    rules: MaskRules

    def values(self, name: str) -> Floats:
        """A value of each row, NaN for a case that does not count."""
        return column(getattr(row, name) for row in self.rows)

    def lesions(self) -> tuple[Floats, Floats, Floats]:
        """Detected, false and missed lesions."""
        detected, false, missed = (self.values(f"gtvn_lesions_{key}") for key in LESION_KEYS)
        return detected, false, missed

    def dsc_agg(self, label: str) -> WeightedMetric:
        in_mm3 = self.rules.volume_unit == "mm3"
        unit = np.array([row.voxel_volume_mm3 if in_mm3 else 1.0 for row in self.rows])
        intersections, references, predictions = (self.values(f"{label}_{part}_voxels") for part in PARTS)
        return dsc_agg_metric(intersections * unit, references * unit, predictions * unit)

    def lesion_ratio(self, other: int) -> WeightedMetric:
        """Detected lesions by these and the false (`other` 1) or missed (2) ones."""
        counts = self.lesions()
        return lambda weights: weighted_ratio(weights, counts[0], counts[0] + counts[other])

    def lesion_f1(self) -> WeightedMetric:
        return f1_agg_metric(*self.lesions())

    def dsc_agg_mean(self) -> WeightedMetric:
        return average_metric(*map(self.dsc_agg, LABELS))

    def gtvp_f1(self) -> WeightedMetric:
        return harmonic_mean_metric(*(mean_metric(self.values(f"gtvp_{part}")) for part in ("precision", "recall")))

    def volume_mean(self, plus: str, minus: str = "") -> WeightedMetric:
        """The mean over cases of a volume, or of the difference of two, in ml."""
        mm3 = self.values(f"{plus}_mm3") - (self.values(f"{minus}_mm3") if minus else 0.0)
        return mean_metric(mm3 / MM3_PER_ML)

    def surface_metric(self, label: str, metric: surface.SurfaceMetric) -> WeightedMetric:
        return metric.over_cases(column(row.surface(label).values[metric.key] for row in self.rows))


def column(values: Iterable[float | None]) -> Floats:
    """Values of cases as an array, NaN for None."""
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _mean(name: str, title: str, value: str, rule: str) -> Metric:
    return Metric(
        name, title, "mask", lambda cohort: mean_metric(cohort.values(value)), second_test=SIGNED_RANK, rules=(rule,)
    )


def _aggregate(name: str, title: str, of: Callable[[MaskColumns], WeightedMetric], *rules: str) -> Metric:
    return Metric(name, title, "mask", of, rules=rules)


def _dsc_agg(name: str, title: str, of: Callable[[MaskColumns], WeightedMetric]) -> Metric:
    return Metric(name, title, "mask", of, has_tau=True, rules=("volume_unit",))


def _volume(key: str, title: str, plus: str, minus: str = "") -> list[Metric]:
    return [
        Metric(
            f"{label}_{key}_mean_ml",
            f"{labels.NAMES[LABELS[label]]} mean {title} (ml)",
            "mask",
            partial(MaskColumns.volume_mean, plus=f"{label}_{plus}", minus=minus and f"{label}_{minus}"),
            unit="ml",
            bounds=(-np.inf if minus else 0.0, np.inf),
            best=0.0,
            rules=() if minus else ("connectivity",),
        )
        for label in LABELS
    ]


_LESION_RULES: Final = ("connectivity", "iou_threshold", "iou_strict", "matching")
MASK_METRICS: tuple[Metric, ...] = (
    _mean("gtvp_dsc_mean", "GTVp mean DSC", "gtvp_dsc", "gtvp_empty"),
    _mean("gtvn_dsc_mean", "GTVn mean DSC", "gtvn_dsc", "gtvn_empty"),
    _dsc_agg("gtvn_dsc_agg", "GTVn aggregated DSC", lambda cohort: cohort.dsc_agg("gtvn")),
    _aggregate("gtvn_f1_agg", "GTVn aggregated F1", MaskColumns.lesion_f1, *_LESION_RULES),
    _dsc_agg("gtvp_dsc_agg", "GTVp aggregated DSC", lambda cohort: cohort.dsc_agg("gtvp")),
    _dsc_agg("dsc_agg_mean", "Mean of aggregated DSC", MaskColumns.dsc_agg_mean),
    _aggregate("gtvn_precision_agg", "GTVn aggregated precision", lambda one: one.lesion_ratio(1), *_LESION_RULES),
    _aggregate("gtvn_recall_agg", "GTVn aggregated recall", lambda cohort: cohort.lesion_ratio(2), *_LESION_RULES),
    _mean("gtvp_precision_mean", "GTVp mean precision", "gtvp_precision", "gtvp_empty"),
    _mean("gtvp_recall_mean", "GTVp mean recall", "gtvp_recall", "gtvp_empty"),
    _aggregate("gtvp_f1", "GTVp F1", MaskColumns.gtvp_f1, "gtvp_empty"),
    *_volume("fp_volume", "false-positive volume", "false_positive"),
    *_volume("fn_volume", "false-negative volume", "false_negative"),
    *_volume("volume_bias", "volume bias", "predicted", "reference"),
)


def mask_metrics(surfaces: str) -> tuple[Metric, ...]:
    """Every metric of masks, with those of the surfaces that this value of the rule `surfaces` measures."""
    of_surfaces = (_surface_metric(label, one) for label in SURFACES_OF[surfaces] for one in surface.SURFACE_METRICS)
    return (*MASK_METRICS, *of_surfaces)


def _surface_metric(label: str, metric: surface.SurfaceMetric) -> Metric:
    title = f"{labels.NAMES[LABELS[label]]} {metric.title}"
    return Metric(
        f"{label}_{metric.name}",
        title,
        "mask",
        lambda cohort: cohort.surface_metric(label, metric),
        unit=metric.unit,
        bounds=metric.bounds,
        best=metric.best,
        second_test="" if metric.unit else SIGNED_RANK,
        # Distances come in steps of the grid, so that a resampled median takes few values and varies too little.
        deciding_test=SIGNED_RANK if metric.unit else "",
        rules=metric.rules,
    )
