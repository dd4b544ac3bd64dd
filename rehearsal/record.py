"""The result of a rehearsal, and its record `rehearsal.json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from contract.documents import Document
from rehearsal.jobs.execute import JobResult, OnFailure, Rehearsal
from rehearsal.jobs.records import RecordedRun, Records, RehearsedAnswer, RehearsedPackage

REHEARSAL_JSON: Final = "rehearsal.json"


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
        return records_of(self.jobs)

    @property
    def failures(self) -> tuple[str, ...]:
        """Failed cases with their reasons."""
        return tuple(f"{job.job.case.case_id}: {job.failure}" for job in self.jobs if job.failure is not None)

    @property
    def succeeded(self) -> bool:
        """Whether the platform would show a result."""
        return not (self.refusals or self.failures or self.problems)


def records_of(jobs: Sequence[JobResult]) -> Records:
    """The algorithm's run record of each answered case."""
    return {job.job.case.case_id: job.run_record for job in jobs if job.failure is None}


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
