"""A rehearsal from images and cases to a ranked result, in the platform's order."""

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

from contract.documents import Document
from contract.errors import EngineError, OutputError
from contract.files import write_json
from contract.platform import METRICS_JSON
from rehearsal.jobs.cases import Cohort, find_cases
from rehearsal.jobs.execute import JobResult, Jobs, OnFailure, Rehearsal, run_jobs
from rehearsal.jobs.invoke import invoke_jobs
from rehearsal.jobs.records import (
    RecordedRun,
    Records,
    RehearsedAnswer,
    RehearsedPackage,
    check_model_exists,
    given_model,
    named_cases,
    rehearsed_answers,
    rehearsed_package,
)
from rehearsal.jobs.references import compare_ids, with_ground_truth
from rehearsal.jobs.release import has_release_layout, read_release_cohort
from rehearsal.platform import (
    EvaluationRun,
    choose_api_method,
    copy_by_case,
    image_findings,
    ranked_values,
    run_evaluation,
    stage_predictions,
)
from rehearsal.runners.monitor import ended_by_signals
from rehearsal.runners.trees import remove_entry, remove_tree

REHEARSAL_JSON: Final = "rehearsal.json"
_WORK_PREFIX: Final = ".rehearsal-"
_OWN_NAMES: Final = ("predictions", "evaluation", "logs", METRICS_JSON, REHEARSAL_JSON)


def _ignore(_: object) -> None:
    """Progress callback that does nothing."""


@dataclass(frozen=True)
class RehearsalResult:
    """Result of a rehearsal.

    `refusals` are reasons why the platform would not accept an image, `problems` reasons why there is no ranked
    result. `startup_s` has one entry for each server: the seconds until it was ready; it is empty for `exec`. `package`
    is the model package that was given or answered, None if none is known; `answers` counts fallbacks and notices.
    """

    jobs: tuple[JobResult, ...]
    refusals: tuple[str, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    metrics: dict[str, float]
    api_method: str
    startup_s: tuple[float, ...]
    package: RehearsedPackage | None = None
    answers: tuple[RehearsedAnswer, ...] = ()

    @property
    def records(self) -> Records:
        """The algorithm's run record of each answered case."""
        return _records(self.jobs)

    @property
    def failures(self) -> tuple[str, ...]:
        """Failed cases with their reasons."""
        return tuple(f"{job.job.case.case_id}: {job.failure}" for job in self.jobs if job.failure is not None)

    @property
    def succeeded(self) -> bool:
        """Whether the platform would show a result."""
        return not (self.refusals or self.failures or self.problems)


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
        HecktorError: nothing can be run: no cases, no ground truth or one of other cases, no image, an unusable model,
            an evaluation not labelled `exec`.
    """
    output_dir, algorithm, evaluation = rehearsal.output_dir, rehearsal.algorithm, rehearsal.evaluation
    cohort = _cohort(rehearsal)
    cases, warnings = cohort.cases, (*cohort.warnings, *compare_ids(cohort.cases, rehearsal))
    if rehearsal.model is not None:
        check_model_exists(rehearsal.model)
    refused, hidden, of_images = image_findings(algorithm, evaluation)
    api_method, of_method = choose_api_method(algorithm, rehearsal.api_method, rehearsal.parallel)
    if evaluation is not None and evaluation.api_method != "exec":
        raise EngineError(evaluation.description, "an evaluation is called by exec", "that label")
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
        stage_predictions(jobs.results, input_dir, algorithm.description, np.random.default_rng(rehearsal.seed))
        copy_by_case(jobs.results, input_dir, output_dir / "predictions")
        evaluated = _evaluate(rehearsal, jobs, input_dir, work_dir)
    metrics, unranked = ({}, []) if evaluated.metrics is None else ranked_values(evaluated.metrics)
    package, mistaken, unknown = rehearsed_package(given, _records(jobs.results))
    problems = [
        *hidden,
        *mistaken,
        *_failed_batch(jobs.results, api_method),
        *(unranked if evaluated.problem is None else [evaluated.problem]),
    ]
    of_cases = (f"{job.job.case.case_id}: {warning}" for job in jobs.results for warning in job.warnings)
    warnings += (*of_images, *of_method, *unscored, *unknown, *jobs.warnings, *of_cases, *evaluated.warnings)
    answers = rehearsed_answers([one.name for one in rehearsal.task.answers], _records(jobs.results))
    result = RehearsalResult(
        jobs.results, refused, tuple(problems), warnings, metrics, api_method, jobs.startup_s, package, answers
    )
    write_json(output_dir / REHEARSAL_JSON, RehearsalRecord.of(rehearsal, result).model_dump(mode="json"))
    return result


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


def _records(jobs: Sequence[JobResult]) -> Records:
    return {job.job.case.case_id: job.run_record for job in jobs if job.failure is None}


def _failed_batch(jobs: Sequence[JobResult], api_method: str) -> tuple[str, ...]:
    """The problem that one failed case of a server means for the whole job; empty without one."""
    failed = [job.job.case.case_id for job in jobs if job.failure is not None]
    if api_method != "invoke" or not failed:
        return ()
    return (f"{len(failed)} of {len(jobs)} cases failed ({named_cases(failed)}), so the platform would fail the job",)


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


class RehearsalLimits(Document):
    """Limits of each case."""

    memory_bytes: int
    time_limit_s: float
    cpus: float | None


class RehearsedCase(Document):
    """How one case ended; `failure` is null if the platform would accept its outputs.

    `fallbacks` (by answer: which one, and why) and `notices` are those of the algorithm's run record.
    """

    case: str
    job: str
    failure: str | None
    warnings: tuple[str, ...]
    fallbacks: dict[str, str]
    notices: tuple[str, ...]
    exit_code: int | None
    http_status: int | None
    timed_out: bool
    seconds: float
    peak_memory_bytes: int | None


class RehearsalRecord(Document):
    """The content of `rehearsal.json`; `ranked` holds the ranked metrics by their path in `metrics.json`."""

    team: str
    task: str
    algorithm: str
    evaluation: str | None
    package: RehearsedPackage | None
    isolated: bool
    api_method: str
    startup_s: tuple[float, ...]
    limits: RehearsalLimits
    on_failure: OnFailure
    seed: int
    succeeded: bool
    refusals: tuple[str, ...]
    problems: tuple[str, ...]
    ranked: dict[str, float]
    answers: tuple[RehearsedAnswer, ...]
    cases: tuple[RehearsedCase, ...]

    @classmethod
    def of(cls, rehearsal: Rehearsal, result: RehearsalResult) -> RehearsalRecord:
        """The record of a rehearsal that has ended."""
        limits = rehearsal.limits
        return cls(
            team=rehearsal.team,
            task=rehearsal.task.name,
            algorithm=rehearsal.algorithm.description,
            evaluation=None if rehearsal.evaluation is None else rehearsal.evaluation.description,
            package=result.package,
            isolated=rehearsal.algorithm.is_isolated,
            api_method=result.api_method,
            startup_s=tuple(round(seconds, 3) for seconds in result.startup_s),
            limits=RehearsalLimits(
                memory_bytes=limits.memory_bytes,
                time_limit_s=limits.of_case_s(result.api_method),
                cpus=limits.cpus,
            ),
            on_failure=rehearsal.on_failure,
            seed=rehearsal.seed,
            succeeded=result.succeeded,
            refusals=result.refusals,
            problems=result.problems,
            ranked=result.metrics,
            answers=result.answers,
            cases=tuple(map(_case_record, result.jobs)),
        )


def _case_record(job: JobResult) -> RehearsedCase:
    record = job.run_record or RecordedRun()
    return RehearsedCase(
        case=job.job.case.case_id,
        job=job.job.pk,
        failure=job.failure,
        warnings=tuple(job.warnings),
        fallbacks={answer: record.fallback(answer) for answer in record.fallbacks},
        notices=tuple(map(str, record.notices)),
        exit_code=job.outcome.exit_code,
        http_status=job.outcome.http_status,
        timed_out=job.outcome.timed_out,
        seconds=round(job.outcome.seconds, 3),
        peak_memory_bytes=job.outcome.peak_memory_bytes,
    )
