"""The interface of runners, and the runner that starts plain processes without a container engine.

A `Runner` is the platform's view of a submission: folders in, exit status and log out. Each runner decides how to
pass the folders (mounts or arguments) and how to enforce the limits.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Final, Protocol

from contract.editions import DEFAULT_EDITION, Algorithm, Edition
from contract.errors import EngineError
from contract.platform import RUN_RECORD_VARIABLE
from rehearsal.platform.images import STRIPPED_PREFIX
from rehearsal.runners.disk import DiskWatch
from rehearsal.runners.logs import Logs
from rehearsal.runners.monitor import (
    RunOutcome,
    Stopper,
    group_stopper,
    process_peak_bytes,
    rusage_peak_bytes,
    wait_for,
)
from rehearsal.runners.servers import RunningServer
from rehearsal.runners.trees import MAX_BYTES

GIB: Final = 1024**3
RUN_RECORD: Final = "run-record.json"


@dataclass(frozen=True)
class Limits:
    """Limits of one run; `cpus` None means all CPUs.

    A server is asked for its health `health_tries` times, `health_apart_s` seconds apart, and each call of it may take
    `invoke_limit_s`, but not more than `time_limit_s`. One file may have `file_bytes`; all files together may take
    `disk_bytes` of the disk.
    """

    memory_bytes: int
    time_limit_s: float
    cpus: float | None = None
    invoke_limit_s: float = 300.0
    health_tries: int = 30
    health_apart_s: float = 3.0
    file_bytes: int = MAX_BYTES
    disk_bytes: int = 2 * MAX_BYTES

    def of_case_s(self, api_method: str) -> float:
        """The time limit of one case in seconds."""
        return min(self.time_limit_s, self.invoke_limit_s) if api_method == "invoke" else self.time_limit_s

    @property
    def shared_memory_bytes(self) -> int:
        """Size of `/dev/shm`: half the memory."""
        return self.memory_bytes // 2

    @property
    def data_segment_bytes(self) -> int | None:
        """RLIMIT_DATA of a process: memory less 1 GiB; None if at most 1 GiB would remain."""
        left = self.memory_bytes - GIB
        return left if left > GIB else None


@dataclass(frozen=True)
class Call:
    """One run: a unique `name`, its folders, its limits, and the files for its output streams.

    `cancelled` kills it from another thread.
    An algorithm of this project writes its record of the run to `record_path`, as RUN_RECORD_VARIABLE asks for.
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
    def below(
        cls,
        name: str,
        folder: Path,
        logs: Path,
        limits: Limits,
        model_dir: Path | None,
        cancelled: threading.Event | None = None,
    ) -> Call:
        """A job with the folders `input`, `output` and `tmp` in `folder`, and the logs `LOGS.stdout` and `.stderr`."""
        folders = folder / "input", folder / "output", folder / "tmp"
        for path in folders:
            path.mkdir(parents=True, exist_ok=True)
        stdout, stderr = (logs.with_name(f"{logs.name}.{stream}") for stream in ("stdout", "stderr"))
        return cls(name, *folders, stdout, stderr, limits, model_dir, cancelled=cancelled)

    @property
    def record_path(self) -> Path:
        """The algorithm's record of the run."""
        return self.tmp_dir / RUN_RECORD


class Runner(Protocol):
    """Runs one program: once for each call, or as a server that answers many."""

    @property
    def description(self) -> str:
        """The image or command, for reports."""

    @property
    def is_isolated(self) -> bool:
        """True if user, network and read-only input are enforced."""

    @property
    def api_method(self) -> str:
        """The API method of the platform: `exec`, `invoke`, or an invalid value of the image's label."""

    def run(self, call: Call) -> RunOutcome:
        """Run to the end or to the time limit. Raises EngineError if the program cannot be started."""

    def start(self, call: Call) -> RunningServer:
        """Start as a server. Raises EngineError if the program cannot be started."""


@dataclass(frozen=True)
class ProcessRunner:
    """Runs a command with `--input`, `--output` and so on, without isolation of user, network or input.

    The limits on time and disk hold as in a container; memory is limited for each process separately (RLIMIT_DATA).
    """

    is_isolated: ClassVar[bool] = False
    api_method: ClassVar[str] = "exec"
    command: tuple[str, ...]
    arguments: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        return " ".join((Path(self.command[0]).name, *self.command[1:], *self.arguments))

    def run(self, call: Call) -> RunOutcome:
        """Run the command in a session of its own. Raises EngineError if there is no such command."""
        process = self._started(call, ())
        with Logs(process, call.stdout, call.stderr), watch_disk(call, group_stopper(process.pid)) as disk:
            outcome = wait_for(process, call.limits.time_limit_s, None, rusage_peak_bytes, call.cancelled)
        disk.measure()
        return replace(outcome, disk_failure=disk.failure)

    def start(self, call: Call) -> RunningServer:
        """Start it with `--serve` and a free `--port`, as in `run`. Raises EngineError if there is no such command."""
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = int(listening.getsockname()[1])
        process = self._started(call, ("--serve", "--port", str(port)))
        stopper = group_stopper(process.pid)
        return RunningServer(
            process,
            Logs(process, call.stdout, call.stderr),
            python=(sys.executable, "-I", "-"),
            port=port,
            stopper=stopper,
            peak_memory=lambda: process_peak_bytes(process.pid),
            disk=watch_disk(call, stopper),
        )

    def _started(self, call: Call, options: Sequence[str]) -> subprocess.Popen[bytes]:
        if shutil.which(self.command[0]) is None:
            raise EngineError(f"{self.command[0]}", "no such command")
        call.stdout.parent.mkdir(parents=True, exist_ok=True)
        tmp_dir = call.tmp_dir.resolve()
        return subprocess.Popen(
            self._limited(call, options),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=call.tmp_dir,
            env={**clean_environment(), **run_environment(call.limits, tmp_dir), "TMPDIR": str(tmp_dir)},
            start_new_session=True,
        )

    def _limited(self, call: Call, options: Sequence[str]) -> list[str]:
        folders = ["--input", str(call.input_dir.resolve()), "--output", str(call.output_dir.resolve())]
        if call.model_dir is not None:
            folders += ["--model", str(call.model_dir.resolve())]
        if call.ground_truth_dir is not None:
            folders += ["--ground-truth", str(call.ground_truth_dir.resolve())]
        program = [*self.command, *folders, *self.arguments, *options]
        # The shell counts files in blocks of 512 bytes, and refuses more than this process has.
        limits = [f"ulimit -f {call.limits.file_bytes // 512}"]
        if call.limits.data_segment_bytes is not None:
            limits.append(f"ulimit -d {call.limits.data_segment_bytes // 1024}")
        settings = " ".join(f"{limit} 2>/dev/null;" for limit in limits)
        return ["/bin/sh", "-c", f'{settings} exec "$@"', "sh", *program]


def watch_disk(call: Call, stop: Stopper, layer_bytes: Callable[[], int | None] = lambda: None) -> DiskWatch:
    """Watch the files of a run that has just started."""
    return DiskWatch((call.output_dir, call.tmp_dir), call.limits.disk_bytes, stop, layer_bytes)


def algorithm_command(edition: Edition, task: Algorithm, code: Sequence[Path] = ()) -> tuple[str, ...]:
    """The command line of this project's algorithm, with folders of the user's own code."""
    return (sys.executable, "-m", "algorithm", "--task", task.name, *_edition_option(edition), *code_options(code))


def evaluation_command(edition: Edition, task: Algorithm) -> tuple[str, ...]:
    """The command line of this project's evaluation."""
    return (sys.executable, "-m", "evaluation", "--task", task.name, *_edition_option(edition))


def _edition_option(edition: Edition) -> tuple[str, ...]:
    # Without a source the package, which embeds the edition, tells it.
    return () if edition.source in (DEFAULT_EDITION, "") else ("--edition", edition.source)


def code_options(code: Sequence[Path]) -> tuple[str, ...]:
    """`--code` for each folder, which the algorithm and `scripts/build` take."""
    return tuple(part for folder in code for part in ("--code", str(folder.resolve())))


def run_environment(limits: Limits, tmp_dir: Path) -> dict[str, str]:
    """The platform's variables, one thread for each CPU, and where to write the run record.

    The platform shows no more CPUs, so further threads would wait. `tmp_dir` is the program's view of that folder.
    """
    threads = {} if limits.cpus is None else {"OMP_NUM_THREADS": str(max(1, int(limits.cpus)))}
    record = {RUN_RECORD_VARIABLE: str(tmp_dir / RUN_RECORD)}
    return {"LOG_LEVEL": "INFO", "PYTHONUNBUFFERED": "1", **threads, **record}


def clean_environment() -> dict[str, str]:
    """This process's environment without the variables that the platform strips."""
    return {name: value for name, value in os.environ.items() if not name.startswith(STRIPPED_PREFIX)}
