"""Make a submission: pack the model, make phantoms, build and rehearse each image, and name the files at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from contract.archives import pack, unpack
from contract.code import Code
from contract.editions import Algorithm, AnswerSpec, Edition, load_edition
from contract.errors import ModelPackageError
from contract.packages import (
    Manifest,
    check_code,
    check_edition,
    make_file_entry,
    open_package,
    read_identity,
    read_manifest,
    verify_files,
)
from rehearsal.runners.runner import ProcessRunner, Runner, build_algorithm_command
from rehearsal.submission.folder import (
    MODEL,
    RECORD,
    REHEARSAL,
    Reporter,
    SubmissionDocument,
    UploadedImage,
    UploadedModel,
    check_folder,
    format_readme,
    keep_failed_logs,
    replace_files,
    scratch_folder,
    write_page,
)
from rehearsal.submission.images import ImageBuilder, Torch, save_and_load
from rehearsal.submission.tries import KINDS, RehearsedTask, TrialInputs, make_phantoms, rehearse_task

_IMAGES_LOG: Final = "images.log"


@dataclass(frozen=True)
class SubmissionOptions:
    """Options of a submission.

    Attributes:
        package: Folder or `.tar.gz` of the model package.
        output: Folder for the files to upload.
        tasks: Tasks of which images are made; empty for all tasks of the edition.
        torch: PyTorch build of the images, for the record.
        with_gpus: Whether the images get GPUs in the rehearsal, for the record.
        kinds: Fields of view of the phantoms.
        coarsening: Factor by which the CT matrix of the phantoms is smaller, for tests.
        code: Folders of custom code, which the package names.
    """

    package: Path
    output: Path
    tasks: tuple[Algorithm, ...] = ()
    edition: Edition = field(default_factory=load_edition)
    torch: Torch = "cuda"
    with_gpus: bool = False
    kinds: tuple[str, ...] = KINDS
    coarsening: int = 1
    code: tuple[Path, ...] = ()


def make_archive_name(task: Algorithm) -> str:
    """Make the file name of a task's image."""
    return f"{task.image}.tar.gz"


def make_submission(options: SubmissionOptions, images: ImageBuilder | None, report: Reporter) -> SubmissionDocument:
    """Make and rehearse the files to upload; they get their names after all of them have passed.

    Args:
        options: Options of the submission.
        images: Makes the image archives. Without it only the model is made, and rehearsed with plain processes.
        report: Called with a line for each step.

    Raises:
        HecktorError: The package cannot be used or belongs to another edition, or a check failed. The folder then
            keeps its earlier content, and `failed/` has the logs.
    """
    with open_package(options.package) as package:
        return _make_from_folder(replace(options, package=package), images, report)


def _make_from_folder(options: SubmissionOptions, images: ImageBuilder | None, report: Reporter) -> SubmissionDocument:
    manifest = read_manifest(options.package)
    files = verify_files(options.package, manifest)
    tasks = options.tasks or options.edition.algorithms
    for task in tasks:
        check_edition(manifest, options.edition, task)
    for changed in check_code(manifest, Code.from_folders(options.code), is_from_option=True):
        report(f"warning: {changed}")
    _check_heads(manifest, tasks)
    check_folder(options.output, RECORD, "submission")
    with scratch_folder(options.output) as scratch:
        report(f"{MODEL}: packing")
        shared = {name: path for name, path in files.items() if not path.is_relative_to(options.package)}
        pack(options.package, scratch / MODEL, shared)
        unpack(scratch / MODEL, scratch / "model")
        identity = read_identity(scratch / "model")
        report(f"{MODEL}: packed, unpacked as the platform does: {identity}")
        report(f"phantoms: making {', '.join(options.kinds)}")
        kinds = make_phantoms(scratch / "cohort", options.edition, options.kinds, options.coarsening)
        inputs = TrialInputs(options.edition, scratch / "cohort", kinds, scratch / "model")
        with keep_failed_logs(scratch, options.output):
            log = scratch / REHEARSAL / _IMAGES_LOG
            log.parent.mkdir()
            if images is not None:
                report(f"images: building {', '.join(images.name(task) for task in tasks)}")
                images.build(options.edition, tasks, log)
            archives: list[UploadedImage] = []
            rehearsals: list[RehearsedTask] = []
            for task in tasks:
                runner: Runner = ProcessRunner(build_algorithm_command(options.edition, task, options.code))
                if images is not None:
                    runner, archive = _save_image(options, images, task, scratch, report)
                    archives.append(archive)
                rehearsals.append(_rehearse_task(task, runner, inputs, scratch, report))
        submission = SubmissionDocument(
            model=UploadedModel(purpose=manifest.purpose, **make_file_entry(scratch / MODEL), **identity.model_dump()),
            images=tuple(archives),
            rehearsed_with_gpus=options.with_gpus,
            rehearsals=tuple(rehearsals),
        )
        names = (MODEL, *(archive.file for archive in archives))
        earlier_names = (MODEL, *(make_archive_name(task) for task in options.edition.algorithms))
        write_page(scratch, format_readme(submission, tasks), RECORD, submission)
        for name in replace_files(scratch, options.output, RECORD, names, earlier_names):
            report(f"{name}: removed, since it belonged to an earlier submission in this folder")
    return submission


def _check_heads(manifest: Manifest, tasks: Sequence[Algorithm]) -> None:
    """Raise `ModelPackageError` for a package that cannot answer a task, before minutes of rehearsal."""
    missing_heads: dict[str, list[str]] = {}
    for task in tasks:
        for spec in task.head_specs:
            if spec.fallback is None and _format_head_file(spec) not in manifest.files:
                missing_heads.setdefault(task.name, []).append(str(spec.head))
    if missing_heads:
        heads = ", ".join(head for names in missing_heads.values() for head in names)
        complete = [f"--task {task.name}" for task in tasks if task.name not in missing_heads]
        expected = f"heads for {', '.join(missing_heads)}" + (f", or only {' '.join(complete)}" if complete else "")
        raise ModelPackageError("--package", f"no head {heads}", expected)


def _format_head_file(answer: AnswerSpec) -> str:
    return f"heads/{answer.head}.json"


def _save_image(
    options: SubmissionOptions, images: ImageBuilder, task: Algorithm, scratch: Path, report: Reporter
) -> tuple[Runner, UploadedImage]:
    """Save the image of a task as an archive and load it; return its runner and its entry of the record."""
    archive = scratch / make_archive_name(task)
    report(f"{archive.name}: saving and loading")
    runner = save_and_load(images, task, archive, scratch / REHEARSAL / _IMAGES_LOG)
    entry = UploadedImage(
        file=archive.name,
        task=task.name,
        image=images.name(task),
        torch=options.torch,
        **make_file_entry(archive),
    )
    report(f"{archive.name}: {entry.size / 1e9:.2f} GB, loaded, API method {runner.api_method}")
    return runner, entry


def _rehearse_task(
    task: Algorithm, runner: Runner, inputs: TrialInputs, scratch: Path, report: Reporter
) -> RehearsedTask:
    report(f"{task.name}: rehearsing {len(inputs.kinds)} phantoms")
    rehearsal = rehearse_task(task, runner, inputs, scratch / REHEARSAL / task.name, report)
    limits = f"{rehearsal.longest_s:.1f} s the longest (limit {rehearsal.time_limit_s:g} s)"
    report(f"{task.name}: {len(inputs.kinds)} phantoms, {limits}")
    return rehearsal
