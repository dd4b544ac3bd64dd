"""Metrics of masks: each is declared once and computed from the columns of a cohort as a function of case weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

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
    ratio_of_sums,
)
from evaluation.metrics.rules import SIGNED_RANK, SURFACES_OF, Metric

LABELS: Final = {"gtvp": labels.GTVP, "gtvn": labels.GTVN}
# The label of each distance in a row.
DISTANCES: Final = {
    f"{label}_{metric.key}": label for label in LABELS for metric in surface.SURFACE_METRICS if metric.unit == "mm"
}


@dataclass(frozen=True)
class LabelColumns:
    """Figures of one label in the cases of a cohort, all of shape (cases,); NaN where a case does not count.

    Attributes:
        dsc, precision, recall: Scores of each case.
        intersection, reference, predicted: Voxel counts.
        false_positive, false_negative: Voxels of components that the other mask does not touch.
        tp, fp, fn: Detected, false-positive and missed lesions; None if lesions are not counted for the label.
        surfaces: Surface values by the key of each `SurfaceMetric`, infinite for the worst distance; empty if surfaces
            are not measured.
    """

    dsc: Floats
    precision: Floats
    recall: Floats
    intersection: Floats
    reference: Floats
    predicted: Floats
    false_positive: Floats
    false_negative: Floats
    tp: Floats | None = None
    fp: Floats | None = None
    fn: Floats | None = None
    surfaces: Mapping[str, Floats] = field(default_factory=dict)


@dataclass(frozen=True)
class MaskColumns:
    """The rows of a cohort (`MaskRow`) as columns.

    Attributes:
        cases: Names of the cases.
        voxel_volume_mm3: Volume of a voxel in each case, shape (cases,).
        labels: Columns of `gtvp` and `gtvn`.
        volume_unit: Unit of volumes in the aggregated DSC, `mm3` or `voxels`.
    """

    cases: tuple[str, ...]
    voxel_volume_mm3: Floats
    labels: Mapping[str, LabelColumns]
    volume_unit: str

    def values(self, label: str, name: str) -> Floats:
        """Return the figure of a label with this name, shape (cases,)."""
        values: Floats = getattr(self.labels[label], name)
        return values

    def dsc_agg(self, label: str) -> WeightedMetric:
        """Return the aggregated DSC of a label."""
        unit = self.voxel_volume_mm3 if self.volume_unit == "mm3" else np.ones(len(self.cases))
        columns = self.labels[label]
        return dsc_agg_metric(columns.intersection * unit, columns.reference * unit, columns.predicted * unit)

    def lesions(self) -> tuple[Floats, Floats, Floats]:
        """Return the detected, false-positive and missed GTVn lesions."""
        nodes = self.labels["gtvn"]
        if nodes.tp is None or nodes.fp is None or nodes.fn is None:
            raise ValueError("the rows contain no lesions of GTVn")
        return nodes.tp, nodes.fp, nodes.fn

    def lesion_precision(self) -> WeightedMetric:
        """Return the fraction of predicted GTVn lesions that match a reference lesion, over all cases."""
        tp, fp, _ = self.lesions()
        return lambda weights: ratio_of_sums(weights, tp, tp + fp)

    def lesion_recall(self) -> WeightedMetric:
        """Return the fraction of reference GTVn lesions that are detected, over all cases."""
        tp, _, fn = self.lesions()
        return lambda weights: ratio_of_sums(weights, tp, tp + fn)

    def lesion_f1(self) -> WeightedMetric:
        """Return the aggregated F1 of GTVn lesions."""
        return f1_agg_metric(*self.lesions())

    def dsc_agg_mean(self) -> WeightedMetric:
        """Return the mean of both labels' aggregated DSC."""
        return average_metric(*map(self.dsc_agg, LABELS))

    def gtvp_f1(self) -> WeightedMetric:
        """Return the harmonic mean of GTVp's mean precision and mean recall."""
        gtvp = self.labels["gtvp"]
        return harmonic_mean_metric(mean_metric(gtvp.precision), mean_metric(gtvp.recall))

    def volume_mean(self, label: str, plus: str, minus: str = "") -> WeightedMetric:
        """Return the mean over cases of the volume `plus`, less the volume `minus` if it has a name, in ml."""
        volumes_mm3 = self.values(label, plus) * self.voxel_volume_mm3
        if minus:
            volumes_mm3 = volumes_mm3 - self.values(label, minus) * self.voxel_volume_mm3
        return mean_metric(volumes_mm3 / MM3_PER_ML)

    def surface_metric(self, label: str, metric: surface.SurfaceMetric) -> WeightedMetric:
        """Return a metric of the surfaces of a label."""
        return metric.over_cases(self.labels[label].surfaces[metric.key])


def _make_mean_metric(label: str, score: str) -> Metric:
    """Make the metric of a label's mean score: its `dsc`, `precision` or `recall`."""
    return Metric(
        f"{label}_{score}_mean",
        f"{labels.NAMES[LABELS[label]]} mean {'DSC' if score == 'dsc' else score}",
        "mask",
        lambda columns: mean_metric(columns.values(label, score)),
        second_test=SIGNED_RANK,
        rules=(f"{label}_empty",),
        has_case_values=True,
    )


def _make_aggregate_metric(
    name: str, title: str, compute: Callable[[MaskColumns], WeightedMetric], *rules: str
) -> Metric:
    return Metric(name, title, "mask", compute, rules=rules)


def _make_dsc_agg_metric(name: str, title: str, compute: Callable[[MaskColumns], WeightedMetric]) -> Metric:
    return Metric(name, title, "mask", compute, has_tau=True, rules=("volume_unit",))


def _make_volume_metrics(key: str, title: str, plus: str, minus: str = "") -> list[Metric]:
    """Make the metric of each label's mean volume: the volume `plus`, less the volume `minus`."""
    return [
        Metric(
            f"{label}_{key}_mean_ml",
            f"{labels.NAMES[LABELS[label]]} mean {title} (ml)",
            "mask",
            partial(MaskColumns.volume_mean, label=label, plus=plus, minus=minus),
            unit="ml",
            bounds=(-np.inf if minus else 0.0, np.inf),
            best=0.0,
            rules=() if minus else ("connectivity",),
            has_case_values=True,
        )
        for label in LABELS
    ]


_LESION_RULES: Final = ("connectivity", "iou_threshold", "iou_strict", "matching")
MASK_METRICS: tuple[Metric, ...] = (
    _make_mean_metric("gtvp", "dsc"),
    _make_mean_metric("gtvn", "dsc"),
    _make_dsc_agg_metric("gtvn_dsc_agg", "GTVn aggregated DSC", lambda columns: columns.dsc_agg("gtvn")),
    _make_aggregate_metric("gtvn_f1_agg", "GTVn aggregated F1", MaskColumns.lesion_f1, *_LESION_RULES),
    _make_dsc_agg_metric("gtvp_dsc_agg", "GTVp aggregated DSC", lambda columns: columns.dsc_agg("gtvp")),
    _make_dsc_agg_metric("dsc_agg_mean", "Mean of aggregated DSC", MaskColumns.dsc_agg_mean),
    _make_aggregate_metric(
        "gtvn_precision_agg", "GTVn aggregated precision", MaskColumns.lesion_precision, *_LESION_RULES
    ),
    _make_aggregate_metric("gtvn_recall_agg", "GTVn aggregated recall", MaskColumns.lesion_recall, *_LESION_RULES),
    _make_mean_metric("gtvp", "precision"),
    _make_mean_metric("gtvp", "recall"),
    _make_aggregate_metric("gtvp_f1", "GTVp F1", MaskColumns.gtvp_f1, "gtvp_empty"),
    *_make_volume_metrics("fp_volume", "false-positive volume", "false_positive"),
    *_make_volume_metrics("fn_volume", "false-negative volume", "false_negative"),
    *_make_volume_metrics("volume_bias", "volume bias", "predicted", "reference"),
)


def list_mask_metrics(surfaces: str) -> tuple[Metric, ...]:
    """Return every metric of masks, with the surface metrics of the labels that the rule `surfaces` names."""
    surface_metrics = (
        _make_surface_metric(label, metric) for label in SURFACES_OF[surfaces] for metric in surface.SURFACE_METRICS
    )
    return (*MASK_METRICS, *surface_metrics)


def _make_surface_metric(label: str, metric: surface.SurfaceMetric) -> Metric:
    return Metric(
        f"{label}_{metric.name}",
        f"{labels.NAMES[LABELS[label]]} {metric.title}",
        "mask",
        lambda columns: columns.surface_metric(label, metric),
        unit=metric.unit,
        bounds=metric.bounds,
        best=metric.best,
        second_test="" if metric.unit else SIGNED_RANK,
        # Distances between voxels are discrete, so a bootstrapped median takes only few values and varies too little.
        deciding_test=SIGNED_RANK if metric.unit else "",
        rules=metric.rules,
        has_case_values=True,
    )
