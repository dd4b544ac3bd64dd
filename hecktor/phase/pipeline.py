"""Make a phase: check the reference, make test submissions, build and test the evaluation image, name the files."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contract.archives import pack, unpack
from contract.editions import Algorithm, AnswerSpec, Edition
from contract.editions.clinical import CENTRE
from contract.errors import GroundTruthError, HecktorError
from contract.io.files import write_csv
from contract.patient import format_names
from contract.processes import count_usable_cpus
from contract.release.layout import is_release
from evaluation.editions.profile import EvaluationProfile, TaskProfile
from evaluation.inputs.ground_truth import read_reference_table
from evaluation.inputs.tables import CENTRE_COLUMN, ID_COLUMN, read_table, with_decimal_points
from evaluation.options import BOUNDING_BOXES, EvaluationRequest, requires_boxes
from evaluation.pipeline import evaluate_submission, read_references, read_submissions
from hecktor.phase.predictions import Answers, References, perfect_answers, stage
from hecktor.phase.settings import GROUND_TRUTH, SETTINGS, PhaseSettings, readme
from rehearsal.jobs.cases import place
from rehearsal.jobs.evaluation import EvaluationRun, ranked_values, run_evaluation, value_at
from rehearsal.runners.runner import ProcessRunner, Runner, evaluation_command
from rehearsal.submission.folder import (
    REHEARSAL,
    Reporter,
    check_folder,
    failure_keeps_logs,
    replace_files,
    scratch_folder,
)
from rehearsal.submission.images import BuiltImages, save_and_load

EMPTY: Final = "empty"


@dataclass(frozen=True)
class PhaseOptions:
    """Options of a phase: the rules of `task`, its reference, predictions in plain files to test and boxes, or None."""

    edition: Edition
    profile: EvaluationProfile
    task: TaskProfile
    ground_truth: Path
    output: Path
    predictions: Path | None = None
    bounding_boxes: Path | None = None


def make_phase(options: PhaseOptions, images: BuiltImages | None, report: Reporter) -> dict[str, EvaluationRun]:
    """Make and test the files of a phase, and return the evaluation of each test submission by name.

    Files get their final names only after all tests have passed. `images` makes the archive of the evaluation image;
    without it only the ground truth is made and tested with a plain process. `report` gets a line for each step.

    Raises:
        HecktorError: reference or predictions cannot be used, or a test failed. The folder then keeps its earlier
            content, and `failed/` has the logs of the image and the test submissions.
    """
    task = options.task
    check_folder(options.output, SETTINGS, "phase")
    if requires_boxes(task) != (options.bounding_boxes is not None):
        found = "found none for" if requires_boxes(task) else "found with"
        expected = "a CSV file of boxes" if requires_boxes(task) else "one with bounding_box required"
        raise HecktorError("--bounding-boxes", f"{found} edition {task.edition}", expected)
    references = _references(options)
    cases = len({case for one in references.values() for case in one.targets})
    settings, submissions = PhaseSettings.of(task), _submissions(options, references, report)
    with scratch_folder(options.output) as scratch:
        left_out = _pack_ground_truth(options, references, scratch)
        report(f"{GROUND_TRUTH}: {cases} cases, packed, unpacked as the platform does")
        for table, columns in left_out.items():
            report(f"{table}: packed without {', '.join(columns)}, which the score of this task does not use")
        for name, answers in submissions.items():
            _score(options, name, answers, scratch)
            report(f"{name} submission: made and scored")
        with failure_keeps_logs(scratch, options.output):
            runner, names = _image(options, images, scratch, report)
            tries = {name: _tried(name, runner, settings, scratch, report) for name in submissions}
        page = readme(options.edition.title, task, settings, [scratch / name for name in names], cases, tries)
        earlier = (GROUND_TRUTH, *map(_archive_name, options.edition.algorithms))
        for name in replace_files(scratch, options.output, names, earlier, page, (SETTINGS, settings)):
            report(f"{name}: removed, since it belonged to an earlier phase in this folder")
    return tries


def _references(options: PhaseOptions) -> References:
    """The reference of each answer. Raises GroundTruthError; for a release it says how a phase's reference looks."""
    try:
        return read_references(options.profile, options.task, options.ground_truth, options.bounding_boxes)
    except GroundTruthError:
        if not is_release(options.ground_truth, options.edition):
            raise
        name = options.ground_truth.name
        masks = ["the masks <case>.nii.gz of all patients"] * (options.task.algorithm.mask_spec is not None)
        expected = " and ".join([*masks, *["its table"] * bool(options.task.algorithm.head_specs)])
        what = f"{expected} in one folder, as the platform needs them (docs/organise.md#start-from-a-release)"
        raise GroundTruthError(name, "a release, with a folder for each patient", what) from None


def _archive_name(algorithm: Algorithm) -> str:
    return f"{algorithm.evaluation_image}.tar.gz"


def _submissions(options: PhaseOptions, references: References, report: Reporter) -> dict[str, Answers]:
    """Read the test submissions by name; `stage` empties the answers of the empty one."""
    perfect = perfect_answers(options.task, references)
    submissions: dict[str, Answers] = {"perfect": perfect, EMPTY: perfect}
    if options.predictions is not None:
        predicted = read_submissions(options.task, references, options.output, options.predictions)
        submissions["predictions"] = {name: submission.answers for name, submission in predicted.submissions.items()}
        for finding in predicted.findings:
            report(f"predictions submission: warning: {finding}")
        for name, submission in predicted.submissions.items():
            if missing := [answer.case for answer in submission.answers if not answer.is_submitted]:
                report(f"predictions submission: warning: no {name} of {format_names(missing)}, which count as missing")
    return submissions


def _pack_ground_truth(options: PhaseOptions, references: References, scratch: Path) -> dict[str, list[str]]:
    """Pack the masks, tables and boxes that the evaluation of the task reads, and unpack them as `ground_truth`.

    Returns the columns of each table that were left out, if any.
    """
    for path in {path for one in references.values() for path in one.targets.values()}:
        if isinstance(path, Path):
            place(path, scratch / "reference" / path.name)
    left_out = _pack_tables(options.profile, options.task, references, scratch / "reference")
    if options.bounding_boxes is not None:
        place(options.bounding_boxes, scratch / "reference" / BOUNDING_BOXES)
    pack(scratch / "reference", scratch / GROUND_TRUTH)
    unpack(scratch / GROUND_TRUTH, scratch / "ground_truth", error=GroundTruthError)
    return {table: columns for table, columns in left_out.items() if columns}


def _pack_tables(
    profile: EvaluationProfile, task: TaskProfile, references: References, folder: Path
) -> dict[str, list[str]]:
    """Put each table into `folder` with the patients, their centres and the scored answers.

    Returns the columns that were left out, by the table's name.
    """
    centre_columns = [name for one in profile.edition.clinical if one.name == CENTRE for name in one.spellings]
    answers_of: dict[Path, list[AnswerSpec]] = {}
    for name, reference in references.items():
        for path in reference.tables:
            answers_of.setdefault(path, []).append(task.answers[name].answer)
    return {path.name: _pack_table(path, centre_columns, answers, folder) for path, answers in answers_of.items()}


def _pack_table(path: Path, centre_columns: Sequence[str], answers: Sequence[AnswerSpec], folder: Path) -> list[str]:
    table = read_reference_table(path, answers, centre_columns)
    scored = {column for answer in answers for column in answer.column_aliases}
    kept = [column for column in dict.fromkeys(table.header) if column in {ID_COLUMN, CENTRE_COLUMN, *scored}]
    columns = read_table(path, GroundTruthError, ()).header
    left_out = [column for column, name in zip(columns, table.header, strict=True) if name not in kept]
    if len(kept) == len(columns) and path.suffix.lower() == ".csv":
        place(path, folder / path.name)
    else:
        rows = with_decimal_points(table, scored, GroundTruthError).rows
        write_csv(folder / f"{path.stem}.csv", kept, [{name: row[name] for name in kept} for row in rows])
    return list(dict.fromkeys(filter(None, left_out)))


def _score(options: PhaseOptions, name: str, answers: Answers, scratch: Path) -> None:
    """Stage a submission and score it in this process, before an image is built, which takes minutes.

    Raises HecktorError: the reference or an answer is unusable, or the platform would not rank the result.
    """
    input_dir = scratch / REHEARSAL / name / "input"
    input_dir.mkdir(parents=True)
    stage(options.task, answers, input_dir, is_empty=name == EMPTY)
    task, edition = options.task.algorithm.name, options.edition.source
    files = scratch / "ground_truth", input_dir
    scored = evaluate_submission(
        EvaluationRequest(*files, None, task, edition, bootstraps=0, workers=count_usable_cpus())
    )
    unranked = ranked_values(scored.to_dict())[1]
    problems = [f"{one.case}: {one.why}" for one in scored.cases.failed]
    problems += [*scored.warnings, *unranked] if unranked else []
    if problems:
        raise HecktorError(f"{name} submission", problems[0])


def _image(
    options: PhaseOptions, images: BuiltImages | None, scratch: Path, report: Reporter
) -> tuple[Runner, list[str]]:
    """The program that evaluates, and the names of the files to upload."""
    algorithm = options.task.algorithm
    name = _archive_name(algorithm)
    if images is None:
        return ProcessRunner(evaluation_command(options.edition, algorithm)), [GROUND_TRUTH]
    log = scratch / REHEARSAL / "images.log"
    report(f"{name}: building, saving and loading {images.name(algorithm)}")
    images.build(options.edition, [algorithm], log)
    runner = save_and_load(images, algorithm, scratch / name, log)
    size_gb = (scratch / name).stat().st_size / 1e9
    report(f"{name}: {size_gb:.2f} GB, loaded, API method {runner.api_method}")
    return runner, [name, GROUND_TRUTH]


def _tried(name: str, runner: Runner, settings: PhaseSettings, scratch: Path, report: Reporter) -> EvaluationRun:
    """Run the evaluation as the platform does. Raises HecktorError if the leaderboard would lack a figure."""
    output_dir = scratch / REHEARSAL / name
    with tempfile.TemporaryDirectory(dir=scratch) as work_dir:
        Path(work_dir).chmod(0o755)
        run = run_evaluation(runner, output_dir / "input", scratch / "ground_truth", output_dir, Path(work_dir))
    if run.problem is not None:
        raise HecktorError(f"{name} submission", run.problem)
    places = [path.rpartition(".") for path in settings.paths]
    absent = [f"{where}.{figure}" for where, _, figure in places if figure not in (value_at(run.metrics, where) or {})]
    if problems := [*ranked_values(run.metrics)[1], *(f"metrics.json: found no {path}" for path in absent)]:
        raise HecktorError(f"{name} submission", problems[0])
    for warning in (*run.warnings, *run.metrics["warnings"]):
        report(f"{name} submission: warning: {warning}")
    report(f"{name} submission: {settings.score_jsonpath} {value_at(run.metrics, settings.score_jsonpath):.4f}")
    return run
