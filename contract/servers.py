"""HTTP servers: a handler for requests from untrusted callers, and the platform's `invoke` mode.

In the `invoke` mode the platform starts a container once and calls it for one case after another. For an evaluation
image a case is a submission.

::

    GET  /health   200 once the server is ready; 503 before that and while the server ends
    POST /invoke   answers the case in the input folder: 201, or 500 with the reason in one line

The platform empties the input and output folders between cases, so no file there stays open. It sends one case at a
time: a second call is rejected (409), because the folders change between cases. SIGTERM or SIGINT drains the server:
further cases are rejected (503), and the current case gets its reply.
"""

from __future__ import annotations

import ctypes
import logging
import re
import signal
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from contract.errors import HecktorError, find_user_error

LOGGER = logging.getLogger("hecktor")
_MAX_BODY_BYTES: Final = 1 << 16
_METHODS: Final = {"/health": "GET", "/invoke": "POST"}
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
# A caller may send the next case while the reply to the previous one is still being sent.
_MAX_REPLY_S: Final = 0.2
# Parameters of `mallopt` in malloc.h of glibc, and their values for a server.
_M_MMAP_THRESHOLD: Final = -3
_MIN_RETURNED_BYTES: Final = 1 << 20
_M_ARENA_MAX: Final = -8
_MAX_ARENAS: Final = 1


class RequestHandler(BaseHTTPRequestHandler):
    """Handler that reads one request within `timeout` seconds in total, so that a slow caller does not block a thread.

    A subclass's method that answers requests must call `read_address` first.
    """

    timeout: ClassVar[float]

    def handle_one_request(self) -> None:
        """Answer one request; close the reading side of the connection when the time is over."""
        self._is_late = threading.Event()
        self._deadline = threading.Timer(self.timeout, self._stop_reading)
        self._deadline.daemon = True
        self._deadline.start()
        try:
            super().handle_one_request()
        finally:
            self._deadline.cancel()

    def read_address(self) -> SplitResult | None:
        """Read the whole request and return its address, or refuse the request with an error and return None.

        The body is read because a connection that is closed with unread bytes could lose the reply.
        """
        length = self.headers.get("Content-Length", "0")
        address = _parse_address(self.path)
        if not re.fullmatch(r"[0-9]{1,18}", length) or address is None:
            self.send_error(HTTPStatus.BAD_REQUEST)
            return None
        self.rfile.read(min(int(length), _MAX_BODY_BYTES))
        self._deadline.cancel()
        if self._is_late.is_set():
            self.send_error(HTTPStatus.REQUEST_TIMEOUT)
            return None
        return address

    def _stop_reading(self) -> None:
        self._is_late.set()
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RD)


def _parse_address(path: str) -> SplitResult | None:
    try:
        return urlsplit(path)
    except ValueError:  # such as http://[/
        return None


class Reply(NamedTuple):
    """Reply of the `invoke` mode: a status and one line of text."""

    status: HTTPStatus
    text: str


class CaseServer(ThreadingHTTPServer):
    """Server of the `invoke` mode, which listens on all interfaces and takes cases from `is_ready` to `drain`.

    Args:
        answer: Function that answers the case in the input folder, in any thread, and returns a summary in one line.
            It raises HecktorError if the case cannot be answered.
        port: Port to listen on; 0 chooses a free port.

    Raises:
        HecktorError: The port is not available.
    """

    def __init__(self, answer: Callable[[], str], port: int) -> None:
        self.answer = answer
        self.is_ready = threading.Event()
        self.is_draining = threading.Event()
        self.case_lock = threading.Lock()  # held from the start of a case until its reply is sent
        try:
            super().__init__(("", port), _CaseHandler)
        except OSError as problem:
            raise HecktorError(f"port {port}", f"cannot listen ({problem.strerror})", "a free port") from None

    def server_bind(self) -> None:
        """Bind without a look-up of this host's name, which can take seconds without a network."""
        socketserver.TCPServer.server_bind(self)
        self.server_name = ""
        self.server_port = int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Log one line for a lost connection; its case is still answered."""
        problem = sys.exc_info()[1]
        LOGGER.warning("a connection was lost (%s)", type(problem).__name__)

    def check_health(self) -> Reply:
        """Return OK if cases are accepted, also while a case is being answered."""
        if self.is_draining.is_set():
            return Reply(HTTPStatus.SERVICE_UNAVAILABLE, "shutting down, no further cases are accepted")
        if not self.is_ready.is_set():
            return Reply(HTTPStatus.SERVICE_UNAVAILABLE, "still loading, no cases are accepted yet")
        return Reply(HTTPStatus.OK, "ready")

    def invoke(self) -> Reply:
        """Answer the case in the input folder; the caller holds `case_lock`."""
        health = self.check_health()
        if health.status is not HTTPStatus.OK:
            return health
        try:
            summary = self.answer()
        except HecktorError as problem:
            return _log_failure(problem.message)
        except OSError as problem:  # such as an input folder that is closed to this user
            error = find_user_error(problem)
            if error is not None:
                return _log_failure(error.message)
            return _log_bug(problem)
        except Exception as problem:  # noqa: BLE001 - a bug in one case must not end the server
            return _log_bug(problem)
        LOGGER.info("%s", summary)
        return Reply(HTTPStatus.CREATED, summary)

    def drain(self, end_case: Callable[[], object]) -> None:
        """Reject further cases, ask the current case to end with `end_case`, and return after its reply."""
        self.is_draining.set()
        end_case()
        with self.case_lock:
            pass


def _log_bug(problem: Exception) -> Reply:
    LOGGER.error("a bug; the case is not at fault", exc_info=problem)
    return _log_failure(f"internal error ({type(problem).__name__})")


def _log_failure(message: str) -> Reply:
    LOGGER.error("error: %s", message)
    return Reply(HTTPStatus.INTERNAL_SERVER_ERROR, message)


class _CaseHandler(RequestHandler):
    server: CaseServer
    server_version = "hecktor"
    # Only for reading a request; a case may take longer.
    timeout = 10

    def _answer_request(self) -> None:
        address = self.read_address()
        if address is None:
            return
        path = address.path
        method = _METHODS.get(path)
        if method is None:
            self._send(Reply(HTTPStatus.NOT_FOUND, f"expected {' or '.join(_METHODS)}"))
        elif self.command != method:
            self._send(Reply(HTTPStatus.METHOD_NOT_ALLOWED, f"expected {method} {path}"), {"Allow": method})
        elif path == "/health":
            self._send(self.server.check_health())
        elif not self.server.case_lock.acquire(timeout=_MAX_REPLY_S):
            self._send(Reply(HTTPStatus.CONFLICT, "another case is being answered, expected one call at a time"))
        else:
            try:
                self._send(self.server.invoke())
            finally:
                self.server.case_lock.release()

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _answer_request  # noqa: N815

    def _send(self, reply: Reply, headers: Mapping[str, str] | None = None) -> None:
        content = f"{reply.text}\n".encode()
        self.send_response(reply.status)
        for name, value in {"Content-Type": "text/plain; charset=utf-8", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base class names it
        """Log nothing: the platform keeps only 500 lines, which health checks would fill."""


def run_server(
    answer: Callable[[], str], end_case: Callable[[], object], load: Callable[[], object], port: int
) -> None:
    """Listen, load, accept cases, and return after SIGTERM or SIGINT, once the current case is answered.

    Both signals are blocked and waited for, which also works in the first process of a container. A signal during
    `load` takes effect after `load`.

    Args:
        answer: Function that answers a case, see `CaseServer`.
        end_case: Function that asks the current case to end with its best answer so far; called once.
        load: Function that makes the program ready, called in this thread; its exceptions end the server.
        port: Port to listen on, see `CaseServer`.

    Raises:
        HecktorError: The port is not available, or `load` failed.
    """
    _configure_malloc()
    earlier_mask = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    try:
        with CaseServer(answer, port) as server:
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
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier_mask)


def _configure_malloc() -> None:
    """Make the C library return freed blocks of 1 MiB or more to the system, and use one arena for all threads.

    By default, once a block of up to 32 MiB has been freed, glibc returns only larger blocks. Smaller arrays then stay
    in the arenas of the threads that allocated them, and the server's memory grows from case to case.
    """
    with suppress(AttributeError):  # another C library than glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _MIN_RETURNED_BYTES)
        mallopt(_M_ARENA_MAX, _MAX_ARENAS)
