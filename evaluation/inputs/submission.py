"""What was submitted: the platform's jobs matched to the cases of the ground truth, and their outputs read."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract import platform, sockets
from contract.editions import Socket
from contract.errors import PredictionError, printable
from contract.files import read_json
from contract.images.volumes import find_single_image, image_suffix
from contract.predictions import SUCCEEDED, Job, read_predictions
from evaluation.inputs.ground_truth import case_of
from evaluation.inputs.hostile import hostile

MAX_VALUE_BYTES = 64 * 1024


@dataclass(frozen=True)
class Status:
    """A predicted HPV status, and the probability of positive where one is given."""

    positive: bool
    probability: float | None = None


@dataclass(frozen=True)
class Answer:
    """The answer to one case: a file or a table's value, or why there is none (`failed` where one was tried).

    `path` is an image's folder on the platform, the image itself among plain files, or a JSON file.
    """

    case: str
    path: Path | None
    problem: str | None = None
    failed: bool = False
    value: float | Status | None = None

    @property
    def tried(self) -> bool:
        """Whether there was an answer at all, usable or not."""
        return self.failed or self.path is not None or self.value is not None


@dataclass(frozen=True)
class Submission:
    """One answer a case of the ground truth, sorted; with the names that match none and those that came twice."""

    answers: tuple[Answer, ...]
    unknown: tuple[str, ...]
    duplicate: tuple[str, ...]


def read_submission(
    input_dir: Path, output: Socket, cases: Collection[str], not_evaluated: Collection[str]
) -> Submission:
    """Match the jobs of `predictions.json` to cases by the file name of their CT.

    Args:
        input_dir: holds `predictions.json` and `<job>/output/...`.
        output: the task's output socket.
        cases: cases of the ground truth; each gets an answer.
        not_evaluated: cases that the ground truth names without a target; answers to them are no surprise.

    Raises:
        PredictionError: `predictions.json` cannot be used. What is wrong with one job becomes that case's problem.
    """
    jobs_of: dict[str, list[Job]] = {}
    unknown: list[str] = []
    for job in _jobs(input_dir):
        name = job.input_image_name(sockets.CT.slug)
        case = case_of(name) if isinstance(name, str) else f"job {job.pk} without a CT's name"
        if case in cases:
            jobs_of.setdefault(case, []).append(job)
        elif case not in not_evaluated:
            unknown.append(case)
    answers = tuple(_answer(case, jobs_of.get(case, []), input_dir, output) for case in sorted(cases))
    duplicate = tuple(sorted(case for case, jobs in jobs_of.items() if len(jobs) > 1))
    return Submission(answers, tuple(sorted(map(printable, unknown))), duplicate)


def _jobs(input_dir: Path) -> tuple[Job, ...]:
    path = input_dir / platform.PREDICTIONS_JSON
    if not path.is_file():
        raise PredictionError(path.name, "not found or no regular file", "the platform's list of jobs")
    return tuple(read_predictions(path))


def _answer(case: str, jobs: list[Job], input_dir: Path, output: Socket) -> Answer:
    if not jobs:
        return Answer(case, None, "no prediction")
    if len(jobs) > 1:
        return Answer(case, None, f"{len(jobs)} predictions, expected one", failed=True)
    job = jobs[0]
    if job.status != SUCCEEDED:
        return Answer(case, None, f"the job's status is {job.status[:40]!r}, expected {SUCCEEDED!r}", failed=True)
    path = output.path_under(input_dir / job.pk / "output")
    try:
        with hostile(output.relative_path):
            # A link could lead to the ground truth, so what lies outside the submission is no answer.
            inside, present = path.resolve().is_relative_to(input_dir.resolve()), path.exists()
    except PredictionError as problem:
        return Answer(case, None, problem.message, failed=True)
    if not inside:
        return Answer(case, None, f"{output.relative_path} leads outside the submission", failed=True)
    return Answer(case, path) if present else Answer(case, None, f"no {output.relative_path}")


def answer_file(answer: Answer, output: Socket) -> Path:
    """The file of an answer: the one image of a folder, or the JSON file.

    Raises:
        PredictionError: there is no usable file; the message is the reason.
    """
    if answer.path is None:
        raise PredictionError(answer.problem or "no prediction")
    path = answer.path
    with hostile(path.name):
        if output.is_image and image_suffix(path) is None:
            path = find_single_image(path, error=PredictionError)
        regular = path.is_file() and not path.is_symlink()
    if not path.name.isprintable():
        raise PredictionError(path.name, "a name that cannot be printed", "a plain file name")
    if not regular:
        raise PredictionError(path.name, "a link or no regular file", "a regular file")
    return path


def read_risk(path: Path) -> float:
    """A predicted risk: one finite JSON number.

    Raises:
        PredictionError: no JSON, or anything but a finite number; a text such as "0.7" and booleans are none.
    """
    value = _read_value(path)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PredictionError(path.name, f"found a {_json_name(value)}", "a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise PredictionError(path.name, "the number is too large", "a finite one")
    return number


def read_status(path: Path) -> Status:
    """A predicted HPV status: the JSON document true (positive) or false.

    Raises:
        PredictionError: no JSON, or anything but a boolean; 0, 1 and "true" are none.
    """
    value = _read_value(path)
    if not isinstance(value, bool):
        raise PredictionError(path.name, f"found a {_json_name(value)}", "true or false")
    return Status(value)


def _read_value(path: Path) -> Any:
    with hostile(path.name):
        return read_json(path, error=PredictionError, max_bytes=MAX_VALUE_BYTES)


def _json_name(value: object) -> str:
    names = {bool: "boolean", int: "number", float: "number", str: "text", list: "list", dict: "object"}
    return names.get(type(value), "null")
