"""Masks: the row of a case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final, Self, TypeAlias

from pydantic import Field, InstanceOf, create_model, model_validator

from contract.images.volumes import MAX_VOXELS
from evaluation.inputs.grids import Resampled
from evaluation.metrics import surface
from evaluation.metrics.lesions import ComparedLesions, FalseVoxels, LesionCounts
from evaluation.metrics.masks import LABELS, LESION_KEYS, PARTS
from evaluation.metrics.overlap import Overlap, scores_of_case
from evaluation.metrics.rules import SURFACES_OF, MaskRules
from evaluation.rows.scorer import ScoredRow

Voxels: TypeAlias = Annotated[int, Field(ge=0, le=MAX_VOXELS)]
AtLeastZero: TypeAlias = Annotated[float, Field(ge=0)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]


class MaskRow(ScoredRow):
    """Sufficient statistics of one case.

    Without a usable prediction every predicted volume is 0. `false_positive` and `false_negative` count the voxels of
    components that the other mask does not touch. `gtvn_lesion_voxels` is the size of each GTVn lesion of the reference
    and `gtvn_lesion_dsc` its DSC with the matched lesion, None for a missed one. `resampled` and `changed_overlaps`
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
    changed_overlaps: dict[str, int] = Field(default_factory=dict, exclude=True)

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
