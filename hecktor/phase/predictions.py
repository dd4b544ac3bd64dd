"""Write test submissions in the platform's layout: perfect answers, empty answers, and answers from plain files."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from contract.editions import AnswerSpec
from contract.errors import HecktorError, PredictionError, combine_errors
from contract.images.volumes import write_mask
from contract.predictions import make_job_entry, make_socket_entry
from evaluation.editions.profile import AnswerProfile, TaskProfile
from evaluation.inputs.ground_truth import Reference
from evaluation.inputs.masks import read_labels
from evaluation.inputs.submission import PredictedClass, SubmittedAnswer
from evaluation.metrics.rules import RiskRules
from rehearsal.jobs.evaluation import write_jobs, write_output
from rehearsal.platform.outputs import CheckedOutput

References = Mapping[str, Reference[Any]]
# Answers of all cases by the name of the answer.
Answers = Mapping[str, Sequence[SubmittedAnswer]]


def make_perfect_answers(task: TaskProfile, references: References) -> Answers:
    """Turn the reference into answers: its masks and classes, and ranks of the follow-up as risks.

    Patients with a recurrence rank before patients censored on the same day. A time is the rank, starting with 1, and
    a risk is the negative rank.
    """
    return {name: _make_perfect(profile, references[name].targets) for name, profile in task.answers.items()}


def _make_perfect(profile: AnswerProfile, targets: Mapping[str, Any]) -> list[SubmittedAnswer]:
    if profile.answer.kind == "mask":
        return [SubmittedAnswer(case, path) for case, path in targets.items()]
    if not isinstance(profile.rules, RiskRules):
        return [SubmittedAnswer(case, None, value=PredictedClass(value)) for case, value in targets.items()]
    key_of = {case: (target.rfs_days, not target.relapse) for case, target in targets.items()}
    rank_of = {key: rank for rank, key in enumerate(sorted(set(key_of.values())), start=1)}
    sign = 1.0 if profile.rules.direction == "time" else -1.0
    return [SubmittedAnswer(case, None, value=sign * rank_of[key]) for case, key in key_of.items()]


def write_submission(task: TaskProfile, answers: Answers, input_dir: Path, *, is_empty: bool = False) -> None:
    """Write a submission as the `/input` of the evaluation; missing answers are left out.

    Args:
        task: The task with its declared answers.
        answers: The answers to write.
        input_dir: Folder of the submission.
        is_empty: Whether to write an empty mask, the same risk and the first class for every case.

    Raises:
        HecktorError: The answer of a case is unusable.
    """
    answers_of: dict[str, list[tuple[AnswerSpec, SubmittedAnswer]]] = {}
    for spec in task.algorithm.answers:
        for answer in answers[spec.name]:
            if answer.is_submitted:
                answers_of.setdefault(answer.case, []).append((spec, answer))
    jobs: list[dict[str, Any]] = []
    errors: list[HecktorError] = []
    for case in sorted(answers_of):
        try:
            jobs.append(_write_job(task, case, answers_of[case], input_dir, is_empty))
        except HecktorError as error:
            errors.append(error)
    if errors:
        raise combine_errors(errors, f"{len(errors)} of {len(answers_of)} cases cannot be used")
    write_jobs(jobs, input_dir, np.random.default_rng(0))


def _write_job(
    task: TaskProfile, case: str, answers: Sequence[tuple[AnswerSpec, SubmittedAnswer]], input_dir: Path, is_empty: bool
) -> dict[str, Any]:
    """Write the outputs of a case and return its job; the name of its image is the case."""
    pk = str(uuid.uuid4())
    inputs = [
        make_socket_entry(socket, number, image=(str(uuid.uuid4()), f"{case}.mha") if socket.is_image else None)
        for number, socket in enumerate(task.algorithm.inputs.values(), start=1)
    ]
    with TemporaryDirectory(dir=input_dir) as folder:
        outputs = [
            write_output(_write_output(spec, answer, Path(folder), is_empty), number, input_dir / pk / "output")
            for number, (spec, answer) in enumerate(answers, start=1)
        ]
    return make_job_entry(pk, inputs, outputs, algorithm_image="hecktor phase")


def _write_output(spec: AnswerSpec, answer: SubmittedAnswer, folder: Path, is_empty: bool) -> CheckedOutput:
    """Write a mask into `folder`, or return the value of another answer."""
    path = folder / f"{answer.case}.mha"
    if answer.path is not None:
        # Only organisers see the message of this error, so it may name a file of the reference.
        mask = read_labels(answer.path, HecktorError)
        write_mask(path, np.zeros_like(mask.array) if is_empty else mask.array, mask.geometry)
        return CheckedOutput(spec, path)
    if answer.value is None:
        problem = answer.problem or "no prediction"
        raise PredictionError(f"--predictions: {spec.name} of {answer.case}", problem, "a usable prediction")
    if is_empty:
        return CheckedOutput(spec, path, 1.0 if spec.kind == "risk" else spec.classes[0])
    return CheckedOutput(spec, path, answer.value.value if isinstance(answer.value, PredictedClass) else answer.value)
