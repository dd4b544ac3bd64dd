"""Reasons why the platform would fail a run, and warnings about logs that it would cut."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from contract.errors import replace_unprintable
from rehearsal.runners.engines import USAGE_HINT
from rehearsal.runners.monitor import GRACE_S, RunOutcome
from rehearsal.runners.runner import Limits
from rehearsal.runners.servers import CallResult

MESSAGE_LIMIT: Final = 1024
# The end of stderr in which the platform looks for the message.
MESSAGE_LINES: Final = 100
MAX_LOG_LINES: Final = 500
LOG_LINE_LIMIT_BYTES: Final = 64 * 1024
_KILLED: Final = (137, -9)
_FILE_TOO_LARGE: Final = (153, -25)
# The logs of a run are shorter than this.
_READ_BYTES: Final = 4 * 1024 * 1024


def find_run_failure(outcome: RunOutcome, limits: Limits, stderr: Path) -> str | None:
    """Return the reason why the platform would fail a run; None for exit status 0 within the time limit."""
    if outcome.disk_failure is not None:
        return outcome.disk_failure
    if outcome.timed_out:
        return (
            f"Time limit exceeded: still running after {limits.time_limit_s:g} s; the platform would send SIGTERM, "
            f"{GRACE_S:g} s later SIGKILL, and fail the job"
        )
    if outcome.exit_code == 0:
        return None
    if outcome.exit_code in _KILLED:
        return (
            f"killed (exit status {outcome.exit_code}), most likely for memory beyond "
            f"{limits.memory_bytes / 1024**3:.3g} GiB; the platform would fail the job"
        )
    if outcome.exit_code in _FILE_TOO_LARGE:
        return (
            f"exit status {outcome.exit_code} (SIGXFSZ): it wrote a file larger than {limits.file_bytes / 1e9:.3g} GB; "
            "the rehearsal allows no larger file"
        )
    return (
        f"exit status {outcome.exit_code}; the platform would fail the job, keep no output "
        f"and show the submitter {_quote_stderr(stderr)}"
    )


def find_start_failure(reply: CallResult, exit_code: int | None, limits: Limits, stderr: Path) -> str | None:
    """Return the reason why the platform would fail all cases of a server; None if the server became ready."""
    if reply.status == 200:
        return None
    if exit_code is not None:
        return f"the server ended before it was ready: {_describe_server_end(exit_code, limits, stderr)}"
    response = "no answer" if reply.status is None else f"{reply.status} ({reply.text})"
    return (
        f"GET /health: {response} after {reply.seconds:.0f} s, expected 200 within {limits.health_tries} calls, "
        f"{limits.health_apart_s:g} s apart; the platform would fail the job"
    )


def find_invoke_failure(reply: CallResult, exit_code: int | None, limits: Limits, stderr: Path) -> str | None:
    """Return the reason why the platform would fail a case of a server; None for status 201 in time."""
    if reply.timed_out:
        return (
            f"Invoke time limit exceeded: still running after {limits.case_limit_s('invoke'):g} s; the platform would "
            f"mark the process unhealthy, send SIGTERM, {GRACE_S:g} s later SIGKILL, and fail the job"
        )
    if reply.status == 201:
        return None
    if exit_code is not None:
        return f"the server ended during the case: {_describe_server_end(exit_code, limits, stderr)}"
    response = reply.text if reply.status is None else f"{reply.status} ({reply.text[:MESSAGE_LIMIT]})"
    return (
        f"POST /invoke: {response}, expected 201; the platform would fail the job and show the submitter "
        f"{_quote_stderr(stderr)}"
    )


def _describe_server_end(exit_code: int, limits: Limits, stderr: Path) -> str:
    if exit_code == 0:
        return "exit status 0; the platform would fail the job"
    return str(find_run_failure(RunOutcome(exit_code, 0.0, False, None), limits, stderr))


def _quote_stderr(stderr: Path) -> str:
    message = read_last_line(stderr)
    return f"its last line on stderr: {message}" if message else "nothing on stderr"


def read_last_line(stderr: Path) -> str:
    """Read the last non-empty line among a log's last 100 lines, cut as the platform cuts it; empty without a line."""
    lines = [line.strip() for line in _read_end(stderr).decode("utf-8", errors="replace").splitlines()]
    lines = [line for line in lines if not USAGE_HINT.match(line)]
    return next((replace_unprintable(line[:MESSAGE_LIMIT]) for line in reversed(lines[-MESSAGE_LINES:]) if line), "")


def find_log_warnings(log: Path) -> list[str]:
    """Find parts of a log that the platform would not keep."""
    content = _read_end(log)
    name = log.suffixes[-1].lstrip(".") if log.suffixes else log.name
    warnings = []
    lines = content.splitlines()
    if len(lines) > MAX_LOG_LINES:
        warnings.append(f"{len(lines)} lines on {name}; the platform would keep {MAX_LOG_LINES}")
    if any(len(line) > LOG_LINE_LIMIT_BYTES for line in lines):
        warnings.append(f"a line of more than 64 KiB on {name}; the platform would drop it")
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        warnings.append(f"output on {name} that is not UTF-8; the platform might fail the job")
    return warnings


def _read_end(log: Path) -> bytes:
    """Read at most the last 4 MiB of a log; a log that does not exist is empty."""
    if not log.is_file():
        return b""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _READ_BYTES))
        return file.read()
