"""A local, read-only web server for a viewer: this machine only, behind a secret address."""

from __future__ import annotations

import hmac
import json
import secrets
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from pathlib import PurePosixPath
from threading import Lock, Thread
from typing import Any, Final
from urllib.parse import unquote

from contract.errors import HecktorError
from contract.servers import RequestHandler
from reporting.viewer.case import build_case
from reporting.viewer.cohort import ViewerCohort
from reporting.viewer.page import page_files

CASE_FOLDER: Final = "case"
LOCALHOST: Final = "127.0.0.1"
JSON_TYPE: Final = "application/json; charset=utf-8"
_TOKEN_BYTES: Final = 24
_IDLE_S: Final = 60
_POLL_S: Final = 0.1
_PIECE_BYTES: Final = 2**18
_TYPES: Final = {
    "": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}
# Scripts come from this server alone; the icon is a data URL.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Patients' images stay out of the browser's cache on disk.
    "Cache-Control": "no-store",
}


class ViewerFiles:
    """Everything that a viewer serves, by its relative address. No address is ever used as a path."""

    def __init__(self, cohort: ViewerCohort) -> None:
        self._fixed = page_files(cohort)
        self._cases = cohort.cases
        # One case at a time is computed, which bounds the memory.
        self._computing = Lock()

    def read(self, name: str) -> tuple[str, bytes] | None:
        """Type and content of a file, None for an unknown one; raises HecktorError if its case cannot be shown."""
        folder, _, case = name.partition("/")
        if folder == CASE_FOLDER and case in self._cases:
            with self._computing:
                return JSON_TYPE, json.dumps(build_case(self._cases[case]), allow_nan=False).encode()
        content = self._fixed.get(name)
        return None if content is None else (_TYPES.get(PurePosixPath(name).suffix, "text/plain"), content)


class _ViewerServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, files: ViewerFiles, port: int) -> None:
        super().__init__((LOCALHOST, port), _Handler)
        self.files = files
        self.token = secrets.token_urlsafe(_TOKEN_BYTES)
        # Another name in the Host header is a web page whose name was made to point here (DNS rebinding).
        self.hosts = {f"{name}:{self.server_port}" for name in (LOCALHOST, "localhost")}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the trace of a bug; a browser that disconnects early is ignored."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(RequestHandler):
    server: _ViewerServer
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S

    def do_GET(self) -> None:  # noqa: N802  the name of the base class
        """Answer with a file, or 404 for everything else."""
        address = self.received()
        if address is None:
            return
        name = self._name(address.path)
        if name is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            found = self.server.files.read(name)
        except HecktorError as problem:
            self._send_fault(problem.message)
        except Exception:  # noqa: BLE001  a bug: its trace, and the server lives on
            traceback.print_exc()
            self._send_fault("an internal error, see the terminal of hecktor view")
        else:
            if found is None:
                self.send_error(HTTPStatus.NOT_FOUND)
            else:
                self._send(HTTPStatus.OK, *found)

    def do_HEAD(self) -> None:  # noqa: N802
        """As GET, without the content."""
        self.do_GET()

    def _name(self, path: str) -> str | None:
        """The relative address of the file that is asked for; None without the token or for another host."""
        _, _, rest = path.partition("/")
        token, slash, name = rest.partition("/")
        is_known = hmac.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode())
        if not (is_known and slash and self.headers.get("Host") in self.server.hosts):
            return None
        return unquote(name)

    def _send_fault(self, message: str) -> None:
        self._send(HTTPStatus.INTERNAL_SERVER_ERROR, JSON_TYPE, json.dumps({"error": message}).encode())

    def _send(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            # In pieces: the time limit holds for each, so that a slow link is not cut off.
            for start in range(0, len(content), _PIECE_BYTES):
                self.wfile.write(content[start : start + _PIECE_BYTES])

    def send_error(self, code: int, *_: Any) -> None:
        """Answer with the status alone, also to other methods and malformed requests, and close the connection."""
        status = HTTPStatus(code)
        if status == HTTPStatus.NOT_IMPLEMENTED:
            status = HTTPStatus.METHOD_NOT_ALLOWED
        self.close_connection = True
        self.send_response(status)
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()

    def end_headers(self) -> None:
        """Add the headers of every answer."""
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def version_string(self) -> str:
        """The `Server` header, without versions."""
        return "hecktor"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name of the base class
        """Log nothing: addresses hold the token and names of cases."""


@contextmanager
def serving(cohort: ViewerCohort, port: int = 0) -> Iterator[str]:
    """Serve a viewer while the block runs; yields its address. Port 0 takes any free one."""
    try:
        server = _ViewerServer(ViewerFiles(cohort), port)
    except OSError as problem:
        raise HecktorError("--port", f"{port} cannot be used ({problem.strerror})", "a free port") from None
    thread = Thread(target=server.serve_forever, args=(_POLL_S,), daemon=True)
    thread.start()
    try:
        yield f"http://{LOCALHOST}:{server.server_port}/{server.token}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
