"""Match the jobs or files of a submission to the cases of the ground truth, and read the value of an answer."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from contract import platform
from contract.documents import is_member, is_number
from contract.editions import Algorithm, AnswerSpec, Socket
from contract.editions.answers import ClassValue
from contract.errors import Finding, PredictionError, replace_unprintable
from contract.images.volumes import find_image_suffix, find_single_image
from contract.io.files import format_utf8_path, read_json
from contract.patient import describe_id_difference, format_names
from contract.platform import ONE_FILE_SUFFIXES, TIFF_SUFFIXES
from contract.predictions import SUCCEEDED, Job, parse_case, read_predictions

Entry = TypeVar("Entry")

MAX_VALUE_BYTES: Final = 64 * 1024
# Readers raise these errors for circular links, NaN in a header or a folder without permission.
_FILE_ERRORS: Final = (
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

    The block must only open and parse the file: an error of other code is a bug of this package and must end the run.
    """
    try:
        yield
    except _FILE_ERRORS as problem:
        reason = problem.strerror if isinstance(problem, OSError) else None
        raise PredictionError(name, f"cannot be read ({reason or type(problem).__name__})") from None


@dataclass(frozen=True)
class PredictedClass:
    """Predicted class; a submission with two classes may also have the probability of the second class."""

    value: ClassValue
    probability: float | None = None


class NothingMatchedError(PredictionError):
    """Error if no prediction belongs to a case: names or folders are wrong, so nothing is scored."""


@dataclass(frozen=True)
class SubmittedAnswer:
    """Submitted answer to one case: a file, a value of a table, or a problem.

    Attributes:
        case: Name of the case.
        path: The image's folder on the platform, an image among plain files, or a JSON file.
        problem: Reason why there is no answer.
        failed: Whether something was submitted that cannot be used.
        value: Value from a table.
    """

    case: str
    path: Path | None
    problem: str | None = None
    failed: bool = False
    value: float | PredictedClass | None = None

    @property
    def is_submitted(self) -> bool:
        """Whether anything was submitted for this case, usable or not."""
        return self.failed or self.path is not None or self.value is not None


@dataclass(frozen=True)
class Submission:
    """Answers to the cases of the ground truth.

    Attributes:
        answers: One answer for each case, sorted by case.
        unknown: Submitted names that match no case.
        duplicate: Cases with several answers.
        findings: Warnings about the submitted files; they name no case of the reference.
    """

    answers: tuple[SubmittedAnswer, ...]
    unknown: tuple[str, ...]
    duplicate: tuple[str, ...]
    findings: tuple[Finding, ...] = ()


def read_submission(
    input_dir: Path, algorithm: Algorithm, answer: AnswerSpec, cases: Collection[str], not_evaluated: Collection[str]
) -> Submission:
    """Match the jobs of `predictions.json` to cases by the file name of their CT.

    Each of `cases` gets an answer. An error of one job, such as no output, affects only its case. Answers to
    `not_evaluated` cases, which have no target, are not used.

    Raises:
        PredictionError: `predictions.json` cannot be used, or no job belongs to a case.
    """
    jobs_of: dict[str, list[Job]] = {}
    format_utf8_path(input_dir, PredictionError)  # A wrong path is not a problem of a case.
    jobs_file = input_dir / platform.PREDICTIONS_JSON
    if not jobs_file.is_file():
        raise PredictionError(jobs_file.name, "not found, or not a regular file", "the platform's list of jobs")
    for job in read_predictions(jobs_file):
        name = job.find_input_image_name(algorithm.scan.slug)
        case = parse_case(name) if isinstance(name, str) else f"job {job.pk} without a CT's name"
        jobs_of.setdefault(case, []).append(job)
    unknown = [case for case in jobs_of if case not in cases and case not in not_evaluated for _ in jobs_of[case]]
    make_answer = partial(_make_job_answer, input_dir=input_dir, algorithm=algorithm, socket=answer.socket)
    return match_entries(Entries(jobs_of, unknown, jobs_file.name, "jobs"), cases, make_answer)


@dataclass(frozen=True)
class Entries(Generic[Entry]):
    """Jobs, masks or rows of a submission.

    Attributes:
        by_case: The entries of each submitted name.
        unknown: Names that match no case. Cases without a target are not unknown: an error must not tell a submitter
            which cases have a target.
        what: File or folder of the entries, for messages.
        plural: Kind of the entries, for messages.
    """

    by_case: Mapping[str, Sequence[Entry]]
    unknown: Collection[str]
    what: str
    plural: str


def match_entries(
    entries: Entries[Entry], cases: Collection[str], make_answer: Callable[[str, Entry], SubmittedAnswer]
) -> Submission:
    """Make a submission with one answer for each case; without exactly one entry, the answer states this problem.

    Raises:
        NothingMatchedError: There are cases, and no entry belongs to a case.
    """
    if cases and not set(entries.by_case) - set(entries.unknown):
        raise _make_nothing_matched_error(entries, cases)
    answers = []
    duplicate = []
    for case in sorted(cases):
        of_case = entries.by_case.get(case, ())
        if not of_case:
            answers.append(SubmittedAnswer(case, None, "no prediction"))
        elif len(of_case) > 1:
            duplicate.append(case)
            answers.append(make_unusable_answer(case, f"{len(of_case)} {entries.plural}, expected one"))
        else:
            answers.append(make_answer(case, of_case[0]))
    return Submission(tuple(answers), tuple(sorted(map(replace_unprintable, entries.unknown))), tuple(duplicate))


def _make_nothing_matched_error(entries: Entries[Entry], cases: Collection[str]) -> NothingMatchedError:
    names = sorted(entries.by_case)
    actual = f"found {entries.plural} of {format_names(names)}" if names else f"found no {entries.plural}"
    expected = f"{entries.plural} of the {len(cases)} cases {format_names(sorted(cases))}"
    return NothingMatchedError(entries.what, actual, expected + describe_id_difference(names, sorted(cases)))


def make_unusable_answer(case: str, problem: str) -> SubmittedAnswer:
    """Return the answer to a case whose submitted file or value cannot be used."""
    return SubmittedAnswer(case, None, problem, failed=True)


def _make_job_answer(case: str, job: Job, input_dir: Path, algorithm: Algorithm, socket: Socket) -> SubmittedAnswer:
    if job.status != SUCCEEDED:
        return make_unusable_answer(case, f"the job's status is {job.status[:40]!r}, expected {SUCCEEDED!r}")
    path = socket.path_under(input_dir / job.pk / "output")
    try:
        with catch_file_errors(socket.relative_path):
            # A link could lead to the ground truth, so a path outside the submission is refused.
            is_inside = path.resolve().is_relative_to(input_dir.resolve())
            is_present = path.exists()
    except PredictionError as problem:
        return make_unusable_answer(case, problem.message)
    if not is_inside:
        return make_unusable_answer(case, f"{socket.relative_path} leads outside the submission")
    if is_present:
        return SubmittedAnswer(case, path)
    undeclared = _find_undeclared_outputs(job, algorithm, socket)
    if undeclared:
        return make_unusable_answer(case, f"no {socket.relative_path}, found {', '.join(undeclared)[:200]} instead")
    return SubmittedAnswer(case, None, f"no {socket.relative_path}")


def _find_undeclared_outputs(job: Job, algorithm: Algorithm, socket: Socket) -> list[str]:
    """Return the outputs of a job that the algorithm does not declare: images for an image, JSON files for a value."""
    declared = {name for answer in algorithm.answers for name in (answer.socket.slug, answer.socket.relative_path)}
    names = [
        output.relative_path or output.slug
        for output in job.outputs
        if not declared.intersection((output.slug, output.relative_path))
    ]
    return [name for name in names if name.endswith(".json") != socket.is_image]


def find_answer_file(answer: SubmittedAnswer, *, is_image: bool) -> Path:
    """Return the only image of a folder, or the JSON file; raise PredictionError if the file cannot be used."""
    if answer.path is None:
        raise PredictionError(answer.problem or "no prediction")
    path = answer.path
    with catch_file_errors(path.name):
        if is_image and find_image_suffix(path, (*ONE_FILE_SUFFIXES, *TIFF_SUFFIXES)) is None:
            path = find_single_image(path, error=PredictionError)
        is_regular = path.is_file() and not path.is_symlink()
    if not path.name.isprintable():
        raise PredictionError(path.name, "a name that cannot be printed", "a plain file name")
    if not is_regular:
        raise PredictionError(path.name, "a link, or not a regular file", "a regular file")
    return path


def read_risk(path: Path) -> float:
    """Read a predicted risk or time: a finite JSON number, not a string such as "0.7" or a boolean."""
    value = _read_value(path)
    if is_number(value):
        return float(value)
    if _name_json_type(value) == "number":
        raise PredictionError(path.name, "the number is too large", "a finite one")
    raise PredictionError(path.name, f"found a {_name_json_type(value)}", "a number")


def read_class(path: Path, answer: AnswerSpec) -> PredictedClass:
    """Read a predicted class: one of the answer's classes as JSON; 0, 1 and "true" are not booleans."""
    value = _read_value(path)
    if is_member(value, answer.classes):
        return PredictedClass(value)
    with catch_file_errors(path.name):
        shown = json.dumps(value, ensure_ascii=False)[:40]
    raise PredictionError(path.name, f"found {shown}", _list_classes(answer))


def _list_classes(answer: AnswerSpec) -> str:
    names = [json.dumps(value, ensure_ascii=False) for value in answer.classes]
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _read_value(path: Path) -> Any:
    """Read a JSON file with only a value, or with an object of `PatientID` and `Prediction`.

    The platform asks for only a value; the organisers' page of 2025 shows the object.
    """
    with catch_file_errors(path.name):
        value = read_json(path, error=PredictionError, max_bytes=MAX_VALUE_BYTES)
    is_object = isinstance(value, dict) and value.keys() == {"PatientID", "Prediction"}
    return value["Prediction"] if is_object else value


def _name_json_type(value: object) -> str:
    names = {bool: "boolean", int: "number", float: "number", str: "string", list: "list", dict: "object"}
    return names.get(type(value), "null")
