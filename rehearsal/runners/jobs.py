"""One case through the algorithm, as one job of the platform: `exec`, a fresh process a case."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contract import sockets
from contract.errors import OutputError
from contract.images.volumes import read_header
from contract.tasks import Task
from rehearsal.cases import Case, StagedJob, stage_job
from rehearsal.outputs import CheckedOutput, check_output
from rehearsal.runners.runner import Call, Limits, Runner
from rehearsal.runners.verdicts import log_warnings, run_failure
from rehearsal.runners.watching import Outcome

INPUT_CHANGED: Final = "the input folder was changed; on the platform /input is read-only and the write would fail"


@dataclass(frozen=True)
class JobResult:
    """What became of one case: its checked output, or the reason why the platform would fail the job."""

    job: StagedJob
    outcome: Outcome
    output: CheckedOutput | None
    failure: str | None
    warnings: tuple[str, ...]
    log: Path
    api_method: str = "exec"


@dataclass(frozen=True)
class Jobs:
    """What came of all cases, in their order.

    `startup_s` has an entry for each server that got ready, so it is empty where every case had a process of its own;
    `warnings` are not of one case.
    """

    results: tuple[JobResult, ...]
    startup_s: tuple[float, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobSettings:
    """What all jobs of a rehearsal share; `work_dir` holds their folders, `log_dir` their streams."""

    task: Task
    runner: Runner
    limits: Limits
    model_dir: Path | None
    work_dir: Path
    log_dir: Path
    parallel: int = 1


def run_jobs(cases: tuple[Case, ...], settings: JobSettings, on_done: Callable[[JobResult], None]) -> Jobs:
    """Run every case, `settings.parallel` at a time, in a fresh process each.

    A failed job does not keep the others from running: all that is wrong is seen in one rehearsal.

    Args:
        cases: what to run.
        settings: by what and under which limits.
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


def run_job(case: Case, settings: JobSettings) -> JobResult:
    """Stage a case, run it, check what it wrote. Raises EngineError where it cannot be started."""
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
    )
    before = listing(job.input_dir)
    outcome = settings.runner.run(call)
    failure = run_failure(outcome, settings.limits, call.stderr)
    if failure is None and listing(job.input_dir) != before:
        failure = INPUT_CHANGED
    output = None
    if failure is None:
        output, failure = checked_output(output_dir, case, settings.task)
    shutil.rmtree(tmp_dir, ignore_errors=True)
    shutil.rmtree(job.input_dir, ignore_errors=True)
    warnings = [*(output.warnings if output else ()), *log_warnings(call.stdout), *log_warnings(call.stderr)]
    return JobResult(job, outcome, output, failure, tuple(warnings), call.stderr)


def checked_output(output_dir: Path, case: Case, task: Task) -> tuple[CheckedOutput | None, str | None]:
    """The task's output below `output_dir`, or why the platform would not take it."""
    ct_geometry = read_header(case.file(sockets.CT)).geometry if task.output.is_image else None
    try:
        return check_output(output_dir, task.output, ct_geometry), None
    except OutputError as problem:
        return None, problem.message


def listing(folder: Path) -> list[tuple[str, int, int]]:
    """Name, size and modification time of every file below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [(str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
