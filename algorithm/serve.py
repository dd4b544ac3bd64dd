"""The platform's `invoke` mode: a server that loads the model once and answers case after case.

::

    GET  /health   200 once the model is ready; 503 before that and while the server ends
    POST /invoke   answers the case in the input folder: 201, or 500 with the reason in one line

The platform empties the input and output folders between cases, so no file there stays open. It sends one case at a
time: a second call is rejected (409), because the folders change between cases. SIGTERM or SIGINT drains the server:
further cases are rejected (503), the current one ends with its best answer so far.
"""

from __future__ import annotations

import logging
import signal
import socketserver
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from algorithm.deadline import Termination
from algorithm.destination import remove_earlier
from algorithm.network.resident import LoadedPackage
from algorithm.output import remove_earlier_answers
from algorithm.pipeline import predict
from algorithm.prediction import PredictRequest
from contract.errors import HecktorError, find_user_error
from contract.platform import INVOKE_PORT
from contract.servers import RequestHandler

LOGGER = logging.getLogger("hecktor")
_METHODS: Final = {"/health": "GET", "/invoke": "POST"}
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
# A caller may send the next case while the reply to the one before is still on its way out.
_PATIENCE_S: Final = 0.2

_Reply = tuple[HTTPStatus, str]


class Server(ThreadingHTTPServer):
    """Listens on all interfaces; port 0 chooses a free one. Cases are taken from `is_ready` to `drain`.

    Args:
        answer: answers the case in the input folder, from any thread, and returns a summary in one line; raises
            HecktorError if it cannot.
        port: the port.

    Raises:
        HecktorError: the port is not available.
    """

    def __init__(self, answer: Callable[[], str], port: int) -> None:
        self.answer = answer
        self.is_ready, self.is_draining = threading.Event(), threading.Event()
        self.in_work = threading.Lock()  # held from a case's beginning until its reply is sent
        try:
            super().__init__(("", port), _Handler)
        except OSError as problem:
            raise HecktorError(f"port {port}", f"cannot listen ({problem.strerror})", "a free port") from None

    def server_bind(self) -> None:
        """Bind without looking up this host's name, which can take seconds without a network."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "", int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Log one line for a lost connection; its case, if any, is answered all the same."""
        problem = sys.exc_info()[1]
        LOGGER.warning("a connection was lost (%s)", type(problem).__name__)

    def health(self) -> _Reply:
        """OK if cases are accepted, also while one is answered."""
        if self.is_draining.is_set():
            return HTTPStatus.SERVICE_UNAVAILABLE, "shutting down, no further cases are accepted"
        if not self.is_ready.is_set():
            return HTTPStatus.SERVICE_UNAVAILABLE, "the model is being loaded"
        return HTTPStatus.OK, "ready"

    def invoke(self) -> _Reply:
        """Answer the case in the input folder, with `in_work` held."""
        health = self.health()
        if health[0] is not HTTPStatus.OK:
            return health
        try:
            summary = self.answer()
        except HecktorError as problem:
            return _failed(problem.message)
        except OSError as problem:  # such as an input folder that is closed to this user
            error = find_user_error(problem)
            if error is not None:
                return _failed(error.message)
            return _report_bug(problem)
        except Exception as problem:  # noqa: BLE001 - a bug in one case must not cost the next ones
            return _report_bug(problem)
        LOGGER.info("%s", summary)
        return HTTPStatus.CREATED, summary

    def drain(self, end_case: Callable[[], None]) -> None:
        """Reject further cases, and return when the current one, which `end_case` asks to end, has its reply."""
        self.is_draining.set()
        end_case()
        with self.in_work:
            pass


def _report_bug(problem: Exception) -> _Reply:
    LOGGER.error("a bug; the case is not at fault", exc_info=problem)
    return _failed(f"internal error ({type(problem).__name__})")


def _failed(message: str) -> _Reply:
    LOGGER.error("error: %s", message)
    return HTTPStatus.INTERNAL_SERVER_ERROR, message


class _Handler(RequestHandler):
    server: Server
    server_version = "hecktor"
    # A case may take longer.
    timeout = 10

    def _route(self) -> None:
        address = self.received()
        if address is None:
            return
        path = address.path
        method = _METHODS.get(path)
        if method is None:
            self._send((HTTPStatus.NOT_FOUND, f"expected {' or '.join(_METHODS)}"))
        elif self.command != method:
            self._send((HTTPStatus.METHOD_NOT_ALLOWED, f"expected {method} {path}"), {"Allow": method})
        elif path == "/health":
            self._send(self.server.health())
        elif not self.server.in_work.acquire(timeout=_PATIENCE_S):
            self._send((HTTPStatus.CONFLICT, "another case is being answered, expected one call at a time"))
        else:
            try:
                self._send(self.server.invoke())
            finally:
                self.server.in_work.release()

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _route  # noqa: N815

    def _send(self, reply: _Reply, headers: dict[str, str] | None = None) -> None:
        content = f"{reply[1]}\n".encode()
        self.send_response(reply[0])
        for name, value in {"Content-Type": "text/plain; charset=utf-8", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base class names it
        """Log nothing: the platform keeps only 500 lines, and health checks alone would fill them."""


def serve(request: PredictRequest, model_dir: Path, port: int = INVOKE_PORT) -> None:
    """Answer cases as `request` says until SIGTERM or SIGINT, with the model loaded once.

    Args:
        request: task, method, folders, device and time limit of every case.
        model_dir: the model package.
        port: see `Server`.

    Raises:
        HecktorError: the port is not available, or the model or the device is unusable.
    """
    resident, termination = LoadedPackage(model_dir, request.device, request.code), Termination()

    def load() -> None:
        if request.uses_package:
            resident.check(request.edition, request.algorithm)
            LOGGER.info("model package: %s", resident.describe())
        if request.method.segmenter == "network":
            resident.load()

    def answer_or_leave_nothing() -> str:
        if request.record_path is not None:
            remove_earlier("--record", request.record_path)
        remove_earlier_answers(request)
        return predict(replace(request, spent_s=0.0), resident, termination).record.summary()

    run_server(answer_or_leave_nothing, termination.request, load, port)


def run_server(answer: Callable[[], str], end_case: Callable[[], None], load: Callable[[], object], port: int) -> None:
    """Listen, load, accept cases, and return after SIGTERM or SIGINT, once the current case is answered.

    Both signals are blocked and waited for, which also works in the first process of a container; a signal during
    `load` takes effect after it.

    Args:
        answer: answers the calls, see `Server`.
        end_case: asks the current case to end with its best answer so far; called once.
        load: makes the server ready, in this thread; its exceptions end the server.
        port: see `Server`.

    Raises:
        HecktorError: the port is not available, or `load` failed.
    """
    former = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    try:
        with Server(answer, port) as server:
            threading.Thread(target=server.serve_forever, args=(0.05,), name="http", daemon=True).start()
            try:
                load()
                server.is_ready.set()
                LOGGER.info("ready for cases on port %d", server.server_port)
                LOGGER.info("%s: draining", signal.Signals(signal.sigwait(_STOP_SIGNALS)).name)
                server.drain(end_case)
            finally:
                server.shutdown()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
