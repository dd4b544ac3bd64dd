"""Run a rehearsal, from images and cases to a ranked result, in the platform's order."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from contract.errors import OutputError
from contract.io.files import write_json
from contract.platform import METRICS_JSON
from rehearsal.jobs.cases import Cohort, find_cases
from rehearsal.jobs.evaluation import (
    EvaluationRun,
    copy_outputs_by_case,
    run_evaluation,
    select_ranked_values,
    stage_predictions,
)
from rehearsal.jobs.execution import JobResult, Jobs, Rehearsal, choose_api_method, invoke_jobs, run_jobs
from rehearsal.jobs.release import compare_ids, has_release_layout, read_release_cohort, write_ground_truth
from rehearsal.records import (
    REHEARSAL_JSON,
    RehearsalLimits,
    RehearsalResult,
    RehearsedCase,
    RehearsedPackage,
    check_model_exists,
    check_recorded_package,
    collect_records,
    format_cases,
    summarise_answers,
    unpack_model,
)
from rehearsal.runners.containers import ImageFindings, check_images
from rehearsal.runners.monitor import end_on_signals
from rehearsal.runners.trees import remove_entry, remove_tree

_WORK_PREFIX: Final = ".rehearsal-"
_RESULT_NAMES: Final = ("predictions", "evaluation", "logs", METRICS_JSON, REHEARSAL_JSON)


def _ignore(_: object) -> None:
    """Do nothing, as a callback."""


def rehearse(
    rehearsal: Rehearsal, *, on_start: Callable[[int], None] = _ignore, on_job: Callable[[JobResult], None] = _ignore
) -> RehearsalResult:
    """Run a submission as the platform does, and write the results below `output_dir`.

    The results are `predictions/`, `evaluation/input/` as the evaluation sees it, `evaluation/ground_truth/` for a
    release or for selected cases, `metrics.json`, `logs/` and `rehearsal.json`. Results of an earlier rehearsal are
    removed first. Before the first job the IDs of the cases are compared with the IDs of the ground truth.

    Args:
        rehearsal: Programs, cases and limits.
        on_start: Called with the number of cases.
        on_job: Called with the result of each job when it ends.

    Raises:
        HecktorError: Nothing can be run, because the cases, the ground truth, the image or the model do not exist or
            cannot be used, or the ground truth belongs to other cases.
    """
    output_dir = rehearsal.output_dir
    algorithm = rehearsal.algorithm
    cohort = _read_cohort(rehearsal)
    cases = cohort.cases
    warnings = [*cohort.warnings, *compare_ids(cases, rehearsal)]
    if rehearsal.model is not None:
        check_model_exists(rehearsal.model)
    images = check_images(algorithm, rehearsal.evaluation)
    api_method, method_warnings = choose_api_method(algorithm, rehearsal.api_method, rehearsal.parallel)
    warnings += [*images.warnings, *method_warnings]
    output_dir.mkdir(parents=True, exist_ok=True)
    with _lock_folder(output_dir), end_on_signals(), _make_work_folder(output_dir) as work_dir:
        input_dir = output_dir / "evaluation" / "input"
        package = None
        if rehearsal.model is not None:
            model, package = unpack_model(rehearsal.model, work_dir / "model")
            rehearsal = replace(rehearsal, model=model)
        _remove_earlier_results(output_dir, work_dir)
        rehearsal, reference_warnings = write_ground_truth(rehearsal, cohort, input_dir.with_name("ground_truth"))
        warnings += reference_warnings
        on_start(len(cases))
        run = invoke_jobs if api_method == "invoke" else run_jobs
        jobs = run(cases, rehearsal, work_dir, on_job)
        stage_predictions(jobs.results, input_dir, algorithm.description, np.random.default_rng(0))
        copy_outputs_by_case(jobs.results, input_dir, output_dir / "predictions")
        evaluation = _evaluate(rehearsal, jobs, input_dir, work_dir)
    setup = _RehearsalSetup(package, images, api_method, tuple(warnings))
    result = _make_result(rehearsal, setup, jobs, evaluation)
    write_json(output_dir / REHEARSAL_JSON, result.model_dump(mode="json"))
    return result


@dataclass(frozen=True)
class _RehearsalSetup:
    """The findings before the first job: the package of `--model`, the checks of the images, and warnings."""

    package: RehearsedPackage | None
    images: ImageFindings
    api_method: str
    warnings: tuple[str, ...]


def _make_result(
    rehearsal: Rehearsal, setup: _RehearsalSetup, jobs: Jobs, evaluation: EvaluationRun
) -> RehearsalResult:
    """Make the record of a rehearsal that has ended."""
    limits = rehearsal.limits
    api_method = setup.api_method
    evaluator = rehearsal.evaluation
    cases = tuple(job.as_case() for job in jobs.results)
    records = collect_records(cases)
    ranked, unranked = ({}, []) if evaluation.metrics is None else select_ranked_values(evaluation.metrics)
    package, package_problems, package_warnings = check_recorded_package(setup.package, records)
    evaluation_problems = unranked if evaluation.problem is None else [evaluation.problem]
    case_warnings = (f"{case.case}: {warning}" for case in cases for warning in case.warnings)
    return RehearsalResult(
        team=rehearsal.team,
        task=rehearsal.task.name,
        algorithm=rehearsal.algorithm.description,
        evaluation=None if evaluator is None else evaluator.description,
        package=package,
        isolated=rehearsal.algorithm.is_isolated,
        api_method=api_method,
        evaluation_api_method=None if evaluator is None else evaluator.api_method,
        startup_s=tuple(round(seconds, 3) for seconds in jobs.startup_s),
        limits=RehearsalLimits(
            memory_bytes=limits.memory_bytes, time_limit_s=limits.case_limit_s(api_method), cpus=limits.cpus
        ),
        on_failure=rehearsal.on_failure,
        refusals=setup.images.refused,
        problems=(
            *setup.images.hidden,
            *package_problems,
            *_find_batch_problems(cases, api_method),
            *evaluation_problems,
        ),
        warnings=(
            *setup.warnings,
            *package_warnings,
            *jobs.warnings,
            *case_warnings,
            *evaluation.warnings,
        ),
        ranked=ranked,
        answers=summarise_answers([answer.name for answer in rehearsal.task.answers], records),
        cases=cases,
    )


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder against other rehearsals; the lock ends with this process, even if it is killed."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(folder.name, "another rehearsal is writing there", "another folder") from None
        yield
    finally:
        os.close(handle)


@contextmanager
def _make_work_folder(output_dir: Path) -> Iterator[Path]:
    """Make a folder for the jobs, which is removed with all its content at the end."""
    folder = Path(tempfile.mkdtemp(prefix=_WORK_PREFIX, dir=output_dir))
    try:
        folder.chmod(0o755)  # The user of an image must be able to enter the folder.
        yield folder
    finally:
        remove_tree(folder)


def _read_cohort(rehearsal: Rehearsal) -> Cohort:
    """Read the cases of a cohort in the platform's layout, or of a release."""
    if has_release_layout(rehearsal.cohort, rehearsal.edition):
        return read_release_cohort(rehearsal.cohort, rehearsal.edition, rehearsal.task, rehearsal.only)
    return Cohort(find_cases(rehearsal.cohort, rehearsal.task, rehearsal.only))


def _find_batch_problems(cases: Sequence[RehearsedCase], api_method: str) -> tuple[str, ...]:
    """Return the problem of the whole job if a server failed a case; otherwise nothing."""
    failed = [case.case for case in cases if case.failure is not None]
    if api_method != "invoke" or not failed:
        return ()
    return (f"{len(failed)} of {len(cases)} cases failed ({format_cases(failed)}), so the platform would fail the job",)


def _evaluate(rehearsal: Rehearsal, jobs: Jobs, input_dir: Path, work_dir: Path) -> EvaluationRun:
    """Evaluate all jobs; return an empty run if there is no evaluation or no ground truth."""
    if rehearsal.evaluation is None or rehearsal.ground_truth_dir is None:
        return EvaluationRun()
    if rehearsal.on_failure == "abort" and any(job.failure is not None for job in jobs.results):
        return EvaluationRun(problem="a job failed, so the platform would not start the evaluation")
    return run_evaluation(rehearsal.evaluation, input_dir, rehearsal.ground_truth_dir, rehearsal.output_dir, work_dir)


def _remove_earlier_results(output_dir: Path, work_dir: Path) -> None:
    """Remove the results of an earlier rehearsal, and the work folders of rehearsals that were killed."""
    abandoned = set(output_dir.glob(f"{_WORK_PREFIX}*")) - {work_dir}
    for path in (*(output_dir / name for name in _RESULT_NAMES), *abandoned):
        remove_entry(path.parent, path.name)
