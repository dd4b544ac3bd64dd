"""Cases in sequence through one server, as the platform runs an image labelled `invoke`."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rehearsal.jobs.cases import CohortCase, stage_job
from rehearsal.jobs.execute import INPUT_CHANGED, Collected, JobResult, Jobs, Rehearsal, listing
from rehearsal.platform.runs import invoke_failure, start_failure
from rehearsal.runners.monitor import GRACE_S, RunOutcome
from rehearsal.runners.runner import RUN_RECORD, Call
from rehearsal.runners.servers import RunningServer
from rehearsal.runners.trees import empty_folder, remove_entry

# The connection of a killed server breaks a moment before its process is seen to have ended.
_END_SEEN_WITHIN_S: Final = 1.0
_STREAMS: Final = ("stdout", "stderr")


def invoke_jobs(
    cases: Sequence[CohortCase], rehearsal: Rehearsal, work_dir: Path, on_done: Callable[[JobResult], None]
) -> Jobs:
    """Start the program once and answer every case with this process; input and output are emptied between cases.

    A case that overruns the time limit, or leaves a folder that cannot be emptied, marks the process unhealthy: it is
    ended, and the remaining cases fail, as they do if the process ends by itself or does not become ready. `on_done`
    is called with each result as it comes. Raises EngineError if the program cannot be started or called.
    """
    batch, jobs = _Batch(rehearsal, work_dir), []
    try:
        batch.start()
        for case in cases:
            jobs.append(batch.answer(case))
            on_done(jobs[-1])
        batch.end()
    finally:
        batch.kill()
    return Jobs(tuple(jobs), tuple(batch.startup_s), tuple(batch.warnings))


class _Batch:
    """The one process that answers all cases, or the reason why it cannot."""

    def __init__(self, rehearsal: Rehearsal, work_dir: Path) -> None:
        self._rehearsal, self._work_dir = rehearsal, work_dir
        self._server: RunningServer | None = None
        name, logs = f"hecktor-rehearsal-{uuid.uuid4()}", rehearsal.log_dir / "server-1"
        self._call = Call.below(name, work_dir / "server", logs, rehearsal.limits, rehearsal.model)
        self._ended = RunOutcome(None, 0.0, False, None)
        self._refusal: str | None = None
        self.startup_s: list[float] = []
        self.warnings: list[str] = []

    def answer(self, case: CohortCase) -> JobResult:
        call, folder = self._call, self._work_dir / case.case_id / "collected"
        if (server := self._server) is None:
            return self._unanswered(case)
        job = stage_job(case, call.input_dir)
        before = listing(call.input_dir)
        outcome, failure = self._invoke(server, case)
        if failure is None and listing(call.input_dir) != before:
            failure = INPUT_CHANGED
        collected = Collected.from_call(call, folder)
        failure = self._emptied(case) or failure
        logs = [self._rehearsal.log_dir / f"{case.case_id}.{stream}" for stream in _STREAMS]
        server.logs.cut(*logs)
        return collected.result(job, outcome, failure, self._rehearsal.task, logs, "invoke")

    def end(self) -> None:
        """Send SIGTERM, as the platform does after the last case."""
        if self._server is not None and self._server.stop() is None:
            self.warnings.append(f"the server did not end within {GRACE_S:g} s of SIGTERM")
        self._server = None

    def kill(self) -> None:
        if self._server is not None:
            self._server.kill()
        self._server = None

    def start(self) -> None:
        self._server = server = self._rehearsal.algorithm.start(self._call)
        limits = self._rehearsal.limits
        reply = server.wait_until_ready(limits.health_tries, limits.health_apart_s)
        code = server.exit_code_within(_END_SEEN_WITHIN_S) if reply.status is None else None
        server.logs.settle()
        self._refusal = server.disk_failure() or start_failure(reply, code, limits, self._call.stderr)
        if self._refusal is None:
            self.startup_s.append(reply.seconds)
        else:
            self._discard_server()

    def _invoke(self, server: RunningServer, case: CohortCase) -> tuple[RunOutcome, str | None]:
        limits = self._rehearsal.limits
        reply = server.invoke(limits.of_case_s("invoke"))
        peak = server.peak_memory()
        unanswered = reply.status is None and not reply.timed_out
        code = server.exit_code_within(_END_SEEN_WITHIN_S) if unanswered else None
        server.logs.settle()
        failure = invoke_failure(reply, code, limits, self._call.stderr)
        if reply.timed_out:
            server.stop()
        server.hand_over()
        disk_failure = server.disk_failure()
        if disk_failure is not None:
            failure = disk_failure
            self._end_unhealthy(case, "the disk limit was exceeded")
        elif reply.timed_out or code is not None:
            self._end_unhealthy(case, "the time limit was exceeded" if reply.timed_out else "the process ended")
        return RunOutcome(code, reply.seconds, reply.timed_out, peak, reply.status, disk_failure), failure

    def _emptied(self, case: CohortCase) -> str | None:
        """Remove the outputs, the inputs and the run record; the failure if a folder cannot be emptied."""
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

    def _unanswered(self, case: CohortCase) -> JobResult:
        """The result of a case without a process that could answer it."""
        job = stage_job(case, self._work_dir / case.case_id / "input")
        for stream in _STREAMS:
            (self._rehearsal.log_dir / f"{case.case_id}.{stream}").touch()
        return JobResult(job, self._ended, (), self._refusal, (), "invoke")
