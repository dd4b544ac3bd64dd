"""Simulated answers of a team to the patients of a challenge, as rows of the evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

import numpy as np

from benchmarks.challenge.patients import SimulatedPatient
from evaluation.editions.profile import AnswerProfile
from evaluation.metrics.lesions import FalseVoxels, LesionCounts
from evaluation.metrics.overlap import Overlap
from evaluation.metrics.rules import SURFACES_OF, MaskRules
from evaluation.metrics.surface import MEASURED, SurfaceRow, row_of_empty_mask, without_prediction
from evaluation.rows import CaseRow
from evaluation.rows.classes import ClassRow, ClassScorer
from evaluation.rows.mask import MaskRow
from evaluation.rows.risk import RiskRow

NO_PREDICTION: Final = "no prediction"
WRONG_GRID: Final = "output.mha: size (512, 512, 91), expected (512, 512, 90)"
_MEAN_DAYS: Final = 1500.0


@dataclass(frozen=True)
class SimulatedTeam:
    """A team: skill (mean 0, larger is better), share of unusable predictions, and whether it gives probabilities."""

    name: str
    skill: float
    missing: float
    probabilities: bool


def simulated_rows(
    patients: Sequence[SimulatedPatient], team: SimulatedTeam, profile: AnswerProfile, rng: np.random.Generator
) -> list[CaseRow]:
    """One row for each patient, by the answer's kind."""
    kind = profile.answer.kind
    rows: list[CaseRow] = []
    for patient in patients:
        missing = rng.random() < team.missing
        failed = missing and kind == "mask" and rng.random() < 0.3
        error = (WRONG_GRID if failed else NO_PREDICTION) if missing else None
        if isinstance(profile.rules, MaskRules):
            rows.append(_mask_row(patient, team, profile.rules, (error, failed), rng))
        elif kind == "risk":
            risk = (0.35 + 0.15 * team.skill) * patient.log_hazard + rng.standard_normal()
            value = risk if profile.answer.direction == "risk" else _MEAN_DAYS * float(np.exp(-0.5 * risk))
            rows.append(RiskRow(patient.case, patient.follow_up, None if missing else float(value), error))
        else:
            rows.append(_class_row(patient, team, profile, error, rng))
    return rows


def _class_row(
    patient: SimulatedPatient, team: SimulatedTeam, profile: AnswerProfile, error: str | None, rng: np.random.Generator
) -> ClassRow:
    answer = cast("ClassScorer", profile.scorer).answer
    actual = patient.classes[answer.name]
    if actual is None:
        raise ValueError(f"{patient.case} has no {answer.name}")
    if error is not None:
        return ClassRow(patient.case, answer, actual, None, error)
    place, spread = answer.classes.index(actual), float(np.exp(-0.3 * team.skill))
    if answer.is_binary:
        evidence = 2.0 * (place - 0.5) + 0.6 * patient.difficulty + 1.6 * spread * rng.standard_normal()
        probability = float(1 / (1 + np.exp(-evidence)))
        shown = probability if team.probabilities else None
        return ClassRow(patient.case, answer, actual, answer.classes[probability >= 0.5], probability=shown)
    guess = round(place + 0.9 * spread * rng.standard_normal())
    return ClassRow(patient.case, answer, actual, answer.classes[min(max(guess, 0), len(answer.classes) - 1)])


def _mask_row(
    patient: SimulatedPatient,
    team: SimulatedTeam,
    rules: MaskRules,
    unusable: tuple[str | None, bool],
    rng: np.random.Generator,
) -> MaskRow:
    error, failed = unusable
    ease = 0.2 * team.skill - 0.7 * patient.difficulty
    if error is not None:
        gtvp, gtvn = Overlap(0, patient.primary_voxels, 0), Overlap(0, sum(patient.node_voxels), 0)
        lesions = LesionCounts(0, 0, len(patient.node_voxels))
        lesion_dsc: list[float | None] = [None] * len(patient.node_voxels)
    else:
        gtvp = _overlap(patient.primary_voxels, ease, rng)
        if patient.primary_voxels == 0 and rng.random() < 0.3:
            gtvp = Overlap(0, 0, int(rng.integers(20, 900)))
        gtvn, lesions, lesion_dsc = _nodes(patient, ease, rules, rng)
    without = error is not None
    overlaps = {"gtvp": gtvp, "gtvn": gtvn}
    surfaces = {
        label: without_prediction() if without else _surface(overlaps[label], rng)
        for label in SURFACES_OF[rules.surfaces]
    }
    row = MaskRow(
        case=patient.case,
        voxel_volume_mm3=patient.voxel_volume_mm3,
        gtvp=gtvp,
        gtvn=gtvn,
        gtvn_lesions=lesions,
        gtvp_dsc=None,
        error=error,
        failed=failed,
        surfaces=surfaces,
        gtvn_lesion_voxels=patient.node_voxels,
        gtvn_lesion_dsc=tuple(lesion_dsc),
        **{f"{name}_false": _false(overlap) for name, overlap in overlaps.items()},
    )
    return row.with_scores(rules)


def _false(overlap: Overlap) -> FalseVoxels:
    return FalseVoxels() if overlap.intersection else FalseVoxels(overlap.predicted, overlap.reference)


def _overlap(reference: int, ease: float, rng: np.random.Generator) -> Overlap:
    """A lesion's overlap: missed at times, otherwise with a DSC around 0.8 that grows with `ease`."""
    if reference == 0 or rng.random() < 1 / (1 + np.exp(3.2 + 1.2 * ease)):
        return Overlap(0, reference, 0)
    predicted = max(1, round(reference * float(rng.lognormal(-0.02, 0.2))))
    dsc = 1 / (1 + np.exp(-(1.35 + ease + 0.45 * rng.standard_normal())))
    return Overlap(min(reference, predicted, round(dsc * (reference + predicted) / 2)), reference, predicted)


def _nodes(
    patient: SimulatedPatient, ease: float, rules: MaskRules, rng: np.random.Generator
) -> tuple[Overlap, LesionCounts, list[float | None]]:
    """The overlap of all nodes, the lesions, and the DSC of each; small nodes are missed more often."""
    overlaps = []
    for voxels in patient.node_voxels:
        size = 0.35 * (np.log(voxels * patient.voxel_volume_mm3) - 8.0)
        overlaps.append(_overlap(voxels, ease + size, rng))
    detected = sum(_iou(one) > rules.iou_threshold for one in overlaps)
    present = sum(one.predicted > 0 for one in overlaps)
    false = rng.integers(15, 600, rng.poisson(0.35 * np.exp(-0.5 * ease)))
    total = Overlap(
        sum(one.intersection for one in overlaps),
        sum(patient.node_voxels),
        sum(one.predicted for one in overlaps) + int(false.sum()),
    )
    dsc = [_dsc(one) if _iou(one) > rules.iou_threshold else None for one in overlaps]
    return total, LesionCounts(detected, present - detected + len(false), len(overlaps) - detected), dsc


def _dsc(overlap: Overlap) -> float:
    return 2 * overlap.intersection / (overlap.reference + overlap.predicted)


def _iou(overlap: Overlap) -> float:
    union = overlap.reference + overlap.predicted - overlap.intersection
    return overlap.intersection / union if union else 0.0


def _surface(overlap: Overlap, rng: np.random.Generator) -> SurfaceRow:
    """Distances that fall with the DSC."""
    sides = {"has_reference": overlap.reference > 0, "has_prediction": overlap.predicted > 0}
    if not all(sides.values()):
        return row_of_empty_mask(**sides)
    dsc = _dsc(overlap)
    asd = float(0.2 + 4.0 * (1 - dsc) * rng.lognormal(0, 0.3))
    hd95 = 3.2 * asd * float(rng.lognormal(0, 0.2))
    return SurfaceRow(MEASURED, {"hd95_mm": hd95, "asd_mm": asd, "surface_dsc": float(np.exp(-0.5 * asd))})
