"""One pair of masks becomes one small row, from which every figure of the segmentation task is computed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from contract import labels
from contract.errors import GroundTruthError, HecktorError, PredictionError
from contract.images import Volume, read_header, read_volume
from contract.sockets import MASK
from evaluation.edge_cases import dsc_of_case
from evaluation.edition import SegmentationRules
from evaluation.lesions import LesionCounts, count_lesions
from evaluation.overlap import Overlap, count_overlaps, foreground_box
from evaluation.submission import Answer, answer_file

N_LABELS: Final = 1 + len(labels.FOREGROUND)


@dataclass(frozen=True)
class SegmentationRow:
    """Sufficient statistics of one case.

    `error` says why there is no usable prediction, None otherwise; everything predicted is then 0. Volumes are
    in voxels, `voxel_volume_mm3` turns them into mm3.
    """

    case: str
    voxel_volume_mm3: float
    gtvp: Overlap
    gtvn: Overlap
    gtvn_lesions: LesionCounts
    gtvp_dsc: float | None
    error: str | None = None
    failed: bool = False

    def as_json(self) -> dict[str, Any]:
        """The row for metrics.json, with volumes in voxels and in mm3."""
        flat: dict[str, Any] = {
            "case": self.case,
            "error": self.error,
            "voxel_volume_mm3": self.voxel_volume_mm3,
            "gtvp_dsc": self.gtvp_dsc,
        }
        for name, overlap in (("gtvp", self.gtvp), ("gtvn", self.gtvn)):
            for part in ("intersection", "reference", "predicted"):
                voxels = getattr(overlap, part)
                flat[f"{name}_{part}_voxels"] = voxels
                flat[f"{name}_{part}_mm3"] = voxels * self.voxel_volume_mm3
        flat["gtvn_lesions_tp"] = self.gtvn_lesions.true_positives
        flat["gtvn_lesions_fp"] = self.gtvn_lesions.false_positives
        flat["gtvn_lesions_fn"] = self.gtvn_lesions.false_negatives
        return flat


@dataclass(frozen=True)
class MaskPair:
    """A reference mask and the answer to it."""

    reference: Path
    answer: Answer
    rules: SegmentationRules


def score_masks(pair: MaskPair) -> SegmentationRow:
    """Compare a prediction with its reference on the reference's grid.

    A prediction that is absent, unreadable, on another grid, no integer mask or with a label besides 0, 1 and 2
    gives a row with the reference's voxels and lesions alone, and the reason.

    Raises:
        GroundTruthError: the reference itself cannot be used.
    """
    reference = read_labels(pair.reference, GroundTruthError)
    error = None
    try:
        predicted = _read_prediction(pair.answer, reference)
    except PredictionError as problem:
        error = problem.message
        predicted = np.zeros(reference.array.shape, dtype=np.uint8)
    box = foreground_box(reference.array, predicted)
    mine, theirs = reference.array[box].astype(np.uint8), predicted[box].astype(np.uint8)
    overlaps = count_overlaps(mine, theirs, N_LABELS)
    gtvp = overlaps[labels.GTVP]
    dsc = dsc_of_case(
        gtvp.intersection, gtvp.reference, gtvp.predicted, failed=error is not None, rule=pair.rules.gtvp_empty
    )
    return SegmentationRow(
        case=pair.answer.case,
        voxel_volume_mm3=reference.geometry.voxel_volume_mm3,
        gtvp=gtvp,
        gtvn=overlaps[labels.GTVN],
        gtvn_lesions=count_lesions(mine == labels.GTVN, theirs == labels.GTVN, pair.rules),
        gtvp_dsc=dsc,
        error=error,
        failed=error is not None and pair.answer.tried,
    )


def _read_prediction(answer: Answer, reference: Volume) -> npt.NDArray[Any]:
    path = answer_file(answer, MASK)
    # The grid is compared before any pixel is read, so that a header which promises terabytes costs nothing.
    geometry = read_header(path, error=PredictionError).geometry
    if geometry.differences(reference.geometry):
        raise PredictionError(
            f"{path.name}: its grid is {geometry.describe()}; expected the CT's: {reference.geometry.describe()}"
        )
    return read_labels(path, PredictionError).array


def read_labels(path: Path, error: type[HecktorError]) -> Volume:
    """Read a label mask of any integer type.

    Raises:
        HecktorError: of the class `error`: unreadable, pixels of a floating type, or another label than 0, 1, 2.
    """
    header = read_header(path, error=error)
    if not header.is_integer:
        raise error(f"{path.name}: pixels of type {header.pixel_type}, expected an integer mask")
    volume = read_volume(path, error=error)
    unsigned = volume.array.dtype.kind == "u"
    low, high = 0 if unsigned else int(volume.array.min()), int(volume.array.max())
    if low < labels.BACKGROUND or high > max(labels.FOREGROUND):
        raise error(f"{path.name}: labels from {low} to {high}, expected only {', '.join(map(str, labels.NAMES))}")
    return volume
