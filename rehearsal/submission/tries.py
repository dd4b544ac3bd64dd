"""One image over the phantoms under the platform's rules, judged more strictly than the platform does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from contract import sockets
from contract.errors import HecktorError
from contract.images.volumes import read_header
from contract.tasks import Task
from rehearsal.platform import Rehearsal, rehearse
from rehearsal.runners.jobs import JobResult
from rehearsal.runners.runner import GIB, Limits, Runner

MEMORY_BYTES: Final = 16 * GIB
# What the algorithm's log says: of the package it loaded, of an answer without the network, and how it answered.
_PACKAGE: Final = "model package: "
_FALLBACK: Final = "*** FALLBACK ***"
_ANSWERED: Final = " answered by "


@dataclass(frozen=True)
class TriedCase:
    """One phantom's answer: what it took, and how the algorithm says it was made."""

    case: str
    kind: str
    seconds: float
    peak_memory_bytes: int | None
    answered: str


@dataclass(frozen=True)
class Tried:
    """One task's rehearsal; `isolated` is False where plain processes ran in place of the image."""

    task: Task
    isolated: bool
    api_method: str
    time_limit_s: float
    cases: tuple[TriedCase, ...]

    @property
    def longest_s(self) -> float:
        """Seconds of the slowest phantom."""
        return max(case.seconds for case in self.cases)

    def as_json(self) -> dict[str, Any]:
        """For `submission.json`."""
        return {
            "task": self.task.name,
            "how": "container" if self.isolated else "process",
            "api_method": self.api_method,
            "memory_bytes": MEMORY_BYTES,
            "time_limit_s": self.time_limit_s,
            "longest_s": self.longest_s,
            "cases": [asdict(case) for case in self.cases],
        }


@dataclass(frozen=True)
class Trial:
    """What every task is tried on: phantoms by ID with their kinds, the unpacked package and its name."""

    cohort: Path
    kinds: Mapping[str, str]
    model: Path
    package_name: str


def try_task(task: Task, runner: Runner, trial: Trial, output: Path) -> Tried:
    """Rehearse one task over all phantoms.

    Raises:
        HecktorError: an image would be refused, a job failed, an answer would not count in the evaluation, the
            network did not answer, or another model than the package did.
    """
    result = rehearse(
        Rehearsal(
            task=task,
            cohort=trial.cohort,
            output_dir=output,
            algorithm=runner,
            limits=Limits(MEMORY_BYTES, task.time_limit_s),
            model_dir=trial.model,
            only=tuple(trial.kinds),
        )
    )
    problems = [*result.refusals, *result.problems]
    for job in result.jobs:
        problems += [f"{_told(job, trial)}: {problem}" for problem in _problems(job, trial.package_name, output)]
    if problems:
        raise HecktorError(task.name, f"{problems[0]}")
    cases = tuple(_tried(job, trial) for job in result.jobs)
    return Tried(task, runner.is_isolated, result.api_method, task.time_limit_s, cases)


def _told(job: JobResult, trial: Trial) -> str:
    return f"phantom {job.job.case.case_id} ({trial.kinds[job.job.case.case_id]})"


def _problems(job: JobResult, package_name: str, output: Path) -> list[str]:
    if job.failure is not None:
        return [job.failure]
    found, log = _off_grid(job, output), _log(job)
    if f"{_PACKAGE}{package_name}" not in log:
        found.append(f"the log does not say {_PACKAGE + package_name!r}, expected the answer of that package")
    if _FALLBACK in log:
        found.append("the PET threshold answered, expected an answer of the network")
    return found


def _off_grid(job: JobResult, output: Path) -> list[str]:
    """A mask that the platform would take and the evaluation would score as missing."""
    case = job.job.case
    mask = output / "predictions" / f"{case.case_id}.mha"
    if not mask.is_file():  # the task's answer is a value
        return []
    grid = read_header(case.file(sockets.CT)).geometry
    differences = read_header(mask).geometry.differences(grid)
    return [f"the mask's grid is not the CT's: {differences[0]}"] if differences else []


def _tried(job: JobResult, trial: Trial) -> TriedCase:
    case = job.job.case.case_id
    answers = [line.partition(_ANSWERED)[2] for line in _log(job).splitlines() if _ANSWERED in line]
    peak = job.outcome.peak_memory_bytes
    return TriedCase(case, trial.kinds[case], round(job.outcome.seconds, 1), peak, answers[-1] if answers else "")


def _log(job: JobResult) -> str:
    return job.log.read_text(encoding="utf-8", errors="replace")
