"""One pair of masks becomes one small row, from which every figure of the segmentation task is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from contract import labels
from contract.errors import GroundTruthError, PredictionError
from contract.images.geometry import Geometry
from contract.sockets import MASK
from evaluation.editions.edge_cases import dsc_of_case, precision_of_case, recall_of_case
from evaluation.editions.rules import SURFACES_OF, SegmentationRules
from evaluation.inputs.masks import BoundingBox, read_labels, read_prediction
from evaluation.inputs.submission import Answer, answer_file
from evaluation.metrics.lesions import LesionCounts, count_lesions
from evaluation.metrics.overlap import Box, Overlap, count_overlaps, foreground_box
from evaluation.metrics.surface import WITHOUT_PREDICTION, SurfaceRow, compare_surfaces

N_LABELS: Final = 1 + len(labels.FOREGROUND)
_LABEL_OF: Final = {"gtvp": labels.GTVP, "gtvn": labels.GTVN}

Labels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class SegmentationRow:
    """Sufficient statistics of one case.

    `error` says why there is no usable prediction, None otherwise; everything predicted is then 0. Volumes are
    in voxels, `voxel_volume_mm3` turns them into mm3. `surfaces` holds the labels whose surfaces were asked for.
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

    @property
    def reference(self) -> tuple[object, ...]:
        """The reference's part of the row: size of a voxel, voxels of each label."""
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
        }
        for name, overlap in (("gtvp", self.gtvp), ("gtvn", self.gtvn)):
            for part in ("intersection", "reference", "predicted"):
                voxels = getattr(overlap, part)
                flat[f"{name}_{part}_voxels"] = voxels
                flat[f"{name}_{part}_mm3"] = voxels * self.voxel_volume_mm3
        flat["gtvn_lesions_tp"] = self.gtvn_lesions.true_positives
        flat["gtvn_lesions_fp"] = self.gtvn_lesions.false_positives
        flat["gtvn_lesions_fn"] = self.gtvn_lesions.false_negatives
        for name, surface in self.surfaces.items():
            flat |= surface.as_json(name)
        return flat

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> SegmentationRow:
        """The row that `as_json` wrote. Raises KeyError where it lacks a figure."""
        parts = ("intersection", "reference", "predicted")
        overlaps = {name: Overlap(*(int(raw[f"{name}_{part}_voxels"]) for part in parts)) for name in _LABEL_OF}
        return cls(
            case=raw["case"],
            voxel_volume_mm3=raw["voxel_volume_mm3"],
            gtvp=overlaps["gtvp"],
            gtvn=overlaps["gtvn"],
            gtvn_lesions=LesionCounts(*(int(raw[f"gtvn_lesions_{part}"]) for part in ("tp", "fp", "fn"))),
            gtvp_dsc=raw["gtvp_dsc"],
            error=raw["error"],
            failed=raw["failed"],
            gtvp_precision=raw["gtvp_precision"],
            gtvp_recall=raw["gtvp_recall"],
            surfaces={name: SurfaceRow.from_json(name, raw) for name in _LABEL_OF if f"{name}_surface" in raw},
        )


@dataclass(frozen=True)
class MaskPair:
    """A reference mask and the answer to it; with a box, both are looked at inside it only."""

    reference: Path
    answer: Answer
    rules: SegmentationRules
    box: BoundingBox | None = None


def score_masks(pair: MaskPair) -> SegmentationRow:
    """Compare a prediction with its reference on the reference's grid.

    A prediction that is absent, unreadable, on another grid (unless the rules resample it) or with a value besides
    0, 1 and 2 gives a row with the reference's voxels and lesions alone, and the reason.

    Raises:
        GroundTruthError: the reference itself cannot be used, or nothing of it lies in the box.
    """
    reference = read_labels(pair.reference, GroundTruthError)
    region = pair.box.region(reference.geometry) if pair.box else (slice(None), slice(None), slice(None))
    mine = reference.array[region]
    if mine.size == 0:
        raise GroundTruthError(f"bounding box of {pair.answer.case}", "lies beside the image", "one inside it")
    try:
        path = answer_file(pair.answer, MASK)
        predicted = read_prediction(path, reference.geometry, pair.rules.geometry)[region]
    except PredictionError as problem:
        return _row(pair, reference.geometry, *_compact(mine, mine), problem.message)
    return _row(pair, reference.geometry, *_compact(mine, predicted), None)


def _compact(reference: npt.NDArray[Any], predicted: npt.NDArray[Any]) -> tuple[Labels, Labels]:
    """Both masks cut to what they hold, one byte a voxel."""
    box: Box = foreground_box(reference, predicted)
    return reference[box].astype(np.uint8), predicted[box].astype(np.uint8)


def _row(pair: MaskPair, grid: Geometry, mine: Labels, theirs: Labels, error: str | None) -> SegmentationRow:
    failed = error is not None
    if failed:
        theirs = np.zeros_like(mine)
    overlaps = count_overlaps(mine, theirs, N_LABELS)
    gtvp = overlaps[labels.GTVP]
    dsc, precision, recall = (
        of_case(gtvp.intersection, gtvp.reference, gtvp.predicted, failed=failed, rule=pair.rules.gtvp_empty)
        for of_case in (dsc_of_case, precision_of_case, recall_of_case)
    )
    return SegmentationRow(
        case=pair.answer.case,
        voxel_volume_mm3=grid.voxel_volume_mm3,
        gtvp=gtvp,
        gtvn=overlaps[labels.GTVN],
        gtvn_lesions=count_lesions(mine == labels.GTVN, theirs == labels.GTVN, pair.rules),
        gtvp_dsc=dsc,
        error=error,
        failed=failed and pair.answer.tried,
        gtvp_precision=precision,
        gtvp_recall=recall,
        surfaces={
            name: WITHOUT_PREDICTION
            if failed
            else compare_surfaces(mine == _LABEL_OF[name], theirs == _LABEL_OF[name], grid.array_spacing_mm, pair.rules)
            for name in SURFACES_OF[pair.rules.surfaces]
        },
    )
