"""Make a submission: pack the model, make phantoms, build each image, and let it answer all phantoms.

The checks are stricter than the platform's: an answer that is a fallback fails the submission. The files get their
final names at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Final

from contract.archives import pack, unpack
from contract.code import Code
from contract.editions import Algorithm, AnswerSpec, Edition, load_edition
from contract.errors import HecktorError, ModelPackageError
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
from rehearsal.jobs.execution import JobResult, Rehearsal
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import PhantomCase, adapt_centres, make_case
from rehearsal.phantoms.make import PlatformWriter, render_for_edition
from rehearsal.pipeline import rehearse
from rehearsal.records import RecordedRun, RehearsedCase
from rehearsal.runners.runner import Limits, ProcessRunner, Runner, build_algorithm_command
from rehearsal.submission.folder import (
    MEMORY_BYTES,
    MODEL,
    RECORD,
    REHEARSAL,
    RehearsedTask,
    Reporter,
    SubmissionDocument,
    TrialCase,
    UploadedImage,
    UploadedModel,
    check_folder,
    format_readme,
    keep_failed_logs,
    make_scratch_folder,
    replace_files,
    write_page,
)
from rehearsal.submission.images import ImageBuilder, Torch, save_and_load

_IMAGES_LOG: Final = "images.log"
NO_RECORD: Final = "no run record"
SEED: Final = 2025
# The usual field of view, with a planning CT and dose; the longest field of view; a field of view cut at the top.
KINDS: Final = ("head_and_neck", "whole_body", "cut")


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
        images: Makes the image archives; with None only the model is made, and rehearsed with plain processes.
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
    with make_scratch_folder(options.output) as scratch:
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
    limits = f"the longest in {rehearsal.longest_s:.1f} s (limit {rehearsal.time_limit_s:g} s)"
    report(f"{task.name}: {len(inputs.kinds)} phantoms, {limits}")
    return rehearsal


@dataclass(frozen=True)
class TrialInputs:
    """Inputs of all tasks: the edition, the cohort with the kind of each phantom by ID, and the unpacked package."""

    edition: Edition
    cohort: Path
    kinds: Mapping[str, str]
    model: Path


def make_phantoms(folder: Path, edition: Edition, kinds: Sequence[str], coarsening: int = 1) -> dict[str, str]:
    """Write a phantom of each field of view in the platform's layout.

    Args:
        folder: Folder of the cohort.
        edition: Edition that declares the inputs.
        kinds: Names of `rehearsal.phantoms.centres.FIELDS_OF_VIEW`.
        coarsening: Factor by which the CT matrix is smaller in plane.

    Returns:
        The kind of each phantom by its ID.
    """
    layout = PlatformWriter(edition)
    kind_of: dict[str, str] = {}
    for case, kind in zip(_make_cases(kinds, edition), kinds, strict=True):
        layout.write_case(folder, case, render_for_edition(edition, case, coarsening))
        kind_of[case.patient_id] = kind
    return kind_of


def _make_cases(kinds: Sequence[str], edition: Edition) -> Iterator[PhantomCase]:
    """Make a different patient for each kind; the first patient has a planned dose."""
    centres = adapt_centres(CENTRES, edition)
    start = 0
    for number, kind in enumerate(kinds):
        candidates = (make_case(SEED, index, centres, kind) for index in count(start))
        case = next(case for case in candidates if number > 0 or case.protocol.dose is not None)
        start = case.index + 1
        yield case


def rehearse_task(
    task: Algorithm, runner: Runner, inputs: TrialInputs, output: Path, report: Callable[[str], None]
) -> RehearsedTask:
    """Rehearse one task over all phantoms; `report` is called with a line for each phantom and each warning.

    Raises:
        HecktorError: An image would be refused, a job failed, an answer would not be scored, or the network did not
            answer.
    """
    result = rehearse(
        Rehearsal(
            edition=inputs.edition,
            task=task,
            cohort=inputs.cohort,
            output_dir=output,
            algorithm=runner,
            limits=Limits(MEMORY_BYTES, task.time_limit_s),
            model=inputs.model,
            only=tuple(inputs.kinds),
        ),
        on_job=lambda job: report(_format_progress(job, task, inputs)),
    )
    for warning in result.warnings:
        report(f"{task.name}: warning: {warning}")
    problems = [*result.refusals, *result.problems]
    for case in result.cases:
        problems += [f"phantom {case.case} ({inputs.kinds[case.case]}): {problem}" for problem in _list_problems(case)]
    if problems:
        raise HecktorError(task.name, problems[0])
    cases = tuple(_summarise_case(case, inputs) for case in result.cases)
    return RehearsedTask(
        task=task.name,
        how="container" if runner.is_isolated else "process",
        api_method=result.api_method,
        memory_bytes=MEMORY_BYTES,
        time_limit_s=result.limits.time_limit_s,
        longest_s=max(case.seconds for case in cases),
        cases=cases,
    )


def _format_progress(job: JobResult, task: Algorithm, inputs: TrialInputs) -> str:
    case = job.job.case.case_id
    suffix = "" if job.failure is None else ", failed"
    return f"{task.name}: phantom {case} ({inputs.kinds[case]}) {job.outcome.seconds:.1f} s{suffix}"


def _list_problems(case: RehearsedCase) -> list[str]:
    return [*case.unscored, *_find_fallbacks(case)] if case.failure is None else [case.failure]


def _find_fallbacks(case: RehearsedCase) -> list[str]:
    """Find answers that did not come from the network and the heads, by the algorithm's run record."""
    record = case.record or RecordedRun()
    if record.region and record.segmented_by is None:
        return ["neither a body nor uptake was found, expected an answer of the network"]
    if record.passes_done == 0 and record.segmented_by != "contours":
        return ["the PET threshold answered, expected an answer of the network"]
    if record.fallbacks:
        return [f"fallbacks answered for {', '.join(record.fallbacks)}, expected answers of the model"]
    return []


def _summarise_case(case: RehearsedCase, inputs: TrialInputs) -> TrialCase:
    record = case.record
    answered = NO_RECORD
    if record is not None:
        # The usual method is called "baseline", whichever networks the package has.
        answered_by = record.method if record.package is None else record.package.name
        answered = f"{answered_by}: {record.passes_done} of {record.passes_planned} passes"
        if not (record.region or {}).get("sure", True):
            answered += ", region unsure"
        if record.notices:
            answered += f", warnings: {len(record.notices)}"
    return TrialCase(
        case=case.case,
        kind=inputs.kinds[case.case],
        seconds=round(case.seconds, 1),
        peak_memory_bytes=case.peak_memory_bytes,
        answered=answered,
    )
