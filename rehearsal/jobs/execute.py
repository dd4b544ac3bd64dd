"""Options of a rehearsal, and its cases as jobs of the platform by `exec`: a fresh process for each case."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from contract.editions import Algorithm, Edition
from contract.errors import EngineError, OutputError
from contract.images.volumes import read_header
from contract.io.files import MAX_JSON_BYTES
from contract.platform import API_METHOD_LABEL, API_METHODS, ApiMethod
from rehearsal.jobs.cases import CohortCase, StagedJob, stage_job
from rehearsal.platform.outputs import CheckedOutput, CheckedOutputs, check_outputs
from rehearsal.platform.runs import log_warnings, run_failure
from rehearsal.records import RecordedRun, RehearsedCase, read_run_record
from rehearsal.runners.monitor import RunOutcome
from rehearsal.runners.runner import RUN_RECORD, Call, Limits, Runner
from rehearsal.runners.trees import copy_file_out, copy_out, empty_folder, entries_below, remove_tree

INPUT_CHANGED: Final = "the input folder was changed; on the platform /input is read-only and the write would fail"


OnFailure = Literal["abort", "mark-missing"]
ChosenApiMethod = Literal["auto", "exec", "invoke"]


@dataclass(frozen=True)
class Rehearsal:
    """Options of a rehearsal.

    `cohort` is a folder of cases in the platform's layout, or a release. Without an `evaluation` only the jobs run; it
    needs a `ground_truth_dir`, which for a release is made of its masks and table by default. `api_method` is how the
    algorithm is called; `auto` follows the image's label. `model` is a folder or `.tar.gz`. `only` selects cases by ID;
    empty for all.
    """

    edition: Edition
    task: Algorithm
    cohort: Path
    output_dir: Path
    algorithm: Runner
    limits: Limits
    evaluation: Runner | None = None
    ground_truth_dir: Path | None = None
    model: Path | None = None
    on_failure: OnFailure = "abort"
    team: str = "team"
    parallel: int = 1
    only: tuple[str, ...] = ()
    api_method: ChosenApiMethod = "auto"

    @property
    def log_dir(self) -> Path:
        return self.output_dir / "logs"


@dataclass(frozen=True)
class JobResult:
    """The checked outputs of one case, or the reason why the platform would fail the job.

    `run_record` is the algorithm's own record of the run, None where none was written.
    """

    job: StagedJob
    outcome: RunOutcome
    outputs: tuple[CheckedOutput, ...]
    failure: str | None
    warnings: tuple[str, ...]
    api_method: ApiMethod
    run_record: RecordedRun | None = None

    def as_case(self) -> RehearsedCase:
        """The case's entry in rehearsal.json."""
        return RehearsedCase(
            case=self.job.case.case_id,
            job=self.job.pk,
            failure=self.failure,
            warnings=self.warnings,
            unscored=tuple(f"{one.path.name}: {one.unscored}" for one in self.outputs if one.unscored),
            exit_code=self.outcome.exit_code,
            http_status=self.outcome.http_status,
            timed_out=self.outcome.timed_out,
            seconds=round(self.outcome.seconds, 3),
            peak_memory_bytes=self.outcome.peak_memory_bytes,
            record=self.run_record,
        )


@dataclass(frozen=True)
class Jobs:
    """The results of all cases, in order.

    `startup_s` has one entry for each server that became ready, so it is empty for `exec`; `warnings` concern no
    single case.
    """

    results: tuple[JobResult, ...]
    startup_s: tuple[float, ...] = ()
    warnings: tuple[str, ...] = ()


def choose_api_method(algorithm: Runner, chosen: str, parallel: int) -> tuple[str, tuple[str, ...]]:
    """The API method of the algorithm, and a warning if the platform would call it differently.

    For `auto` the image's label decides. Raises EngineError for several (`parallel`) cases at a time for one server,
    and for an image without the label that `invoke` requires.
    """
    labelled = algorithm.api_method if algorithm.api_method in API_METHODS else "exec"  # other labels are refused
    method = labelled if chosen == "auto" else chosen
    if method == "invoke" and parallel > 1:
        raise EngineError(f"{parallel} cases at a time, expected 1", "a server answers one after the other")
    if method == labelled or not algorithm.is_isolated:
        return method, ()
    if method == "invoke":
        raise EngineError(algorithm.description, f"labelled {labelled}", f"the label {API_METHOD_LABEL}=invoke")
    return method, (f"the image's label says {labelled}; the platform would call it so, and not by {method}",)


def run_jobs(
    cases: Sequence[CohortCase], rehearsal: Rehearsal, work_dir: Path, on_done: Callable[[JobResult], None]
) -> Jobs:
    """Run all cases, `rehearsal.parallel` at a time, each in a fresh process with folders below `work_dir`.

    The other cases still run after a failed job, so that one rehearsal shows all problems. `on_done` is called with
    each result as it comes, in this thread. Raises EngineError if the program cannot be started at all.
    """
    results: list[JobResult] = []
    if rehearsal.parallel == 1:
        # In this thread, so that an interruption reaches the running process at once.
        for case in cases:
            results.append(run_job(case, rehearsal, work_dir))
            on_done(results[-1])
        return Jobs(tuple(results))
    cancelled = threading.Event()
    with ThreadPoolExecutor(max_workers=rehearsal.parallel) as pool:
        waiting = [pool.submit(run_job, case, rehearsal, work_dir, cancelled) for case in cases]
        try:
            for future in waiting:
                results.append(future.result())
                on_done(results[-1])
        except BaseException:
            cancelled.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return Jobs(tuple(results))


def run_job(
    case: CohortCase, rehearsal: Rehearsal, work_dir: Path, cancelled: threading.Event | None = None
) -> JobResult:
    """Stage a case, run it and check its outputs. Raises EngineError if the program cannot be started."""
    folder, limits = work_dir / case.case_id, rehearsal.limits
    job = stage_job(case, folder / "input")
    name, logs = f"hecktor-rehearsal-{job.pk}", rehearsal.log_dir / case.case_id
    call = Call.below(name, folder, logs, limits, rehearsal.model, cancelled)
    before = listing(job.input_dir)
    outcome = rehearsal.algorithm.run(call)
    failure = run_failure(outcome, limits, call.stderr)
    if failure is None and listing(job.input_dir) != before:
        failure = INPUT_CHANGED
    if outcome.disk_failure is not None:
        empty_folder(call.output_dir)
    collected = Collected.from_call(call, folder / "collected")
    for used in (call.output_dir, call.tmp_dir, job.input_dir):
        remove_tree(used)
    return collected.result(job, outcome, failure, rehearsal.task, (call.stdout, call.stderr), "exec")


@dataclass(frozen=True)
class Collected:
    """Copies of a run's outputs and run record, and the reasons why some were not copied."""

    outputs: Path
    faults: tuple[str, ...]
    record: Path
    record_fault: str

    @classmethod
    def from_call(cls, call: Call, folder: Path) -> Collected:
        """Copy the outputs to `folder/output` and the record to `folder/run-record.json`."""
        outputs, record = folder / "output", folder / RUN_RECORD
        faults = copy_out(call.output_dir, outputs)
        return cls(outputs, faults, record, copy_file_out(call.tmp_dir, RUN_RECORD, record, MAX_JSON_BYTES))

    def result(
        self,
        job: StagedJob,
        outcome: RunOutcome,
        failure: str | None,
        task: Algorithm,
        logs: Iterable[Path],
        api_method: ApiMethod,
    ) -> JobResult:
        """The checked outputs, or all reasons why the platform would not accept them.

        After a `failure` the outputs that are there are checked as well, so that one rehearsal shows all faults.
        """
        geometry = None if task.mask_spec is None else read_header(job.case.file(task.scan)).geometry
        checked = CheckedOutputs((), ())
        try:
            checked = check_outputs(self.outputs, task, geometry, self.faults, is_partial=failure is not None)
        except OutputError as problem:
            failure = "; ".join(filter(None, (failure, problem.message)))
        run_record, unusable = read_run_record(self.record, self.record_fault)
        warnings = (*checked.warnings, *unusable, *(warning for log in logs for warning in log_warnings(log)))
        outputs = checked.outputs if failure is None else ()
        return JobResult(job, outcome, outputs, failure, warnings, api_method, run_record)


def listing(folder: Path) -> list[tuple[str, int, int, str]]:
    """Name, size, modification time and fault of everything below a folder but its folders."""
    entries = [entry for entry in entries_below(folder) if not entry.is_folder or entry.fault]
    return [(one.path, one.status.st_size, one.status.st_mtime_ns, one.fault) for one in entries]
