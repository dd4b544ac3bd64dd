"""Submissions that try a phase, in the platform's layout: perfect answers, empty ones, and answers in plain files."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from contract.editions import Answer
from contract.editions.declaration import ClassValue
from contract.errors import GroundTruthError, HecktorError, PredictionError
from contract.images.volumes import write_mask
from contract.predictions import job_entry, socket_entry
from evaluation.editions.task import AnswerProfile, TaskProfile
from evaluation.inputs.ground_truth import Reference
from evaluation.inputs.masks import read_labels
from evaluation.inputs.submission import Submission
from evaluation.inputs.values import PredictedClass
from evaluation.metrics.rules import RiskRules
from rehearsal.jobs.outputs import CheckedOutput
from rehearsal.platform import place_output, write_jobs

AnswerValue = Path | float | ClassValue  # the file of a mask, or a JSON value
References = Mapping[str, Reference[Any]]


@dataclass(frozen=True)
class TrialSubmission:
    """Answers by the answer's name and case; `blank` replaces masks by empty ones, `error` is for masks."""

    answers: Mapping[str, Mapping[str, AnswerValue]]
    error: type[HecktorError] = GroundTruthError
    blank: bool = False

    def stage(self, task: TaskProfile, input_dir: Path) -> None:
        """Fill `input_dir` as the evaluation's `/input`; a case has no output where its reference has no target.

        Raises HecktorError for a mask that cannot be read.
        """
        cases = sorted({case for of_answer in self.answers.values() for case in of_answer})
        write_jobs([self._job(task, case, input_dir) for case in cases], input_dir, np.random.default_rng(0))

    def _job(self, task: TaskProfile, case: str, input_dir: Path) -> dict[str, Any]:
        pk, outputs = str(uuid.uuid4()), list[dict[str, Any]]()
        inputs = [  # the image's name is the case; an evaluation reads no clinical variables
            socket_entry(socket, number, image=(str(uuid.uuid4()), f"{case}.mha") if socket.is_image else None)
            for number, socket in enumerate(task.algorithm.inputs.values(), start=1)
        ]
        with TemporaryDirectory(dir=input_dir) as folder:
            for answer in (one for one in task.algorithm.answers if case in self.answers[one.name]):
                output = self._output(answer, case, Path(folder))
                outputs.append(place_output(output, len(outputs) + 1, input_dir / pk / "output"))
        return job_entry(pk, inputs, outputs, algorithm_image="hecktor phase")

    def _output(self, answer: Answer, case: str, folder: Path) -> CheckedOutput:
        value, path = self.answers[answer.name][case], folder / f"{case}.mha"
        if not isinstance(value, Path):
            return CheckedOutput(answer, path, value)
        mask = read_labels(value, self.error)
        write_mask(path, np.zeros_like(mask.array) if self.blank else mask.array, mask.geometry)
        return CheckedOutput(answer, path)


def perfect(task: TaskProfile, references: References) -> TrialSubmission:
    """The reference as answers: its masks and classes, and risks in the order of the follow-up."""
    return TrialSubmission({name: _perfect(one, references[name].targets) for name, one in task.answers.items()})


def _perfect(profile: AnswerProfile, targets: Mapping[str, Any]) -> Mapping[str, AnswerValue]:
    """Risks are ranks of the follow-up, recurrences before patients censored on the same day, times from 1."""
    if not isinstance(profile.rules, RiskRules):
        return targets
    key_of = {case: (target.rfs_days, not target.relapse) for case, target in targets.items()}
    rank_of = {key: rank for rank, key in enumerate(sorted(set(key_of.values())), start=1)}
    sign = 1.0 if profile.rules.direction == "time" else -1.0
    return {case: sign * rank_of[key] for case, key in key_of.items()}


def empty(task: TaskProfile, references: References) -> TrialSubmission:
    """An empty mask, the same risk and the first class for every case."""
    answers: dict[str, Mapping[str, AnswerValue]] = {}
    for name, one in task.answers.items():
        targets = references[name].targets
        same = 1.0 if one.answer.kind == "risk" else one.answer.classes[0] if one.answer.kind == "class" else None
        answers[name] = targets if same is None else dict.fromkeys(targets, same)
    return TrialSubmission(answers, blank=True)


def submitted(submissions: Mapping[str, Submission]) -> TrialSubmission:
    """Answers in plain files. Raises PredictionError for a case without a usable one: the platform has all answers."""
    answers: dict[str, dict[str, AnswerValue]] = {name: {} for name in submissions}
    for name, submission in submissions.items():
        for one in submission.answers:
            value = one.value.value if isinstance(one.value, PredictedClass) else one.value
            answer = one.path if value is None else value
            if answer is None:
                raise PredictionError(f"--predictions: {name} of {one.case}", one.problem or "", "one for each case")
            answers[name][one.case] = answer
    return TrialSubmission(answers, PredictionError)
