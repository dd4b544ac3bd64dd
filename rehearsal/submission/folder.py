"""The folder of files to upload; they get their final names together, after all of them have passed the rehearsal.

Its README.md describes the files, their places on the platform and their rehearsals, from the record `submission.json`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from contract.documents import Document, format_bullets, format_section, format_table
from contract.editions import Algorithm, Socket
from contract.editions.answers import Direction
from contract.errors import EngineError, HecktorError, OutputError, make_write_error
from contract.io.files import write_json, write_text
from contract.packages import FileEntry
from contract.platform import API_METHOD_LABEL
from rehearsal.runners.runner import GIB

README: Final = "README.md"
REHEARSAL: Final = "rehearsal"
FAILED: Final = "failed"
_EARLIER: Final = "earlier"
_SCRATCH: Final = ".partial-"
RECORD: Final = "submission.json"
MODEL: Final = "model.tar.gz"
# Memory of each image in the rehearsal, the platform's default.
MEMORY_BYTES: Final = 16 * GIB
_DIRECTIONS: Final[Mapping[Direction, str]] = {
    "risk": "a risk: a higher value means earlier recurrence",
    "time": "a time in days: a higher value means later recurrence",
}

Reporter = Callable[[str], None]


def check_folder(output: Path, record: str, kind: str) -> None:
    """Raise `OutputError` if a folder has files of something other than an earlier `kind`, because they would be lost.

    Args:
        output: The folder.
        record: File name of the record that such a folder contains.
        kind: "submission" or "phase", for the message.
    """
    paths = list(output.iterdir()) if output.is_dir() else []
    names = {path.name for path in paths if not path.name.startswith(_SCRATCH)}
    # A killed run leaves its temporary folder, into which it may have moved the earlier files.
    moved = {path.name for folder in _find_abandoned(output) for path in folder.glob(f"{_EARLIER}/*")}
    if (names or moved) and not {record, FAILED} & (names | moved):
        expected = f"a new name or the folder of an earlier {kind}"
        raise OutputError(output.name, f"exists and is not the folder of a {kind}", expected)


def _find_abandoned(output: Path) -> list[Path]:
    return [path for path in output.glob(f"{_SCRATCH}*") if path.is_dir() and not path.is_symlink()]


@contextmanager
def make_scratch_folder(output: Path) -> Iterator[Path]:
    """Yield a temporary folder in `output` that an image's user may enter, and turn `OSError` into `OutputError`.

    If the block succeeds, the temporary folders of killed runs are removed. The caller holds the lock of `output`.
    """
    is_new = not output.exists()
    try:
        output.mkdir(parents=True, exist_ok=True)
        abandoned = _find_abandoned(output)
        with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=output) as scratch:
            Path(scratch).chmod(0o755)
            yield Path(scratch)
        for folder in abandoned:
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as problem:
        raise make_write_error(output.name, problem) from None
    finally:
        if is_new and output.is_dir() and not any(output.iterdir()):
            output.rmdir()


@contextmanager
def keep_failed_logs(scratch: Path, output: Path) -> Iterator[None]:
    """Move the rehearsal to `failed/` in `output` if the block raises a `HecktorError`, and add this to its message."""
    try:
        yield
    except HecktorError as error:
        shutil.rmtree(output / FAILED, ignore_errors=True)
        shutil.move(scratch / REHEARSAL, output / FAILED)
        raise type(error)(f"{error.message}; no file was replaced, see the logs in {FAILED}/") from None


def replace_files(
    scratch: Path, output: Path, record: str, names: Sequence[str], earlier_names: Sequence[str]
) -> list[str]:
    """Replace earlier files in `output` by files from `scratch`, together with the record, README.md and rehearsal.

    The earlier record is moved away first and the new record is moved last, so a folder with a record is complete. If a
    file cannot be moved, all earlier files get their names back.

    Args:
        scratch: Folder of the new files.
        output: Folder of the earlier files.
        record: File name of the record.
        names: New files.
        earlier_names: Files that an earlier run may have written.

    Returns:
        The earlier files that were removed without a new file of the same name.
    """
    removed = [name for name in earlier_names if name not in names and (output / name).is_file()]
    new_names = (*names, REHEARSAL, README, record)
    old_names = [name for name in (record, README, *earlier_names, REHEARSAL, FAILED) if os.path.lexists(output / name)]
    moves = [(output / name, scratch / _EARLIER / name) for name in dict.fromkeys(old_names)]
    moves += [(scratch / name, output / name) for name in new_names]
    (scratch / _EARLIER).mkdir()
    moved: list[tuple[Path, Path]] = []
    try:
        for source, target in moves:
            source.rename(target)
            moved.append((source, target))
    except OSError:
        for source, target in reversed(moved):
            target.rename(source)
        raise
    return removed


def write_page(scratch: Path, readme: str, record: str, document: Document) -> None:
    """Write README.md and the record into `scratch`."""
    write_text(scratch / README, readme)
    write_json(scratch / record, document.model_dump(mode="json"))


def make_missing_images_error(cause: EngineError, file: str, option: str) -> EngineError:
    """Make the error for a `file` that was made without the requested images; with `option` no images are made."""
    return EngineError(
        f"{cause.message}; no image archives were made. {file} was made and rehearsed with plain processes. "
        f"Start an engine (`scripts/engine` on Debian) and run this again, or use {option}"
    )


class UploadedModel(FileEntry):
    """The packed model package."""

    file: str = MODEL
    name: str
    manifest_sha256: str
    purpose: str


class UploadedImage(FileEntry):
    """A saved image: its name in the engine and its build of PyTorch."""

    file: str
    task: str
    image: str
    torch: str


class TrialCase(Document):
    """Time and memory of one phantom; `answered` describes how the algorithm answered, from its run record."""

    case: str
    kind: str
    seconds: float
    peak_memory_bytes: int | None
    answered: str


class RehearsedTask(Document):
    """The rehearsal of one task."""

    task: str
    how: Literal["container", "process"]
    api_method: str
    memory_bytes: int
    time_limit_s: float
    longest_s: float
    cases: tuple[TrialCase, ...]


class SubmissionDocument(Document):
    """The content of `submission.json`."""

    format_version: Literal[1] = 1
    model: UploadedModel
    images: tuple[UploadedImage, ...]
    rehearsed_with_gpus: bool
    rehearsals: tuple[RehearsedTask, ...]


def format_readme(submission: SubmissionDocument, tasks: Sequence[Algorithm]) -> str:
    """Format the content of `README.md`; `tasks` are the rehearsed tasks in the same order."""
    model = submission.model
    settings = ["GPU: NVIDIA T4.", f"Memory: {MEMORY_BYTES // 1024**3} GB.", *_describe_directions(tasks)]
    title = f"Files to upload: {model.name}"
    purpose = f"Purpose: {model.purpose}."
    sections = [
        format_section(1, title, purpose, _format_files(submission, tasks), format_bullets(_list_notes(submission))),
        format_section(2, "Settings on the platform", _format_sockets(tasks), format_bullets(settings)),
        format_section(2, "Rehearsal", _describe_rehearsal(submission), _format_cases(submission)),
    ]
    return "\n\n".join(sections) + "\n"


def _format_files(submission: SubmissionDocument, tasks: Sequence[Algorithm]) -> str:
    purpose = "container image of the algorithm for task"
    rows = [
        [image.file, f"{purpose} {task.number}, {task.title}", *format_size_and_sum(image)]
        for image, task in zip(submission.images, tasks, strict=False)
    ]
    rows.append([MODEL, "model of each of these algorithms", *format_size_and_sum(submission.model)])
    return format_table(["File", "Upload as", "Size", "sha256"], rows)


def _list_notes(submission: SubmissionDocument) -> list[str]:
    if not submission.images:
        return ["No image archives were made: this is only the model, rehearsed with plain processes."]
    notes = [
        "The platform refuses an image that was uploaded before. If only the model is new, upload only the model.",
        "`hecktor submission --revision TEXT` makes new images of unchanged content.",
        describe_api_method(submission.rehearsals[0].api_method),
    ]
    if submission.images[0].torch == "cpu":
        notes.append("These images contain the CPU build of PyTorch and do not use the platform's GPU.")
    return notes


def _format_sockets(tasks: Sequence[Algorithm]) -> str:
    rows = [
        [
            f"{task.number}, {task.title}",
            _format_slugs(task.inputs.values()),
            _format_slugs(task.optional_inputs.values()) or "-",
            _format_slugs(answer.socket for answer in task.answers),
        ]
        for task in tasks
    ]
    return format_table(["Task", "Inputs", "Optional inputs", "Outputs"], rows)


def _describe_directions(tasks: Sequence[Algorithm]) -> list[str]:
    """Describe the meaning of a higher value of each risk, in which editions differ."""
    risks = [answer for task in tasks for answer in task.answers if answer.kind == "risk"]
    return [f"`{answer.socket.relative_path}` is {_DIRECTIONS[answer.direction]}." for answer in risks]


def _describe_rehearsal(submission: SubmissionDocument) -> str:
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


def _format_cases(submission: SubmissionDocument) -> str:
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
    return format_table(["Task", "Phantom", "Seconds", "Limit, s", "Memory, GiB", "Answered by"], rows)


def _format_slugs(sockets: Iterable[Socket]) -> str:
    return ", ".join(socket.slug for socket in sockets)


def describe_api_method(api_method: str) -> str:
    """Describe the API method of images, which a phase may require."""
    alternative = "invoke" if api_method == "exec" else "exec"
    return (
        f"API method (label `{API_METHOD_LABEL}`): `{api_method}`. If the phase accepts only the other, make images "
        f"with `--api-method {alternative}`."
    )


def format_size_and_sum(entry: FileEntry) -> tuple[str, str]:
    """Format a file's size and sha256 for a table."""
    return f"{entry.size / 1e9:.2f} GB" if entry.size >= 1e8 else f"{entry.size / 1e6:.1f} MB", entry.sha256
