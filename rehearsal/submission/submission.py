"""The main path: pack the model, make the phantoms, make and rehearse every image, and name it all at the end."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from contract.archives import pack, unpack
from contract.errors import EngineError, HecktorError, OutputError
from contract.files import write_json, write_text
from contract.packages import file_entry, read_manifest, verified_files
from contract.tasks import TASKS, Task
from rehearsal.runners.runner import ProcessRunner, Runner
from rehearsal.submission.images import Images
from rehearsal.submission.phantoms import KINDS, make_phantoms
from rehearsal.submission.record import MODEL, README, RECORD, Archive, Submission
from rehearsal.submission.tries import Trial, Tried, try_task

REHEARSAL: Final = "rehearsal"
FAILED: Final = "failed"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """What to make.

    Attributes:
        package: folder of a model package.
        output: folder for the files to upload.
        tasks: whose images.
        torch: the images' build, for the record.
        with_gpus: whether the images are rehearsed with GPUs, for the record.
        kinds: fields of view of the phantoms.
        coarsening: how many times smaller the phantoms' CT matrix is, for tests.
    """

    package: Path
    output: Path
    tasks: tuple[Task, ...] = TASKS
    torch: str = "cuda"
    with_gpus: bool = False
    kinds: tuple[str, ...] = KINDS
    coarsening: int = 1


def archive_name(task: Task) -> str:
    """The file name of a task's image in a submission."""
    return f"hecktor-{task.name}.tar.gz"


def make_submission(request: Request, images: Images | None, say: Say) -> Submission:
    """Make and rehearse the files to upload; they get their names once all of them have passed.

    Args:
        request: what to make.
        images: what makes the archives; None makes the model alone and rehearses it with plain processes.
        say: told of each step.

    Raises:
        HecktorError: the package cannot be used, or something did not pass. Then the folder holds what it held
            before and, in `failed/`, the logs.
    """
    manifest = _verified_manifest(request.package)
    _check_folder(request.output)
    with _scratch(request.output) as scratch:
        model = _packed(request.package, scratch)
        say(f"{MODEL}: packed, unpacked as the platform does, loaded")
        kinds = make_phantoms(scratch / "cohort", request.kinds, request.coarsening)
        say(f"phantoms: {', '.join(request.kinds)}")
        trial = Trial(scratch / "cohort", kinds, model, f"{manifest['name']} ({manifest['purpose']})")
        try:
            archives, tried = _rehearsed(request, images, trial, scratch, say)
        except HecktorError as problem:
            _keep_logs(scratch, request.output / FAILED)
            raise type(problem)(f"{problem.message}; no file got its name, logs in {FAILED}/") from None
        torch = None if images is None else request.torch
        entry = file_entry(scratch / MODEL)
        submission = Submission(manifest, entry, archives, tried, torch, request.with_gpus)
        _name_all(submission, scratch, request.output)
    return submission


def _packed(package: Path, scratch: Path) -> Path:
    """Pack the package, and hand back what the platform would unpack of it."""
    pack(package, scratch / MODEL)
    unpacked = scratch / "model"
    unpack(scratch / MODEL, unpacked)
    _verified_manifest(unpacked)
    return unpacked


def _verified_manifest(package: Path) -> dict[str, Any]:
    manifest = read_manifest(package)
    verified_files(package, manifest["files"])
    return manifest


def _rehearsed(
    request: Request, images: Images | None, trial: Trial, scratch: Path, say: Say
) -> tuple[list[Archive], list[Tried]]:
    archives, tried = [], []
    log = scratch / REHEARSAL / "images.log"
    log.parent.mkdir()
    if images is not None:
        images.build(request.tasks, log)
        say(f"images: {', '.join(images.name(task) for task in request.tasks)} built")
    for task in request.tasks:
        runner: Runner = ProcessRunner((sys.executable, "-m", "algorithm", "--task", task.name))
        if images is not None:
            runner, archive = _archived(images, task, scratch, log)
            archives.append(archive)
            say(f"{archive.file}: {archive.entry['size'] / 1e9:.2f} GB, checked and loaded")
        tried.append(try_task(task, runner, trial, scratch / REHEARSAL / task.name))
        one = tried[-1]
        say(f"{task.name}: {len(one.cases)} phantoms, {one.longest_s:.1f} s the longest (limit {one.time_limit_s:g} s)")
    return archives, tried


def _archived(images: Images, task: Task, scratch: Path, log: Path) -> tuple[Runner, Archive]:
    folder = scratch / task.name
    folder.mkdir()
    archive = images.save(task, folder, log).rename(scratch / archive_name(task))
    return images.load(archive), Archive(task, archive.name, images.name(task), file_entry(archive))


def _name_all(submission: Submission, scratch: Path, output: Path) -> None:
    """Put everything in its place; `submission.json` goes first and comes last, and vouches for the rest."""
    (output / RECORD).unlink(missing_ok=True)
    for name in (README, MODEL, *(archive_name(task) for task in TASKS)):
        (output / name).unlink(missing_ok=True)
    for folder in (REHEARSAL, FAILED):
        shutil.rmtree(output / folder, ignore_errors=True)
    for name in (MODEL, *(one.file for one in submission.archives), REHEARSAL):
        (scratch / name).rename(output / name)
    write_text(output / README, submission.readme())
    write_json(output / RECORD, submission.as_json())


def _keep_logs(scratch: Path, failed: Path) -> None:
    shutil.rmtree(failed, ignore_errors=True)
    shutil.move(scratch / REHEARSAL, failed)


def _check_folder(output: Path) -> None:
    """A folder with something else in it is not made a submission of, since files there would be replaced."""
    if output.is_dir() and any(output.iterdir()) and not ({RECORD, FAILED} & {path.name for path in output.iterdir()}):
        raise OutputError(output.name, "exists and is no submission", "a new name or a submission's")


@contextmanager
def _scratch(output: Path) -> Iterator[Path]:
    """A temporary folder in `output`, which an image's user may enter; what cannot be written is an `OutputError`."""
    made = not output.exists()
    try:
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=output) as scratch:
            Path(scratch).chmod(0o755)
            yield Path(scratch)
    except OSError as problem:
        raise OutputError(output.name, f"cannot be written ({problem})", "a writable folder") from None
    finally:
        if made and output.is_dir() and not any(output.iterdir()):
            output.rmdir()


def without_archives(why: EngineError) -> EngineError:
    """The error after a submission was made without images although they were asked for."""
    return EngineError(
        f"{why.message}; no image archives were made. {MODEL} was made, rehearsed with plain processes and written. "
        "Start an engine (`scripts/engine` on Debian) and run this again, or ask for --model-only"
    )
