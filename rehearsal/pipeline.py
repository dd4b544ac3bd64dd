"""A rehearsal from images and cases to a ranked result, in the platform's order."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from contract.errors import OutputError
from contract.io.files import write_json
from contract.platform import METRICS_JSON
from rehearsal.jobs.cases import Cohort, find_cases
from rehearsal.jobs.evaluation import EvaluationRun, copy_by_case, ranked_values, run_evaluation, stage_predictions
from rehearsal.jobs.execute import JobResult, Jobs, Rehearsal, choose_api_method, run_jobs
from rehearsal.jobs.invoke import invoke_jobs
from rehearsal.jobs.release import compare_ids, has_release_layout, read_release_cohort, with_ground_truth
from rehearsal.records import (
    REHEARSAL_JSON,
    RehearsalLimits,
    RehearsalResult,
    RehearsedCase,
    RehearsedPackage,
    check_model_exists,
    given_model,
    named_cases,
    records_of,
    rehearsed_answers,
    rehearsed_package,
)
from rehearsal.runners.containers import ImageFindings, image_findings
from rehearsal.runners.monitor import ended_by_signals
from rehearsal.runners.trees import remove_entry, remove_tree

_WORK_PREFIX: Final = ".rehearsal-"
_OWN_NAMES: Final = ("predictions", "evaluation", "logs", METRICS_JSON, REHEARSAL_JSON)


def _ignore(_: object) -> None:
    """Progress callback that does nothing."""


def rehearse(
    rehearsal: Rehearsal, *, on_start: Callable[[int], None] = _ignore, on_job: Callable[[JobResult], None] = _ignore
) -> RehearsalResult:
    """Run a submission as the platform does, and write the results below `output_dir`.

    Written: `predictions/`, `evaluation/input/` as the evaluation sees it, for a release `evaluation/ground_truth/`,
    `metrics.json`, `logs/`, `rehearsal.json`. Results of an earlier rehearsal are removed first. Before the first job
    the IDs of the cases are compared with those of the ground truth.

    Args:
        rehearsal: programs, cases and limits.
        on_start: called with the number of cases.
        on_job: called with the result of each job as it ends.

    Raises:
        HecktorError: nothing can be run: no cases, no ground truth or one of other cases, no image, an unusable
            model.
    """
    output_dir, algorithm, evaluation = rehearsal.output_dir, rehearsal.algorithm, rehearsal.evaluation
    cohort = _cohort(rehearsal)
    cases, warnings = cohort.cases, [*cohort.warnings, *compare_ids(cohort.cases, rehearsal)]
    if rehearsal.model is not None:
        check_model_exists(rehearsal.model)
    images = image_findings(algorithm, evaluation)
    api_method, of_method = choose_api_method(algorithm, rehearsal.api_method, rehearsal.parallel)
    warnings += [*images.warnings, *of_method]
    output_dir.mkdir(parents=True, exist_ok=True)
    with _locked(output_dir), ended_by_signals(), _work_folder(output_dir) as work_dir:
        input_dir = output_dir / "evaluation" / "input"
        given = None
        if rehearsal.model is not None:
            model, given = given_model(rehearsal.model, work_dir / "model")
            rehearsal = replace(rehearsal, model=model)
        _clear(output_dir, work_dir)
        rehearsal, unscored = with_ground_truth(rehearsal, cohort, input_dir.with_name("ground_truth"))
        on_start(len(cases))
        jobs = (invoke_jobs if api_method == "invoke" else run_jobs)(cases, rehearsal, work_dir, on_job)
        stage_predictions(jobs.results, input_dir, algorithm.description, np.random.default_rng(0))
        copy_by_case(jobs.results, input_dir, output_dir / "predictions")
        evaluated = _evaluate(rehearsal, jobs, input_dir, work_dir)
    result = _result(rehearsal, given, images, jobs, evaluated, api_method, [*warnings, *unscored])
    write_json(output_dir / REHEARSAL_JSON, result.model_dump(mode="json"))
    return result


def _result(
    rehearsal: Rehearsal,
    given: RehearsedPackage | None,
    images: ImageFindings,
    jobs: Jobs,
    evaluated: EvaluationRun,
    api_method: str,
    warnings: Sequence[str],
) -> RehearsalResult:
    """The record of a rehearsal that has ended; `warnings` are those from before its jobs."""
    limits, evaluation = rehearsal.limits, rehearsal.evaluation
    cases = tuple(job.as_case() for job in jobs.results)
    ranked, unranked = ({}, []) if evaluated.metrics is None else ranked_values(evaluated.metrics)
    package, mistaken, unknown = rehearsed_package(given, records_of(cases))
    unresolved = unranked if evaluated.problem is None else [evaluated.problem]
    of_cases = (f"{one.case}: {warning}" for one in cases for warning in one.warnings)
    return RehearsalResult(
        team=rehearsal.team,
        task=rehearsal.task.name,
        algorithm=rehearsal.algorithm.description,
        evaluation=None if evaluation is None else evaluation.description,
        package=package,
        isolated=rehearsal.algorithm.is_isolated,
        api_method=api_method,
        evaluation_api_method=None if evaluation is None else evaluation.api_method,
        startup_s=tuple(round(seconds, 3) for seconds in jobs.startup_s),
        limits=RehearsalLimits(
            memory_bytes=limits.memory_bytes, time_limit_s=limits.of_case_s(api_method), cpus=limits.cpus
        ),
        on_failure=rehearsal.on_failure,
        refusals=images.refused,
        problems=(*images.hidden, *mistaken, *_failed_batch(cases, api_method), *unresolved),
        warnings=(*warnings, *unknown, *jobs.warnings, *of_cases, *evaluated.warnings),
        ranked=ranked,
        answers=rehearsed_answers([one.name for one in rehearsal.task.answers], records_of(cases)),
        cases=cases,
    )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other rehearsals out of a folder; the lock ends with this process, however it ends."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(folder.name, "another rehearsal is writing there", "a folder of its own") from None
        yield
    finally:
        os.close(handle)


@contextmanager
def _work_folder(output_dir: Path) -> Iterator[Path]:
    """A folder for the jobs, which is removed with all that they left in it."""
    folder = Path(tempfile.mkdtemp(prefix=_WORK_PREFIX, dir=output_dir))
    try:
        folder.chmod(0o755)  # an image's user enters it
        yield folder
    finally:
        remove_tree(folder)


def _cohort(rehearsal: Rehearsal) -> Cohort:
    """The cases of a cohort in the platform's layout, or of a release."""
    if has_release_layout(rehearsal.cohort, rehearsal.edition):
        return read_release_cohort(rehearsal.cohort, rehearsal.edition, rehearsal.task, rehearsal.only)
    return Cohort(find_cases(rehearsal.cohort, rehearsal.task, rehearsal.only))


def _failed_batch(cases: Sequence[RehearsedCase], api_method: str) -> tuple[str, ...]:
    """The problem that one failed case of a server means for the whole job; empty without one."""
    failed = [one.case for one in cases if one.failure is not None]
    if api_method != "invoke" or not failed:
        return ()
    return (f"{len(failed)} of {len(cases)} cases failed ({named_cases(failed)}), so the platform would fail the job",)


def _evaluate(rehearsal: Rehearsal, jobs: Jobs, input_dir: Path, work_dir: Path) -> EvaluationRun:
    """The evaluation of all jobs; an empty one if none is wanted or possible."""
    if rehearsal.evaluation is None or rehearsal.ground_truth_dir is None:
        return EvaluationRun()
    if rehearsal.on_failure == "abort" and any(job.failure is not None for job in jobs.results):
        return EvaluationRun(problem="a job failed, so the platform would not start the evaluation")
    return run_evaluation(rehearsal.evaluation, input_dir, rehearsal.ground_truth_dir, rehearsal.output_dir, work_dir)


def _clear(output_dir: Path, work_dir: Path) -> None:
    """Remove the results of an earlier rehearsal, and the work folder of one that was killed."""
    killed = set(output_dir.glob(f"{_WORK_PREFIX}*")) - {work_dir}
    for path in (*(output_dir / name for name in _OWN_NAMES), *killed):
        remove_entry(path.parent, path.name)
