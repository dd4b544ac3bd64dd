"""Simulate the results of a challenge of any size: the rows and the metrics.json of each team, without images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from contract.editions.answers import ClassValue
from contract.io.files import write_json
from contract.platform import METRICS_JSON
from evaluation.editions.profile import AnswerProfile, TaskProfile, load_profile
from evaluation.inputs.ground_truth import FollowUp, Reference
from evaluation.inputs.submission import Submission, SubmittedAnswer
from evaluation.metrics.lesions import ComparedLesions, FalseVoxels, LesionCounts
from evaluation.metrics.overlap import Overlap
from evaluation.metrics.rules import SURFACES_OF, MaskRules
from evaluation.metrics.surface import MEASURED, SurfaceValues, make_missing_values, make_values_of_empty_masks
from evaluation.options import EvaluationRequest
from evaluation.pipeline import build_report, score_answer
from evaluation.ranking.cli import main as rank
from evaluation.results.documents import MetricsJson
from evaluation.results.scored import ScoredAnswer
from evaluation.rows import CaseRow
from evaluation.rows.classes import ClassRow, ClassScorer
from evaluation.rows.mask import ComparedLabel, MaskRow, make_mask_row
from evaluation.rows.risk import RiskRow

CENTRES: Final = ("CHB", "CHUM", "CHUP", "CHUS", "CHUV", "HGJ", "HMR", "MDA", "USZ")
VOXEL_MM3: Final = 2.0
NO_PREDICTION: Final = "no prediction"
WRONG_GRID: Final = "output.mha: size (512, 512, 91), expected (512, 512, 90)"
# Shares of patients without a primary tumour, and whose class is unknown or does not count.
_NO_PRIMARY, _UNKNOWN, _NOT_COUNTED = 0.04, 0.02, 0.02
_MEAN_DAYS: Final = 1500.0


@dataclass(frozen=True)
class ChallengeSize:
    """Number of teams and of cases, bootstrap replicates of each metric's interval, and of the ranking."""

    teams: int = 40
    cases: int = 400
    bootstraps: int = 200
    rankings: int = 1000


@dataclass(frozen=True)
class SimulatedTeam:
    """A team: skill (mean 0, larger is better), share of unusable predictions, and whether it gives probabilities."""

    name: str
    skill: float
    missing: float
    probabilities: bool


@dataclass(frozen=True)
class SimulatedPatient:
    """The reference of one patient; `difficulty` and `log_hazard` have a standard deviation of about 1.

    `classes` holds the class of each answer by its name, None if it is unknown; `not_counted` the answers whose class
    does not count.
    """

    case: str
    centre: str
    difficulty: float
    primary_voxels: int
    node_voxels: tuple[int, ...]
    follow_up: FollowUp
    log_hazard: float
    classes: Mapping[str, ClassValue | None]
    not_counted: frozenset[str]


def write_challenge(folder: Path, edition: str, size: ChallengeSize | None = None, seed: int = 2026) -> None:
    """Write `task<n>/<team>/metrics.json`, and the `leaderboard.json` of each task.

    Patients and teams are the same in every task of the edition. One team in four gives no probabilities.
    """
    size = size or ChallengeSize()
    profile, rng = load_profile(edition), np.random.default_rng(seed)
    patients = simulate_patients(size.cases, rng)
    teams = [
        SimulatedTeam(f"Team {number:02d}", float(rng.standard_normal()), 0.01 * (number % 2), number % 4 != 3)
        for number in range(size.teams)
    ]
    for name in profile.tasks:
        task = profile.find_task(name)
        target = folder / f"task{task.algorithm.number}"
        files = [target / team.name / METRICS_JSON for team in teams]
        for team, file in zip(teams, files, strict=True):
            write_json(file, simulate_metrics(task, patients, team, size.bootstraps, rng).to_dict())
        rank([*map(str, files), "--task", name, "--bootstraps", str(size.rankings), "--output", str(target)])


def simulate_patients(cases: int, rng: np.random.Generator) -> list[SimulatedPatient]:
    """Draw patients of all centres in turn, sorted by their names."""
    return sorted((_draw_patient(number, rng) for number in range(cases)), key=lambda patient: patient.case)


def _draw_patient(number: int, rng: np.random.Generator) -> SimulatedPatient:
    """Draw log-normal volumes and an exponential recurrence within a uniform follow-up: about a third recurs."""
    turn, place = divmod(number, len(CENTRES))
    primary_ml = float(rng.lognormal(2.2, 0.9)) * (rng.random() >= _NO_PRIMARY)
    nodes_ml = rng.lognormal(1.4, 1.0, rng.poisson(1.7))
    size, hpv = float(np.log1p(primary_ml)) - 2.2, bool(rng.random() < 0.7)
    log_hazard = float(0.7 * size + 0.15 * len(nodes_ml) - 0.9 * hpv + 0.6 * rng.standard_normal())
    recurrence, end = rng.exponential(3000.0 * np.exp(-log_hazard)), rng.uniform(200.0, 3200.0)
    t_stage = f"T{1 + np.searchsorted((3.0, 10.0, 30.0), primary_ml * rng.lognormal(0, 0.3))}"
    classes: dict[str, ClassValue] = {"hpv": hpv, "t_stage": t_stage, "n_stage": f"N{min(3, len(nodes_ml))}"}
    chance = dict(zip(classes, rng.random(len(classes)), strict=True))
    return SimulatedPatient(
        case=f"{CENTRES[place]}-{turn + 1:03d}",
        centre=CENTRES[place],
        difficulty=float(0.9 * rng.standard_normal() - 0.5 * size),
        primary_voxels=round(primary_ml * 1000 / VOXEL_MM3),
        node_voxels=tuple(max(3, round(float(ml) * 1000 / VOXEL_MM3)) for ml in nodes_ml),
        follow_up=FollowUp(float(max(1, round(min(recurrence, end)))), bool(recurrence < end)),
        log_hazard=log_hazard,
        classes={name: None if chance[name] < _UNKNOWN else value for name, value in classes.items()},
        not_counted=frozenset(name for name, p in chance.items() if name != "hpv" and 0 < p - _UNKNOWN < _NOT_COUNTED),
    )


def simulate_metrics(
    task: TaskProfile,
    patients: Sequence[SimulatedPatient],
    team: SimulatedTeam,
    bootstraps: int,
    rng: np.random.Generator,
) -> MetricsJson:
    answers = [_draw_answer(patients, team, task, name, rng) for name in task.answers]
    return build_report(task, answers, EvaluationRequest(Path(), Path(), bootstraps=bootstraps))


def _draw_answer(
    patients: Sequence[SimulatedPatient],
    team: SimulatedTeam,
    task: TaskProfile,
    name: str,
    rng: np.random.Generator,
) -> ScoredAnswer:
    profile = task.answers[name]
    reference = _make_reference(patients, profile)
    rows = [_draw_row(patient, team, profile, rng) for patient in patients if patient.case in reference.targets]
    submitted = tuple(SubmittedAnswer(row.case, None, row.error, failed=row.failed) for row in rows)
    return score_answer(profile, reference, Submission(submitted, (), ()), rows)


def _make_reference(patients: Sequence[SimulatedPatient], profile: AnswerProfile) -> Reference[Any]:
    name, kind = profile.answer.name, profile.answer.kind
    targets: dict[str, Any] = {
        patient.case: Path(patient.case)
        if kind == "mask"
        else patient.follow_up
        if kind == "risk"
        else patient.classes[name]
        for patient in patients
        if name not in patient.not_counted
    }
    not_counted = tuple(patient.case for patient in patients if name in patient.not_counted)
    without = tuple(case for case, target in targets.items() if target is None)
    known = {case: target for case, target in targets.items() if target is not None}
    return Reference(known, without, not_counted, {patient.case: patient.centre for patient in patients})


def _draw_row(
    patient: SimulatedPatient, team: SimulatedTeam, profile: AnswerProfile, rng: np.random.Generator
) -> CaseRow:
    """Draw the row of a patient by the answer's kind; a third of the unusable masks are failures."""
    missing = rng.random() < team.missing
    error = NO_PREDICTION if missing else None
    if isinstance(profile.rules, MaskRules):
        failed = missing and rng.random() < 0.3
        return _draw_mask_row(patient, team, profile.rules, WRONG_GRID if failed else error, failed, rng)
    if profile.answer.kind == "risk":
        risk = (0.35 + 0.15 * team.skill) * patient.log_hazard + float(rng.standard_normal())
        value = risk if profile.answer.direction == "risk" else _MEAN_DAYS * float(np.exp(-0.5 * risk))
        return RiskRow(case=patient.case, risk=None if missing else value, error=error, **asdict(patient.follow_up))
    return _draw_class_row(patient, team, profile, error, rng)


def _draw_class_row(
    patient: SimulatedPatient, team: SimulatedTeam, profile: AnswerProfile, error: str | None, rng: np.random.Generator
) -> ClassRow:
    answer = cast("ClassScorer", profile.scorer).answer
    actual = patient.classes[answer.name]
    if actual is None:
        raise ValueError(f"{patient.case} has no {answer.name}")
    if error is not None:
        return ClassRow(case=patient.case, predicted=None, probability=None, actual=actual, error=error)
    place, spread = answer.classes.index(actual), float(np.exp(-0.3 * team.skill) * rng.standard_normal())
    if answer.is_binary:
        probability = float(1 / (1 + np.exp(1 - 2 * place - 0.6 * patient.difficulty - 1.6 * spread)))
        shown = probability if team.probabilities else None
        predicted = answer.classes[probability >= 0.5]
        return ClassRow(case=patient.case, predicted=predicted, probability=shown, actual=actual)
    guess = min(max(round(place + 0.9 * spread), 0), len(answer.classes) - 1)
    return ClassRow(case=patient.case, predicted=answer.classes[guess], probability=None, actual=actual)


def _draw_mask_row(
    patient: SimulatedPatient,
    team: SimulatedTeam,
    rules: MaskRules,
    error: str | None,
    failed: bool,
    rng: np.random.Generator,
) -> MaskRow:
    without, ease = error is not None, 0.2 * team.skill - 0.7 * patient.difficulty
    primary, *nodes = [
        Overlap(0, voxels, 0) if without else _draw_overlap(voxels, ease, rng)
        for voxels in (patient.primary_voxels, *patient.node_voxels)
    ]
    false = [] if without else rng.integers(15, 600, rng.poisson(0.35)).tolist()
    matched = [_compute_iou(node) > rules.iou_threshold for node in nodes]
    n_matched = sum(matched)
    present = sum(node.predicted > 0 for node in nodes) + len(false)
    gtvn = Overlap(
        sum(node.intersection for node in nodes),
        sum(node.reference for node in nodes),
        sum(node.predicted for node in nodes) + sum(false),
    )
    surfaces = {
        label: make_missing_values() if without else _draw_surface(overlap, rng)
        for label, overlap in (("gtvp", primary), ("gtvn", gtvn))
        if label in SURFACES_OF[rules.surfaces]
    }
    lesions = ComparedLesions(
        LesionCounts(n_matched, present - n_matched, len(nodes) - n_matched),
        _count_false_voxels(gtvn),
        reference_voxels=patient.node_voxels,
        predicted_voxels=(*(node.predicted for node in nodes if node.predicted), *false),
        dsc=tuple(_compute_dsc(node) if is_matched else None for node, is_matched in zip(nodes, matched, strict=True)),
        iou_of=_match_pairs(nodes),
    )
    row = make_mask_row(
        patient.case,
        VOXEL_MM3,
        ComparedLabel(primary, _count_false_voxels(primary), rules.gtvp_empty, surface=surfaces.get("gtvp")),
        ComparedLabel(gtvn, lesions.false, rules.gtvn_empty, lesions, surfaces.get("gtvn")),
        error,
    )
    return row.model_copy(update={"failed": failed})


def _match_pairs(nodes: list[Overlap]) -> dict[tuple[int, int], float]:
    """Return the IoU of each node with its own prediction; predictions are numbered without the missed ones."""
    iou_of, number = {}, 0
    for place, node in enumerate(nodes):
        if node.predicted:
            if node.intersection:
                iou_of[place, number] = _compute_iou(node)
            number += 1
    return iou_of


def _count_false_voxels(overlap: Overlap) -> FalseVoxels:
    return FalseVoxels() if overlap.intersection else FalseVoxels(overlap.predicted, overlap.reference)


def _draw_overlap(reference: int, ease: float, rng: np.random.Generator) -> Overlap:
    """Draw the overlap of a lesion, which is missed at times; its DSC is around 0.8 and grows with `ease`."""
    if reference == 0:
        return Overlap(0, 0, int(rng.integers(20, 900)) if rng.random() < 0.3 else 0)
    if rng.random() < 1 / (1 + np.exp(3.2 + 1.2 * ease)):
        return Overlap(0, reference, 0)
    predicted = max(1, round(reference * float(rng.lognormal(-0.02, 0.2))))
    dsc = 1 / (1 + np.exp(-(1.35 + ease + 0.45 * rng.standard_normal())))
    return Overlap(min(reference, predicted, round(dsc * (reference + predicted) / 2)), reference, predicted)


def _compute_dsc(overlap: Overlap) -> float:
    return 2 * overlap.intersection / (overlap.reference + overlap.predicted)


def _compute_iou(overlap: Overlap) -> float:
    union = overlap.reference + overlap.predicted - overlap.intersection
    return overlap.intersection / union if union else 0.0


def _draw_surface(overlap: Overlap, rng: np.random.Generator) -> SurfaceValues:
    """Draw distances that fall with the DSC."""
    sides = {"has_reference": overlap.reference > 0, "has_prediction": overlap.predicted > 0}
    if not all(sides.values()):
        return make_values_of_empty_masks(**sides)
    asd = float(0.2 + 4.0 * (1 - _compute_dsc(overlap)) * rng.lognormal(0, 0.3))
    return SurfaceValues(MEASURED, {"hd95_mm": 3.2 * asd, "asd_mm": asd, "surface_dsc": float(np.exp(-0.5 * asd))})
