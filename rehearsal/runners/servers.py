"""Clients of a running server that answers many cases (`invoke`)."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from contract.errors import EngineError
from rehearsal.runners.disk import DiskWatch
from rehearsal.runners.logs import Logs
from rehearsal.runners.monitor import GRACE_S, Stopper, kill_until_ended

PORT: Final = 4743
HEALTH_CALL_S: Final = 10.0
_CLIENT: Final = Path(__file__).with_name("client.py")
_CLIENT_START_S: Final = 30.0
_ANSWER_BYTES: Final = 4 << 20
_NO_PYTHON: Final = (126, 127)


@dataclass(frozen=True)
class CallResult:
    """Result of a call to a server; without an answer `status` is None and `text` gives the reason."""

    status: int | None
    text: str
    seconds: float
    timed_out: bool = False


@dataclass(frozen=True)
class RunningServer:
    """A running server; its caller ends it with `stop` or `kill`.

    `python` runs a program from stdin that can access the server's port; `peak_memory` returns the bytes
    since its start, None if unknown; `hand_over` gives this user access to the server's files; `remove` cleans up after
    its end; `disk` kills it if its files grow too large.
    """

    process: subprocess.Popen[bytes]
    logs: Logs
    python: tuple[str, ...]
    port: int
    stopper: Stopper
    peak_memory: Callable[[], int | None]
    hand_over: Callable[[], None] = lambda: None
    remove: Callable[[], None] = lambda: None
    started_s: float = field(default_factory=time.monotonic)
    disk: DiskWatch | None = None

    def wait_until_ready(self, tries: int, apart_s: float) -> CallResult:
        """Ask for its health until it answers 200 or ends, at most `tries` times; the seconds count from its start.

        Raises EngineError if the image has no Python to run the client.
        """
        reply = CallResult(None, "not asked", 0.0)
        for number in range(tries):
            if number and self.exit_code_within(apart_s) is not None:
                break
            reply = self._call("GET", "/health", HEALTH_CALL_S)
            if reply.status == 200 or self.exit_code is not None:
                break
        return CallResult(reply.status, reply.text, time.monotonic() - self.started_s)

    def invoke(self, time_limit_s: float) -> CallResult:
        """Call `POST /invoke`; the result holds the seconds of the call."""
        return self._call("POST", "/invoke", time_limit_s)

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self.process.poll()

    def disk_failure(self) -> str | None:
        """Measure its files; return the reason why they are too large, None if they fit."""
        if self.disk is None:
            return None
        self.disk.measure()
        return self.disk.failure

    def exit_code_within(self, seconds: float) -> int | None:
        """Its exit code after waiting at most `seconds`; None if it still runs."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> int | None:
        """Send SIGTERM and return the exit code; None if it did not end within 5 s and was killed."""
        self.stopper(False)
        code = self.exit_code_within(GRACE_S)
        self.kill()
        return code

    def kill(self) -> None:
        if self.disk is not None:
            self.disk.close()
        if self.exit_code is None:
            kill_until_ended(self.process, self.stopper)
        self.logs.close()
        self.remove()

    def _call(self, method: str, path: str, limit_s: float) -> CallResult:
        """Output of the client program; no answer if it overran or was killed, for example by the server's end."""
        begun = time.monotonic()
        command = [*self.python, method, path, str(self.port), str(limit_s)]
        with _CLIENT.open("rb") as program:
            status, output = bounded_output(command, program, limit_s + _CLIENT_START_S)
        # The engine gives the same status for a container that is just ending. At a case the program was there before.
        if path == "/health" and status in _NO_PYTHON and self.exit_code_within(1.0) is None:
            raise EngineError("no python3 in the image, through which a server without network is called")
        seconds = time.monotonic() - begun
        answer = _answer_of(output) if status == 0 else None
        return CallResult(None, "no answer", seconds, seconds >= limit_s) if answer is None else CallResult(**answer)


def bounded_output(command: Sequence[str], program: IO[bytes], limit_s: float) -> tuple[int | None, bytes]:
    """The exit status and the output of a client; the status is None if it overran the time or its output is longer."""
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


def _answer_of(output: bytes) -> Any:
    """The client's answer, None if it is another one's: the image's own python3 may print anything."""
    try:
        answer = json.loads(output)
    except (ValueError, RecursionError):
        return None
    kinds = {"status": int | None, "text": str, "seconds": int | float, "timed_out": bool}
    is_ours = isinstance(answer, dict) and answer.keys() == kinds.keys()
    return answer if is_ours and all(isinstance(answer[key], kind) for key, kind in kinds.items()) else None
