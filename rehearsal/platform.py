"""A look-alike of the platform: image checks, jobs, output checks, evaluation, leaderboard rules."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from contract.errors import EngineError, GroundTruthError, HecktorError, OutputError
from contract.files import read_json, write_json
from contract.platform import METRICS_JSON
from contract.tasks import Task
from rehearsal.cases import find_cases
from rehearsal.images.checks import API_METHODS, upload_problems
from rehearsal.leaderboard import ranked_values
from rehearsal.predictions import keep_by_case, stage_predictions
from rehearsal.runners.containers import ContainerRunner
from rehearsal.runners.invoke_jobs import invoke_jobs
from rehearsal.runners.jobs import JobResult, JobSettings, run_jobs
from rehearsal.runners.runner import GIB, Call, Limits, Runner
from rehearsal.runners.verdicts import log_warnings, run_failure

REPORT_NAME: Final = "rehearsal.json"
EVALUATION_LIMITS: Final = Limits(memory_bytes=8 * GIB, time_limit_s=3600.0, cpus=2)
_OWN_NAMES: Final = ("predictions", "evaluation", "logs", METRICS_JSON, REPORT_NAME)

OnFailure = Literal["abort", "mark-missing"]
ApiMethod = Literal["auto", "exec", "invoke"]


@dataclass(frozen=True)
class Rehearsal:
    """What to rehearse.

    `evaluation` and `ground_truth_dir` come together; without them the jobs alone run. `api_method` says how the
    algorithm is called; `auto` follows the image's label.
    """

    task: Task
    cohort: Path
    output_dir: Path
    algorithm: Runner
    limits: Limits
    evaluation: Runner | None = None
    ground_truth_dir: Path | None = None
    model_dir: Path | None = None
    on_failure: OnFailure = "abort"
    team: str = "team"
    parallel: int = 1
    only: tuple[str, ...] = ()
    seed: int = 0
    api_method: ApiMethod = "auto"


@dataclass(frozen=True)
class RehearsalResult:
    """What came of it. `refusals`: why an image would not be taken; `problems`: why there is no ranked result.

    `startup_s` is what a server took until it was ready, an entry for each that was started; empty for `exec`.
    """

    jobs: tuple[JobResult, ...]
    refusals: tuple[str, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    metrics: dict[str, float]
    api_method: str
    startup_s: tuple[float, ...]

    @property
    def failures(self) -> tuple[str, ...]:
        """Why jobs failed, each with its case."""
        return tuple(f"{job.job.case.case_id}: {job.failure}" for job in self.jobs if job.failure is not None)

    @property
    def succeeded(self) -> bool:
        """Whether the platform would show a result."""
        return not (self.refusals or self.failures or self.problems)


def _ignore(_: object) -> None:
    """No progress wanted."""


def rehearse(
    rehearsal: Rehearsal,
    *,
    on_start: Callable[[int], None] = _ignore,
    on_job: Callable[[JobResult], None] = _ignore,
) -> RehearsalResult:
    """Do with a submission what the platform does, and write what came of it below `output_dir`.

    Written: `predictions/<case>.mha|json`, `evaluation/input/` as the evaluation saw it, `metrics.json`,
    `logs/`, `rehearsal.json`. What an earlier rehearsal wrote there is removed first.

    Args:
        rehearsal: what to run, on what, under which limits.
        on_start: called with the number of cases.
        on_job: called as each job ends.

    Raises:
        HecktorError: nothing could be run: no cases, no ground truth, no image.
    """
    cases = find_cases(rehearsal.cohort, rehearsal.task, rehearsal.only)
    if rehearsal.ground_truth_dir is not None and not rehearsal.ground_truth_dir.is_dir():
        raise GroundTruthError(rehearsal.ground_truth_dir.name, "no such folder", "the ground truth")
    refusals = _refusals(rehearsal)
    method, warnings = _api_method(rehearsal)
    _clear(rehearsal.output_dir)
    on_start(len(cases))
    with tempfile.TemporaryDirectory(prefix=".rehearsal-", dir=rehearsal.output_dir) as work:
        Path(work).chmod(0o755)
        settings = JobSettings(
            task=rehearsal.task,
            runner=rehearsal.algorithm,
            limits=rehearsal.limits,
            model_dir=rehearsal.model_dir,
            work_dir=Path(work),
            log_dir=rehearsal.output_dir / "logs",
            parallel=rehearsal.parallel,
        )
        ran = (invoke_jobs if method == "invoke" else run_jobs)(cases, settings, on_job)
        jobs = ran.results
        input_dir = rehearsal.output_dir / "evaluation" / "input"
        stage_predictions(jobs, input_dir, rehearsal.algorithm.description, np.random.default_rng(rehearsal.seed))
        keep_by_case(jobs, input_dir, rehearsal.output_dir / "predictions")
        metrics, problems, said = _evaluated(rehearsal, jobs, Path(work))
    warnings += (*ran.warnings, *_job_warnings(jobs), *said)
    result = RehearsalResult(jobs, refusals, problems, warnings, metrics, method, ran.startup_s)
    write_json(rehearsal.output_dir / REPORT_NAME, _report(rehearsal, result))
    return result


def _refusals(rehearsal: Rehearsal) -> tuple[str, ...]:
    """Why the platform would not take the images."""
    found: list[str] = []
    for runner in (rehearsal.algorithm, rehearsal.evaluation):
        if isinstance(runner, ContainerRunner):
            found += upload_problems(runner.engine.image_facts(runner.image))
    return tuple(found)


def _api_method(rehearsal: Rehearsal) -> tuple[str, tuple[str, ...]]:
    """How the algorithm is called, and a warning where the platform would call it otherwise.

    Raises:
        EngineError: several cases of one server at a time, or an evaluation that is no `exec`.
    """
    labelled = rehearsal.algorithm.api_method
    if labelled not in API_METHODS:  # such an image is refused
        labelled = "exec"
    method = labelled if rehearsal.api_method == "auto" else rehearsal.api_method
    if method == "invoke" and rehearsal.parallel > 1:
        raise EngineError(f"{rehearsal.parallel} cases at a time, expected 1", "a server answers one after the other")
    if rehearsal.evaluation is not None and rehearsal.evaluation.api_method != "exec":
        raise EngineError(f"{rehearsal.evaluation.description}", "an evaluation is called by exec", "that label")
    if method == labelled or not rehearsal.algorithm.is_isolated:
        return method, ()
    return method, (f"the image's label says {labelled}; the platform would call it so, and not by {method}",)


def _evaluated(
    rehearsal: Rehearsal, jobs: tuple[JobResult, ...], work: Path
) -> tuple[dict[str, float], tuple[str, ...], tuple[str, ...]]:
    """Ranked values, problems and warnings of the evaluation; none where it is not to run."""
    if rehearsal.evaluation is None or rehearsal.ground_truth_dir is None:
        return {}, (), ()
    if rehearsal.on_failure == "abort" and any(job.failure is not None for job in jobs):
        return {}, ("a job failed, so the platform would not start the evaluation",), ()
    output_dir, tmp_dir = work / "evaluation-output", work / "evaluation-tmp"
    output_dir.mkdir()
    tmp_dir.mkdir()
    logs = rehearsal.output_dir / "logs"
    call = Call(
        name=f"hecktor-rehearsal-{uuid.uuid4()}",
        input_dir=rehearsal.output_dir / "evaluation" / "input",
        output_dir=output_dir,
        tmp_dir=tmp_dir,
        stdout=logs / "evaluation.stdout",
        stderr=logs / "evaluation.stderr",
        limits=EVALUATION_LIMITS,
        ground_truth_dir=rehearsal.ground_truth_dir,
    )
    outcome = rehearsal.evaluation.run(call)
    warnings = (*log_warnings(call.stdout), *log_warnings(call.stderr))
    failure = run_failure(outcome, call.limits, call.stderr)
    if failure is not None:
        return {}, (f"evaluation: {failure}",), warnings
    try:
        metrics = read_json(output_dir / METRICS_JSON, error=OutputError, accept_nan=True)
    except HecktorError as problem:
        return {}, (f"evaluation: {problem.message}; the platform would fail the evaluation",), warnings
    shutil.copyfile(output_dir / METRICS_JSON, rehearsal.output_dir / METRICS_JSON)
    values, problems = ranked_values(metrics, rehearsal.task)
    return values, tuple(problems), warnings


def _job_warnings(jobs: tuple[JobResult, ...]) -> tuple[str, ...]:
    return tuple(f"{job.job.case.case_id}: {warning}" for job in jobs for warning in job.warnings)


def _clear(output_dir: Path) -> None:
    output_dir.mkdir(parents=True, exist_ok=True)
    for name in _OWN_NAMES:
        path = output_dir / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _report(rehearsal: Rehearsal, result: RehearsalResult) -> dict[str, Any]:
    return {
        "team": rehearsal.team,
        "task": rehearsal.task.name,
        "algorithm": rehearsal.algorithm.description,
        "evaluation": None if rehearsal.evaluation is None else rehearsal.evaluation.description,
        "isolated": rehearsal.algorithm.is_isolated,
        "api_method": result.api_method,
        "startup_s": [round(seconds, 3) for seconds in result.startup_s],
        "limits": {
            "memory_bytes": rehearsal.limits.memory_bytes,
            "time_limit_s": rehearsal.limits.time_limit_s,
            "cpus": rehearsal.limits.cpus,
        },
        "on_failure": rehearsal.on_failure,
        "seed": rehearsal.seed,
        "succeeded": result.succeeded,
        "refusals": list(result.refusals),
        "problems": list(result.problems),
        "ranked": result.metrics,
        "cases": [_case_report(job) for job in result.jobs],
    }


def _case_report(job: JobResult) -> dict[str, Any]:
    return {
        "case": job.job.case.case_id,
        "job": job.job.pk,
        "failure": job.failure,
        "warnings": list(job.warnings),
        "exit_code": job.outcome.exit_code,
        "http_status": job.outcome.http_status,
        "timed_out": job.outcome.timed_out,
        "seconds": round(job.outcome.seconds, 3),
        "peak_memory_bytes": job.outcome.peak_memory_bytes,
    }
