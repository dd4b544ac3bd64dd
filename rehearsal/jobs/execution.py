"""Options of a rehearsal, and its cases as jobs: a new process for each case (`exec`), or one server (`invoke`)."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from contract.editions import Algorithm, Edition
from contract.errors import EngineError, OutputError
from contract.images.volumes import read_header
from contract.io.files import MAX_JSON_BYTES
from contract.platform import API_METHOD_LABEL, API_METHODS, ApiMethod
from rehearsal.jobs.cases import CohortCase, StagedJob, stage_job
from rehearsal.platform.runs import (
    CheckedOutput,
    CheckedOutputs,
    check_outputs,
    find_invoke_failure,
    find_log_warnings,
    find_run_failure,
    find_start_failure,
)
from rehearsal.records import RecordedRun, RehearsedCase, read_run_record
from rehearsal.runners.monitor import GRACE_S, RunOutcome
from rehearsal.runners.runner import RUN_RECORD, Call, Limits, Runner, RunningServer
from rehearsal.runners.trees import (
    UntrustedFileError,
    copy_file,
    copy_tree,
    empty_folder,
    list_entries,
    remove_entry,
    remove_tree,
)

INPUT_CHANGED: Final = "the input folder was changed; on the platform /input is read-only and the write would fail"

OnFailure = Literal["abort", "mark-missing"]
ChosenApiMethod = Literal["auto", "exec", "invoke"]

# The connection to a killed server breaks shortly before the end of its process can be observed.
_MAX_END_DELAY_S: Final = 1.0
_STREAMS: Final = ("stdout", "stderr")
_LATE_END: Final = f"the server did not end within {GRACE_S:g} s of SIGTERM"


@dataclass(frozen=True)
class Rehearsal:
    """Options of a rehearsal.

    Attributes:
        cohort: Folder of cases in the platform's layout, or a release.
        evaluation: The evaluation; None only runs the jobs.
        ground_truth_dir: Reference for the evaluation; None makes it from the masks and the table of a release.
        model: Folder or `.tar.gz` of the model.
        parallel: Number of cases that run at a time.
        only: IDs of the cases to run and to score; empty for all cases.
        api_method: How the algorithm is called; `auto` follows the image's label.
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
        """Return the folder of the logs."""
        return self.output_dir / "logs"


@dataclass(frozen=True)
class JobResult:
    """The checked outputs of one case, or the reason why the platform would fail the job.

    `run_record` is the algorithm's record of the run; None if it did not write a record.
    """

    job: StagedJob
    outcome: RunOutcome
    outputs: tuple[CheckedOutput, ...]
    failure: str | None
    warnings: tuple[str, ...]
    api_method: ApiMethod
    run_record: RecordedRun | None = None

    def as_case(self) -> RehearsedCase:
        """Return the case's entry in rehearsal.json."""
        return RehearsedCase(
            case=self.job.case.case_id,
            job=self.job.pk,
            failure=self.failure,
            warnings=self.warnings,
            unscored=tuple(f"{output.path.name}: {output.unscored}" for output in self.outputs if output.unscored),
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

    `startup_s` has one entry for each server that became ready; it is empty for `exec`. `warnings` do not belong to a
    single case.
    """

    results: tuple[JobResult, ...]
    startup_s: tuple[float, ...] = ()
    warnings: tuple[str, ...] = ()


def choose_api_method(algorithm: Runner, chosen: str, parallel: int) -> tuple[str, tuple[str, ...]]:
    """Choose the API method of the algorithm; for `auto` the image's label decides.

    Returns:
        The method, and a warning if the platform would call the algorithm differently.

    Raises:
        EngineError: Several cases would run at a time on one server, or the image has no label for `invoke`.
    """
    # The platform refuses an image with any other label.
    label = algorithm.api_method if algorithm.api_method in API_METHODS else "exec"
    method = label if chosen == "auto" else chosen
    if method == "invoke" and parallel > 1:
        raise EngineError(f"{parallel} cases at a time, expected 1", "a server answers one after the other")
    if method == label or not algorithm.is_isolated:
        return method, ()
    if method == "invoke":
        raise EngineError(algorithm.description, f"labelled {label}", f"the label {API_METHOD_LABEL}=invoke")
    return method, (f"the image's label says {label}, which the platform would use instead of {method}",)


def run_jobs(
    cases: Sequence[CohortCase], rehearsal: Rehearsal, work_dir: Path, on_done: Callable[[JobResult], None]
) -> Jobs:
    """Run all cases, `rehearsal.parallel` at a time, each in a new process with folders below `work_dir`.

    After a failed job the remaining cases still run, so that one rehearsal shows all problems. `on_done` is called in
    this thread with each result when it is ready.

    Raises:
        EngineError: The program cannot be started at all.
    """
    results: list[JobResult] = []
    if rehearsal.parallel == 1:
        # The cases run in this thread, so that an interruption reaches the running process at once.
        for case in cases:
            results.append(run_job(case, rehearsal, work_dir))
            on_done(results[-1])
        return Jobs(tuple(results))
    cancelled = threading.Event()
    with ThreadPoolExecutor(max_workers=rehearsal.parallel) as pool:
        futures = [pool.submit(run_job, case, rehearsal, work_dir, cancelled) for case in cases]
        try:
            for future in futures:
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
    """Stage a case, run it and check its outputs; raise `EngineError` if the program cannot be started."""
    folder = work_dir / case.case_id
    job = stage_job(case, folder / "input")
    name = f"hecktor-rehearsal-{job.pk}"
    call = Call.create(name, folder, rehearsal.log_dir / case.case_id, rehearsal.limits, rehearsal.model)
    call = replace(call, cancelled=cancelled)
    before = list_files(job.input_dir)
    outcome = rehearsal.algorithm.run(call)
    failure = find_run_failure(outcome, call.limits, call.stderr)
    if failure is None and list_files(job.input_dir) != before:
        failure = INPUT_CHANGED
    if outcome.disk_failure is not None:
        empty_folder(call.output_dir)
    collected = CollectedOutputs.from_call(call, folder / "collected")
    for path in (call.output_dir, call.tmp_dir, job.input_dir):
        remove_tree(path)
    result = JobResult(job, outcome, (), failure, (), "exec")
    return collected.check(result, rehearsal.task, (call.stdout, call.stderr))


@dataclass(frozen=True)
class CollectedOutputs:
    """Copies of a run's outputs and run record, and the reasons why some files were not copied."""

    outputs: Path
    faults: tuple[str, ...]
    record: Path
    record_fault: str

    @classmethod
    def from_call(cls, call: Call, folder: Path) -> CollectedOutputs:
        """Copy the outputs to `folder/output` and the record to `folder/run-record.json`."""
        outputs = folder / "output"
        record = folder / RUN_RECORD
        faults = copy_tree(call.output_dir, outputs)
        record_fault = ""
        try:
            copy_file(call.tmp_dir, RUN_RECORD, record, MAX_JSON_BYTES)
        except UntrustedFileError as error:
            record_fault = str(error)
        return cls(outputs, faults, record, record_fault)

    def check(self, result: JobResult, task: Algorithm, logs: Iterable[Path]) -> JobResult:
        """Check the outputs of a run, and add them, the run record and all warnings to its result.

        If the platform would not accept the outputs, all reasons become the failure of the result. The outputs of a
        failed run are checked as well, so that one rehearsal shows all faults.
        """
        failure = result.failure
        geometry = None if task.mask_spec is None else read_header(result.job.case.find_file(task.scan)).geometry
        checked = CheckedOutputs((), ())
        try:
            checked = check_outputs(self.outputs, task, geometry, self.faults, is_partial=failure is not None)
        except OutputError as error:
            failure = "; ".join(filter(None, (failure, error.message)))
        run_record, record_warnings = read_run_record(self.record, self.record_fault)
        log_warnings = [warning for log in logs for warning in find_log_warnings(log)]
        return replace(
            result,
            outputs=checked.outputs if failure is None else (),
            failure=failure,
            warnings=(*checked.warnings, *record_warnings, *log_warnings),
            run_record=run_record,
        )


def list_files(folder: Path) -> list[tuple[str, int, int, str]]:
    """List path, size, modification time and fault of all files below a folder."""
    entries = [entry for entry in list_entries(folder) if not entry.is_folder or entry.fault]
    return [(entry.path, entry.status.st_size, entry.status.st_mtime_ns, entry.fault) for entry in entries]


def invoke_jobs(
    cases: Sequence[CohortCase], rehearsal: Rehearsal, work_dir: Path, on_done: Callable[[JobResult], None]
) -> Jobs:
    """Start the program once as a server, which answers all cases; input and output are emptied between cases.

    A case that exceeds the time limit, or leaves a folder that cannot be emptied, marks the process unhealthy: the
    process is ended, and the remaining cases fail. They also fail if the process ends by itself or does not become
    ready. `on_done` is called with each result when it is ready.

    Raises:
        EngineError: The program cannot be started or called.
    """
    batch = _Server(rehearsal, work_dir)
    jobs: list[JobResult] = []
    try:
        batch.start()
        for case in cases:
            jobs.append(batch.answer(case))
            on_done(jobs[-1])
        batch.end()
    finally:
        batch.kill()
    return Jobs(tuple(jobs), tuple(batch.startup_s), tuple(batch.warnings))


def invoke_once(program: Runner, call: Call) -> tuple[RunOutcome, str | None, tuple[str, ...]]:
    """Start a program as a server and call it once, as the platform runs an evaluation image labelled `invoke`.

    Returns:
        The outcome, the reason why the platform would fail the call or None, and warnings about the end of the server.

    Raises:
        EngineError: The program cannot be started or called.
    """
    server = program.start(call)
    warnings: tuple[str, ...] = ()
    try:
        outcome, failure = _wait_for_start(server, call)
        if failure is None:
            outcome, failure = _invoke_server(server, call)
        if outcome.exit_code is None and not outcome.timed_out and server.stop() is None:
            warnings = (_LATE_END,)
    finally:
        server.kill()
    return outcome, failure, warnings


def _wait_for_start(server: RunningServer, call: Call) -> tuple[RunOutcome, str | None]:
    """Wait until a server is ready; return the time that this took, and the reason why it is not ready or None."""
    reply = server.wait_until_ready(call.limits.health_tries, call.limits.health_interval_s)
    exit_code = server.wait_for_exit(_MAX_END_DELAY_S) if reply.status is None else None
    server.logs.flush()
    failure = server.disk_failure() or find_start_failure(reply, exit_code, call.limits, call.stderr)
    return RunOutcome(exit_code, reply.seconds, False, None, reply.status), failure


def _invoke_server(server: RunningServer, call: Call) -> tuple[RunOutcome, str | None]:
    """Call a server once; return the outcome, and the reason why the platform would fail the call or None.

    A server that exceeds the time limit is ended.
    """
    reply = server.invoke(call.limits.case_limit_s("invoke"))
    peak = server.peak_memory()
    has_no_answer = reply.status is None and not reply.timed_out
    exit_code = server.wait_for_exit(_MAX_END_DELAY_S) if has_no_answer else None
    server.logs.flush()
    failure = find_invoke_failure(reply, exit_code, call.limits, call.stderr)
    if reply.timed_out:
        server.stop()
    server.grant_access()
    disk_failure = server.disk_failure()
    outcome = RunOutcome(exit_code, reply.seconds, reply.timed_out, peak, reply.status, disk_failure)
    return outcome, disk_failure or failure


class _Server:
    """One server that answers all cases in turn, or the reason why the remaining cases fail."""

    def __init__(self, rehearsal: Rehearsal, work_dir: Path) -> None:
        self._rehearsal = rehearsal
        self._work_dir = work_dir
        self._server: RunningServer | None = None
        name = f"hecktor-rehearsal-{uuid.uuid4()}"
        logs = rehearsal.log_dir / "server-1"
        self._call = Call.create(name, work_dir / "server", logs, rehearsal.limits, rehearsal.model)
        self._ended = RunOutcome(None, 0.0, False, None)
        self._refusal: str | None = None
        self.startup_s: list[float] = []
        self.warnings: list[str] = []

    def answer(self, case: CohortCase) -> JobResult:
        """Answer one case with the running process; without a process the case fails."""
        call = self._call
        server = self._server
        if server is None:
            return self._fail_case(case)
        job = stage_job(case, call.input_dir)
        before = list_files(call.input_dir)
        outcome, failure = self._invoke(server, case)
        if failure is None and list_files(call.input_dir) != before:
            failure = INPUT_CHANGED
        collected = CollectedOutputs.from_call(call, self._work_dir / case.case_id / "collected")
        failure = self._empty_folders(case) or failure
        logs = [self._rehearsal.log_dir / f"{case.case_id}.{stream}" for stream in _STREAMS]
        server.logs.cut(*logs)
        result = JobResult(job, outcome, (), failure, (), "invoke")
        return collected.check(result, self._rehearsal.task, logs)

    def end(self) -> None:
        """Send SIGTERM, as the platform does after the last case."""
        if self._server is not None and self._server.stop() is None:
            self.warnings.append(_LATE_END)
        self._server = None

    def kill(self) -> None:
        """Kill the process, if there is one."""
        if self._server is not None:
            self._server.kill()
        self._server = None

    def start(self) -> None:
        """Start the program and wait until it is ready; if it does not become ready, all cases fail."""
        self._server = server = self._rehearsal.algorithm.start(self._call)
        outcome, self._refusal = _wait_for_start(server, self._call)
        if self._refusal is None:
            self.startup_s.append(outcome.seconds)
        else:
            self._discard_server()

    def _invoke(self, server: RunningServer, case: CohortCase) -> tuple[RunOutcome, str | None]:
        outcome, failure = _invoke_server(server, self._call)
        if outcome.disk_failure is not None:
            self._end_unhealthy(case, "the disk limit was exceeded")
        elif outcome.timed_out:
            self._end_unhealthy(case, "the time limit was exceeded")
        elif outcome.exit_code is not None:
            self._end_unhealthy(case, "the process ended")
        return outcome, failure

    def _empty_folders(self, case: CohortCase) -> str | None:
        """Remove outputs, inputs and run record; return the failure if a folder cannot be emptied."""
        try:
            empty_folder(self._call.output_dir)
            empty_folder(self._call.input_dir)
            remove_entry(self._call.tmp_dir, RUN_RECORD)
        except OSError as problem:
            return self._end_unhealthy(case, f"/input or /output cannot be emptied ({problem.strerror})")
        return None

    def _end_unhealthy(self, case: CohortCase, reason: str) -> str:
        """End the process, fail the remaining cases, and return the reason as the failure of this one."""
        self._refusal = (
            f"503, not answered: the process has been unhealthy since case {case.case_id} ({reason}); "
            "the platform would fail the job"
        )
        self._ended = RunOutcome(None, 0.0, False, None, 503)
        if self._server is not None and self._server.exit_code is None:
            self._server.stop()
        self._discard_server()
        return f"{reason}; the platform would mark the process unhealthy, end it, and fail the job"

    def _discard_server(self) -> None:
        """End the process. If its files were too large, remove them, because the other cases need the disk space."""
        server = self._server
        self.kill()
        if server is not None and server.disk_failure() is not None:
            for folder in (self._call.output_dir, self._call.tmp_dir):
                with contextlib.suppress(OSError):
                    empty_folder(folder)

    def _fail_case(self, case: CohortCase) -> JobResult:
        """Return the result of a case for which there is no process."""
        job = stage_job(case, self._work_dir / case.case_id / "input")
        for stream in _STREAMS:
            (self._rehearsal.log_dir / f"{case.case_id}.{stream}").touch()
        return JobResult(job, self._ended, (), self._refusal, (), "invoke")
