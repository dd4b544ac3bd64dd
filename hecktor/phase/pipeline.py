"""Make a phase: check the reference, make submissions to try, build the evaluation image, try it, name the files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.archives import pack, unpack
from contract.editions import Edition
from contract.errors import GroundTruthError, HecktorError
from evaluation.editions.profile import EvaluationProfile
from evaluation.editions.task import TaskProfile, known_metrics
from evaluation.pipeline import EvaluationRequest, evaluate_submission, read_references, read_submissions
from hecktor.phase.predictions import References, TrialSubmission, empty, perfect, submitted
from hecktor.phase.readme import EMPTY, GIVEN, GROUND_TRUTH, PERFECT, Phase
from hecktor.phase.settings import SETTINGS, PhaseSettings
from rehearsal.jobs.cases import place
from rehearsal.platform import EvaluationRun, metric_path, ranked_values, run_evaluation, value_at
from rehearsal.runners.runner import ProcessRunner, Runner, evaluation_command
from rehearsal.submission import folder
from rehearsal.submission.folder import REHEARSAL, Reporter
from rehearsal.submission.images import BuiltImages, save_and_load


@dataclass(frozen=True)
class PhaseOptions:
    """Options of a phase: the rules of `task`, its reference, and predictions in plain files to try, None for none."""

    edition: Edition
    profile: EvaluationProfile
    task: TaskProfile
    ground_truth: Path
    output: Path
    predictions: Path | None = None

    @property
    def archive_name(self) -> str:
        """File name of the evaluation image."""
        return f"{self.task.algorithm.evaluation_image}.tar.gz"

    def request(self, ground_truth: Path, submission: Path, predictions: Path | None = None) -> EvaluationRequest:
        """An evaluation by the rules of the phase, without intervals."""
        edition, task = self.edition.evaluation_profile, self.task.algorithm.name
        return EvaluationRequest(ground_truth, submission, None, task, edition, predictions, bootstraps=0, workers=None)


def make_phase(options: PhaseOptions, images: BuiltImages | None, report: Reporter) -> Phase:
    """Make and try the files of a phase; they get their names once all tries have passed.

    `images` makes the archive of the evaluation image; without it only the ground truth is made, and tried with a plain
    process. `report` is called with a line for each step.

    Raises:
        HecktorError: reference or predictions cannot be used, or a try failed. The folder then keeps its earlier
            content; after a failed image or try it has logs in `failed/`.
    """
    folder.check_folder(options.output, SETTINGS, "phase")
    references = read_references(options.request(options.ground_truth, options.output), options.profile, options.task)
    cases = len({case for one in references.values() for case in one.targets})
    settings, submissions = PhaseSettings.of(options.task), _submissions(options, references)
    with folder.scratch_folder(options.output) as scratch:
        _pack_ground_truth(options, references, scratch)
        report(f"{GROUND_TRUTH}: {cases} cases, packed, unpacked as the platform does")
        for name, submission in submissions.items():
            scored = _scored(options, name, submission, scratch)
            report(f"{name} submission: made and scored")
            for below in _below_best(options.task, scored) if name == PERFECT else ():
                report(f"{name} submission: warning: {below}")
        with folder.failure_keeps_logs(scratch, options.output):
            runner, names = _image(options, images, scratch, report)
            tries = {name: _tried(name, runner, settings, scratch, report) for name in submissions}
        files = [scratch / name for name in names]
        phase = Phase(options.profile.title, options.task, settings, files, cases, tries)
        earlier, record = (GROUND_TRUTH, options.archive_name), (SETTINGS, settings)
        folder.replace_files(scratch, options.output, names, earlier, phase.readme(), record)
    return phase


def _submissions(options: PhaseOptions, references: References) -> dict[str, TrialSubmission]:
    submissions = {PERFECT: perfect(options.task, references), EMPTY: empty(options.task, references)}
    if options.predictions is not None:
        request = options.request(options.ground_truth, options.output, options.predictions)
        submissions[GIVEN] = submitted(read_submissions(request, options.profile, options.task, references)[0])
    return submissions


def _pack_ground_truth(options: PhaseOptions, references: References, scratch: Path) -> None:
    """Pack the masks and tables that the evaluation of the task reads, and unpack them as `ground_truth`."""
    source = options.ground_truth
    masks = [path for one in references.values() for path in one.targets.values() if isinstance(path, Path)]
    for path in (*masks, *([source] if source.is_file() else sorted(source.glob("*.csv")))):
        place(path, scratch / "reference" / path.name)
    pack(scratch / "reference", scratch / GROUND_TRUTH)
    unpack(scratch / GROUND_TRUTH, scratch / "ground_truth", error=GroundTruthError)


def _scored(options: PhaseOptions, name: str, submission: TrialSubmission, scratch: Path) -> dict[str, Any]:
    """Stage a submission and score it in this process, before the minutes of an image.

    Raises HecktorError: the reference or an answer is unusable, or the platform would not rank the result.
    """
    input_dir = scratch / REHEARSAL / name / "input"
    input_dir.mkdir(parents=True)
    submission.stage(options.task, input_dir)
    scored = evaluate_submission(options.request(scratch / "ground_truth", input_dir))
    unranked = ranked_values(scored)[1]
    problems = [f"{one['case']}: {one['why']}" for one in scored["cases"]["failed"]]
    problems += [*scored["warnings"], *unranked] if unranked else []
    if problems:
        raise HecktorError(f"{name} submission", problems[0])
    return scored


def _below_best(task: TaskProfile, scored: Mapping[str, Any]) -> Iterator[str]:
    """Metrics that do not have their best value for perfect answers, as by the rule `gtvp_empty=zero`."""
    best_of = {name: metric.best for name, (_, metric) in known_metrics(task.answers, task.edition).items()}
    for name, metric in task.metrics.items():
        value, terms = value_at(scored, metric_path(name)), metric.terms or {name: 1.0}
        best = sum(weight * best_of[term] for term, weight in terms.items())
        if value is not None and abs(value - best) > 1e-9:
            yield f"{name} {value:.6g}, not its best value {best:g}"


def _image(
    options: PhaseOptions, images: BuiltImages | None, scratch: Path, report: Reporter
) -> tuple[Runner, list[str]]:
    """The program that evaluates, and the names of the files to upload."""
    algorithm, name = options.task.algorithm, options.archive_name
    if images is None:
        return ProcessRunner(evaluation_command(options.edition, algorithm)), [GROUND_TRUTH]
    log = scratch / REHEARSAL / "images.log"
    report(f"{name}: building, saving and loading {images.name(algorithm)}")
    images.build([algorithm], log)
    runner = save_and_load(images, algorithm, scratch / name, log)
    report(f"{name}: {(scratch / name).stat().st_size / 1e9:.2f} GB, checked and loaded")
    return runner, [name, GROUND_TRUTH]


def _tried(name: str, runner: Runner, settings: PhaseSettings, scratch: Path, report: Reporter) -> EvaluationRun:
    """Run the evaluation as the platform does. Raises HecktorError if the leaderboard would lack a figure."""
    output_dir = scratch / REHEARSAL / name
    with tempfile.TemporaryDirectory(dir=scratch) as work_dir:
        Path(work_dir).chmod(0o755)
        run = run_evaluation(runner, output_dir / "input", scratch / "ground_truth", output_dir, Path(work_dir))
    if run.problem is not None:
        raise HecktorError(f"{name} submission", run.problem)
    figures = {path: value_at(run.metrics, path.rpartition(".")[0]) or {} for path in settings.paths}
    absent = [path for path, figure in figures.items() if path.rpartition(".")[2] not in figure]
    if problems := [*ranked_values(run.metrics)[1], *(f"metrics.json: found no {path}" for path in absent)]:
        raise HecktorError(f"{name} submission", problems[0])
    for warning in (*run.warnings, *run.metrics["warnings"]):
        report(f"{name} submission: warning: {warning}")
    report(f"{name} submission: {settings.score_jsonpath} {value_at(run.metrics, settings.score_jsonpath):.4f}")
    return run
