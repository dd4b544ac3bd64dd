"""The row of one case of masks with the counts and scores of each label, and the columns of a cohort of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Self, TypeAlias

import numpy as np
from pydantic import Field, InstanceOf, model_validator

from contract.documents import Document
from contract.images.volumes import MAX_VOXELS
from evaluation.inputs.grids import Resampling
from evaluation.metrics import surface as surfaces
from evaluation.metrics.lesions import ComparedLesions, FalseVoxels
from evaluation.metrics.masks import LABELS, LabelColumns, MaskColumns
from evaluation.metrics.overlap import Floats, Overlap, score_overlap
from evaluation.metrics.surface import LOST, State, SurfaceValues
from evaluation.rows.scorer import ScoredRow

VoxelCount: TypeAlias = Annotated[int, Field(ge=0, le=MAX_VOXELS)]
Fraction: TypeAlias = Annotated[float, Field(ge=0, le=1)]
NonNegative: TypeAlias = Annotated[float, Field(ge=0)]


class LesionPair(Document):
    """A pair of lesions that overlap, and its IoU; lesions are numbered from 0 in the order of their first voxels."""

    reference: VoxelCount
    predicted: VoxelCount
    iou: Annotated[float, Field(gt=0, le=1)]


class LesionRow(Document):
    """Lesions of one label, matched by the rules of the evaluation.

    Attributes:
        tp: Detected lesions.
        fp: False lesions.
        fn: Missed lesions.
        reference_voxels: Size of each reference lesion.
        predicted_voxels: Size of each predicted lesion.
        dsc: DSC of each reference lesion with its match, None for a missed one.
        pairs: Every pair of a reference and a predicted lesion that overlap, matched or not.
    """

    tp: VoxelCount
    fp: VoxelCount
    fn: VoxelCount
    reference_voxels: list[VoxelCount]
    predicted_voxels: list[VoxelCount]
    dsc: list[Fraction | None]
    pairs: list[LesionPair]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.reference_voxels) != len(self.dsc):
            raise ValueError("as many sizes as DSCs of lesions")
        sizes = len(self.reference_voxels), len(self.predicted_voxels)
        for pair in self.pairs:
            if pair.reference >= sizes[0] or pair.predicted >= sizes[1]:
                raise ValueError("pairs of lesions whose sizes are listed")
        return self


class SurfaceRow(Document):
    """Surfaces of one label: `state` of the comparison, and the value of each `SurfaceMetric` by its key.

    JSON has no infinity. So a value is null if both masks are empty, and also if a distance is infinite because one
    mask is empty or there is no prediction. `state` distinguishes these cases.
    """

    state: State
    values: dict[str, NonNegative | None]

    @model_validator(mode="after")
    def _check(self) -> Self:
        maxima = {metric.key: metric.bounds[1] for metric in surfaces.SURFACE_METRICS}
        if self.values.keys() != maxima.keys():
            raise ValueError(f"a value for each of {', '.join(maxima)}")
        for key, value in self.values.items():
            if value is not None and value > maxima[key]:
                raise ValueError(f"{key} of at most {maxima[key]:g}")
        return self

    @classmethod
    def from_values(cls, surface: SurfaceValues) -> Self:
        """Create the row from measured values, which may be infinite."""
        finite = {
            key: value if value is not None and np.isfinite(value) else None for key, value in surface.values.items()
        }
        return cls(state=surface.state, values=finite)

    def value(self, key: str) -> float | None:
        """Return a value; the worst value if one mask is empty or there is no prediction."""
        if self.state in LOST:
            return next(metric.worst for metric in surfaces.SURFACE_METRICS if metric.key == key)
        return self.values[key]


class LabelRow(Document):
    """Comparison of one label in one case; `dsc`, `precision` and `recall` are None if the case does not count.

    `false_positive_voxels` and `false_negative_voxels` count the voxels of components that the other mask does not
    touch.
    """

    dsc: Fraction | None
    precision: Fraction | None
    recall: Fraction | None
    intersection_voxels: VoxelCount
    reference_voxels: VoxelCount
    predicted_voxels: VoxelCount
    false_positive_voxels: VoxelCount
    false_negative_voxels: VoxelCount
    lesions: LesionRow | None = None
    surface: SurfaceRow | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.intersection_voxels > min(self.reference_voxels, self.predicted_voxels):
            raise ValueError("at most the voxels of either mask in the intersection")
        return self

    @property
    def overlap(self) -> Overlap:
        """The voxel counts."""
        return Overlap(self.intersection_voxels, self.reference_voxels, self.predicted_voxels)


class MaskRow(ScoredRow):
    """Sufficient statistics of one case.

    If there is no usable prediction, every predicted volume is 0. `resampled` and `overlap_after_change` (voxels with
    the right label after each change of a poor mask) are not stored in metrics.json: its warnings report them.
    """

    # No image has other voxels; the sums of more extreme volumes would leave the range of a double.
    voxel_volume_mm3: Annotated[float, Field(ge=1e-100, le=1e100)]
    gtvp: LabelRow
    gtvn: LabelRow
    resampled: InstanceOf[Resampling] | None = Field(default=None, exclude=True)
    overlap_after_change: dict[str, int] = Field(default_factory=dict, exclude=True)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.error is not None and (self.gtvp.predicted_voxels or self.gtvn.predicted_voxels):
            raise ValueError("no predicted voxel beside an error")
        if self.gtvn.lesions is None:
            raise ValueError("the lesions of GTVn")
        return self

    @property
    def nodes(self) -> LesionRow:
        """The lesions of GTVn."""
        if self.gtvn.lesions is None:
            raise ValueError("a row without lesions of GTVn")
        return self.gtvn.lesions

    def label(self, name: str) -> LabelRow:
        """Return the row of `gtvp` or `gtvn`."""
        row: LabelRow = getattr(self, name)
        return row


@dataclass(frozen=True)
class ComparedLabel:
    """Comparison of one label of two masks.

    Attributes:
        overlap: Voxel counts.
        false: Voxels of components that the other mask does not touch.
        empty_rule: Rule that decides about an empty reference.
        lesions: Comparison of the lesions; None if the rules do not compare them for this label.
        surface: Comparison of the surfaces; None if the rules do not compare them for this label.
    """

    overlap: Overlap
    false: FalseVoxels
    empty_rule: str
    lesions: ComparedLesions | None = None
    surface: SurfaceValues | None = None

    def make_row(self, *, failed: bool) -> LabelRow:
        """Make the row of the label; `failed` means that there is no usable prediction."""
        dsc, precision, recall = score_overlap(self.overlap, failed=failed, rule=self.empty_rule)
        return LabelRow(
            dsc=dsc,
            precision=precision,
            recall=recall,
            intersection_voxels=self.overlap.intersection,
            reference_voxels=self.overlap.reference,
            predicted_voxels=self.overlap.predicted,
            false_positive_voxels=self.false.false_positive,
            false_negative_voxels=self.false.false_negative,
            lesions=None if self.lesions is None else _make_lesion_row(self.lesions),
            surface=None if self.surface is None else SurfaceRow.from_values(self.surface),
        )


def make_mask_row(
    case: str, voxel_volume_mm3: float, gtvp: ComparedLabel, gtvn: ComparedLabel, error: str | None = None
) -> MaskRow:
    """Make the row of a case from the comparison of both labels; `error` is the reason if there is no prediction."""
    failed = error is not None
    return MaskRow(
        case=case,
        error=error,
        voxel_volume_mm3=voxel_volume_mm3,
        gtvp=gtvp.make_row(failed=failed),
        gtvn=gtvn.make_row(failed=failed),
    )


def _make_lesion_row(lesions: ComparedLesions) -> LesionRow:
    return LesionRow(
        tp=lesions.counts.true_positives,
        fp=lesions.counts.false_positives,
        fn=lesions.counts.false_negatives,
        reference_voxels=list(lesions.reference_voxels),
        predicted_voxels=list(lesions.predicted_voxels),
        dsc=list(lesions.dsc),
        pairs=[LesionPair(reference=pair[0], predicted=pair[1], iou=iou) for pair, iou in lesions.iou_of.items()],
    )


def make_columns(rows: Sequence[MaskRow], volume_unit: str) -> MaskColumns:
    """Make the columns of a cohort of rows; the aggregated DSC sums volumes in `volume_unit`, `mm3` or `voxels`."""
    return MaskColumns(
        cases=tuple(row.case for row in rows),
        voxel_volume_mm3=np.array([row.voxel_volume_mm3 for row in rows], dtype=np.float64),
        labels={name: _make_label_columns([row.label(name) for row in rows]) for name in LABELS},
        volume_unit=volume_unit,
    )


def _make_label_columns(rows: Sequence[LabelRow]) -> LabelColumns:
    lesions = [row.lesions for row in rows if row.lesions is not None]
    surface_rows = [row.surface for row in rows if row.surface is not None]
    has_lesions, has_surfaces = len(lesions) == len(rows), len(surface_rows) == len(rows)
    return LabelColumns(
        dsc=_column([row.dsc for row in rows]),
        precision=_column([row.precision for row in rows]),
        recall=_column([row.recall for row in rows]),
        intersection=_column([row.intersection_voxels for row in rows]),
        reference=_column([row.reference_voxels for row in rows]),
        predicted=_column([row.predicted_voxels for row in rows]),
        false_positive=_column([row.false_positive_voxels for row in rows]),
        false_negative=_column([row.false_negative_voxels for row in rows]),
        tp=_column([row.tp for row in lesions]) if has_lesions else None,
        fp=_column([row.fp for row in lesions]) if has_lesions else None,
        fn=_column([row.fn for row in lesions]) if has_lesions else None,
        surfaces={
            metric.key: _column([row.value(metric.key) for row in surface_rows]) for metric in surfaces.SURFACE_METRICS
        }
        if has_surfaces
        else {},
    )


def _column(values: Sequence[float | None]) -> Floats:
    """Return values of cases as an array, NaN for None."""
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def flatten_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of masks as stored in metrics.json with one level of keys, such as `gtvp_dsc` and `gtvn_lesions_tp`.

    Volumes in mm3 are added to the voxel counts of the labels. Rows of risks and classes are returned as they are.
    """
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if key not in LABELS or not isinstance(value, Mapping):
            flat[key] = value
            continue
        for part, content in value.items():
            if part == "lesions" and content is not None:
                flat |= {f"{key}_lesions_{name}": figure for name, figure in content.items()}
            elif part == "surface" and content is not None:
                flat |= {f"{key}_surface": content["state"]}
                flat |= {f"{key}_{name}": figure for name, figure in content["values"].items()}
            elif part not in ("lesions", "surface"):
                flat[f"{key}_{part}"] = content
                if part.endswith("_voxels"):
                    flat[f"{key}_{part.removesuffix('voxels')}mm3"] = content * row["voxel_volume_mm3"]
    return flat


@dataclass(frozen=True)
class CaseValue:
    """A value of one case for tables of cases: its name in `flatten_row`, and how to show it.

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
