"""The platform's `invoke` mode: a server that answers case after case and pays for its start once.

::

    GET  /health   200 once the model is ready; 503 before that and while the server ends
    POST /invoke   answers the case in the input folder: 201, or 500 with one line that says why there is no answer

The platform empties the input and output folders between cases, so nothing there is kept open. It calls for one case
at a time: a second call is refused at once (409), since waiting would mean reading folders that change meanwhile.
SIGTERM or SIGINT drains: no further case is taken (503), the one in work ends with its best answer so far.
"""

from __future__ import annotations

import logging
import shutil
import signal
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Final
from urllib.parse import urlsplit

from algorithm.answering import Termination, answer
from algorithm.network.resident import Resident
from algorithm.pipeline import Request
from contract.errors import HecktorError

LOGGER = logging.getLogger("hecktor")
PORT: Final = 4743
_METHODS: Final = {"/health": "GET", "/invoke": "POST"}
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_BODY_LIMIT_BYTES: Final = 1 << 16


@dataclass(frozen=True)
class Reply:
    """What a call is answered with: a status, and one line of text."""

    status: HTTPStatus
    text: str


class Service:
    """What is answered to a call, whatever carries it; knows nothing of HTTP."""

    def __init__(self, answer: Callable[[], str], end_case: Callable[[], None]) -> None:
        """A service that is not ready yet.

        Args:
            answer: answers the case in the input folder, from any thread, and says so in one line; raises
                HecktorError where it cannot.
            end_case: asks the case in work to end with its best answer so far; called once, from another thread.
        """
        self._answer, self._end_case = answer, end_case
        self._is_ready, self._is_draining = threading.Event(), threading.Event()
        self._in_work = threading.Lock()
        self._owed, self._replied = 0, threading.Condition()

    def open(self) -> None:
        """Take cases from now on."""
        self._is_ready.set()

    def health(self) -> Reply:
        """Whether a case would be taken; true also while one is in work."""
        if self._is_draining.is_set():
            return Reply(HTTPStatus.SERVICE_UNAVAILABLE, "ending, no further case is taken")
        if not self._is_ready.is_set():
            return Reply(HTTPStatus.SERVICE_UNAVAILABLE, "the model is being loaded")
        return Reply(HTTPStatus.OK, "ready")

    def invoke(self) -> Reply:
        """Answer the case in the input folder; call it within `owing_a_reply`."""
        if not self._in_work.acquire(blocking=False):
            return Reply(HTTPStatus.CONFLICT, "a case is in work, expected one call at a time")
        try:
            health = self.health()
            return self._answered() if health.status is HTTPStatus.OK else health
        finally:  # before the reply is sent: whoever has it may call for the next case at once
            self._in_work.release()

    @contextmanager
    def owing_a_reply(self) -> Iterator[None]:
        """Until the block ends a drained service waits: a reply is still to be sent."""
        with self._replied:
            self._owed += 1
        try:
            yield
        finally:
            with self._replied:
                self._owed -= 1
                self._replied.notify_all()

    def _answered(self) -> Reply:
        try:
            said = self._answer()
        except HecktorError as problem:
            return _failed(problem.message)
        except Exception as problem:  # a bug that one case meets must not cost the cases after it
            LOGGER.exception("a bug, not the case's fault")
            return _failed(f"internal error ({type(problem).__name__})")
        LOGGER.info("%s", said)
        return Reply(HTTPStatus.CREATED, said)

    def drain(self) -> None:
        """Take no further case, and return when the one in work has been answered and its reply sent."""
        self._is_draining.set()
        self._end_case()
        with self._replied:
            self._replied.wait_for(lambda: self._owed == 0)


def _failed(message: str) -> Reply:
    LOGGER.error("error: %s", message)
    return Reply(HTTPStatus.INTERNAL_SERVER_ERROR, message)


class Server(socketserver.ThreadingTCPServer):
    """The service over HTTP on all interfaces; port 0 takes a free one."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, service: Service, port: int) -> None:
        """Listen from now on. Raises HecktorError where the port cannot be had."""
        self.service = service
        try:
            super().__init__(("", port), _Handler)
        except OSError as problem:
            raise HecktorError(f"port {port}", f"cannot listen ({problem.strerror})", "a free port") from None

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """One line for a caller that went away; the case, if any, was answered all the same."""
        problem = sys.exc_info()[1]
        LOGGER.warning("a connection was lost (%s)", type(problem).__name__)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version = "hecktor"
    # A caller that sends nothing must not keep a thread for ever; a case in work is not bound by it.
    timeout = 10

    def _route(self) -> None:
        path = urlsplit(self.path).path
        method = _METHODS.get(path)
        self._skip_body()
        if method is None:
            self._send(Reply(HTTPStatus.NOT_FOUND, f"expected {' or '.join(_METHODS)}"))
        elif self.command != method:
            self._send(Reply(HTTPStatus.METHOD_NOT_ALLOWED, f"expected {method} {path}"), {"Allow": method})
        elif path == "/health":
            self._send(self.server.service.health())
        else:
            with self.server.service.owing_a_reply():
                self._send(self.server.service.invoke())

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _route  # noqa: N815

    def _skip_body(self) -> None:
        """Read what a caller sent along: closing a connection with unread bytes could lose the reply."""
        length = self.headers.get("Content-Length", "0")
        if length.isdigit():
            self.rfile.read(min(int(length), _BODY_LIMIT_BYTES))

    def _send(self, reply: Reply, headers: dict[str, str] | None = None) -> None:
        content = f"{reply.text}\n".encode()
        self.send_response(reply.status)
        for name, value in {"Content-Type": "text/plain; charset=utf-8", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base class names it
        """Nothing: the platform keeps 500 lines, and asks for the health more often than that."""


def serve(request: Request, port: int = PORT) -> None:
    """Answer cases as `request` says until SIGTERM or SIGINT, the model loaded once.

    Args:
        request: the task, the method, the folders, the device and the time limit of every case.
        port: see `Server`.

    Raises:
        HecktorError: the port cannot be had, or the model or the device is unusable.
    """
    resident, termination = Resident(request.model_dir, request.device), Termination()

    def load() -> None:
        if request.method.segmenter == "network":
            resident.load()

    def answer_or_leave_nothing() -> str:
        try:
            stages = answer(replace(request, spent_s=0.0), resident, termination)
        except BaseException:
            _remove_answer(request)
            raise
        return f"{request.task.name} answered by {request.method.name}: {stages.summary()}"

    run_server(Service(answer_or_leave_nothing, termination.request), load, port)


def _remove_answer(request: Request) -> None:
    """A failed case leaves no answer, not even an empty folder or the answer of the case before it."""
    path = request.task.output.path_under(request.output_dir)
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def run_server(service: Service, load: Callable[[], object], port: int) -> None:
    """Listen, load, take cases, and return after SIGTERM or SIGINT, when the case in work has been answered.

    Both signals are blocked and waited for, which works in the first process of a container as well; one that comes
    during `load` is heeded after it, when nothing is lost by it.

    Args:
        service: what answers.
        load: makes the service ready, in this thread; what it raises ends the server.
        port: see `Server`.

    Raises:
        HecktorError: the port cannot be had, or `load` failed.
    """
    former = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    try:
        with Server(service, port) as server:
            threading.Thread(target=server.serve_forever, args=(0.05,), name="http", daemon=True).start()
            try:
                load()
                service.open()
                LOGGER.info("ready for cases on port %d", server.port)
                LOGGER.info("%s: draining", signal.Signals(signal.sigwait(_STOP_SIGNALS)).name)
                service.drain()
            finally:
                server.shutdown()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
