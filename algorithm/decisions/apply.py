"""Apply the rules on lesions to a segmentation: drop lesions, and give touching ones a single label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from algorithm.decisions.lesions import Candidate, Scans, candidates_of, shifted
from algorithm.decisions.rules import Decisions
from algorithm.masks.decided import DROPPED, RELABELLED, DecidedLesions, DroppedLesion
from algorithm.masks.segmentation import Segmentation
from contract import labels
from contract.images.geometry import Geometry

_Float = npt.NDArray[np.float32]

# By label: rule -> the value of a candidate that must reach it.
LOWEST: Final = {
    labels.GTVP: {
        "gtvp_volume_ml": "volume_ml",
        "gtvp_mean_probability": "mean_probability",
        "gtvp_max_probability": "max_probability",
    },
    labels.GTVN: {
        "gtvn_volume_ml": "volume_ml",
        "gtvn_mean_probability": "mean_probability",
        "gtvn_max_probability": "max_probability",
        "gtvn_suv_max": "suv_max",
        "gtvn_suv_peak": "suv_peak",
    },
}
# Far more than a patient has, measured in seconds. Smaller lesions of a mask with more stay as they are.
MOST_LESIONS: Final = 1000
SUV_RULES: Final = ("gtvn_suv_max", "gtvn_suv_peak")


@dataclass(frozen=True)
class Verdict:
    """The rule that drops a lesion, with the lesion's value and the limit; an empty rule keeps it."""

    rule: str = ""
    value: float | None = None
    limit: float | bool = False


def decided(segmentation: Segmentation, decisions: Decisions | None) -> Segmentation:
    """The segmentation with the logits of the decided mask; unchanged without rules.

    Logits between voxels stay meaningful, so that the mask on the CT's grid is still their interpolated argmax: a
    dropped lesion's foreground falls as far below the background as it lay above, and a relabelled lesion takes the
    larger of both foreground logits for its label. The argmax then has a lesion only where a kept one lies.
    """
    if decisions is None:
        return segmentation
    scans = Scans.of(segmentation.ct, segmentation.pet, segmentation.grid)
    logits, result = decide(segmentation.logits, scans, decisions)
    return replace(segmentation, logits=logits, decided=result)


def decide(logits: _Float, scans: Scans, decisions: Decisions) -> tuple[_Float, DecidedLesions]:
    """The logits of the decided mask, (label, z, y, x), and what the rules did."""
    moved = shifted(logits, decisions.thresholds)
    peaks, sides = decisions.gtvn_suv_peak > 0, decisions.gtvn_contralateral_probability > 0
    measured = candidates_of(moved, scans, decisions.gtvp_threshold, MOST_LESIONS, peaks=peaks, sides=sides)
    lesions = active(measured, decisions)
    verdicts = verdicts_of(lesions, decisions)
    places = np.zeros(moved.shape[1:], dtype=np.uint8)
    for lesion, verdict in zip(lesions, verdicts, strict=True):
        fate = DROPPED if verdict.rule else lesion.label + RELABELLED * lesion.merged
        places[lesion.structure.box][lesion.structure.inside] = fate
    dropped = [
        _dropped(lesion, verdict, scans.grid) for lesion, verdict in zip(lesions, verdicts, strict=True) if verdict.rule
    ]
    kept = [lesion for lesion, verdict in zip(lesions, verdicts, strict=True) if not verdict.rule]
    skipped = [rule for rule in SUV_RULES if scans.pet is None and getattr(decisions, rule) > 0]
    relabelled = sum(lesion.merged for lesion in kept)
    result = DecidedLesions(places, tuple(dropped), len(kept), relabelled, tuple(skipped))
    return _with_fates(moved, places), result


def active(lesions: Sequence[Candidate], decisions: Decisions) -> list[Candidate]:
    """The lesions of the mask: groups of both labels as one where the rule makes them one, else their parts."""
    return [
        lesion
        for lesion in lesions
        if lesion.merged == (0 < lesion.other_share < decisions.one_label_share) or lesion.other_share == 0
    ]


def verdicts_of(lesions: Sequence[Candidate], decisions: Decisions) -> list[Verdict]:
    """The verdict on each lesion of a mask; the largest GTVp is sought among those that pass all other rules."""
    verdicts = [_verdict(lesion, decisions) for lesion in lesions]
    if not decisions.largest_gtvp_only:
        return verdicts
    volumes = [
        lesion.volume_ml if lesion.label == labels.GTVP and not verdict.rule else 0.0
        for lesion, verdict in zip(lesions, verdicts, strict=True)
    ]
    largest = max(range(len(lesions)), key=volumes.__getitem__, default=-1)
    return [
        Verdict("largest_gtvp_only", volume, True) if volume and number != largest else verdict
        for number, (volume, verdict) in enumerate(zip(volumes, verdicts, strict=True))
    ]


def _verdict(lesion: Candidate, decisions: Decisions) -> Verdict:
    for rule, name in LOWEST[lesion.label].items():
        value, limit = getattr(lesion, name), getattr(decisions, rule)
        if value is not None and value < limit:
            return Verdict(rule, value, limit)
    if lesion.label == labels.GTVP:
        return Verdict()
    limit, distance = decisions.gtvn_distance_mm, lesion.distance_mm
    if limit is not None and distance is not None and distance > limit:
        return Verdict("gtvn_distance_mm", distance, limit)
    limit = decisions.gtvn_contralateral_probability
    if lesion.contralateral and lesion.mean_probability < limit:
        return Verdict("gtvn_contralateral_probability", lesion.mean_probability, limit)
    return Verdict()


def _dropped(lesion: Candidate, verdict: Verdict, grid: Geometry) -> DroppedLesion:
    matrix = grid.index_to_physical_matrix()
    index = (lesion.structure.centre_mm / lesion.structure.spacing_mm)[::-1]
    x, y, z = (float(value) for value in matrix[:3, :3] @ index + matrix[:3, 3])
    of_rule = verdict.rule, verdict.value, verdict.limit
    return DroppedLesion(lesion.label, lesion.volume_ml, lesion.mean_probability, (x, y, z), *of_rule)


def _with_fates(logits: _Float, places: npt.NDArray[np.uint8]) -> _Float:
    """Logits whose argmax is the mask of `places`, changed only in and beside dropped and relabelled lesions."""
    touched = places >= DROPPED
    boxes = ndimage.find_objects(touched.view(np.uint8))
    if not boxes:
        return logits
    box = tuple(slice(max(part.start - 1, 0), part.stop + 1) for part in boxes[0])
    result, fates = logits.copy(), places[box]
    local = result[(slice(None), *box)]
    dropped = fates == DROPPED
    above = np.maximum(local[1:, dropped] - local[0, dropped], 0)
    local[1:, dropped] -= 2 * above
    for label, other in (labels.FOREGROUND, labels.FOREGROUND[::-1]):
        # The background beside a relabelled lesion too: its other label must not win between voxels.
        inside = fates == label + RELABELLED
        if inside.any():
            beside = inside | ((fates == 0) & _dilated(inside))
            high, low = local[1:, beside].max(0), local[1:, beside].min(0)
            local[label, beside], local[other, beside] = high, low - 1  # equal ones must not tie
    return result


def _dilated(inside: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The voxels of a mask (z, y, x) and their 26 neighbours, axis by axis, which is faster than SciPy's dilation."""
    result = inside.copy()
    for axis in range(result.ndim):
        line = np.moveaxis(result, axis, 0)
        before = line.copy()
        line[1:] |= before[:-1]
        line[:-1] |= before[1:]
    return result
