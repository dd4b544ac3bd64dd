"""The row of one case of masks with the counts and scores of each label, and the columns of a cohort of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import le
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Self, TypeAlias

import numpy as np
from pydantic import Field, InstanceOf

from contract.images.volumes import MAX_VOXELS
from evaluation.inputs.grids import Resampling
from evaluation.metrics import surface as surfaces
from evaluation.metrics.lesions import ComparedLesions, FalseVoxels
from evaluation.metrics.masks import LABELS, LabelColumns, MaskColumns
from evaluation.metrics.overlap import Floats, Overlap, score_overlap
from evaluation.metrics.surface import LOST, State, SurfaceValues
from evaluation.rows.scorer import ScoredRow
from evaluation.rows.table import RowPart, RowRule, RowTable

VoxelCount: TypeAlias = Annotated[int, Field(ge=0, le=MAX_VOXELS)]
Fraction: TypeAlias = Annotated[float, Field(ge=0, le=1)]
NonNegative: TypeAlias = Annotated[float, Field(ge=0)]


class LesionPair(RowPart):
    """A pair of lesions that overlap, and its IoU; lesions are numbered from 0 in the order of their first voxels."""

    reference: VoxelCount
    predicted: VoxelCount
    iou: Annotated[float, Field(gt=0, le=1)]

    def __getitem__(self, name: str) -> Any:
        """Return a field, so that a rule reads this object and a pair in JSON alike."""
        return getattr(self, name)


def _are_listed(
    pairs_of_rows: Sequence[Sequence[Any]], references: Sequence[Sequence[int]], predictions: Sequence[Sequence[int]]
) -> bool:
    """Return whether the sizes of both lesions of each pair are listed."""
    return all(
        pair["reference"] < len(reference) and pair["predicted"] < len(predicted)
        for pairs, reference, predicted in zip(pairs_of_rows, references, predictions, strict=True)
        for pair in pairs
    )


class LesionRow(RowPart):
    """Lesions of one label, matched by the rules of the evaluation.

    Attributes:
        tp: Detected lesions.
        fp: False-positive lesions.
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

    RULES: ClassVar[tuple[RowRule, ...]] = (
        RowRule(
            ("reference_voxels", "dsc"),
            lambda sizes, scores: list(map(len, sizes)) == list(map(len, scores)),
            "as many sizes as DSCs of lesions",
        ),
        RowRule(
            ("pairs", "reference_voxels", "predicted_voxels"), _are_listed, "pairs of lesions whose sizes are listed"
        ),
    )


_SURFACE_BOUNDS: Final = {metric.key: metric.bounds[1] for metric in surfaces.SURFACE_METRICS}


def _make_surface_rule(key: str, largest: float) -> RowRule:
    return RowRule(
        ("values",),
        lambda rows: all(values[key] is None or values[key] <= largest for values in rows),
        f"{key} of at most {largest:g}",
    )


def _have_declared_keys(rows: Sequence[Mapping[str, float | None]]) -> bool:
    """Return whether each row has a value of each surface metric that is declared when the row is checked."""
    keys = {metric.key for metric in surfaces.SURFACE_METRICS}
    return all(values.keys() == keys for values in rows)


class SurfaceRow(RowPart):
    """Surfaces of one label: `state` of the comparison, and the value of each `SurfaceMetric` by its key.

    JSON has no infinity. So a value is null if both masks are empty, and also if a distance is infinite because one
    mask is empty or there is no prediction. `state` distinguishes these cases.
    """

    state: State
    values: dict[str, NonNegative | None]

    RULES: ClassVar[tuple[RowRule, ...]] = (
        RowRule(
            ("values",),
            _have_declared_keys,
            f"a value for each of {', '.join(_SURFACE_BOUNDS)}",
        ),
        *(_make_surface_rule(key, largest) for key, largest in _SURFACE_BOUNDS.items()),
    )

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


class LabelRow(RowPart):
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

    RULES: ClassVar[tuple[RowRule, ...]] = (
        RowRule(
            ("intersection_voxels", "reference_voxels", "predicted_voxels"),
            lambda intersections, references, predictions: all(
                map(le, intersections, map(min, references, predictions))
            ),
            "at most the voxels of either mask in the intersection",
        ),
    )


class MaskRow(ScoredRow):
    """Sufficient statistics of one case.

    If there is no usable prediction, every predicted volume is 0. `resampled` and `overlap_after_change` (voxels with
    the right label after each change of a poor mask) are not stored in metrics.json: its warnings report them.
    """

    # Every real image has such voxels, and sums of more extreme volumes would leave the range of a double.
    voxel_volume_mm3: Annotated[float, Field(ge=1e-100, le=1e100)]
    gtvp: LabelRow
    gtvn: LabelRow
    resampled: InstanceOf[Resampling] | None = Field(default=None, exclude=True)
    overlap_after_change: dict[str, int] = Field(default_factory=dict, exclude=True)

    RULES: ClassVar[tuple[RowRule, ...]] = (
        *ScoredRow.RULES,
        RowRule(
            ("error", "gtvp.predicted_voxels", "gtvn.predicted_voxels"),
            lambda errors, gtvp, gtvn: all(
                error is None or volumes == (0, 0)
                for error, volumes in zip(errors, zip(gtvp, gtvn, strict=True), strict=True)
            ),
            "no predicted voxel in a row with an error",
        ),
        RowRule(("gtvn.lesions",), lambda lesions: None not in lesions, "the lesions of GTVn"),
    )

    @property
    def nodes(self) -> LesionRow:
        """The lesions of GTVn."""
        if self.gtvn.lesions is None:
            raise ValueError("a row without lesions of GTVn")
        return self.gtvn.lesions


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


def make_columns(table: RowTable, volume_unit: str) -> MaskColumns:
    """Make the columns of a cohort of rows; the aggregated DSC sums volumes in `volume_unit`, `mm3` or `voxels`."""
    return MaskColumns(
        cases=tuple(table.cases),
        voxel_volume_mm3=table.numbers("voxel_volume_mm3"),
        labels={name: _make_label_columns(table, name) for name in LABELS},
        volume_unit=volume_unit,
    )


def _make_label_columns(table: RowTable, label: str) -> LabelColumns:
    has_lesions = None not in table.columns[f"{label}.lesions"]
    has_surfaces = None not in table.columns[f"{label}.surface"]
    return LabelColumns(
        dsc=table.numbers(f"{label}.dsc"),
        precision=table.numbers(f"{label}.precision"),
        recall=table.numbers(f"{label}.recall"),
        intersection=table.numbers(f"{label}.intersection_voxels"),
        reference=table.numbers(f"{label}.reference_voxels"),
        predicted=table.numbers(f"{label}.predicted_voxels"),
        false_positive=table.numbers(f"{label}.false_positive_voxels"),
        false_negative=table.numbers(f"{label}.false_negative_voxels"),
        tp=table.numbers(f"{label}.lesions.tp") if has_lesions else None,
        fp=table.numbers(f"{label}.lesions.fp") if has_lesions else None,
        fn=table.numbers(f"{label}.lesions.fn") if has_lesions else None,
        surfaces=_make_surface_columns(table, label) if has_surfaces else {},
    )


def _make_surface_columns(table: RowTable, label: str) -> dict[str, Floats]:
    """Return the values of a label's surfaces; the worst value if one mask is empty or there is no prediction."""
    is_lost = np.array([state in LOST for state in table.columns[f"{label}.surface.state"]], dtype=np.bool_)
    values = table.columns[f"{label}.surface.values"]
    return {
        metric.key: np.where(is_lost, metric.worst, np.array([value[metric.key] for value in values], dtype=np.float64))
        for metric in surfaces.SURFACE_METRICS
    }


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
            if part == "lesions":
                for name, figure in (content or {}).items():
                    flat[_name_figure(key, name, "lesions_").key] = figure
            elif part == "surface":
                if content is not None:
                    flat[_name_figure(key, part).key] = content["state"]
                    for name, figure in content["values"].items():
                        flat[_name_figure(key, name).key] = figure
            else:
                names = _name_figure(key, part)
                flat[names.key] = content
                if names.volume_key:
                    flat[names.volume_key] = content * row["voxel_volume_mm3"]
    return flat


class _FigureNames(NamedTuple):
    """Keys of a figure of a label and of its volume in mm3, which is empty for other figures than voxel counts."""

    key: str
    volume_key: str


@cache
def _name_figure(label: str, name: str, prefix: str = "") -> _FigureNames:
    """Return the keys of a figure in flat rows; they are cached, since formatting them would take most of the time."""
    key = f"{label}_{prefix}{name}"
    is_volume = name.endswith("_voxels") and not prefix
    return _FigureNames(key, f"{key.removesuffix('voxels')}mm3" if is_volume else "")


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
    CaseValue("gtvn_lesions_fn", "GTVn missed lesions", higher_is_better=False, digits=0),
    CaseValue("gtvn_lesions_fp", "GTVn false-positive lesions", higher_is_better=False, digits=0),
)
