"""Compare a reference mask with a predicted one: a small row, from which every metric of masks is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from contract import labels
from contract.errors import GroundTruthError, PredictionError
from evaluation.editions.edge_cases import dsc_of_case, scores_of_case
from evaluation.editions.rules import SURFACES_OF, MaskRules
from evaluation.inputs.masks import BoundingBox, read_labels, read_prediction
from evaluation.inputs.submission import SubmittedAnswer, answer_file
from evaluation.metrics.lesions import LesionCounts, compare_lesions
from evaluation.metrics.overlap import Box, Overlap, count_overlaps, foreground_box
from evaluation.metrics.surface import WITHOUT_PREDICTION, Spacing, SurfaceRow, compare_surfaces

N_LABELS: Final = 1 + len(labels.FOREGROUND)
_LABEL_OF: Final = {"gtvp": labels.GTVP, "gtvn": labels.GTVN}
_LESION_KEYS: Final = ("tp", "fp", "fn")
_LESION_LISTS: Final = ("gtvn_lesion_voxels", "gtvn_lesion_dsc")

Labels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class MaskRow:
    """Sufficient statistics of one case.

    `error` is the reason why there is no usable prediction, None if there is one; every predicted volume is then 0.
    Volumes are in voxels; `voxel_volume_mm3` converts them. `surfaces` holds the labels whose surfaces are measured.
    `gtvn_lesion_voxels` is the size of each GTVn lesion of the reference and `gtvn_lesion_dsc` its DSC with the matched
    lesion, None for a missed one; both are None in rows of older files.
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
    surfaces: Mapping[str, SurfaceRow] = field(default_factory=dict)
    gtvn_dsc: float | None = None
    gtvn_lesion_voxels: tuple[int, ...] | None = None
    gtvn_lesion_dsc: tuple[float | None, ...] | None = None

    @property
    def reference(self) -> tuple[object, ...]:
        """Volume of a voxel, and voxels of each label."""
        return self.voxel_volume_mm3, self.gtvp.reference, self.gtvn.reference

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
        for name, overlap in (("gtvp", self.gtvp), ("gtvn", self.gtvn)):
            for part, voxels in asdict(overlap).items():
                flat[f"{name}_{part}_voxels"] = voxels
                flat[f"{name}_{part}_mm3"] = voxels * self.voxel_volume_mm3
        lesions = zip(_LESION_KEYS, astuple(self.gtvn_lesions), strict=True)
        flat |= {f"gtvn_lesions_{key}": count for key, count in lesions}
        if self.gtvn_lesion_voxels is not None and self.gtvn_lesion_dsc is not None:
            flat |= {"gtvn_lesion_voxels": list(self.gtvn_lesion_voxels), "gtvn_lesion_dsc": list(self.gtvn_lesion_dsc)}
        for name, surface in self.surfaces.items():
            flat |= surface.as_json(name)
        return flat

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> MaskRow:
        """The row that `as_json` wrote.

        Raises KeyError if it lacks a figure, ValueError if its lists of lesions contradict its counts.
        """
        parts = [part.name for part in fields(Overlap)]
        voxels, dsc = _lesion_lists(raw)
        overlaps = {name: Overlap(*(int(raw[f"{name}_{part}_voxels"]) for part in parts)) for name in _LABEL_OF}
        return cls(
            case=raw["case"],
            voxel_volume_mm3=raw["voxel_volume_mm3"],
            gtvp=overlaps["gtvp"],
            gtvn=overlaps["gtvn"],
            gtvn_lesions=LesionCounts(*(int(raw[f"gtvn_lesions_{part}"]) for part in _LESION_KEYS)),
            gtvp_dsc=raw["gtvp_dsc"],
            error=raw["error"],
            failed=raw["failed"],
            gtvp_precision=raw["gtvp_precision"],
            gtvp_recall=raw["gtvp_recall"],
            gtvn_dsc=raw.get("gtvn_dsc"),  # absent in older files
            gtvn_lesion_voxels=voxels,
            gtvn_lesion_dsc=dsc,
            surfaces={name: SurfaceRow.from_json(name, raw) for name in _LABEL_OF if f"{name}_surface" in raw},
        )


def _lesion_lists(raw: Mapping[str, Any]) -> tuple[tuple[int, ...] | None, tuple[float | None, ...] | None]:
    """Sizes and DSCs of the reference's lesions; files of older versions lack them."""
    if not all(isinstance(raw.get(key), list) for key in _LESION_LISTS):
        return None, None
    voxels, dsc = (tuple(raw[key]) for key in _LESION_LISTS)
    if len(voxels) != len(dsc) or sum(voxels) != raw["gtvn_reference_voxels"]:
        raise ValueError("sizes of lesions that do not add up to the reference")
    if dsc.count(None) != raw["gtvn_lesions_fn"]:
        raise ValueError("another number of missed lesions than counted")
    return voxels, dsc


@dataclass(frozen=True)
class MaskPair:
    """A reference mask and the submitted one; with a box, both are compared inside it only."""

    reference: Path
    answer: SubmittedAnswer
    rules: MaskRules
    box: BoundingBox | None = None


def compare_pair(pair: MaskPair) -> MaskRow:
    """Compare a prediction with its reference on the reference's grid.

    A prediction that is absent, unreadable, on another grid (unless the rules resample it) or has a value other than
    0, 1 and 2 gives a row with the reference's voxels and lesions alone, and the reason.

    Raises:
        GroundTruthError: the reference cannot be used, or the box lies outside of it.
    """
    reference = read_labels(pair.reference, GroundTruthError)
    region = pair.box.region(reference.geometry) if pair.box else (slice(None), slice(None), slice(None))
    mine = reference.array[region]
    if mine.size == 0:
        raise GroundTruthError(f"bounding box of {pair.answer.case}", "lies beside the image", "one inside it")
    masks = MaskArrays(mine, reference.geometry.voxel_volume_mm3)
    try:
        path = answer_file(pair.answer, is_image=True)
        masks = replace(masks, predicted=read_prediction(path, reference.geometry, pair.rules.geometry)[region])
    except PredictionError as problem:
        masks = replace(masks, error=problem.message, tried=pair.answer.tried)
    return compare_masks(pair.answer.case, masks, reference.geometry.array_spacing_mm, pair.rules)


@dataclass(frozen=True)
class MaskArrays:
    """A reference and a predicted mask of one shape, (z, y, x), with values 0, 1 and 2.

    Without a prediction `error` gives the reason, and `tried` whether anything was submitted.
    """

    reference: npt.NDArray[Any]
    voxel_volume_mm3: float
    predicted: npt.NDArray[Any] | None = None
    error: str | None = None
    tried: bool = False


def compare_masks(case: str, masks: MaskArrays, spacing_mm: Spacing, rules: MaskRules) -> MaskRow:
    """The row of one case; `spacing_mm` holds the distances of voxel centres, (z, y, x)."""
    mine, theirs = _compact(masks)
    failed = masks.error is not None
    overlaps = count_overlaps(mine, theirs, N_LABELS)
    gtvp, gtvn = overlaps[labels.GTVP], overlaps[labels.GTVN]
    lesions = compare_lesions(mine == labels.GTVN, theirs == labels.GTVN, rules)
    dsc, precision, recall = scores_of_case(*_counts(gtvp), failed=failed, rule=rules.gtvp_empty)
    return MaskRow(
        case=case,
        voxel_volume_mm3=masks.voxel_volume_mm3,
        gtvp=gtvp,
        gtvn=gtvn,
        gtvn_lesions=lesions.counts,
        gtvn_lesion_voxels=lesions.voxels,
        gtvn_lesion_dsc=lesions.dsc,
        gtvp_dsc=dsc,
        error=masks.error,
        failed=failed and masks.tried,
        gtvp_precision=precision,
        gtvp_recall=recall,
        gtvn_dsc=dsc_of_case(*_counts(gtvn), failed=failed, rule=rules.gtvn_empty),
        surfaces={
            name: WITHOUT_PREDICTION
            if failed
            else compare_surfaces(mine == _LABEL_OF[name], theirs == _LABEL_OF[name], spacing_mm, rules)
            for name in SURFACES_OF[rules.surfaces]
        },
    )


def _counts(overlap: Overlap) -> tuple[int, int, int]:
    return overlap.intersection, overlap.reference, overlap.predicted


def _compact(masks: MaskArrays) -> tuple[Labels, Labels]:
    """Both masks cut to their foreground, one byte for each voxel; an absent prediction is empty."""
    if masks.predicted is None:
        mine = masks.reference[foreground_box(masks.reference)].astype(np.uint8)
        return mine, np.zeros_like(mine)
    box: Box = foreground_box(masks.reference, masks.predicted)
    return masks.reference[box].astype(np.uint8), masks.predicted[box].astype(np.uint8)
