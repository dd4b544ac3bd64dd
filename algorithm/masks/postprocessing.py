"""Apply a package's postprocessing rules: move the foreground threshold and remove lesions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from algorithm.case.units import MAX_PLAUSIBLE_SUV, MIN_SUV_MAX
from algorithm.masks.segmentation import (
    ANY_CORNER,
    REMOVED,
    PostprocessingResult,
    RemovedLesion,
    Segmentation,
    argmax,
    softmax,
)
from contract import labels
from contract.images.geometry import Geometry, is_below
from contract.packages import PostprocessingRules

_Float = npt.NDArray[np.float32]
_Measures = npt.NDArray[np.float64]
# For each label the rules that are minimum values, and the measure of `LesionMeasures` to which each rule applies.
_MINIMUM_RULES: Final = {
    labels.GTVP: {"gtvp_volume_ml": "volume_ml"},
    labels.GTVN: {
        "gtvn_volume_ml": "volume_ml",
        "gtvn_mean_probability": "mean_probability",
        "gtvn_suv_max": "suv_max",
    },
}


@dataclass(frozen=True)
class LesionMeasures:
    """The 26-connected lesions of each label of a mask: first each GTVp, then each GTVn.

    `numbers` (z, y, x) is 0 outside lesions and n in lesion n; the other arrays have one value for each lesion.
    `mean_probability` is the mean probability of the foreground. `suv_max` is NaN without a PET in SUV.
    """

    numbers: npt.NDArray[np.int32]
    label: npt.NDArray[np.uint8]
    voxels: npt.NDArray[np.intp]
    volume_ml: _Measures
    mean_probability: _Measures
    suv_max: _Measures


def apply_postprocessing(segmentation: Segmentation, rules: PostprocessingRules) -> Segmentation:
    """Return the segmentation with logits changed so that their argmax is the postprocessed mask.

    In a removed lesion the foreground logits are lowered as far below the background as they were above it, so the
    mask on the CT's grid can still be interpolated from the logits.
    """
    logits, result = apply_rules(segmentation.logits, pet_in_suv(segmentation.pet), segmentation.grid, rules)
    return replace(segmentation, logits=logits, postprocessed=result)


def pet_in_suv(pet: _Float | None) -> _Float | None:
    """Return the PET if its highest value can be an SUV; else None, since rules on SUV do not apply to other units."""
    plausible = pet is not None and MIN_SUV_MAX <= float(pet.max()) <= MAX_PLAUSIBLE_SUV
    return pet if plausible else None


def apply_rules(
    logits: _Float, pet: _Float | None, grid: Geometry, rules: PostprocessingRules
) -> tuple[_Float, PostprocessingResult]:
    """Apply the rules to logits (label, z, y, x).

    Args:
        logits: Logits of the networks.
        pet: PET in SUV on the same grid, or None; rules on SUV are then skipped.
        grid: The grid of the logits.
        rules: The rules of the package.

    Returns:
        Logits whose argmax is the postprocessed mask, and the effect of the rules.
    """
    moved = shift_threshold(logits, rules.foreground_threshold)
    lesions = measure_lesions(moved, pet, grid)
    reasons = find_removal_reasons(lesions, rules)
    removed = np.array([False, *map(bool, reasons)])[lesions.numbers]
    lesion_map = np.where(removed, REMOVED, np.append(0, lesions.label)[lesions.numbers]).astype(np.uint8)
    rows = tuple(RemovedLesion(int(lesions.label[row]), rule) for row, rule in enumerate(reasons) if rule)
    skipped = ("gtvn_suv_max",) if pet is None and rules.gtvn_suv_max > 0 else ()
    result = PostprocessingResult(lesion_map, rows, len(reasons) - len(rows), skipped)
    return (_suppress(moved, removed) if rows else moved), result


def shift_threshold(logits: _Float, threshold: float) -> _Float:
    """Shift the background logit so that the argmax is the mask at a threshold other than 0.5 of the foreground.

    `logits` has the shape (label, z, y, x); the result is a copy, or `logits` itself for a threshold of 0.5.
    """
    if threshold == 0.5:
        return logits
    moved = logits.copy()
    moved[0] += np.float32(np.log(threshold) - np.log1p(-threshold))
    return moved


def measure_lesions(logits: _Float, pet: _Float | None, grid: Geometry) -> LesionMeasures:
    """Measure each lesion of the argmax of `logits`, (label, z, y, x)."""
    mask = argmax(logits)
    numbers = np.zeros(mask.shape, dtype=np.int32)
    box = next(iter(ndimage.find_objects((mask > 0).view(np.uint8))), ())
    of_label: list[int] = []
    for label in labels.FOREGROUND:
        actual, count = ndimage.label(mask[box] == label, structure=ANY_CORNER)
        numbers[box] += np.where(actual, actual + sum(of_label), 0).astype(np.int32)
        of_label.append(count)
    inside = numbers > 0
    lesion, total = numbers[inside], sum(of_label)
    probability = softmax(logits[:, inside])[1:].sum(0)
    voxels = np.bincount(lesion, minlength=total + 1)[1:]
    mean: _Measures = np.bincount(lesion, probability, total + 1)[1:] / voxels
    suv_max = np.full(total + 1, np.nan if pet is None else -np.inf)
    if pet is not None:
        np.maximum.at(suv_max, lesion, pet[inside])
    return LesionMeasures(
        numbers,
        np.repeat(np.array(labels.FOREGROUND, dtype=np.uint8), of_label),
        voxels,
        voxels.astype(np.float64) * (grid.voxel_volume_mm3 / 1000),
        mean,
        suv_max[1:],
    )


def find_removal_reasons(lesions: LesionMeasures, rules: PostprocessingRules) -> list[str]:
    """Return, for each lesion, the name of the rule that removes it; empty for a kept lesion.

    The largest GTVp is chosen among the GTVp that reach their minimum volume. An unknown SUV counts as reaching any
    minimum. If the GTVn that pass the rules on single lesions have less than `gtvn_total_ml` in total, none of them is
    kept.
    """
    reasons = [""] * len(lesions.label)
    for label, limits in _MINIMUM_RULES.items():
        for rule, measure in limits.items():
            below = (lesions.label == label) & is_below(getattr(lesions, measure), getattr(rules, rule))
            reasons = [reason or rule if out else reason for reason, out in zip(reasons, below, strict=True)]
    if rules.largest_gtvp_only:
        primaries = [row for row, reason in enumerate(reasons) if lesions.label[row] == labels.GTVP and not reason]
        largest = max(primaries, key=lambda row: float(lesions.volume_ml[row]), default=None)
        for row in primaries:
            reasons[row] = "" if row == largest else "largest_gtvp_only"
    nodes = [row for row, reason in enumerate(reasons) if lesions.label[row] == labels.GTVN and not reason]
    if is_below(lesions.volume_ml[nodes].sum(), rules.gtvn_total_ml):
        for row in nodes:
            reasons[row] = "gtvn_total_ml"
    return reasons


def _suppress(logits: _Float, removed: npt.NDArray[np.bool_]) -> _Float:
    """Lower the foreground logits so that the background wins in `removed`."""
    result = logits.copy()
    above = np.maximum(result[1:, removed] - result[0, removed], 0)
    result[1:, removed] -= 2 * above
    return result
