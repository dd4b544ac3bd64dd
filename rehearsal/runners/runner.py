"""The interface of runners, servers that answer many cases (`invoke`), and the runner of plain processes.

A `Runner` is the platform's view of a submission: folders in, exit status and log out. Each runner decides how to
pass the folders (mounts or arguments) and how to enforce the limits.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, ClassVar, Final, Protocol

from contract.editions import DEFAULT_EDITION, Algorithm, Edition
from contract.errors import EngineError
from contract.platform import RUN_RECORD_VARIABLE
from rehearsal.platform.images import STRIPPED_PREFIX
from rehearsal.runners.monitor import (
    GRACE_S,
    DiskWatch,
    Logs,
    RunOutcome,
    Stopper,
    kill_until_ended,
    make_group_stopper,
    read_process_peak_bytes,
    read_rusage_peak_bytes,
    wait_for_end,
)
from rehearsal.runners.trees import MAX_BYTES

PORT: Final = 4743
HEALTH_CALL_S: Final = 10.0
_CLIENT: Final = Path(__file__).with_name("client.py")
_CLIENT_START_S: Final = 30.0
_ANSWER_BYTES: Final = 4 << 20
_NO_PYTHON: Final = (126, 127)

GIB: Final = 1024**3
RUN_RECORD: Final = "run-record.json"
# Shell code that kills the process group when the pipe at stdin closes, which also happens if the rehearsal is killed.
# The subshell ends at once, so that the watcher is not a child of the program, which may wait for all its children.
# The watcher ignores the SIGTERM that the group gets at the time limit.
_END_WITH_REHEARSAL: Final = 'exec 3<&0 </dev/null; (trap "" TERM; { read -r _ <&3; kill -KILL 0; } >/dev/null 2>&1 &);'


@dataclass(frozen=True)
class CallResult:
    """Result of a call to a server; without an answer `status` is None and `text` is the reason."""

    status: int | None
    text: str
    seconds: float
    timed_out: bool = False


@dataclass(frozen=True)
class RunningServer:
    """A running server, which the caller ends with `stop` or `kill`.

    Attributes:
        python: Command that runs a program from stdin with access to the server's port.
        stopper: Ends the server.
        peak_memory: Returns the peak memory in bytes since the start, None if it is unknown.
        grant_access: Makes the server's files accessible to this user.
        remove: Cleans up after the end of the server.
        started_s: Time of the start, on the monotonic clock.
        disk: Kills the server if its files grow too large.
    """

    process: subprocess.Popen[bytes]
    logs: Logs
    python: tuple[str, ...]
    port: int
    stopper: Stopper
    peak_memory: Callable[[], int | None]
    grant_access: Callable[[], None] = lambda: None
    remove: Callable[[], None] = lambda: None
    started_s: float = field(default_factory=time.monotonic)
    disk: DiskWatch | None = None

    def wait_until_ready(self, tries: int, interval_s: float) -> CallResult:
        """Call `GET /health` until the server answers 200 or ends, at most `tries` times.

        Returns:
            The last answer; its seconds count from the start of the server.

        Raises:
            EngineError: The image has no Python to run the client.
        """
        reply = CallResult(None, "not called", 0.0)
        for number in range(tries):
            if number and self.wait_for_exit(interval_s) is not None:
                break
            reply = self._call("GET", "/health", HEALTH_CALL_S)
            if reply.status == 200 or self.exit_code is not None:
                break
        return CallResult(reply.status, reply.text, time.monotonic() - self.started_s)

    def invoke(self, time_limit_s: float) -> CallResult:
        """Call `POST /invoke`; the result contains the seconds of the call."""
        return self._call("POST", "/invoke", time_limit_s)

    @property
    def exit_code(self) -> int | None:
        """Return the exit code, None while the server runs."""
        return self.process.poll()

    def disk_failure(self) -> str | None:
        """Measure the server's files; return the reason why they are too large, None if they fit."""
        if self.disk is None:
            return None
        self.disk.measure()
        return self.disk.failure

    def wait_for_exit(self, seconds: float) -> int | None:
        """Wait for the end at most `seconds`; return the exit code, None if the server still runs."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> int | None:
        """Send SIGTERM and return the exit code; None if the server did not end within 5 s and was killed."""
        self.stopper(False)
        code = self.wait_for_exit(GRACE_S)
        self.kill()
        return code

    def kill(self) -> None:
        """Kill the server if it still runs, and release its logs, threads and container."""
        if self.disk is not None:
            self.disk.close()
        if self.exit_code is None:
            kill_until_ended(self.process, self.stopper)
        self.logs.close()
        self.remove()

    def _call(self, method: str, path: str, limit_s: float) -> CallResult:
        """Run the client program; the result has no answer if the client took too long or ended with the server."""
        start_s = time.monotonic()
        command = [*self.python, method, path, str(self.port), str(limit_s)]
        with _CLIENT.open("rb") as program:
            status, output = run_bounded(command, program, limit_s + _CLIENT_START_S)
        # An engine returns the same status for a container that is ending. After /health has succeeded, Python exists.
        if path == "/health" and status in _NO_PYTHON and self.wait_for_exit(1.0) is None:
            raise EngineError("no python3 in the image, which is needed to call a server without a network")
        seconds = time.monotonic() - start_s
        answer = _parse_answer(output) if status == 0 else None
        return CallResult(None, "no answer", seconds, seconds >= limit_s) if answer is None else CallResult(**answer)


def run_bounded(command: Sequence[str], program: IO[bytes], limit_s: float) -> tuple[int | None, bytes]:
    """Run a client with limits on its time and output; return its exit status and its output.

    The status is None if the client took longer than `limit_s` or its output is too long.
    """
    with subprocess.Popen(command, stdin=program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        timer = threading.Timer(limit_s, process.kill)
        timer.start()
        try:
            output = b"" if process.stdout is None else process.stdout.read(_ANSWER_BYTES + 1)
            if len(output) > _ANSWER_BYTES:
                process.kill()
            status = process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
    return (None if len(output) > _ANSWER_BYTES or status < 0 else status), output


def _parse_answer(output: bytes) -> Any:
    """Parse the client's answer; None if it has another form, since the image's own python3 may print anything."""
    try:
        answer = json.loads(output)
    except (ValueError, RecursionError):
        return None
    kinds = {"status": int | None, "text": str, "seconds": int | float, "timed_out": bool}
    if not isinstance(answer, dict) or answer.keys() != kinds.keys():
        return None
    return answer if all(isinstance(answer[key], kind) for key, kind in kinds.items()) else None


@dataclass(frozen=True)
class Limits:
    """Limits of one run.

    Attributes:
        memory_bytes: Memory.
        time_limit_s: Time of one case.
        cpus: Number of CPUs; None means all CPUs.
        invoke_limit_s: Time of one call of a server, which is also limited by `time_limit_s`.
        health_tries: Maximum number of calls of `GET /health` until a server is ready.
        health_interval_s: Time between two of these calls.
        file_bytes: Size of one file.
        disk_bytes: Disk space of all files together.
    """

    memory_bytes: int
    time_limit_s: float
    cpus: float | None = None
    invoke_limit_s: float = 300.0
    health_tries: int = 30
    health_interval_s: float = 3.0
    file_bytes: int = MAX_BYTES
    disk_bytes: int = 2 * MAX_BYTES

    def case_limit_s(self, api_method: str) -> float:
        """Return the time limit of one case in seconds."""
        return min(self.time_limit_s, self.invoke_limit_s) if api_method == "invoke" else self.time_limit_s

    @property
    def shared_memory_bytes(self) -> int:
        """Return the size of `/dev/shm`: half the memory."""
        return self.memory_bytes // 2

    @property
    def data_segment_bytes(self) -> int | None:
        """Return RLIMIT_DATA of a process: memory minus 1 GiB; None if at most 1 GiB would remain."""
        remaining = self.memory_bytes - GIB
        return remaining if remaining > GIB else None


@dataclass(frozen=True)
class Call:
    """One run: a unique `name`, its folders, its limits, and the files for its output streams.

    `cancelled` kills the run from another thread. An algorithm of this project writes its run record to `record_path`,
    which the environment variable RUN_RECORD_VARIABLE names.
    """

    name: str
    input_dir: Path
    output_dir: Path
    tmp_dir: Path
    stdout: Path
    stderr: Path
    limits: Limits
    model_dir: Path | None = None
    ground_truth_dir: Path | None = None
    cancelled: threading.Event | None = None

    @classmethod
    def create(cls, name: str, folder: Path, logs: Path, limits: Limits, model_dir: Path | None) -> Call:
        """Create the folders `input`, `output` and `tmp` in `folder`; the logs are `LOGS.stdout` and `LOGS.stderr`."""
        call = cls(
            name=name,
            input_dir=folder / "input",
            output_dir=folder / "output",
            tmp_dir=folder / "tmp",
            stdout=logs.with_name(f"{logs.name}.stdout"),
            stderr=logs.with_name(f"{logs.name}.stderr"),
            limits=limits,
            model_dir=model_dir,
        )
        for path in (call.input_dir, call.output_dir, call.tmp_dir):
            path.mkdir(parents=True, exist_ok=True)
        return call

    @property
    def record_path(self) -> Path:
        """Return the path of the algorithm's run record."""
        return self.tmp_dir / RUN_RECORD


class Runner(Protocol):
    """Runs one program: once for each call, or as a server that answers many calls."""

    @property
    def description(self) -> str:
        """Return the image or command, for reports."""

    @property
    def is_isolated(self) -> bool:
        """Return whether user, network and read-only input are enforced."""

    @property
    def api_method(self) -> str:
        """Return the API method of the platform: `exec`, `invoke`, or an invalid value of the image's label."""

    def run(self, call: Call) -> RunOutcome:
        """Run to the end or to the time limit; raise `EngineError` if the program cannot be started."""

    def start(self, call: Call) -> RunningServer:
        """Start as a server; raise `EngineError` if the program cannot be started."""


@dataclass(frozen=True)
class ProcessRunner:
    """Runs a command with `--input`, `--output` and so on, without isolation of user, network or input.

    The limits on time and disk are the same as in a container; memory is limited for each process separately
    (RLIMIT_DATA).
    """

    is_isolated: ClassVar[bool] = False
    api_method: ClassVar[str] = "exec"
    command: tuple[str, ...]
    arguments: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """Return the command without the folder of its program, and the arguments."""
        return " ".join((Path(self.command[0]).name, *self.command[1:], *self.arguments))

    def run(self, call: Call) -> RunOutcome:
        """Run the command in a new session; raise `EngineError` if the command does not exist."""
        process = self._start_process(call, ())
        with Logs(process, call.stdout, call.stderr), watch_disk(call, make_group_stopper(process.pid)) as disk:
            outcome = wait_for_end(process, call.limits.time_limit_s, None, read_rusage_peak_bytes, call.cancelled)
        disk.measure()
        return replace(outcome, disk_failure=disk.failure)

    def start(self, call: Call) -> RunningServer:
        """Start the command with `--serve` and a free `--port`; raise `EngineError` if the command does not exist."""
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = int(listening.getsockname()[1])
        process = self._start_process(call, ("--serve", "--port", str(port)))
        stopper = make_group_stopper(process.pid)
        return RunningServer(
            process,
            Logs(process, call.stdout, call.stderr),
            python=(sys.executable, "-I", "-"),
            port=port,
            stopper=stopper,
            peak_memory=lambda: read_process_peak_bytes(process.pid),
            disk=watch_disk(call, stopper),
        )

    def _start_process(self, call: Call, options: Sequence[str]) -> subprocess.Popen[bytes]:
        if shutil.which(self.command[0]) is None:
            raise EngineError(f"{self.command[0]}", "no such command")
        call.stdout.parent.mkdir(parents=True, exist_ok=True)
        tmp_dir = call.tmp_dir.resolve()
        read_end, write_end = os.pipe()
        try:
            process = subprocess.Popen(
                self._build_command(call, options),
                stdin=read_end,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=call.tmp_dir,
                env={**copy_clean_environment(), **build_environment(call.limits, tmp_dir), "TMPDIR": str(tmp_dir)},
                start_new_session=True,
            )
        except BaseException:
            os.close(write_end)
            raise
        finally:
            os.close(read_end)
        # The system also closes it when this process is killed.
        weakref.finalize(process, os.close, write_end)
        return process

    def _build_command(self, call: Call, options: Sequence[str]) -> list[str]:
        folders = ["--input", str(call.input_dir.resolve()), "--output", str(call.output_dir.resolve())]
        if call.model_dir is not None:
            folders += ["--model", str(call.model_dir.resolve())]
        if call.ground_truth_dir is not None:
            folders += ["--ground-truth", str(call.ground_truth_dir.resolve())]
        program = [*self.command, *folders, *self.arguments, *options]
        # The shell counts file sizes in blocks of 512 bytes, and refuses limits above the limits of this process.
        limits = [f"ulimit -f {call.limits.file_bytes // 512}"]
        if call.limits.data_segment_bytes is not None:
            limits.append(f"ulimit -d {call.limits.data_segment_bytes // 1024}")
        settings = " ".join(f"{limit} 2>/dev/null;" for limit in limits)
        return ["/bin/sh", "-c", f'{settings} {_END_WITH_REHEARSAL} exec "$@" 3<&-', "sh", *program]


def watch_disk(call: Call, stop: Stopper, layer_bytes: Callable[[], int | None] = lambda: None) -> DiskWatch:
    """Start to watch the disk space of a run that was just started."""
    return DiskWatch((call.output_dir, call.tmp_dir), call.limits.disk_bytes, stop, layer_bytes)


def build_algorithm_command(edition: Edition, task: Algorithm, code: Sequence[Path] = ()) -> tuple[str, ...]:
    """Build the command line of this project's algorithm; `code` are folders of custom code."""
    return (
        sys.executable,
        "-m",
        "algorithm",
        "--task",
        task.name,
        *_build_edition_option(edition),
        *build_code_options(code),
    )


def build_evaluation_command(edition: Edition, task: Algorithm) -> tuple[str, ...]:
    """Build the command line of this project's evaluation."""
    return (sys.executable, "-m", "evaluation", "--task", task.name, *_build_edition_option(edition))


def _build_edition_option(edition: Edition) -> tuple[str, ...]:
    # An edition without a source is read from the package that embeds it.
    return () if edition.source in (DEFAULT_EDITION, "") else ("--edition", edition.source)


def build_code_options(code: Sequence[Path]) -> tuple[str, ...]:
    """Build the options `--code` of the algorithm and of `scripts/build`, one for each folder."""
    return tuple(part for folder in code for part in ("--code", str(folder.resolve())))


def build_environment(limits: Limits, tmp_dir: Path) -> dict[str, str]:
    """Build the environment variables of a run: the platform's variables, threads and the path of the run record.

    There is one thread for each CPU, because a program on the platform sees only these CPUs and further threads would
    wait. `tmp_dir` is the path of the folder as the program sees it.
    """
    threads = {} if limits.cpus is None else {"OMP_NUM_THREADS": str(max(1, int(limits.cpus)))}
    record = {RUN_RECORD_VARIABLE: str(tmp_dir / RUN_RECORD)}
    return {"LOG_LEVEL": "INFO", "PYTHONUNBUFFERED": "1", **threads, **record}


def copy_clean_environment() -> dict[str, str]:
    """Copy this process's environment without the variables that the platform removes."""
    return {name: value for name, value in os.environ.items() if not name.startswith(STRIPPED_PREFIX)}
