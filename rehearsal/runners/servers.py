"""A program that was started once and answers case after case (`invoke`), seen from outside."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from contract.errors import EngineError
from rehearsal.runners.monitor import GRACE_S, Stopper

PORT: Final = 4743
HEALTH_CALL_S: Final = 10.0
_CLIENT: Final = Path(__file__).with_name("client.py")
_CLIENT_START_S: Final = 30.0
# How long the client goes on asking before it is looked whether there still is a server.
_ASK_S: Final = 1.0
_NO_PYTHON: Final = (126, 127)


@dataclass(frozen=True)
class CallResult:
    """What a call came to: `status` None where no answer came, and `text` then says why."""

    status: int | None
    text: str
    seconds: float
    timed_out: bool = False


@dataclass(frozen=True)
class Reach:
    """How a started server is got at.

    `python` runs a program from stdin where it sees the server's port and `folders`; `hand_over` lets this user
    read what the server wrote; `remove` takes away what is left of it after its end.
    """

    python: tuple[str, ...]
    port: int
    folders: tuple[str, str]
    stop: Stopper
    peak_memory: Callable[[], int | None]
    hand_over: Callable[[], None] = lambda: None
    remove: Callable[[], None] = lambda: None


class RunningServer:
    """One running server; whoever started it ends it with `stop` or `kill`."""

    def __init__(self, process: subprocess.Popen[bytes], reach: Reach, started_s: float | None = None) -> None:
        self._process, self._reach = process, reach
        self._started_s = time.monotonic() if started_s is None else started_s

    def wait_until_ready(self, within_s: float) -> CallResult:
        """Ask for its health until it answers 200, at most `within_s`; the seconds count from its start.

        Raises:
            EngineError: there is no Python beside the server that could ask.
        """
        while True:
            left_s = max(0.0, within_s - self._age_s())
            asking = (self._reach.port, min(_ASK_S, left_s), min(HEALTH_CALL_S, max(left_s, _ASK_S)))
            reply = self._call("ready", *asking, limit_s=HEALTH_CALL_S)
            age_s = self._age_s()
            if reply.status == 200 or self.exit_code is not None or age_s >= within_s:
                return CallResult(reply.status, reply.text, age_s)

    def invoke(self, time_limit_s: float) -> CallResult:
        """`POST /invoke`; the seconds are those of the call."""
        return self._call("invoke", self._reach.port, time_limit_s, limit_s=time_limit_s)

    def left_open(self) -> list[str]:
        """Files and working directories in the input and output folders that a process still holds."""
        found = self._ask("open", *self._reach.folders, limit_s=HEALTH_CALL_S)
        return [] if found is None else [str(path) for path in found["open"]]

    def hand_over(self) -> None:
        """Let this user read and remove what the server wrote."""
        self._reach.hand_over()

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    @property
    def peak_memory_bytes(self) -> int | None:
        """The peak since its start, None where it cannot be told."""
        return self._reach.peak_memory()

    def exit_code_within(self, seconds: float) -> int | None:
        """Its exit code, waiting a little for it; None where it goes on."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> int | None:
        """SIGTERM, and what it ended with; None where it did not end within 5 s and was killed."""
        self._reach.stop(False)
        code = self.exit_code_within(GRACE_S)
        self.kill()
        return code

    def kill(self) -> None:
        """End it at once."""
        if self.exit_code is None:
            self._reach.stop(True)
            self._process.wait()
        self._reach.remove()

    def _age_s(self) -> float:
        return time.monotonic() - self._started_s

    def _call(self, command: str, *arguments: object, limit_s: float) -> CallResult:
        begun = time.monotonic()
        found = self._ask(command, *arguments, limit_s=limit_s)
        if found is None:
            return CallResult(None, "no answer", time.monotonic() - begun, time.monotonic() - begun >= limit_s)
        return CallResult(found["status"], found["text"], found["seconds"], found["timed_out"])

    def _ask(self, *arguments: object, limit_s: float) -> Any:
        """What the client program prints; None where it was killed or overran, as when the server's end takes it."""
        with _CLIENT.open("rb") as program:
            try:
                done = subprocess.run(
                    [*self._reach.python, *map(str, arguments)],
                    stdin=program,
                    check=False,
                    capture_output=True,
                    timeout=limit_s + _CLIENT_START_S,
                )
            except subprocess.TimeoutExpired:
                return None
        # An engine says the same of a container that ends just now.
        if done.returncode in _NO_PYTHON and self.exit_code_within(1.0) is None:
            raise EngineError("no python3 in the image, through which a server without network is called")
        return json.loads(done.stdout) if done.returncode == 0 else None


def this_python() -> tuple[str, ...]:
    """The interpreter that runs this, for a server that is a plain process here."""
    return (sys.executable, "-I", "-")
