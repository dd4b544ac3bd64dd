"""Make a submission: pack the model, make phantoms, build and rehearse each image, and name the files at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

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
from rehearsal.runners.runner import ProcessRunner, Runner, algorithm_command
from rehearsal.submission.folder import (
    MODEL,
    RECORD,
    REHEARSAL,
    Reporter,
    SubmissionDocument,
    UploadedImage,
    UploadedModel,
    check_folder,
    failure_keeps_logs,
    readme,
    replace_files,
    scratch_folder,
)
from rehearsal.submission.images import BuiltImages, Torch, save_and_load
from rehearsal.submission.tries import KINDS, RehearsedTask, TrialInputs, make_phantoms, try_task


@dataclass(frozen=True)
class SubmissionOptions:
    """Options of a submission: `package` is a folder or `.tar.gz`, `output` the folder for the files to upload.

    Images are made of the `tasks`, of all of the edition if empty. `torch`, the images' PyTorch build, and `with_gpus`
    are for the record. `kinds` are the phantoms' fields of view; `coarsening` makes their CT matrix smaller, for tests.
    `code` are folders of the user's own code, which the package names.
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


def archive_name(task: Algorithm) -> str:
    """File name of a task's image."""
    return f"{task.image}.tar.gz"


def make_submission(options: SubmissionOptions, images: BuiltImages | None, report: Reporter) -> SubmissionDocument:
    """Make and rehearse the files to upload; they get their names once all of them have passed.

    `images` makes the archives; without it only the model is made, and rehearsed with plain processes. `report` is
    called with a line for each step.

    Raises:
        HecktorError: the package cannot be used or is of another edition, or a check failed. The folder then holds
            its earlier content and, in `failed/`, the logs.
    """
    with open_package(options.package) as package:
        return _make_from_folder(replace(options, package=package), images, report)


def _make_from_folder(options: SubmissionOptions, images: BuiltImages | None, report: Reporter) -> SubmissionDocument:
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
        with failure_keeps_logs(scratch, options.output):
            archives, tried = _rehearsed(options, tasks, images, inputs, scratch, report)
        submission = SubmissionDocument(
            model=UploadedModel(purpose=manifest.purpose, **make_file_entry(scratch / MODEL), **identity.model_dump()),
            images=tuple(archives),
            rehearsed_with_gpus=options.with_gpus,
            rehearsals=tuple(tried),
        )
        names = (MODEL, *(one.file for one in archives))
        earlier = (MODEL, *(archive_name(task) for task in options.edition.algorithms))
        page = readme(submission, tasks)
        for name in replace_files(scratch, options.output, names, earlier, page, (RECORD, submission)):
            report(f"{name}: removed, since it belonged to an earlier submission in this folder")
    return submission


def _check_heads(manifest: Manifest, tasks: Sequence[Algorithm]) -> None:
    """Refuse a package that cannot answer a task, before minutes of rehearsal. Raises `ModelPackageError`."""
    lacking = {
        task.name: [
            one.head for one in task.head_specs if one.fallback is None and _head_file(one) not in manifest.files
        ]
        for task in tasks
    }
    absent = {name: heads for name, heads in lacking.items() if heads}
    if absent:
        heads = ", ".join(head for names in absent.values() for head in names)
        others = [f"--task {task.name}" for task in tasks if task.name not in absent]
        expected = f"heads for {', '.join(absent)}" + (f", or {' '.join(others)} alone" if others else "")
        raise ModelPackageError("--package", f"no head {heads}", expected)


def _head_file(answer: AnswerSpec) -> str:
    return f"heads/{answer.head}.json"


def _rehearsed(
    options: SubmissionOptions,
    tasks: Sequence[Algorithm],
    images: BuiltImages | None,
    inputs: TrialInputs,
    scratch: Path,
    report: Reporter,
) -> tuple[list[UploadedImage], list[RehearsedTask]]:
    archives, tried = [], []
    log = scratch / REHEARSAL / "images.log"
    log.parent.mkdir()
    if images is not None:
        report(f"images: building {', '.join(images.name(task) for task in tasks)}")
        images.build(options.edition, tasks, log)
    for task in tasks:
        runner: Runner = ProcessRunner(algorithm_command(options.edition, task, options.code))
        if images is not None:
            report(f"{archive_name(task)}: saving and loading")
            archive = scratch / archive_name(task)
            runner = save_and_load(images, task, archive, log)
            uploaded = UploadedImage(
                file=archive.name,
                task=task.name,
                image=images.name(task),
                torch=options.torch,
                **make_file_entry(archive),
            )
            archives.append(uploaded)
            report(f"{archive.name}: {uploaded.size / 1e9:.2f} GB, loaded, API method {runner.api_method}")
        report(f"{task.name}: rehearsing {len(inputs.kinds)} phantoms")
        tried.append(try_task(task, runner, inputs, scratch / REHEARSAL / task.name, report))
        longest_s, limit_s = tried[-1].longest_s, tried[-1].time_limit_s
        report(f"{task.name}: {len(inputs.kinds)} phantoms, {longest_s:.1f} s the longest (limit {limit_s:g} s)")
    return archives, tried
