"""Run the entry point with injected faults in a process of its own and check its output.

The output folder must hold complete, valid answers only, and exit status 0 requires an answer.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from contract.editions import Algorithm, AnswerSpec
from rehearsal.platform.runs import check_outputs
from tests.algorithm.edition import COMBINED, EDITION, EDITION_2026
from tests.faults.fake_card import FakeCard, fake_card
from tests.faults.forked import Forks
from tests.signals import reset_signals

FAULTY = Path(__file__).with_name("faulty.py")
LONGEST_S = 120
# Both ways to answer a case, as words after `python -m`.
ENTRIES = {"algorithm": ("algorithm",), "hecktor": ("hecktor", "predict")}
Runs = Callable[..., Any]


@dataclass(frozen=True)
class Ended:
    """Result of a run: exit status (negative: a signal), stderr, and files below the output folder.

    `seconds` is the time from the signal, or else from the start, to the end of the process.
    """

    status: int
    stderr: str
    files: list[str]
    seconds: float

    @property
    def last_line(self) -> str:
        """Return the last line of stderr, which the platform shows to the submitter."""
        return next((line for line in reversed(self.stderr.splitlines()) if line.strip()), "")


def check_promise(case: Any, task: Algorithm, status: int, stderr: str, seconds: float) -> Ended:
    """Check what a process left: all answers, or an error and no file; return how it ended.

    A process that was killed while it wrote may leave incomplete files next to the answers' folders.
    """
    if status == -signal.SIGKILL:
        for path in case.output.glob(".partial-*"):
            path.unlink()
    files = sorted(path.relative_to(case.output).as_posix() for path in case.output.rglob("*") if path.is_file())
    ended = Ended(status, stderr, files, seconds)
    if ended.status == 0 or ended.files:
        checked = check_outputs(case.output, task, case.ct.geometry)
        assert checked.warnings == (), ended
        assert ended.files == sorted(o.path.relative_to(case.output).as_posix() for o in checked.outputs), ended
        for answer, output in zip(task.answers, checked.outputs, strict=True):
            check_value(answer, output.value, ended)
    return ended


def check_value(answer: AnswerSpec, value: Any, ended: Ended) -> None:
    """Check that a value has its answer's type, and is a class of the answer or a time above 0."""
    if answer.kind == "mask":
        assert value is None, ended
    elif answer.kind == "class":
        assert value in answer.classes, ended
        assert type(value) is type(answer.classes[0]), ended
    else:
        assert type(value) is float, ended
        assert answer.direction == "risk" or value > 0, ended


def case_arguments(case: Any, package: Path, task: Algorithm, *options: str) -> list[str]:
    """Return the command line that answers `case` on the CPU; the PET threshold takes no package."""
    edition = EDITION_2026 if task in EDITION_2026.algorithms else EDITION
    folders = {"--input": case.input, "--output": case.output}
    if "threshold" not in options:
        folders["--model"] = package
    words = [word for pair in folders.items() for word in map(str, pair)]
    return ["--edition", edition.name, "--task", task.name, "--device", "cpu", *words, *options]


@dataclass
class Run:
    """A run of one case: `complete`, or `start_and_pause`, `send` and `end`.

    `faults` are arguments of `faulty.py`, `limits` and `log` are arguments of `forks.py`, `before` is a command prefix,
    `settings` are arguments of `Popen`. A run without a prefix and settings is forked off a process that has imported
    the libraries.
    """

    forks: Forks
    case: Any
    package: Path
    task: Algorithm
    faults: Sequence[str]
    entry: Sequence[str] = ENTRIES["algorithm"]
    options: Sequence[str] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    log: str | None = None
    before: Sequence[str] = ()
    settings: dict[str, Any] = field(default_factory=dict)

    def begin(self) -> Run:
        arguments = case_arguments(self.case, self.package, self.task, *self.options)
        if not self.before and not self.settings:
            self.begun = time.monotonic()
            words = [*self.entry, *arguments]
            self.process: Any = self.forks.begin(self.case.root, words, self.faults, self.limits, self.log)
            return self
        command = [*self.before, sys.executable, str(FAULTY), "\n".join(self.faults), *self.entry]
        command += arguments
        # A limit on file size would leave truncated bytecode files behind.
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment, **self.settings}
        self.begun = time.monotonic()
        self.process = subprocess.Popen(reset_signals(command), text=True, **settings)
        return self

    def start_and_pause(self) -> Run:
        """Start and wait for the first pause."""
        return self.begin().pause()

    def pause(self) -> Run:
        """Wait for the next pause."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line == "paused\n", self.process.communicate()[1]
        return self

    def send(self, number: signal.Signals, process: int | None = None) -> Run:
        """Send a signal to the started process, or to `process`."""
        self.begun = time.monotonic()
        os.kill(process or self.process.pid, number)
        return self

    def end(self) -> Ended:
        """Wait for the end of the process and check its output."""
        try:
            _, stderr = self.process.communicate(timeout=LONGEST_S)
        finally:
            self.process.kill()
        seconds = time.monotonic() - self.begun
        return check_promise(self.case, self.task, self.process.returncode, stderr or "", seconds)

    def complete(self) -> Ended:
        return self.begin().end()


@pytest.fixture
def card() -> Iterator[FakeCard]:
    """Replace torch's functions by a simulated card."""
    with fake_card() as card:
        yield card


@pytest.fixture
def entry() -> str:
    """Return the entry point of the test; the test's parameters may name another one."""
    return "algorithm"


@pytest.fixture
def run(forks: Forks, case_folder: Any, tiny_package: Path, combined_package: Path, entry: str) -> Callable[..., Run]:
    """Make runs over the small case with a tiny package: `run(task, *faults, **other fields of Run)`."""
    case_folder.write()

    def make(task: Algorithm, *faults: str, package: Path | None = None, **more: Any) -> Run:
        shipped = combined_package if task is COMBINED else tiny_package
        return Run(forks, case_folder, package or shipped, task, faults, ENTRIES[entry], **more)

    return make


@pytest.fixture(scope="session")
def namespace() -> Callable[..., list[str]]:
    """Return a command prefix for a shell script in its own mount namespace; `"$@"` in it is the command that follows."""
    for command in (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"]):
        probe = [*command, "sh", "-c", "mount -t tmpfs -o size=64k tmpfs /mnt"]
        if shutil.which("unshare") and subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return functools.partial(build_namespace_command, command)
    pytest.skip("mounting is not permitted, not even in a mount namespace")


def build_namespace_command(unshare: list[str], script: str, *options: str) -> list[str]:
    return [*unshare, *options, "sh", "-c", f"set -e\n{script}", "sh"]
