"""Cases in sequence through one server, as the platform runs an image labelled `invoke`."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rehearsal.jobs.cases import CohortCase, stage_job
from rehearsal.jobs.execute import INPUT_CHANGED, JobResult, Jobs, Rehearsal, listing, outputs_or_failure
from rehearsal.jobs.records import read_run_record
from rehearsal.runners.failures import invoke_failure, log_warnings, start_failure
from rehearsal.runners.monitor import GRACE_S, RunOutcome
from rehearsal.runners.runner import Call
from rehearsal.runners.servers import RunningServer

# The connection of a killed server breaks a moment before its process is seen to have ended.
_END_SEEN_WITHIN_S: Final = 1.0
_STREAMS: Final = ("stdout", "stderr")


def invoke_jobs(
    cases: Sequence[CohortCase], rehearsal: Rehearsal, work_dir: Path, on_done: Callable[[JobResult], None]
) -> Jobs:
    """Start the program once and answer every case with it; input and output are emptied between cases.

    A case fails if it overruns the time limit or the server ends during it. The next case then gets a new server, so
    that one rehearsal shows all problems. A server that does not become ready fails all remaining cases. `on_done` is
    called with each result as it comes. Raises EngineError if the program cannot be started or called.
    """
    servers, jobs = _Servers(rehearsal, work_dir), []
    try:
        for case in cases:
            jobs.append(servers.answer(case))
            on_done(jobs[-1])
        servers.end()
    finally:
        servers.kill()
    return Jobs(tuple(jobs), tuple(servers.startup_s), tuple(servers.warnings))


class _Servers:
    """The running server, or the reason why there is none."""

    def __init__(self, rehearsal: Rehearsal, work_dir: Path) -> None:
        self._rehearsal, self._work_dir = rehearsal, work_dir
        self._server: RunningServer | None = None
        self._call = self._next_call(1)
        self._refusal: str | None = None
        self._logged = dict.fromkeys(_STREAMS, 0)
        self.startup_s: list[float] = []
        self.warnings: list[str] = []

    def answer(self, case: CohortCase) -> JobResult:
        if self._server is None and self._refusal is None:
            self._start()
        call = self._call
        job = stage_job(case, call.input_dir)
        before = listing(call.input_dir)
        outcome, failure = self._invoke()
        if failure is None and listing(call.input_dir) != before:
            failure = INPUT_CHANGED
        held = [] if self._server is None else self._server.left_open()
        warnings = [f"{path} is kept open after the case; the platform empties the folder" for path in held]
        folder = self._work_dir / case.case_id / "output"
        _move_content(call.output_dir, folder)
        _remove_content(call.input_dir)
        checked, failure = outputs_or_failure(failure, folder, case, self._rehearsal.task)
        run_record, unusable = read_run_record(call.record_path)
        call.record_path.unlink(missing_ok=True)
        logs = {stream: self._rehearsal.log_dir / f"{case.case_id}.{stream}" for stream in _STREAMS}
        for stream, log in logs.items():
            self._cut_log(stream, log)
            warnings += log_warnings(log)
        all_warnings = (*checked.warnings, *unusable, *warnings)
        return JobResult(job, outcome, checked.outputs, failure, all_warnings, logs["stderr"], "invoke", run_record)

    def end(self) -> None:
        """Send SIGTERM, as the platform does after the last case."""
        if self._server is not None and self._server.stop() is None:
            self.warnings.append(f"the server did not end within {GRACE_S:g} s of SIGTERM")
        self._server = None

    def kill(self) -> None:
        if self._server is not None:
            self._server.kill()
        self._server = None

    def _start(self) -> None:
        if self.startup_s:
            self._call = self._next_call(len(self.startup_s) + 1)
            self._logged = dict.fromkeys(_STREAMS, 0)
        self._server = server = self._rehearsal.algorithm.start(self._call)
        limits = self._rehearsal.limits
        reply = server.wait_until_ready(limits.ready_within_s)
        code = server.exit_code_within(_END_SEEN_WITHIN_S) if reply.status is None else None
        self._refusal = start_failure(reply, code, limits, self._call.stderr)
        if self._refusal is None:
            self.startup_s.append(reply.seconds)
        else:
            self.kill()

    def _invoke(self) -> tuple[RunOutcome, str | None]:
        server, limits = self._server, self._rehearsal.limits
        if server is None:
            return RunOutcome(None, 0.0, False, None), self._refusal
        reply = server.invoke(limits.time_limit_s)
        peak = server.peak_memory()
        unanswered = reply.status is None and not reply.timed_out
        code = server.exit_code_within(_END_SEEN_WITHIN_S) if unanswered else None
        failure = invoke_failure(reply, code, limits, self._call.stderr)
        if reply.timed_out:
            server.stop()
        server.hand_over()
        if reply.timed_out or code is not None:
            self.kill()
        return RunOutcome(code, reply.seconds, reply.timed_out, peak, reply.status), failure

    def _next_call(self, number: int) -> Call:
        rehearsal, folder = self._rehearsal, self._work_dir / "servers" / str(number)
        name, logs = f"hecktor-rehearsal-{uuid.uuid4()}", rehearsal.log_dir / f"server-{number}"
        return Call.below(name, folder, logs, rehearsal.limits, rehearsal.model)

    def _cut_log(self, stream: str, target: Path) -> None:
        """Copy to `target` what the server wrote to a stream since the previous case."""
        source = self._call.stdout if stream == "stdout" else self._call.stderr
        content = source.read_bytes()[self._logged[stream] :] if source.is_file() else b""
        self._logged[stream] += len(content)
        target.write_bytes(content)


def _move_content(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        path.rename(target / path.name)


def _remove_content(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
