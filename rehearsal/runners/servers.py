"""Call a running server that answers many cases (`invoke`)."""

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
        hand_over: Gives this user access to the server's files.
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
    hand_over: Callable[[], None] = lambda: None
    remove: Callable[[], None] = lambda: None
    started_s: float = field(default_factory=time.monotonic)
    disk: DiskWatch | None = None

    def wait_until_ready(self, tries: int, apart_s: float) -> CallResult:
        """Ask for the health until the server answers 200 or ends, at most `tries` times.

        Returns:
            The last answer; its seconds count from the start of the server.

        Raises:
            EngineError: The image has no Python to run the client.
        """
        reply = CallResult(None, "not asked", 0.0)
        for number in range(tries):
            if number and self.wait_for_exit(apart_s) is not None:
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
        """The exit code, None while the server runs."""
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
        if self.disk is not None:
            self.disk.close()
        if self.exit_code is None:
            kill_until_ended(self.process, self.stopper)
        self.logs.close()
        self.remove()

    def _call(self, method: str, path: str, limit_s: float) -> CallResult:
        """Run the client program; there is no answer if it took too long or was killed, such as by the server's end."""
        start_s = time.monotonic()
        command = [*self.python, method, path, str(self.port), str(limit_s)]
        with _CLIENT.open("rb") as program:
            status, output = run_bounded(command, program, limit_s + _CLIENT_START_S)
        # The engine returns the same status for a container that is just ending. At a case, Python existed before.
        if path == "/health" and status in _NO_PYTHON and self.wait_for_exit(1.0) is None:
            raise EngineError("no python3 in the image, through which a server without network is called")
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
