"""Run the entry point in a process of its own with faults in it, and hold it to its promise.

The promise: nothing but whole, valid answers below the output folder, and never an exit 0 without one.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from contract.editions import load_edition
from contract.tasks import HPV, RFS, Task
from rehearsal.outputs import check_output

FAULTY = Path(__file__).with_name("faulty.py")
LONGEST_S = 120
KINDS = {RFS.name: float, HPV.name: bool}


@dataclass(frozen=True)
class Ended:
    """What a run left: exit status (negative: the signal), stderr, files below the output folder.

    `seconds` are those from the signal, or from the start, to the end of the process.
    """

    status: int
    said: str
    files: list[str]
    seconds: float

    @property
    def last(self) -> str:
        """What the platform shows to the submitter."""
        return next((line for line in reversed(self.said.splitlines()) if line.strip()), "")


@dataclass
class Run:
    """One run of one case: `whole`, or `at_pause`, `send` and `end`.

    `faults` are those of `faulty.py`, `before` is a command that runs the command after it, `settings` are for `Popen`.
    """

    case: Any
    package: Path
    task: Task
    faults: Sequence[str]
    options: Sequence[str] = ()
    before: Sequence[str] = ()
    settings: dict[str, Any] = field(default_factory=dict)

    def begin(self) -> Run:
        command = [*self.before, sys.executable, str(FAULTY), "\n".join(self.faults), "--task", self.task.name]
        command += ["--input", str(self.case.input), "--output", str(self.case.output)]
        command += ["--model", str(self.package), "--device", "cpu", *self.options]
        # A file that may not grow would leave half of a compiled module behind.
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment, **self.settings}
        self.begun = time.monotonic()
        self.process = subprocess.Popen(command, text=True, **settings)
        return self

    def at_pause(self) -> Run:
        """Begin, and return when the process says that it pauses."""
        return self.begin().pause()

    def pause(self) -> Run:
        """Return when the process says that it pauses, again."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line == "paused\n", self.process.communicate()[1]
        return self

    def send(self, number: signal.Signals, process: int | None = None) -> Run:
        """Send a signal to the process that was started, or to another one."""
        self.begun = time.monotonic()
        os.kill(process or self.process.pid, number)
        return self

    def end(self) -> Ended:
        """Wait for the end of the process and hold it to the promise."""
        try:
            _, said = self.process.communicate(timeout=LONGEST_S)
        finally:
            self.process.kill()
        seconds = time.monotonic() - self.begun
        output = self.case.output
        files = sorted(path.relative_to(output).as_posix() for path in output.rglob("*") if path.is_file())
        ended = Ended(self.process.returncode, said or "", files, seconds)
        if ended.status == 0 or ended.files:
            checked = check_output(
                output, load_edition().algorithm(self.task.name).answers[0].socket, self.case.ct.geometry
            )
            assert checked.warnings == (), ended
            assert ended.files == [checked.path.relative_to(output).as_posix()], ended
            assert type(checked.value) is KINDS.get(self.task.name, type(None)), ended
        return ended

    def whole(self) -> Ended:
        return self.begin().end()


@pytest.fixture
def run(case_folder: Any, tiny_package: Path) -> Callable[..., Run]:
    """A run over the small sound case with the tiny package: `run(task, *faults, **what else Run has)`."""
    case_folder.write()

    def make(task: Task, *faults: str, package: Path = tiny_package, **more: Any) -> Run:
        return Run(case_folder, package, task, faults, **more)

    return make


@pytest.fixture(scope="session")
def namespace() -> Callable[..., list[str]]:
    """A command prefix that runs a shell script with mounts of its own; `"$@"` in it is the command that follows."""
    for command in (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"]):
        probe = [*command, "sh", "-c", "mount -t tmpfs -o size=64k tmpfs /mnt"]
        if shutil.which("unshare") and subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return functools.partial(_in_namespace, command)
    pytest.skip("mounting is not permitted here, not even in a namespace of its own")


def _in_namespace(unshare: list[str], script: str, *options: str) -> list[str]:
    return [*unshare, *options, "sh", "-c", f"set -e\n{script}", "sh"]
