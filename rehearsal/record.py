"""Options and result of a rehearsal, and `rehearsal.json`, which records both."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from contract.editions import Algorithm
from rehearsal.jobs.execute import JobResult
from rehearsal.runners.runner import Limits, Runner

REHEARSAL_JSON: Final = "rehearsal.json"

OnFailure = Literal["abort", "mark-missing"]
ApiMethod = Literal["auto", "exec", "invoke"]


@dataclass(frozen=True)
class Rehearsal:
    """Options of a rehearsal.

    `evaluation` and `ground_truth_dir` come together; without them only the jobs run. `api_method` is how the
    algorithm is called; `auto` follows the image's label. `with_run_record` asks the algorithm for its record of each
    run, which an algorithm of this project can write.
    """

    task: Algorithm
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
    with_run_record: bool = False


@dataclass(frozen=True)
class RehearsalResult:
    """Result of a rehearsal.

    `refusals` are reasons why the platform would not accept an image, `problems` reasons why there is no ranked
    result. `startup_s` has one entry for each server: the seconds until it was ready; it is empty for `exec`.
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
        """Failed cases with their reasons."""
        return tuple(f"{job.job.case.case_id}: {job.failure}" for job in self.jobs if job.failure is not None)

    @property
    def succeeded(self) -> bool:
        """Whether the platform would show a result."""
        return not (self.refusals or self.failures or self.problems)


def rehearsal_json(rehearsal: Rehearsal, result: RehearsalResult) -> dict[str, Any]:
    """The content of `rehearsal.json`."""
    limits = asdict(rehearsal.limits)
    return {
        "team": rehearsal.team,
        "task": rehearsal.task.name,
        "algorithm": rehearsal.algorithm.description,
        "evaluation": None if rehearsal.evaluation is None else rehearsal.evaluation.description,
        "isolated": rehearsal.algorithm.is_isolated,
        "api_method": result.api_method,
        "startup_s": [round(seconds, 3) for seconds in result.startup_s],
        "limits": {name: limits[name] for name in ("memory_bytes", "time_limit_s", "cpus")},
        "on_failure": rehearsal.on_failure,
        "seed": rehearsal.seed,
        "succeeded": result.succeeded,
        "refusals": list(result.refusals),
        "problems": list(result.problems),
        "ranked": result.metrics,
        "cases": [_case_record(job) for job in result.jobs],
    }


def _case_record(job: JobResult) -> dict[str, Any]:
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
