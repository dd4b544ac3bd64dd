"""The result of a rehearsal, its record `rehearsal.json`, and the comparison of `exec` and `invoke`."""

from __future__ import annotations

import filecmp
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rehearsal.jobs.execute import JobResult, Rehearsal

REHEARSAL_JSON: Final = "rehearsal.json"


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


def comparison(executed: RehearsalResult, invoked: RehearsalResult, output_dir: Path) -> str:
    """A table of seconds (start-up, each case, total) for `exec` and `invoke`, and the number of equal answers.

    The seconds of `exec` include the start-up. Answers in `exec/predictions` and `invoke/predictions` of `output_dir`
    are compared byte by byte.
    """
    start_s = sum(invoked.startup_s)
    rows = [("seconds", "exec", "invoke"), ("start-up", "in each case", f"{start_s:.1f} once")]
    for one, other in zip(executed.jobs, invoked.jobs, strict=True):
        rows.append((one.job.case.case_id, _shown(one), _shown(other)))
    executed_s, invoked_s = (sum(job.outcome.seconds for job in result.jobs) for result in (executed, invoked))
    rows.append(("together", f"{executed_s:.1f}", f"{start_s + invoked_s:.1f}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"{name:<{widths[0]}}  {one:>{widths[1]}}  {other:>{widths[2]}}" for name, one, other in rows]
    one_way, other_way = (output_dir / method / "predictions" for method in ("exec", "invoke"))
    names = [str(path.relative_to(one_way)) for path in sorted(one_way.rglob("*")) if path.is_file()]
    same, _, _ = filecmp.cmpfiles(one_way, other_way, names, shallow=False)
    answers = max(1, *(len(job.outputs) for job in executed.jobs)) * len(executed.jobs)
    return "\n".join([*lines, f"equal answers: {len(same)} of {answers}"])


def _shown(job: JobResult) -> str:
    return f"{'' if job.failure is None else 'failed after '}{job.outcome.seconds:.1f}"
