"""Cases as jobs of the platform by `exec`: a fresh process for each case."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from contract.editions import Algorithm
from contract.editions.declaration import CT
from contract.errors import OutputError
from contract.images.volumes import read_header
from rehearsal.jobs.cases import CohortCase, StagedJob, stage_job
from rehearsal.jobs.outputs import CheckedOutput, CheckedOutputs, check_outputs
from rehearsal.runners.failures import log_warnings, run_failure
from rehearsal.runners.monitor import RunOutcome
from rehearsal.runners.runner import Call, Limits, Runner

INPUT_CHANGED: Final = "the input folder was changed; on the platform /input is read-only and the write would fail"


@dataclass(frozen=True)
class JobResult:
    """The checked outputs of one case, or the reason why the platform would fail the job.

    `run_record` is the algorithm's own record of the run, None where none was asked for or written.
    """

    job: StagedJob
    outcome: RunOutcome
    outputs: tuple[CheckedOutput, ...]
    failure: str | None
    warnings: tuple[str, ...]
    log: Path
    api_method: str = "exec"
    run_record: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Jobs:
    """The results of all cases, in order.

    `startup_s` has one entry for each server that became ready, so it is empty for `exec`; `warnings` concern no
    single case.
    """

    results: tuple[JobResult, ...]
    startup_s: tuple[float, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobSettings:
    """Settings shared by all jobs of a rehearsal; `work_dir` holds their folders, `log_dir` their logs."""

    task: Algorithm
    runner: Runner
    limits: Limits
    model_dir: Path | None
    work_dir: Path
    log_dir: Path
    parallel: int = 1
    with_run_record: bool = False


def run_jobs(cases: tuple[CohortCase, ...], settings: JobSettings, on_done: Callable[[JobResult], None]) -> Jobs:
    """Run all cases, `settings.parallel` at a time, each in a fresh process.

    The other cases still run after a failed job, so that one rehearsal shows all problems.

    Args:
        cases: the cases to run.
        settings: runner, limits and folders.
        on_done: called with each result as it comes, in this thread.

    Raises:
        EngineError: the program cannot be started at all.
    """
    if settings.parallel == 1:
        # In this thread, so that an interruption reaches the running process at once.
        results = []
        for case in cases:
            results.append(run_job(case, settings))
            on_done(results[-1])
        return Jobs(tuple(results))
    with ThreadPoolExecutor(max_workers=settings.parallel) as pool:
        waiting = [pool.submit(run_job, case, settings) for case in cases]
        try:
            results = []
            for future in waiting:
                results.append(future.result())
                on_done(results[-1])
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return Jobs(tuple(results))


def run_job(case: CohortCase, settings: JobSettings) -> JobResult:
    """Stage a case, run it and check its outputs. Raises EngineError if the program cannot be started."""
    folder = settings.work_dir / case.case_id
    job = stage_job(case, folder / "input")
    output_dir, tmp_dir = folder / "output", folder / "tmp"
    output_dir.mkdir()
    tmp_dir.mkdir()
    call = Call(
        name=f"hecktor-rehearsal-{job.pk}",
        input_dir=job.input_dir,
        output_dir=output_dir,
        tmp_dir=tmp_dir,
        stdout=settings.log_dir / f"{case.case_id}.stdout",
        stderr=settings.log_dir / f"{case.case_id}.stderr",
        limits=settings.limits,
        model_dir=settings.model_dir,
        with_run_record=settings.with_run_record,
    )
    before = listing(job.input_dir)
    outcome = settings.runner.run(call)
    failure = run_failure(outcome, settings.limits, call.stderr)
    if failure is None and listing(job.input_dir) != before:
        failure = INPUT_CHANGED
    checked = CheckedOutputs((), ())
    if failure is None:
        checked, failure = outputs_or_failure(output_dir, case, settings.task)
    run_record = call.run_record()
    shutil.rmtree(tmp_dir, ignore_errors=True)
    shutil.rmtree(job.input_dir, ignore_errors=True)
    warnings = (*checked.warnings, *log_warnings(call.stdout), *log_warnings(call.stderr))
    return JobResult(job, outcome, checked.outputs, failure, warnings, call.stderr, run_record=run_record)


def outputs_or_failure(output_dir: Path, case: CohortCase, task: Algorithm) -> tuple[CheckedOutputs, str | None]:
    """The task's outputs below `output_dir`, or the reason why the platform would not accept them."""
    ct_geometry = None if task.mask is None else read_header(case.file(task.inputs[CT])).geometry
    try:
        return check_outputs(output_dir, task.answers, ct_geometry), None
    except OutputError as problem:
        return CheckedOutputs((), ()), problem.message


def listing(folder: Path) -> list[tuple[str, int, int]]:
    """Name, size and modification time of every file below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [(str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
