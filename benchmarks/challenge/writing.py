"""Write a simulated challenge as a results folder of `hecktor report`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.challenge.answers import SimulatedTeam, simulated_rows
from benchmarks.challenge.patients import SimulatedPatient, simulated_patients
from contract.files import write_json
from contract.platform import METRICS_JSON
from evaluation.editions.profile import AnswerProfile, TaskProfile, load_profile
from evaluation.inputs.ground_truth import Reference
from evaluation.inputs.submission import Submission, SubmittedAnswer
from evaluation.pipeline import report_of, scored_answer
from evaluation.ranking.cli import main as rank
from evaluation.request import EvaluationRequest
from evaluation.results.scored import ScoredAnswer
from evaluation.rows import CaseRow

_FIRST: Final = ("Amber", "Blue", "Cedar", "Delta", "Echo", "Fjord", "Grey", "Harbour", "Iris")
_SECOND: Final = ("Vision", "Lab", "Med", "Net", "Imaging Group", "AI")


@dataclass(frozen=True)
class ChallengeSize:
    """Number of teams and of cases, bootstrap replicates of each metric's interval, and of the ranking."""

    teams: int = 40
    cases: int = 400
    bootstraps: int = 200
    rankings: int = 1000


def write_challenge(folder: Path, edition: str, size: ChallengeSize | None = None, seed: int = 2026) -> None:
    """Write `task<n>/<team>/metrics.json`, and the `leaderboard.json` of each task.

    Patients and teams are the same in every task of the edition.
    """
    size = size or ChallengeSize()
    profile = load_profile(edition)
    rng = np.random.default_rng(seed)
    patients, teams = simulated_patients(size.cases, rng), list(simulated_teams(size.teams, rng))
    for name in profile.tasks:
        task = profile.task(name)
        target = folder / f"task{task.algorithm.number}"
        request = EvaluationRequest(Path(), Path(), task=name, edition=edition, bootstraps=size.bootstraps)
        for team in teams:
            write_json(target / team.name / METRICS_JSON, simulated_metrics(request, task, patients, team, rng))
        files = [str(target / team.name / METRICS_JSON) for team in teams]
        rank([*files, "--task", name, "--bootstraps", str(size.rankings), "--output", str(target)])


def simulated_teams(count: int, rng: np.random.Generator) -> Iterator[SimulatedTeam]:
    """Teams of different skill; one in four gives no probabilities, every other one lacks no prediction."""
    for number in range(count):
        second, first = divmod(number, len(_FIRST))
        suffix = f" {second // len(_SECOND) + 1}" if second >= len(_SECOND) else ""
        name = f"{_FIRST[first]} {_SECOND[second % len(_SECOND)]}{suffix}"
        missing = float(rng.uniform(0.002, 0.02)) if number % 2 else 0.0
        yield SimulatedTeam(name, float(rng.standard_normal()), missing, number % 4 != 3)


def simulated_metrics(
    request: EvaluationRequest,
    task: TaskProfile,
    patients: Sequence[SimulatedPatient],
    team: SimulatedTeam,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """The content of a team's metrics.json."""
    several = task.has_several_answers
    answers = [_answer(patients, team, profile, rng, several=several) for profile in task.answers.values()]
    return report_of(request, task, answers, ())


def _answer(
    patients: Sequence[SimulatedPatient],
    team: SimulatedTeam,
    profile: AnswerProfile,
    rng: np.random.Generator,
    *,
    several: bool,
) -> ScoredAnswer:
    reference = _reference(patients, profile)
    rows = simulated_rows([one for one in patients if one.case in reference.targets], team, profile, rng)
    submission = Submission(tuple(_submitted(row) for row in rows), (), ())
    return scored_answer(profile, reference, submission, rows, several=several)


def _reference(patients: Sequence[SimulatedPatient], profile: AnswerProfile) -> Reference[Any]:
    name = profile.answer.name
    targets: dict[str, Any] = {}
    without, not_counted = [], []
    for one in patients:
        target = _target(one, profile)
        if name in one.not_counted:
            not_counted.append(one.case)
        elif target is None:
            without.append(one.case)
        else:
            targets[one.case] = target
    centres = {one.case: one.centre for one in patients}
    return Reference(targets, tuple(without), tuple(not_counted), centres)


def _target(patient: SimulatedPatient, profile: AnswerProfile) -> Any:
    if profile.answer.kind == "mask":
        return Path(f"{patient.case}.mha")
    return patient.follow_up if profile.answer.kind == "risk" else patient.classes[profile.answer.name]


def _submitted(row: CaseRow) -> SubmittedAnswer:
    return SubmittedAnswer(row.case, None, row.error, failed=row.failed)
