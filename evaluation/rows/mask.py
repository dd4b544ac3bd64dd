"""Masks: the row of a case, and the metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any, Final, Self, TypeAlias

import numpy as np
from pydantic import Field, InstanceOf, create_model, model_validator

from contract import labels
from contract.images.volumes import MAX_VOXELS
from evaluation.inputs.grids import Resampled
from evaluation.metrics import surface
from evaluation.metrics.lesions import ComparedLesions, FalseVoxels, LesionCounts, f1_agg_metric
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
from evaluation.rows.scorer import ScoredRow

LABELS: Final = {"gtvp": labels.GTVP, "gtvn": labels.GTVN}
PARTS: Final = ("intersection", "reference", "predicted")
LESION_KEYS: Final = ("tp", "fp", "fn")

Voxels: TypeAlias = Annotated[int, Field(ge=0, le=MAX_VOXELS)]
AtLeastZero: TypeAlias = Annotated[float, Field(ge=0)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]


class MaskRow(ScoredRow):
    """Sufficient statistics of one case.

    Without a usable prediction every predicted volume is 0. `false_positive` and `false_negative` count the voxels of
    components that the other mask does not touch. `gtvn_lesion_voxels` is the size of each GTVn lesion of the reference
    and `gtvn_lesion_dsc` its DSC with the matched lesion, None for a missed one. `resampled` and `common_otherwise`
    (voxels in common after a change of a poor mask, by the change) are not in metrics.json, whose warnings tell them.
    """

    # No image has other voxels; the sums of more extreme volumes would leave the range of a double.
    voxel_volume_mm3: Annotated[float, Field(ge=1e-100, le=1e100)]
    gtvp_dsc: Share | None
    gtvp_precision: Share | None
    gtvp_recall: Share | None
    gtvn_dsc: Share | None
    gtvp_intersection_voxels: Voxels
    gtvp_intersection_mm3: AtLeastZero
    gtvp_reference_voxels: Voxels
    gtvp_reference_mm3: AtLeastZero
    gtvp_predicted_voxels: Voxels
    gtvp_predicted_mm3: AtLeastZero
    gtvp_false_positive_voxels: Voxels
    gtvp_false_positive_mm3: AtLeastZero
    gtvp_false_negative_voxels: Voxels
    gtvp_false_negative_mm3: AtLeastZero
    gtvn_intersection_voxels: Voxels
    gtvn_intersection_mm3: AtLeastZero
    gtvn_reference_voxels: Voxels
    gtvn_reference_mm3: AtLeastZero
    gtvn_predicted_voxels: Voxels
    gtvn_predicted_mm3: AtLeastZero
    gtvn_false_positive_voxels: Voxels
    gtvn_false_positive_mm3: AtLeastZero
    gtvn_false_negative_voxels: Voxels
    gtvn_false_negative_mm3: AtLeastZero
    gtvn_lesions_tp: Voxels
    gtvn_lesions_fp: Voxels
    gtvn_lesions_fn: Voxels
    gtvn_lesion_voxels: list[Voxels]
    gtvn_lesion_dsc: list[Share | None]
    resampled: InstanceOf[Resampled] | None = Field(default=None, exclude=True)
    common_otherwise: dict[str, int] = Field(default_factory=dict, exclude=True)

    @model_validator(mode="after")
    def _check(self) -> Self:
        for overlap in (self.gtvp, self.gtvn):
            if overlap.intersection > min(overlap.reference, overlap.predicted):
                raise ValueError("at most the voxels of either mask in the intersection")
            if self.error is not None and overlap.predicted:
                raise ValueError("no predicted voxel beside an error")
        if len(self.gtvn_lesion_voxels) != len(self.gtvn_lesion_dsc):
            raise ValueError("as many sizes as DSCs of lesions")
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # A class that is made at run time has no name by which another process finds it.
        names = tuple(name for name in LABELS if f"{name}_surface" in type(self).model_fields)
        return _unpickled, (names, dict(self))

    def _overlap(self, label: str) -> Overlap:
        return Overlap(*(getattr(self, f"{label}_{part}_voxels") for part in PARTS))

    @property
    def gtvp(self) -> Overlap:
        return self._overlap("gtvp")

    @property
    def gtvn(self) -> Overlap:
        return self._overlap("gtvn")

    @property
    def gtvn_lesions(self) -> LesionCounts:
        return LesionCounts(self.gtvn_lesions_tp, self.gtvn_lesions_fp, self.gtvn_lesions_fn)

    def surface(self, label: str) -> surface.SurfaceRow:
        """The measured surfaces of a label; JSON has no infinity, so that null is the worst distance of a lost one."""
        state = getattr(self, f"{label}_surface")
        values = {metric.key: getattr(self, f"{label}_{metric.key}") for metric in surface.SURFACE_METRICS}
        if state in surface.LOST:
            values = {metric.key: metric.worst for metric in surface.SURFACE_METRICS}
        return surface.SurfaceRow(state, values)


def row_type(surfaces: str) -> type[MaskRow]:
    """The class of the rows under this value of the rule `surfaces`."""
    return _row_type(SURFACES_OF[surfaces], surface.SURFACE_METRICS)


@cache
def _row_type(names: tuple[str, ...], metrics: tuple[surface.SurfaceMetric, ...]) -> type[MaskRow]:
    fields: dict[str, Any] = {}
    for name in names:
        fields[f"{name}_surface"] = (surface.State, ...)
        fields |= {f"{name}_{one.key}": ((AtLeastZero if one.unit else Share) | None, ...) for one in metrics}
    return create_model("MaskRow", __base__=MaskRow, __config__=None, **fields)


def _unpickled(names: tuple[str, ...], values: dict[str, Any]) -> MaskRow:
    return _row_type(names, surface.SURFACE_METRICS).model_construct(**values)


def mask_row(
    case: str,
    voxel_volume_mm3: float,
    overlaps: Mapping[str, Overlap],
    lesions: ComparedLesions,
    gtvp_false: FalseVoxels,
    surfaces: Mapping[str, surface.SurfaceRow],
    rules: MaskRules,
    error: str | None = None,
) -> MaskRow:
    """The row of a case, with volumes in voxels and in mm3, and the DSC, precision and recall of its counts."""
    without = error is not None
    dsc, precision, recall = scores_of_case(overlaps["gtvp"], failed=without, rule=rules.gtvp_empty)
    content: dict[str, Any] = {
        "gtvp_dsc": dsc,
        "gtvp_precision": precision,
        "gtvp_recall": recall,
        "gtvn_dsc": scores_of_case(overlaps["gtvn"], failed=without, rule=rules.gtvn_empty).dsc,
    }
    false = {"gtvp": gtvp_false, "gtvn": lesions.false}
    for name, overlap in overlaps.items():
        for part, voxels in {**vars(overlap), **vars(false[name])}.items():
            content |= {f"{name}_{part}_voxels": voxels, f"{name}_{part}_mm3": voxels * voxel_volume_mm3}
    counts = zip(LESION_KEYS, vars(lesions.counts).values(), strict=True)
    content |= {f"gtvn_lesions_{key}": count for key, count in counts}
    content |= {"gtvn_lesion_voxels": list(lesions.voxels), "gtvn_lesion_dsc": list(lesions.dsc)}
    for name, row in surfaces.items():
        content |= row.as_json(name)
    return row_type(rules.surfaces)(case=case, error=error, voxel_volume_mm3=voxel_volume_mm3, **content)


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


@dataclass(frozen=True)
class MaskColumns:
    """The rows of a cohort as columns, shape (cases,), under the rules of an evaluation."""

    rows: Sequence[MaskRow]
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
