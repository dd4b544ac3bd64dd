"""Make a phase: check the reference, make test submissions, build the evaluation image, and test it.

The test submissions are in the platform's layout: perfect answers, empty answers, and answers from plain files.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from contract.archives import pack, unpack
from contract.editions import Algorithm, AnswerSpec, Edition
from contract.editions.clinical import CENTRE
from contract.errors import GroundTruthError, HecktorError, PredictionError, combine_errors
from contract.images.volumes import write_mask
from contract.io.tables import write_csv
from contract.patient import format_names
from contract.predictions import make_job_entry, make_socket_entry
from contract.processes import count_usable_cpus
from contract.release.layout import is_release
from evaluation.editions.profile import AnswerProfile, EvaluationProfile, TaskProfile
from evaluation.inputs.ground_truth import Reference, read_reference_table
from evaluation.inputs.masks import read_labels
from evaluation.inputs.submission import PredictedClass, SubmittedAnswer
from evaluation.inputs.tables import CENTRE_COLUMN, ID_COLUMN, read_table, with_decimal_points
from evaluation.metrics.rules import RiskRules
from evaluation.options import BOUNDING_BOXES, EvaluationRequest, requires_boxes
from evaluation.pipeline import evaluate_submission, read_references, read_submissions
from hecktor.phase.settings import GROUND_TRUTH, SETTINGS, PhaseSettings, format_readme
from rehearsal.jobs.cases import place_file
from rehearsal.jobs.evaluation import (
    EvaluationRun,
    find_value,
    run_evaluation,
    select_ranked_values,
    write_jobs,
    write_output,
)
from rehearsal.platform.runs import CheckedOutput
from rehearsal.runners.runner import ProcessRunner, Runner, build_evaluation_command
from rehearsal.submission.folder import (
    REHEARSAL,
    Reporter,
    check_folder,
    keep_failed_logs,
    make_scratch_folder,
    replace_files,
    write_page,
)
from rehearsal.submission.images import ImageBuilder, save_and_load

EMPTY: Final = "empty"
References = Mapping[str, Reference[Any]]
# Answers of all cases by the name of the answer.
Answers = Mapping[str, Sequence[SubmittedAnswer]]


@dataclass(frozen=True)
class PhaseOptions:
    """Options of a phase.

    Attributes:
        edition: The edition of the phase.
        profile: The scoring rules of the edition.
        task: The task of the phase with its scoring rules.
        ground_truth: The reference.
        output: Folder of the files to upload.
        predictions: Predictions in plain files for one more test submission.
        bounding_boxes: Table of boxes; masks are scored only inside these boxes.
    """

    edition: Edition
    profile: EvaluationProfile
    task: TaskProfile
    ground_truth: Path
    output: Path
    predictions: Path | None = None
    bounding_boxes: Path | None = None


def make_phase(options: PhaseOptions, images: ImageBuilder | None, report: Reporter) -> dict[str, EvaluationRun]:
    """Make and test the files of a phase.

    Files get their final names only after all tests have passed.

    Args:
        options: Options of the phase.
        images: Builder of the evaluation image. Without it only the ground truth is made, and the evaluation runs as a
            plain process.
        report: Gets a line for each step.

    Returns:
        The evaluation of each test submission by name.

    Raises:
        HecktorError: The reference or the predictions cannot be used, or a test failed. Then the folder keeps its
            earlier content, and `failed/` contains the logs of the image and the test submissions.
    """
    task = options.task
    check_folder(options.output, SETTINGS, "phase")
    if requires_boxes(task) != (options.bounding_boxes is not None):
        problem = "found none for" if requires_boxes(task) else "found with"
        expected = "a CSV file of boxes" if requires_boxes(task) else "an edition with the rule bounding_box required"
        raise HecktorError("--bounding-boxes", f"{problem} edition {task.edition}", expected)
    references = _read_references(options)
    case_count = len({case for reference in references.values() for case in reference.targets})
    settings = PhaseSettings.from_task(task)
    submissions = _read_test_submissions(options, references, report)
    with make_scratch_folder(options.output) as scratch:
        unused_columns = _pack_ground_truth(options, references, scratch)
        report(f"{GROUND_TRUTH}: {case_count} cases, packed, unpacked as the platform does")
        for table, columns in unused_columns.items():
            report(f"{table}: packed without {', '.join(columns)}, which the score of this task does not use")
        for name, answers in submissions.items():
            _score_submission(options, name, answers, scratch)
            report(f"{name} submission: made, and scored without the image")
        with keep_failed_logs(scratch, options.output):
            runner, names = _prepare_runner(options, images, scratch, report)
            runs = {name: _run_submission(name, runner, settings, scratch, report) for name in submissions}
        page = format_readme(options.edition.title, task, [scratch / name for name in names], case_count, runs)
        write_page(scratch, page, SETTINGS, settings)
        earlier_names = (GROUND_TRUTH, *map(_make_archive_name, options.edition.algorithms))
        for name in replace_files(scratch, options.output, SETTINGS, names, earlier_names):
            report(f"{name}: removed, since it belonged to an earlier phase in this folder")
    return runs


def _read_references(options: PhaseOptions) -> References:
    """Read the reference of each answer.

    Raises:
        GroundTruthError: The reference is unusable. For a release the message describes the reference of a phase.
    """
    try:
        return read_references(options.profile, options.task, options.ground_truth, options.bounding_boxes)
    except GroundTruthError:
        if not is_release(options.ground_truth, options.edition):
            raise
        files = []
        if options.task.algorithm.mask_spec is not None:
            files.append("the masks <case>.nii.gz of all patients")
        if options.task.algorithm.head_specs:
            files.append("its table")
        where = "in one folder, as the platform needs them (docs/organise.md#start-from-a-release)"
        problem = "a release, with a folder for each patient"
        raise GroundTruthError(options.ground_truth.name, problem, f"{' and '.join(files)} {where}") from None


def _make_archive_name(algorithm: Algorithm) -> str:
    return f"{algorithm.evaluation_image}.tar.gz"


def _read_test_submissions(options: PhaseOptions, references: References, report: Reporter) -> dict[str, Answers]:
    """Read the answers of each test submission by name; `write_submission` makes the empty submission."""
    perfect = make_perfect_answers(options.task, references)
    submissions: dict[str, Answers] = {"perfect": perfect, EMPTY: perfect}
    if options.predictions is not None:
        predicted = read_submissions(options.task, references, options.output, options.predictions)
        submissions["predictions"] = {name: submission.answers for name, submission in predicted.submissions.items()}
        for finding in predicted.findings:
            report(f"predictions submission: warning: {finding}")
        for name, submission in predicted.submissions.items():
            missing = [answer.case for answer in submission.answers if not answer.is_submitted]
            if missing:
                report(f"predictions submission: warning: no {name} of {format_names(missing)}, which count as missing")
    return submissions


def _pack_ground_truth(options: PhaseOptions, references: References, scratch: Path) -> dict[str, list[str]]:
    """Pack the masks, tables and boxes that the evaluation of the task reads, and unpack them as `ground_truth`.

    Returns:
        The columns that were left out, by the name of the table.
    """
    for path in {path for reference in references.values() for path in reference.targets.values()}:
        if isinstance(path, Path):
            place_file(path, scratch / "reference" / path.name)
    unused_columns = _write_tables(options.profile, options.task, references, scratch / "reference")
    if options.bounding_boxes is not None:
        place_file(options.bounding_boxes, scratch / "reference" / BOUNDING_BOXES)
    pack(scratch / "reference", scratch / GROUND_TRUTH)
    unpack(scratch / GROUND_TRUTH, scratch / "ground_truth", error=GroundTruthError)
    return {table: columns for table, columns in unused_columns.items() if columns}


def _write_tables(
    profile: EvaluationProfile, task: TaskProfile, references: References, folder: Path
) -> dict[str, list[str]]:
    """Write each table into `folder` with only the patients, their centres and the scored answers.

    Returns:
        The columns that were left out, by the name of the table.
    """
    variables = profile.edition.clinical
    centre_columns = [name for variable in variables if variable.name == CENTRE for name in variable.spellings]
    answers_of: dict[Path, list[AnswerSpec]] = {}
    for name, reference in references.items():
        for path in reference.tables:
            answers_of.setdefault(path, []).append(task.answers[name].answer)
    return {path.name: _write_table(path, centre_columns, answers, folder) for path, answers in answers_of.items()}


def _write_table(path: Path, centre_columns: Sequence[str], answers: Sequence[AnswerSpec], folder: Path) -> list[str]:
    """Write one table into `folder` and return the columns that were left out."""
    table = read_reference_table(path, answers, centre_columns)
    scored = {column for answer in answers for column in answer.column_aliases}
    used = [column for column in dict.fromkeys(table.header) if column in {ID_COLUMN, CENTRE_COLUMN, *scored}]
    columns = read_table(path, GroundTruthError, ()).header
    unused = [column for column, name in zip(columns, table.header, strict=True) if name not in used]
    if len(used) == len(columns) and path.suffix.lower() == ".csv":
        place_file(path, folder / path.name)
    else:
        rows = with_decimal_points(table, scored, GroundTruthError).rows
        write_csv(folder / f"{path.stem}.csv", used, [{name: row[name] for name in used} for row in rows])
    return list(dict.fromkeys(filter(None, unused)))


def _score_submission(options: PhaseOptions, name: str, answers: Answers, scratch: Path) -> None:
    """Write a submission and score it in this process, because the image takes minutes to build.

    Raises:
        HecktorError: The reference or an answer is unusable, or the platform would not rank the result.
    """
    input_dir = scratch / REHEARSAL / name / "input"
    input_dir.mkdir(parents=True)
    write_submission(options.task, answers, input_dir, is_empty=name == EMPTY)
    request = EvaluationRequest(
        scratch / "ground_truth",
        input_dir,
        None,
        options.task.algorithm.name,
        options.edition.source,
        bootstraps=0,
        workers=count_usable_cpus(),
    )
    scored = evaluate_submission(request)
    unranked = select_ranked_values(scored.to_dict())[1]
    problems = [f"{case.case}: {case.why}" for case in scored.cases.failed]
    problems += [*scored.warnings, *unranked] if unranked else []
    if problems:
        raise HecktorError(f"{name} submission", problems[0])


def _prepare_runner(
    options: PhaseOptions, images: ImageBuilder | None, scratch: Path, report: Reporter
) -> tuple[Runner, list[str]]:
    """Build and save the evaluation image; return the runner of the evaluation, and the names of the files to upload.

    Without `images` the runner is a plain process.
    """
    algorithm = options.task.algorithm
    name = _make_archive_name(algorithm)
    if images is None:
        return ProcessRunner(build_evaluation_command(options.edition, algorithm)), [GROUND_TRUTH]
    log = scratch / REHEARSAL / "images.log"
    report(f"{name}: building, saving and loading {images.name(algorithm)}")
    images.build(options.edition, [algorithm], log)
    runner = save_and_load(images, algorithm, scratch / name, log)
    size_gb = (scratch / name).stat().st_size / 1e9
    report(f"{name}: {size_gb:.2f} GB, loaded, API method {runner.api_method}")
    return runner, [name, GROUND_TRUTH]


def _run_submission(
    name: str, runner: Runner, settings: PhaseSettings, scratch: Path, report: Reporter
) -> EvaluationRun:
    """Run the evaluation as the platform does; raise `HecktorError` if a figure of the leaderboard is missing."""
    output_dir = scratch / REHEARSAL / name
    with tempfile.TemporaryDirectory(dir=scratch) as work_dir:
        Path(work_dir).chmod(0o755)
        run = run_evaluation(runner, output_dir / "input", scratch / "ground_truth", output_dir, Path(work_dir))
    if run.problem is not None:
        raise HecktorError(f"{name} submission", run.problem)
    problems = list(select_ranked_values(run.metrics)[1])
    for path in settings.paths:
        metric, _, figure = path.rpartition(".")
        if figure not in (find_value(run.metrics, metric) or {}):
            problems.append(f"metrics.json: found no {path}")
    if problems:
        raise HecktorError(f"{name} submission", problems[0])
    for warning in (*run.warnings, *run.metrics["warnings"]):
        report(f"{name} submission: warning: {warning}")
    report(f"{name} submission: {settings.score_jsonpath} {find_value(run.metrics, settings.score_jsonpath):.4f}")
    return run


def make_perfect_answers(task: TaskProfile, references: References) -> Answers:
    """Convert the reference to answers: its masks and classes, and ranks of the follow-up times as risks.

    Patients with a recurrence rank before patients censored on the same day. A time is the rank, starting with 1, and
    a risk is the negative rank.
    """
    return {name: _make_perfect(profile, references[name].targets) for name, profile in task.answers.items()}


def _make_perfect(profile: AnswerProfile, targets: Mapping[str, Any]) -> list[SubmittedAnswer]:
    if profile.answer.kind == "mask":
        return [SubmittedAnswer(case, path) for case, path in targets.items()]
    if not isinstance(profile.rules, RiskRules):
        return [SubmittedAnswer(case, None, value=PredictedClass(value)) for case, value in targets.items()]
    key_of = {case: (target.rfs_days, not target.relapse) for case, target in targets.items()}
    rank_of = {key: rank for rank, key in enumerate(sorted(set(key_of.values())), start=1)}
    sign = 1.0 if profile.rules.direction == "time" else -1.0
    return [SubmittedAnswer(case, None, value=sign * rank_of[key]) for case, key in key_of.items()]


def write_submission(task: TaskProfile, answers: Answers, input_dir: Path, *, is_empty: bool = False) -> None:
    """Write a submission as the `/input` of the evaluation; missing answers are left out.

    Args:
        task: The task with its declared answers.
        answers: The answers to write.
        input_dir: Folder of the submission.
        is_empty: Whether to write an empty mask, the same risk and the first class for every case.

    Raises:
        HecktorError: The answer of a case is unusable.
    """
    answers_of: dict[str, list[tuple[AnswerSpec, SubmittedAnswer]]] = {}
    for spec in task.algorithm.answers:
        for answer in answers[spec.name]:
            if answer.is_submitted:
                answers_of.setdefault(answer.case, []).append((spec, answer))
    jobs: list[dict[str, Any]] = []
    errors: list[HecktorError] = []
    for case in sorted(answers_of):
        try:
            jobs.append(_write_job(task, case, answers_of[case], input_dir, is_empty))
        except HecktorError as error:
            errors.append(error)
    if errors:
        raise combine_errors(errors, f"{len(errors)} of {len(answers_of)} cases cannot be used")
    write_jobs(jobs, input_dir, np.random.default_rng(0))


def _write_job(
    task: TaskProfile, case: str, answers: Sequence[tuple[AnswerSpec, SubmittedAnswer]], input_dir: Path, is_empty: bool
) -> dict[str, Any]:
    """Write the outputs of a case and return its job; the name of its image is the case."""
    pk = str(uuid.uuid4())
    inputs = [
        make_socket_entry(socket, number, image=(str(uuid.uuid4()), f"{case}.mha") if socket.is_image else None)
        for number, socket in enumerate(task.algorithm.inputs.values(), start=1)
    ]
    with tempfile.TemporaryDirectory(dir=input_dir) as folder:
        outputs = [
            write_output(_write_output(spec, answer, Path(folder), is_empty), number, input_dir / pk / "output")
            for number, (spec, answer) in enumerate(answers, start=1)
        ]
    return make_job_entry(pk, inputs, outputs, algorithm_image="hecktor phase")


def _write_output(spec: AnswerSpec, answer: SubmittedAnswer, folder: Path, is_empty: bool) -> CheckedOutput:
    """Write a mask into `folder`, or return the value of another answer."""
    path = folder / f"{answer.case}.mha"
    if answer.path is not None:
        # Only organisers see the message of this error, so it may name a file of the reference.
        mask = read_labels(answer.path, HecktorError)
        write_mask(path, np.zeros_like(mask.array) if is_empty else mask.array, mask.geometry)
        return CheckedOutput(spec, path)
    if answer.value is None:
        problem = answer.problem or "no prediction"
        raise PredictionError(f"--predictions: {spec.name} of {answer.case}", problem, "a usable prediction")
    if is_empty:
        return CheckedOutput(spec, path, 1.0 if spec.kind == "risk" else spec.classes[0])
    return CheckedOutput(spec, path, answer.value.value if isinstance(answer.value, PredictedClass) else answer.value)
