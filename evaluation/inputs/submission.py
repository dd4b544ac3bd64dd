"""The submission: jobs or files matched to the cases of the ground truth, and the file or value of each answer."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from contract import platform
from contract.documents import is_member, is_number
from contract.editions import Algorithm, AnswerSpec, Socket
from contract.editions.answers import ClassValue
from contract.errors import Finding, PredictionError, printable
from contract.images.volumes import find_single_image, image_suffix
from contract.io.files import read_json, utf8_path
from contract.patient import difference_of_ids, format_names
from contract.platform import ONE_FILE_SUFFIXES, TIFF_SUFFIXES
from contract.predictions import SUCCEEDED, Job, case_of, read_predictions

Entry = TypeVar("Entry")

MAX_VALUE_BYTES: Final = 64 * 1024
# Circular links, NaN in a header or a folder without permission make readers raise any of these.
_RAISED_BY_FILES: Final = (
    ArithmeticError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    ValueError,
    struct.error,
    zlib.error,
)


@contextmanager
def catch_file_errors(name: str) -> Iterator[None]:
    """Turn any error from reading the submitted file `name` into a PredictionError without a path.

    The block must only open and parse the file; any other error is a bug of ours and must end the run.
    """
    try:
        yield
    except _RAISED_BY_FILES as problem:
        reason = problem.strerror if isinstance(problem, OSError) else None
        raise PredictionError(name, f"cannot be read ({reason or type(problem).__name__})") from None


@dataclass(frozen=True)
class PredictedClass:
    """A predicted class; of two classes also the probability of the second, if given."""

    value: ClassValue
    probability: float | None = None


class NothingMatchedError(PredictionError):
    """No prediction belongs to any case: names or folders are wrong, so nothing is scored."""


@dataclass(frozen=True)
class SubmittedAnswer:
    """A submitted answer to one case: a file or a value of a table, or the problem that replaces it.

    `path` is an image's folder on the platform, the image itself among plain files, or a JSON file. `failed` is set
    if something was submitted that cannot be used.
    """

    case: str
    path: Path | None
    problem: str | None = None
    failed: bool = False
    value: float | PredictedClass | None = None

    @property
    def is_submitted(self) -> bool:
        """True if anything was submitted for this case, usable or not."""
        return self.failed or self.path is not None or self.value is not None


@dataclass(frozen=True)
class Submission:
    """One answer for each case of the ground truth, sorted; names that match no case, and cases submitted twice.

    `findings` are about the submitter's own files and name no case of the reference.
    """

    answers: tuple[SubmittedAnswer, ...]
    unknown: tuple[str, ...]
    duplicate: tuple[str, ...]
    findings: tuple[Finding, ...] = ()


def read_submission(
    input_dir: Path, algorithm: Algorithm, answer: AnswerSpec, cases: Collection[str], not_evaluated: Collection[str]
) -> Submission:
    """Match the jobs of `predictions.json`, beside `<job>/output/...`, to cases by the file name of their CT.

    Each of `cases` gets an answer; answers to `not_evaluated` cases, which lack a target, are not used.
    Raises PredictionError if `predictions.json` cannot be used or no job belongs to a case. A fault of one job, such as
    no output, becomes the problem of its case.
    """
    jobs_of: dict[str, list[Job]] = {}
    utf8_path(input_dir, PredictionError)  # no fault of a case
    jobs_file = input_dir / platform.PREDICTIONS_JSON
    if not jobs_file.is_file():
        raise PredictionError(jobs_file.name, "not found, or not a regular file", "the platform's list of jobs")
    for job in read_predictions(jobs_file):
        name = job.input_image_name(algorithm.scan.slug)
        case = case_of(name) if isinstance(name, str) else f"job {job.pk} without a CT's name"
        jobs_of.setdefault(case, []).append(job)
    unknown = [case for case in jobs_of if case not in cases and case not in not_evaluated for _ in jobs_of[case]]
    answer_of = partial(_answer_of_job, input_dir=input_dir, algorithm=algorithm, socket=answer.socket)
    return match_entries(jobs_of, cases, unknown, answer_of, what=jobs_file.name, plural="jobs")


def match_entries(
    entries_of: Mapping[str, Sequence[Entry]],
    cases: Collection[str],
    unknown: Collection[str],
    answer_of: Callable[[str, Entry], SubmittedAnswer],
    *,
    what: str,
    plural: str,
) -> Submission:
    """A submission from the jobs, masks or rows of each case; no entry, or several, is the case's problem.

    `unknown` are names that match no case, with or without a target: an error must not tell a submitter which cases
    have one. `what` is the file or folder of the entries, `plural` their kind.
    Raises NothingMatchedError if there are cases and no entry belongs to one.
    """
    if cases and not set(entries_of) - set(unknown):
        raise _nothing_matched(what, plural, entries_of, cases)

    def answer(case: str) -> SubmittedAnswer:
        entries = entries_of.get(case, ())
        if not entries:
            return SubmittedAnswer(case, None, "no prediction")
        if len(entries) > 1:
            return make_unusable_answer(case, f"{len(entries)} {plural}, expected one")
        return answer_of(case, entries[0])

    duplicate = tuple(case for case in sorted(cases) if len(entries_of.get(case, ())) > 1)
    return Submission(tuple(map(answer, sorted(cases))), tuple(sorted(map(printable, unknown))), duplicate)


def _nothing_matched(what: str, plural: str, names: Collection[str], cases: Collection[str]) -> NothingMatchedError:
    found = f"found {plural} of {format_names(sorted(names))}" if names else f"found no {plural}"
    expected = f"{plural} of the {len(cases)} cases {format_names(sorted(cases))}"
    difference = difference_of_ids(sorted(names), sorted(cases))
    return NothingMatchedError(what, found, expected + difference)


def make_unusable_answer(case: str, problem: str) -> SubmittedAnswer:
    """The answer to a case for which something was submitted that cannot be used."""
    return SubmittedAnswer(case, None, problem, failed=True)


def _answer_of_job(case: str, job: Job, input_dir: Path, algorithm: Algorithm, socket: Socket) -> SubmittedAnswer:
    if job.status != SUCCEEDED:
        return make_unusable_answer(case, f"the job's status is {job.status[:40]!r}, expected {SUCCEEDED!r}")
    path = socket.path_under(input_dir / job.pk / "output")
    try:
        with catch_file_errors(socket.relative_path):
            # A link could lead to the ground truth, so a path outside the submission is refused.
            inside, present = path.resolve().is_relative_to(input_dir.resolve()), path.exists()
    except PredictionError as problem:
        return make_unusable_answer(case, problem.message)
    if not inside:
        return make_unusable_answer(case, f"{socket.relative_path} leads outside the submission")
    if present:
        return SubmittedAnswer(case, path)
    undeclared = _undeclared(job, algorithm, socket)
    if undeclared:
        return make_unusable_answer(case, f"no {socket.relative_path}, found {', '.join(undeclared)[:200]} instead")
    return SubmittedAnswer(case, None, f"no {socket.relative_path}")


def _undeclared(job: Job, algorithm: Algorithm, socket: Socket) -> list[str]:
    """Outputs of a job, images for an image and JSON files for a value, that the algorithm does not declare."""
    sockets = [answer.socket for answer in algorithm.answer_specs]
    declared = {name for one in sockets for name in (one.slug, one.relative_path)}
    others = [output for output in job.outputs if not declared.intersection((output.slug, output.relative_path))]
    names = [output.relative_path or output.slug for output in others]
    return [name for name in names if name.endswith(".json") != socket.is_image]


def find_answer_file(answer: SubmittedAnswer, *, is_image: bool) -> Path:
    """The file of an answer: the one image of a folder, or the JSON file; PredictionError if unusable."""
    if answer.path is None:
        raise PredictionError(answer.problem or "no prediction")
    path = answer.path
    with catch_file_errors(path.name):
        if is_image and image_suffix(path, (*ONE_FILE_SUFFIXES, *TIFF_SUFFIXES)) is None:
            path = find_single_image(path, error=PredictionError)
        regular = path.is_file() and not path.is_symlink()
    if not path.name.isprintable():
        raise PredictionError(path.name, "a name that cannot be printed", "a plain file name")
    if not regular:
        raise PredictionError(path.name, "a link, or not a regular file", "a regular file")
    return path


def read_risk(path: Path) -> float:
    """A predicted risk or time: one finite JSON number, neither a text such as "0.7" nor a boolean."""
    value = _read_value(path)
    if is_number(value):
        return float(value)
    if _json_name(value) == "number":
        raise PredictionError(path.name, "the number is too large", "a finite one")
    raise PredictionError(path.name, f"found a {_json_name(value)}", "a number")


def read_class(path: Path, answer: AnswerSpec) -> PredictedClass:
    """A predicted class: one of the answer's classes as JSON; of a boolean answer neither 0, 1 nor "true"."""
    value = _read_value(path)
    if is_member(value, answer.classes):
        return PredictedClass(value)
    with catch_file_errors(path.name):
        shown = json.dumps(value, ensure_ascii=False)[:40]
    raise PredictionError(path.name, f"found {shown}", _class_names(answer))


def _class_names(answer: AnswerSpec) -> str:
    names = [json.dumps(value, ensure_ascii=False) for value in answer.classes]
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _read_value(path: Path) -> Any:
    """The bare value that the platform asks for, or that of the object that the organisers' page of 2025 shows."""
    with catch_file_errors(path.name):
        value = read_json(path, error=PredictionError, max_bytes=MAX_VALUE_BYTES)
    is_object = isinstance(value, dict) and value.keys() == {"PatientID", "Prediction"}
    return value["Prediction"] if is_object else value


def _json_name(value: object) -> str:
    names = {bool: "boolean", int: "number", float: "number", str: "text", list: "list", dict: "object"}
    return names.get(type(value), "null")
