"""Score one predicted mask."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from contract import labels
from contract.errors import GroundTruthError, HecktorError, PredictionError
from evaluation.editions import DEFAULT_PROFILE
from evaluation.editions.profile import load_profile
from evaluation.inputs.masks import read_labels, read_prediction
from evaluation.metrics.lesions import LesionCounts
from evaluation.metrics.overlap import Overlap, scores_of_case
from evaluation.metrics.rules import MaskRules
from evaluation.metrics.surface import SurfaceRow
from evaluation.rows.comparison import MaskArrays, compare_masks

_MM3_A_ML = 1000.0
Mask = npt.NDArray[Any] | Path | str


@dataclass(frozen=True)
class LabelScores:
    """Comparison of one label in one case.

    `dsc`, `precision`, `recall` and `surface_dsc` are fractions, distances in mm, volumes in ml. Figures are None if
    both masks lack the label; with one mask empty the distances are infinite.
    """

    dsc: float | None
    precision: float | None
    recall: float | None
    hd95_mm: float | None
    asd_mm: float | None
    surface_dsc: float | None
    reference_ml: float
    predicted_ml: float


@dataclass(frozen=True)
class MaskScores:
    """Comparison of two masks: each label, and the detected, false and missed lesions of GTVn."""

    gtvp: LabelScores
    gtvn: LabelScores
    gtvn_lesions: LesionCounts

    def to_dict(self) -> dict[str, Any]:
        """The scores as plain data."""
        return asdict(self)


def score_masks(
    reference: Mask,
    prediction: Mask,
    spacing_mm: tuple[float, float, float] | None = None,
    *,
    edition: str = DEFAULT_PROFILE,
) -> MaskScores:
    """Compare a predicted mask with its reference.

    Args:
        reference: labels 0 background, 1 GTVp, 2 GTVn: an array of axes (z, y, x), or the path of an image.
        prediction: the same, an array of the same shape if the reference is an array.
        spacing_mm: voxel spacing (x, y, z) in mm of arrays; the spacing of files comes from their headers.
        edition: evaluation profile whose rules match lesions and measure surfaces.

    Raises:
        GroundTruthError: the reference cannot be used.
        PredictionError: the prediction cannot be used, or lies on another grid.
        HecktorError: an array without its spacing, an array beside a path, or an unknown edition.
    """
    answers = [answer for task in load_profile(edition).tasks.values() for answer in task.answers.values()]
    rules = next((answer.rules for answer in answers if isinstance(answer.rules, MaskRules)), None)
    if rules is None:
        raise HecktorError(f"edition {edition}", "no masks", "an edition with masks")
    rules = rules.model_copy(update={"surfaces": "both"})
    mine, theirs, (x, y, z) = _mask_arrays(reference, prediction, spacing_mm, rules)
    row = compare_masks("", MaskArrays(mine, x * y * z, theirs), (z, y, x), rules)
    return MaskScores(
        _label_scores(row.gtvp, row.surfaces["gtvp"], row.voxel_volume_mm3),
        _label_scores(row.gtvn, row.surfaces["gtvn"], row.voxel_volume_mm3),
        row.gtvn_lesions,
    )


def _mask_arrays(
    reference: Mask, prediction: Mask, spacing_mm: tuple[float, float, float] | None, rules: MaskRules
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], tuple[float, float, float]]:
    if isinstance(reference, Path | str) and isinstance(prediction, Path | str):
        if spacing_mm is not None:
            raise HecktorError("spacing_mm", "given with paths", "arrays; the spacing of files is in their headers")
        volume = read_labels(Path(reference), GroundTruthError)
        predicted = read_prediction(Path(prediction), volume.geometry, rules.geometry)
        return volume.array, predicted, volume.geometry.spacing_mm
    if isinstance(reference, Path | str) or isinstance(prediction, Path | str):
        raise HecktorError("score_masks", "an array beside a path", "two arrays or two paths")
    if spacing_mm is None or len(tuple(spacing_mm)) != 3 or not all(0 < size < np.inf for size in spacing_mm):
        raise HecktorError("spacing_mm", f"found {spacing_mm}", "three distances (x, y, z) in mm above 0")
    _check_array(reference, "reference", GroundTruthError)
    _check_array(prediction, "prediction", PredictionError)
    if reference.shape != prediction.shape:
        raise PredictionError("prediction", f"shape {prediction.shape}", f"{reference.shape} as the reference")
    return reference, prediction, spacing_mm


def _check_array(mask: object, name: str, error: type[HecktorError]) -> None:
    if not isinstance(mask, np.ndarray) or mask.ndim != 3 or mask.size == 0:
        raise error(name, f"found {getattr(mask, 'shape', type(mask).__name__)}", "an array of axes (z, y, x)")
    if not np.isin(mask, list(labels.NAMES)).all():
        raise error(name, "other labels", f"only {', '.join(map(str, labels.NAMES))}")


def _label_scores(overlap: Overlap, surface: SurfaceRow, voxel_mm3: float) -> LabelScores:
    counts = (overlap.intersection, overlap.reference, overlap.predicted)
    return LabelScores(
        *scores_of_case(*counts, failed=False, rule="skip"),
        surface.values["hd95_mm"],
        surface.values["asd_mm"],
        surface.values["surface_dsc"],
        overlap.reference * voxel_mm3 / _MM3_A_ML,
        overlap.predicted * voxel_mm3 / _MM3_A_ML,
    )
