"""Start entry points in processes that are forked off one which has imported the libraries: the caller of `faulty.py`."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

import pytest

from tests.signals import reset_signals

FAULTY = Path(__file__).with_name("faulty.py")


class Forked:
    """A run of `faulty.py` that has begun, with what `Run` uses of Popen."""

    def __init__(self, program: subprocess.Popen[str], folder: Path, log: str | None) -> None:
        assert program.stdout is not None
        self.program = program.stdout
        self.pid = int(self.program.readline())
        self.stdout, self.stderr = (None if log else (folder / name).open() for name in ("stdout", "stderr"))
        if self.stderr is not None:
            fcntl.fcntl(self.stderr, fcntl.F_SETPIPE_SZ, 2**20)
        self.returncode: int | None = None

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Return stdout and stderr; all of stderr fits its pipe."""
        said = [self._rest(stream) for stream in (self.stdout, self.stderr)]
        self.returncode = int(self.program.readline())
        return said[0], said[1]

    @staticmethod
    def _rest(stream: TextIO | None) -> str:
        if stream is None:
            return ""
        with stream:
            return stream.read()

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process unless its end was waited for."""
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)
            self.communicate()


class Forks:
    """The program `faulty.py`, asked for one run after another."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def begin(
        self,
        folder: Path,
        command: Sequence[str],
        faults: Sequence[str] = (),
        limits: Mapping[str, int] | None = None,
        log: str | None = None,
    ) -> Forked:
        for name in ("stdout", "stderr"):
            (folder / name).unlink(missing_ok=True)
            os.mkfifo(folder / name)
        run = {"command": list(command), "faults": list(faults), "limits": dict(limits or {}), "folder": str(folder)}
        run |= {"log": log}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(run) + "\n")
        self.process.stdin.flush()
        return Forked(self.process, folder, log)


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    # Two threads: libraries with threads of their own crash in Python's shutdown.
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, str(FAULTY)]
    with subprocess.Popen(
        reset_signals(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield Forks(process)
        process.kill()
