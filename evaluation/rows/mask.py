"""Masks: the row of a case, its form in metrics.json, and the metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np

from contract import labels
from evaluation.inputs.grids import Resampled
from evaluation.metrics import surface
from evaluation.metrics.lesions import FalseVoxels, LesionCounts, f1_agg_metric
from evaluation.metrics.overlap import (
    MM3_PER_ML,
    Floats,
    Overlap,
    WeightedMetric,
    average_metric,
    dsc_agg_metric,
    harmonic_mean_metric,
    mean_metric,
    scores_of_case,
    weighted_ratio,
)
from evaluation.metrics.rules import SIGNED_RANK, SURFACES_OF, MaskRules, Metric

LABELS: Final = {"gtvp": labels.GTVP, "gtvn": labels.GTVN}
LESION_KEYS: Final = ("tp", "fp", "fn")
_NONE_FALSE: Final = FalseVoxels()


@dataclass(frozen=True)
class MaskRow:
    """Sufficient statistics of one case.

    `error` is the reason why there is no usable prediction, None if there is one; every predicted volume is then 0.
    Volumes are in voxels; `voxel_volume_mm3` converts them. `surfaces` holds the labels whose surfaces are measured.
    `gtvn_lesion_voxels` is the size of each GTVn lesion of the reference and `gtvn_lesion_dsc` its DSC with the matched
    lesion, None for a missed one. `gtvp_false` and `gtvn_false` count voxels of components that the other mask does not
    touch. `resampled` and `common_otherwise` (voxels in common after a change of a poor mask, by the change) are not
    in metrics.json, whose warnings tell them.
    """

    case: str
    voxel_volume_mm3: float
    gtvp: Overlap
    gtvn: Overlap
    gtvn_lesions: LesionCounts
    gtvp_dsc: float | None
    error: str | None = None
    failed: bool = False
    gtvp_precision: float | None = None
    gtvp_recall: float | None = None
    surfaces: Mapping[str, surface.SurfaceRow] = field(default_factory=dict)
    gtvn_dsc: float | None = None
    gtvn_lesion_voxels: tuple[int, ...] = ()
    gtvn_lesion_dsc: tuple[float | None, ...] = ()
    gtvp_false: FalseVoxels = _NONE_FALSE
    gtvn_false: FalseVoxels = _NONE_FALSE
    resampled: Resampled | None = None
    common_otherwise: Mapping[str, int] = field(default_factory=dict)

    def with_scores(self, rules: MaskRules) -> MaskRow:
        """The row with the DSC, precision and recall that follow from its counts."""
        without = self.error is not None
        dsc, precision, recall = scores_of_case(self.gtvp, failed=without, rule=rules.gtvp_empty)
        gtvn_dsc = scores_of_case(self.gtvn, failed=without, rule=rules.gtvn_empty).dsc
        return replace(self, gtvp_dsc=dsc, gtvp_precision=precision, gtvp_recall=recall, gtvn_dsc=gtvn_dsc)

    def as_json(self) -> dict[str, Any]:
        """The row for metrics.json, with volumes in voxels and in mm3."""
        flat: dict[str, Any] = {
            "case": self.case,
            "error": self.error,
            "failed": self.failed,
            "voxel_volume_mm3": self.voxel_volume_mm3,
            "gtvp_dsc": self.gtvp_dsc,
            "gtvp_precision": self.gtvp_precision,
            "gtvp_recall": self.gtvp_recall,
            "gtvn_dsc": self.gtvn_dsc,
        }
        of_labels = ("gtvp", self.gtvp, self.gtvp_false), ("gtvn", self.gtvn, self.gtvn_false)
        for name, overlap, false in of_labels:
            for part, voxels in {**vars(overlap), **vars(false)}.items():
                flat[f"{name}_{part}_voxels"] = voxels
                flat[f"{name}_{part}_mm3"] = voxels * self.voxel_volume_mm3
        lesions = zip(LESION_KEYS, vars(self.gtvn_lesions).values(), strict=True)
        flat |= {f"gtvn_lesions_{key}": count for key, count in lesions}
        flat |= {"gtvn_lesion_voxels": list(self.gtvn_lesion_voxels), "gtvn_lesion_dsc": list(self.gtvn_lesion_dsc)}
        for name, row in self.surfaces.items():
            flat |= row.as_json(name)
        return flat


@dataclass(frozen=True)
class CaseValue:
    """A value of one case for tables of cases: its key in the rows of metrics.json, and how to show it.

    `higher_is_better` is None for a property of the case itself.
    """

    key: str
    title: str
    higher_is_better: bool | None
    digits: int


CASE_VALUES: Final = (
    CaseValue("gtvp_dsc", "GTVp DSC", higher_is_better=True, digits=3),
    CaseValue("gtvn_dsc", "GTVn DSC", higher_is_better=True, digits=3),
    CaseValue("gtvp_hd95_mm", "GTVp HD95 (mm)", higher_is_better=False, digits=1),
    CaseValue("gtvn_hd95_mm", "GTVn HD95 (mm)", higher_is_better=False, digits=1),
    CaseValue("gtvn_lesions_fn", "GTVn lesions missed", higher_is_better=False, digits=0),
    CaseValue("gtvn_lesions_fp", "GTVn lesions false", higher_is_better=False, digits=0),
)


# Metrics


@dataclass(frozen=True)
class MaskColumns:
    """The rows of a cohort as columns, shape (cases,), under the rules of an evaluation."""

    rows: Sequence[MaskRow]
    rules: MaskRules

    def values(self, name: str) -> Floats:
        """A value of each row, NaN for a case that does not count."""
        return column(getattr(row, name) for row in self.rows)

    def counts(self, part: str) -> Floats:
        """The three counts of an overlap or of lesions, shape (3, cases)."""
        counts = [tuple(vars(getattr(row, part)).values()) for row in self.rows]
        return np.array(counts, dtype=np.float64).reshape(-1, 3).T.copy()

    def dsc_agg(self, label: str) -> WeightedMetric:
        in_mm3 = self.rules.volume_unit == "mm3"
        unit = np.array([row.voxel_volume_mm3 if in_mm3 else 1.0 for row in self.rows])
        intersections, references, predictions = self.counts(label)
        return dsc_agg_metric(intersections * unit, references * unit, predictions * unit)

    def lesion_ratio(self, other: int) -> WeightedMetric:
        """Detected lesions by these and the false (`other` 1) or missed (2) ones."""
        counts = self.counts("gtvn_lesions")
        return lambda weights: weighted_ratio(weights, counts[0], counts[0] + counts[other])

    def lesion_f1(self) -> WeightedMetric:
        return f1_agg_metric(*self.counts("gtvn_lesions"))

    def dsc_agg_mean(self) -> WeightedMetric:
        return average_metric(*map(self.dsc_agg, LABELS))

    def gtvp_f1(self) -> WeightedMetric:
        return harmonic_mean_metric(*(mean_metric(self.values(f"gtvp_{part}")) for part in ("precision", "recall")))

    def volume_mean(self, label: str, of: Callable[[Overlap, FalseVoxels], int]) -> WeightedMetric:
        """The mean over cases of a number of voxels of a label, in ml."""
        voxels = [of(getattr(row, label), getattr(row, f"{label}_false")) for row in self.rows]
        ml = [count * row.voxel_volume_mm3 / MM3_PER_ML for count, row in zip(voxels, self.rows, strict=True)]
        return mean_metric(np.array(ml, dtype=np.float64))

    def surface_metric(self, label: str, metric: surface.SurfaceMetric) -> WeightedMetric:
        return metric.over_cases(column(row.surfaces[label].values[metric.key] for row in self.rows))


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


def _volume(key: str, title: str, of: Callable[[Overlap, FalseVoxels], int], low: float = 0.0) -> list[Metric]:
    return [
        Metric(
            f"{label}_{key}_mean_ml",
            f"{labels.NAMES[LABELS[label]]} mean {title} (ml)",
            "mask",
            partial(MaskColumns.volume_mean, label=label, of=of),
            unit="ml",
            bounds=(low, np.inf),
            best=0.0,
            rules=() if low else ("connectivity",),
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
    *_volume("fp_volume", "false-positive volume", lambda _, false: false.false_positive),
    *_volume("fn_volume", "false-negative volume", lambda _, false: false.false_negative),
    *_volume("volume_bias", "volume bias", lambda overlap, _: overlap.predicted - overlap.reference, low=-np.inf),
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
