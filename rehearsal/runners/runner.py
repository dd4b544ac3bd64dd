"""What runs a program over one set of folders, and the plain process that does so without an engine.

A `Runner` is the platform's view of a submission: folders in, exit status and log out. How the folders get in
(mounts or arguments) and how limits are enforced is the runner's own affair.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from contract.errors import EngineError
from rehearsal.images.checks import STRIPPED_PREFIX
from rehearsal.runners.servers import Reach, Server, this_python
from rehearsal.runners.watching import Outcome, group_stopper, process_peak_bytes, rusage_peak_bytes, wait_for

GIB: Final = 1024**3
PLATFORM_ENVIRONMENT: Final = {"LOG_LEVEL": "INFO", "PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True)
class Limits:
    """What one run may use; `cpus` None means all there are. A server has `ready_within_s` until it is ready."""

    memory_bytes: int
    time_limit_s: float
    cpus: float | None = None
    ready_within_s: float = 300.0

    @property
    def shared_memory_bytes(self) -> int:
        """Size of `/dev/shm`: half of the memory."""
        return self.memory_bytes // 2

    @property
    def data_segment_bytes(self) -> int | None:
        """RLIMIT_DATA of a process: memory less 1 GiB; None where no more than that is left."""
        left = self.memory_bytes - GIB
        return left if left > GIB else None


@dataclass(frozen=True)
class Call:
    """One run: a unique `name`, the folders it sees, its limits, and where its streams go."""

    name: str
    input_dir: Path
    output_dir: Path
    tmp_dir: Path
    stdout: Path
    stderr: Path
    limits: Limits
    model_dir: Path | None = None
    ground_truth_dir: Path | None = None


class Runner(Protocol):
    """Runs one program: once a call, or as a server that answers call after call."""

    @property
    def description(self) -> str:
        """What runs it, for reports: an image or a command."""

    @property
    def is_isolated(self) -> bool:
        """Whether user, network and read-only input are enforced."""

    @property
    def api_method(self) -> str:
        """How the platform would call it: `exec`, `invoke`, or whatever else an image's label says."""

    def run(self, call: Call) -> Outcome:
        """Run to the end or to the time limit. Raises EngineError where the program could not be started."""

    def start(self, call: Call) -> Server:
        """Start it as a server. Raises EngineError where the program could not be started."""


@dataclass(frozen=True)
class ProcessRunner:
    """Runs a command with `--input`, `--output` and so on; neither user, network nor input are guarded.

    The time limit holds as in a container; memory is limited for each process alone (RLIMIT_DATA).
    """

    command: tuple[str, ...]
    arguments: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """The command."""
        return " ".join((Path(self.command[0]).name, *self.command[1:], *self.arguments))

    @property
    def is_isolated(self) -> bool:
        """False."""
        return False

    @property
    def api_method(self) -> str:
        """A command has no label, so `exec`."""
        return "exec"

    def run(self, call: Call) -> Outcome:
        """Run the command in a session of its own.

        Raises:
            EngineError: there is no such command.
        """
        return wait_for(self._started(call), call.limits.time_limit_s, None, rusage_peak_bytes)

    def start(self, call: Call) -> Server:
        """Start the command with `--serve --port` and a free port, in a session of its own.

        Raises:
            EngineError: there is no such command.
        """
        port = _free_port()
        process = self._started(call, ("--serve", "--port", str(port)))
        reach = Reach(
            python=this_python(),
            port=port,
            folders=(str(call.input_dir.resolve()), str(call.output_dir.resolve())),
            stop=group_stopper(process.pid),
            peak_memory=lambda: process_peak_bytes(process.pid),
        )
        return Server(process, reach)

    def _started(self, call: Call, serving: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        if shutil.which(self.command[0]) is None:
            raise EngineError(f"{self.command[0]}", "no such command")
        call.stdout.parent.mkdir(parents=True, exist_ok=True)
        with call.stdout.open("wb") as stdout, call.stderr.open("wb") as stderr:
            return subprocess.Popen(
                self._limited(call, serving),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=call.tmp_dir,
                env=self._environment(call),
                start_new_session=True,
            )

    def _limited(self, call: Call, serving: Sequence[str]) -> list[str]:
        folders = ["--input", str(call.input_dir.resolve()), "--output", str(call.output_dir.resolve())]
        if call.model_dir is not None:
            folders += ["--model", str(call.model_dir.resolve())]
        if call.ground_truth_dir is not None:
            folders += ["--ground-truth", str(call.ground_truth_dir.resolve())]
        program = [*self.command, *folders, *self.arguments, *serving]
        limit = call.limits.data_segment_bytes
        if limit is None:
            return program
        return ["/bin/sh", "-c", f'ulimit -d {limit // 1024} 2>/dev/null; exec "$@"', "sh", *program]

    def _environment(self, call: Call) -> dict[str, str]:
        threads = thread_environment(call.limits)
        return {**clean_environment(), **PLATFORM_ENVIRONMENT, **threads, "TMPDIR": str(call.tmp_dir.resolve())}


def _free_port() -> int:
    """A port that was free a moment ago, for a server on this host."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def thread_environment(limits: Limits) -> dict[str, str]:
    """As many threads as CPUs: the platform's machine shows no more of them, and threads without a CPU only wait."""
    return {} if limits.cpus is None else {"OMP_NUM_THREADS": str(max(1, int(limits.cpus)))}


def clean_environment() -> dict[str, str]:
    """This process's environment without what the platform strips."""
    return {name: value for name, value in os.environ.items() if not name.startswith(STRIPPED_PREFIX)}
