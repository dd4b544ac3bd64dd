"""`submission.json` and README.md: the files to upload, their places on the platform, and their rehearsals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from contract.documents import Document, bullets, section, table
from contract.editions import Algorithm, Socket
from contract.editions.declaration import Direction
from contract.packages import FileEntry
from rehearsal.submission.tries import MEMORY_BYTES, RehearsedTask

RECORD: Final = "submission.json"
MODEL: Final = "model.tar.gz"
_DIRECTIONS: Final[Mapping[Direction, str]] = {
    "risk": "a risk: a higher value means earlier recurrence",
    "time": "a time in days: a higher value means later recurrence",
}


class UploadedModel(FileEntry):
    """The packed model package."""

    file: str = MODEL
    name: str
    manifest_sha256: str
    purpose: str


class UploadedImage(FileEntry):
    """A saved image; `image` is its name in the engine, `torch` its build of PyTorch."""

    file: str
    task: str
    image: str
    torch: str


class SubmissionDocument(Document):
    """The content of `submission.json`."""

    format_version: Literal[1] = 1
    model: UploadedModel
    images: tuple[UploadedImage, ...]
    rehearsed_with_gpus: bool
    rehearsals: tuple[RehearsedTask, ...]


def readme(submission: SubmissionDocument, tasks: Sequence[Algorithm]) -> str:
    """The content of `README.md`; `tasks` are those of the rehearsals, in their order."""
    model = submission.model
    settings = ["GPU: NVIDIA T4.", f"Memory: {MEMORY_BYTES // 1024**3} GB.", *_directions(tasks)]
    title, purpose = f"Files to upload: {model.name}", f"Purpose: {model.purpose}."
    sections = [
        section(1, title, purpose, _files(submission, tasks), bullets(_notes(submission))),
        section(2, "Settings on the platform", _sockets(tasks), bullets(settings)),
        section(2, "Rehearsal", _how(submission), _cases(submission)),
    ]
    return "\n\n".join(sections) + "\n"


def _files(submission: SubmissionDocument, tasks: Sequence[Algorithm]) -> str:
    purpose = "container image of the algorithm for task"
    rows = [
        [one.file, f"{purpose} {task.number}, {task.title}", *size_and_sum(one)]
        for one, task in zip(submission.images, tasks, strict=False)
    ]
    rows.append([MODEL, "model of each of these algorithms", *size_and_sum(submission.model)])
    return table(["File", "Upload as", "Size", "sha256"], rows)


def _notes(submission: SubmissionDocument) -> list[str]:
    if not submission.images:
        return ["No image archives were made: this is only the model, rehearsed with plain processes."]
    notes = [
        "The platform refuses an image that was uploaded before. If only the model is new, upload only the model.",
        "`hecktor submission --revision TEXT` makes new images of unchanged content.",
    ]
    if submission.images[0].torch == "cpu":
        notes.append("These images contain the CPU build of PyTorch and do not use the platform's GPU.")
    return notes


def _sockets(tasks: Sequence[Algorithm]) -> str:
    rows = [
        [
            f"{task.number}, {task.title}",
            _slugs(task.inputs.values()),
            _slugs(task.optional_inputs.values()) or "-",
            _slugs(answer.socket for answer in task.answers),
        ]
        for task in tasks
    ]
    return table(["Task", "Inputs", "Optional inputs", "Outputs"], rows)


def _directions(tasks: Sequence[Algorithm]) -> list[str]:
    """What a higher value of each risk means: editions differ in it."""
    risks = [answer for task in tasks for answer in task.answers if answer.kind == "risk"]
    return [f"`{answer.socket.relative_path}` is {_DIRECTIONS[answer.direction]}." for answer in risks]


def _how(submission: SubmissionDocument) -> str:
    if not submission.images:
        return (
            "As plain processes in the platform's folder layout, with model.tar.gz unpacked as the platform does. "
            "User, network and read-only input were not enforced."
        )
    where = "with all GPUs of the machine" if submission.rehearsed_with_gpus else "on a CPU, not on a GPU"
    return (
        "Each archive was loaded into a container engine and run as the platform does: with its own user, no network, "
        "read-only input, "
        f"{MEMORY_BYTES // 1024**3} GiB, the task's time limit, with model.tar.gz unpacked at /opt/ml/model; "
        f"{where}."
    )


def _cases(submission: SubmissionDocument) -> str:
    rows = [
        [
            rehearsed.task,
            f"{case.case}, {case.kind.replace('_', ' ')}",
            f"{case.seconds:.1f}",
            f"{rehearsed.time_limit_s:g}",
            "-" if case.peak_memory_bytes is None else f"{case.peak_memory_bytes / 1024**3:.1f}",
            case.answered,
        ]
        for rehearsed in submission.rehearsals
        for case in rehearsed.cases
    ]
    return table(["Task", "Phantom", "Seconds", "Limit, s", "Memory, GiB", "Answered by"], rows)


def _slugs(sockets: Iterable[Socket]) -> str:
    return ", ".join(socket.slug for socket in sockets)


def size_and_sum(entry: FileEntry) -> tuple[str, str]:
    """A file's size and sha256 for a table."""
    return f"{entry.size / 1e9:.2f} GB" if entry.size >= 1e8 else f"{entry.size / 1e6:.1f} MB", entry.sha256
