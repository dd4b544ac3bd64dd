"""Test submissions in the platform's layout: perfect answers, empty answers, and answers from plain files."""

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
from rehearsal.jobs.evaluation import place_output, write_jobs
from rehearsal.platform.outputs import CheckedOutput

References = Mapping[str, Reference[Any]]
Answers = Mapping[str, Sequence[SubmittedAnswer]]  # by the answer's name


def perfect_answers(task: TaskProfile, references: References) -> Answers:
    """The reference as answers: its masks and classes, and ranks of the follow-up as risks.

    Recurrences come before patients censored on the same day; times are ranks from 1, risks their negatives.
    """
    return {name: _perfect(one, references[name].targets) for name, one in task.answers.items()}


def _perfect(profile: AnswerProfile, targets: Mapping[str, Any]) -> list[SubmittedAnswer]:
    if profile.answer.kind == "mask":
        return [SubmittedAnswer(case, path) for case, path in targets.items()]
    if not isinstance(profile.rules, RiskRules):
        return [SubmittedAnswer(case, None, value=PredictedClass(value)) for case, value in targets.items()]
    key_of = {case: (target.rfs_days, not target.relapse) for case, target in targets.items()}
    rank_of = {key: rank for rank, key in enumerate(sorted(set(key_of.values())), start=1)}
    sign = 1.0 if profile.rules.direction == "time" else -1.0
    return [SubmittedAnswer(case, None, value=sign * rank_of[key]) for case, key in key_of.items()]


def stage(task: TaskProfile, answers: Answers, input_dir: Path, *, is_empty: bool = False) -> None:
    """Fill `input_dir` as the evaluation's `/input`; a case has no output where an answer or its target is missing.

    With `is_empty` masks are empty, and all cases have the same risk and the first class. Raises HecktorError for a
    case with an unusable answer.
    """
    by_case: dict[str, list[tuple[AnswerSpec, SubmittedAnswer]]] = {}
    for answer in task.algorithm.answers:
        for one in answers[answer.name]:
            if one.is_submitted:
                by_case.setdefault(one.case, []).append((answer, one))
    jobs, faults = [], []
    for case in sorted(by_case):
        try:
            jobs.append(_job(task, case, by_case[case], input_dir, is_empty))
        except HecktorError as fault:
            faults.append(fault)
    if faults:
        raise combine_errors(faults, f"{len(faults)} of {len(by_case)} cases cannot be used")
    write_jobs(jobs, input_dir, np.random.default_rng(0))


def _job(
    task: TaskProfile, case: str, answers: Sequence[tuple[AnswerSpec, SubmittedAnswer]], input_dir: Path, is_empty: bool
) -> dict[str, Any]:
    """A case as a job. The image's name is the case; an evaluation reads no clinical variables."""
    pk = str(uuid.uuid4())
    inputs = [
        make_socket_entry(socket, number, image=(str(uuid.uuid4()), f"{case}.mha") if socket.is_image else None)
        for number, socket in enumerate(task.algorithm.inputs.values(), start=1)
    ]
    with TemporaryDirectory(dir=input_dir) as folder:
        checked = [_output(answer, one, Path(folder), is_empty) for answer, one in answers]
        outputs = [place_output(one, number, input_dir / pk / "output") for number, one in enumerate(checked, start=1)]
    return make_job_entry(pk, inputs, outputs, algorithm_image="hecktor phase")


def _output(answer: AnswerSpec, submitted: SubmittedAnswer, folder: Path, is_empty: bool) -> CheckedOutput:
    path, value = folder / f"{submitted.case}.mha", submitted.value
    if submitted.path is not None:
        mask = read_labels(submitted.path, HecktorError)  # only organisers see its message
        write_mask(path, np.zeros_like(mask.array) if is_empty else mask.array, mask.geometry)
        return CheckedOutput(answer, path)
    if value is None:
        problem = submitted.problem or "no prediction"
        raise PredictionError(f"--predictions: {answer.name} of {submitted.case}", problem, "a usable one")
    if is_empty:
        return CheckedOutput(answer, path, 1.0 if answer.kind == "risk" else answer.classes[0])
    return CheckedOutput(answer, path, value.value if isinstance(value, PredictedClass) else value)
