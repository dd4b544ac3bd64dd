"""Cases in sequence through one server, as the platform runs an image labelled `invoke`."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rehearsal.jobs.cases import CohortCase, stage_job
from rehearsal.jobs.execute import INPUT_CHANGED, CollectedOutputs, JobResult, Jobs, Rehearsal, list_files
from rehearsal.platform.runs import find_invoke_failure, find_start_failure
from rehearsal.runners.monitor import GRACE_S, RunOutcome
from rehearsal.runners.runner import RUN_RECORD, Call, Runner
from rehearsal.runners.servers import RunningServer
from rehearsal.runners.trees import empty_folder, remove_entry

# The connection of a killed server breaks a moment before its process is seen to have ended.
_END_SEEN_WITHIN_S: Final = 1.0
_STREAMS: Final = ("stdout", "stderr")
_LATE_END: Final = f"the server did not end within {GRACE_S:g} s of SIGTERM"


def invoke_jobs(
    cases: Sequence[CohortCase], rehearsal: Rehearsal, work_dir: Path, on_done: Callable[[JobResult], None]
) -> Jobs:
    """Start the program once and answer every case with this process; input and output are emptied between cases.

    A case that overruns the time limit, or leaves a folder that cannot be emptied, marks the process unhealthy: it is
    ended, and the remaining cases fail, as they do if the process ends by itself or does not become ready. `on_done`
    is called with each result as it comes.

    Raises:
        EngineError: The program cannot be started or called.
    """
    batch = _Batch(rehearsal, work_dir)
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
    reply = server.wait_until_ready(call.limits.health_tries, call.limits.health_apart_s)
    exit_code = server.wait_for_exit(_END_SEEN_WITHIN_S) if reply.status is None else None
    server.logs.settle()
    failure = server.disk_failure() or find_start_failure(reply, exit_code, call.limits, call.stderr)
    return RunOutcome(exit_code, reply.seconds, False, None, reply.status), failure


def _invoke_server(server: RunningServer, call: Call) -> tuple[RunOutcome, str | None]:
    """Call a server once; return the outcome, and the reason why the platform would fail the call or None.

    A server that overruns the time limit is ended.
    """
    reply = server.invoke(call.limits.case_limit_s("invoke"))
    peak = server.peak_memory()
    has_no_answer = reply.status is None and not reply.timed_out
    exit_code = server.wait_for_exit(_END_SEEN_WITHIN_S) if has_no_answer else None
    server.logs.settle()
    failure = find_invoke_failure(reply, exit_code, call.limits, call.stderr)
    if reply.timed_out:
        server.stop()
    server.hand_over()
    disk_failure = server.disk_failure()
    outcome = RunOutcome(exit_code, reply.seconds, reply.timed_out, peak, reply.status, disk_failure)
    return outcome, disk_failure or failure


class _Batch:
    """The one process that answers all cases, or the reason why it cannot."""

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
            f"503, not answered: the process is unhealthy since case {case.case_id} ({reason}); "
            "the platform would fail the job"
        )
        self._ended = RunOutcome(None, 0.0, False, None, 503)
        if self._server is not None and self._server.exit_code is None:
            self._server.stop()
        self._discard_server()
        return f"{reason}; the platform would mark the process unhealthy, end it, and fail the job"

    def _discard_server(self) -> None:
        """End the process. If its files were too large, remove them: the other cases need the disk."""
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
