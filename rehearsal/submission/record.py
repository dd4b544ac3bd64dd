"""`submission.json` and README.md: the files to upload, their places on the platform, and their rehearsals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from contract.documents import Document, bullets, section, table
from contract.editions import Algorithm, Socket
from contract.editions.declaration import Direction
from contract.packages import FileEntry, Manifest
from rehearsal.submission.tries import MEMORY_BYTES, TriedCase, TriedTask

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


class RehearsedTask(Document):
    """The rehearsal of one task."""

    task: str
    how: Literal["container", "process"]
    api_method: str
    memory_bytes: int
    time_limit_s: float
    longest_s: float
    cases: tuple[TriedCase, ...]


class SubmissionDocument(Document):
    """The content of `submission.json`."""

    format_version: Literal[1] = 1
    model: UploadedModel
    images: tuple[UploadedImage, ...]
    rehearsed_with_gpus: bool
    rehearsals: tuple[RehearsedTask, ...]


@dataclass(frozen=True)
class ImageArchive:
    """A saved image: `entry` holds sha256 and size, `image` its name in the engine."""

    task: Algorithm
    file: str
    image: str
    entry: Mapping[str, Any]


@dataclass(frozen=True)
class SubmissionRecord:
    """The files of a submission; `torch` is the images' PyTorch build, None if there are no image archives."""

    package: Manifest
    model: Mapping[str, Any]
    archives: Sequence[ImageArchive]
    tried: Sequence[TriedTask]
    torch: str | None
    with_gpus: bool

    def document(self) -> SubmissionDocument:
        """The content of `submission.json`."""
        torch = self.torch or ""
        return SubmissionDocument(
            model=UploadedModel(purpose=self.package.purpose, **self.model),
            images=tuple(
                UploadedImage(file=one.file, task=one.task.name, image=one.image, torch=torch, **one.entry)
                for one in self.archives
            ),
            rehearsed_with_gpus=self.with_gpus,
            rehearsals=tuple(
                RehearsedTask(
                    task=one.task.name,
                    how="container" if one.isolated else "process",
                    api_method=one.api_method,
                    memory_bytes=MEMORY_BYTES,
                    time_limit_s=one.time_limit_s,
                    longest_s=one.longest_s,
                    cases=one.cases,
                )
                for one in self.tried
            ),
        )

    def readme(self) -> str:
        """The content of `README.md`."""
        settings = ["GPU: NVIDIA T4.", f"Memory: {MEMORY_BYTES // 1024**3} GB.", *self._directions()]
        title = f"Files to upload: {self.package.name}"
        sections = [
            section(1, title, f"Purpose: {self.package.purpose}.", self._files(), bullets(self._notes())),
            section(2, "Settings on the platform", self._sockets(), bullets(settings)),
            section(2, "Rehearsal", self._how(), self._cases()),
        ]
        return "\n\n".join(sections) + "\n"

    def _files(self) -> str:
        purpose = "container image of the algorithm for task"
        rows = [
            [one.file, f"{purpose} {one.task.number}, {one.task.title}", *size_and_sum(one.entry)]
            for one in self.archives
        ]
        rows.append([MODEL, "model of each of these algorithms", *size_and_sum(self.model)])
        return table(["File", "Upload as", "Size", "sha256"], rows)

    def _notes(self) -> list[str]:
        if not self.archives:
            return ["No image archives were made: this is only the model, rehearsed with plain processes."]
        notes = [
            "The platform refuses an image that was uploaded before. If only the model is new, upload only the model.",
            "`hecktor submission --revision TEXT` makes new images of unchanged content.",
        ]
        if self.torch == "cpu":
            notes.append("These images contain the CPU build of PyTorch and do not use the platform's GPU.")
        return notes

    def _sockets(self) -> str:
        rows = [
            [
                f"{one.task.number}, {one.task.title}",
                _slugs(one.task.inputs.values()),
                _slugs(one.task.optional_inputs.values()) or "-",
                _slugs(answer.socket for answer in one.task.answers),
            ]
            for one in self.tried
        ]
        return table(["Task", "Inputs", "Optional inputs", "Outputs"], rows)

    def _directions(self) -> list[str]:
        """What a higher value of each risk means: editions differ in it."""
        risks = [answer for one in self.tried for answer in one.task.answers if answer.kind == "risk"]
        return [f"`{answer.socket.relative_path}` is {_DIRECTIONS[answer.direction]}." for answer in risks]

    def _how(self) -> str:
        if not self.archives:
            return (
                "As plain processes in the platform's folder layout, with model.tar.gz unpacked as the platform does. "
                "User, network and read-only input were not enforced."
            )
        where = "with all GPUs of the machine" if self.with_gpus else "on a CPU, not on a GPU"
        return (
            "Each archive was checked as at an upload, each layer against its checksum. It was loaded into a container "
            "engine and run as the platform does: with its own user, no network, read-only input, "
            f"{MEMORY_BYTES // 1024**3} GiB, the task's time limit, with model.tar.gz unpacked at /opt/ml/model; "
            f"{where}."
        )

    def _cases(self) -> str:
        rows = [
            [
                tried.task.name,
                f"{case.case}, {case.kind.replace('_', ' ')}",
                f"{case.seconds:.1f}",
                f"{tried.time_limit_s:g}",
                "-" if case.peak_memory_bytes is None else f"{case.peak_memory_bytes / 1024**3:.1f}",
                case.answered,
            ]
            for tried in self.tried
            for case in tried.cases
        ]
        return table(["Task", "Phantom", "Seconds", "Limit, s", "Memory, GiB", "Answered by"], rows)


def _slugs(sockets: Iterable[Socket]) -> str:
    return ", ".join(socket.slug for socket in sockets)


def size_and_sum(entry: Mapping[str, Any]) -> tuple[str, str]:
    """A file's size and sha256 for a table."""
    size = int(entry["size"])
    return f"{size / 1e9:.2f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB", str(entry["sha256"])
