"""The page of a viewer, as one file or from a local, read-only web server behind a secret address."""

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
from importlib.resources import files
from pathlib import Path, PurePosixPath
from string import Template
from threading import Lock, Thread
from typing import Any, Final
from urllib.parse import unquote

from contract.errors import HecktorError, OutputError
from contract.io.files import write_text
from contract.servers import RequestHandler
from reporting.page.html import render_json
from reporting.viewer.case import build_case
from reporting.viewer.cohort import ViewerCohort

_LIBRARY: Final = "niivue.umd.js"
_LICENCE: Final = "niivue.LICENSE"
_SCRIPT: Final = "viewer.js"
_STYLE: Final = "viewer.css"
# Every exported page has this mark.
_MARK: Final = '<meta name="generator" content="hecktor view">'
_PAGE_SUFFIXES: Final = (".html", ".htm")
# An exported page requests nothing from any server.
_EXPORT_POLICY: Final = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data:\">"
)

CASE_FOLDER: Final = "case"
LOCALHOST: Final = "127.0.0.1"
JSON_TYPE: Final = "application/json; charset=utf-8"
_TOKEN_BYTES: Final = 24
_IDLE_S: Final = 60
_POLL_S: Final = 0.1
_CHUNK_BYTES: Final = 2**18
_TYPE_OF_SUFFIX: Final = {
    "": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}
# Scripts come only from this server; the icon is a data URL.
_SERVER_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _SERVER_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Patients' images stay out of the browser's cache on disk.
    "Cache-Control": "no-store",
}


def find_viewer_page(target: Path) -> Path:
    """Return the page that `target`, an HTML file or a folder for index.html, names.

    Raises:
        OutputError: The file exists and is not a viewer.
    """
    page = target if target.suffix.lower() in _PAGE_SUFFIXES and not target.is_dir() else target / "index.html"
    if page.exists() and (not page.is_file() or _MARK.encode() not in page.read_bytes()[:1000]):
        raise OutputError(page.name, "exists and is not a viewer", "another name, or remove it")
    return page


def export_viewer(target: Path, cohort: ViewerCohort) -> Path:
    """Write the page with all cases of a cohort as one file, and return its path.

    The file contains all data, because browsers do not let a local page read other files.

    Args:
        target: An HTML file, or a folder for index.html.
        cohort: The cases.

    Raises:
        OutputError: The file exists and is not a viewer.
    """
    page = find_viewer_page(target)
    cases = [render_json(build_case(sources), f"case-{number}") for number, sources in enumerate(cohort.cases.values())]
    library = f"/*!\n{_read_page_file(_LICENCE).strip()}\n*/\n{_read_page_file(_LIBRARY)}"
    text = _fill_template(
        style=f"{_EXPORT_POLICY}\n<style>\n{_read_page_file(_STYLE)}</style>",
        scripts=f'<script>\n{library}\n</script>\n<script type="module">\n{_read_page_file(_SCRIPT)}</script>',
        data="\n".join([render_json(cohort.listing, "cohort"), *cases]),
    )
    write_text(page, text)
    return page


def list_page_files(cohort: ViewerCohort) -> dict[str, bytes]:
    """Return the files of a served page by address.

    The address of the page itself is empty. The page requests its cases from the server.
    """
    page = _fill_template(
        style=f'<link rel="stylesheet" href="{_STYLE}">',
        scripts=f'<script defer src="{_LIBRARY}"></script>\n<script type="module" src="{_SCRIPT}"></script>',
        data=render_json(cohort.listing, "cohort"),
    )
    names = (_STYLE, _SCRIPT, _LIBRARY, _LICENCE)
    return {"": page.encode(), **{name: _read_page_file(name).encode() for name in names}}


def _fill_template(*, style: str, scripts: str, data: str) -> str:
    return Template(_read_page_file("index.html")).substitute(mark=_MARK, style=style, scripts=scripts, data=data)


def _read_page_file(name: str) -> str:
    folder = files("reporting.page") / "vendor" if name.startswith("niivue") else files("reporting.viewer")
    return (folder / name).read_bytes().decode()


class ViewerFiles:
    """Everything that a viewer serves, by its relative address. No address is ever used as a path."""

    def __init__(self, cohort: ViewerCohort) -> None:
        self._page_files = list_page_files(cohort)
        self._cases = cohort.cases
        # One case at a time is computed, which bounds the memory.
        self._computing = Lock()

    def read(self, address: str) -> tuple[str, bytes] | None:
        """Return type and content of a file, or None for an unknown address.

        Raises:
            HecktorError: The case cannot be shown.
        """
        folder, _, case = address.partition("/")
        if folder == CASE_FOLDER and case in self._cases:
            with self._computing:
                return JSON_TYPE, json.dumps(build_case(self._cases[case]), allow_nan=False).encode()
        content = self._page_files.get(address)
        if content is None:
            return None
        return _TYPE_OF_SUFFIX.get(PurePosixPath(address).suffix, "text/plain"), content


class _ViewerServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, viewer_files: ViewerFiles, port: int) -> None:
        super().__init__((LOCALHOST, port), _Handler)
        self.viewer_files = viewer_files
        self.token = secrets.token_urlsafe(_TOKEN_BYTES)
        # A request with another name in its Host header comes from a web page whose name was changed to point to this
        # machine (DNS rebinding).
        self.hosts = {f"{name}:{self.server_port}" for name in (LOCALHOST, "localhost")}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the trace of a bug; ignore a browser that disconnects early."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(RequestHandler):
    server: _ViewerServer
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S

    def do_GET(self) -> None:  # noqa: N802  the name of the base class
        """Answer with a file, or 404 for everything else."""
        url = self.read_address()
        if url is None:
            return
        address = self._find_address(url.path)
        if address is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            answer = self.server.viewer_files.read(address)
        except HecktorError as problem:
            self._send_problem(problem.message)
        except Exception:  # noqa: BLE001  a bug is printed, and the server continues
            traceback.print_exc()
            self._send_problem("an internal error, see the terminal of hecktor view")
        else:
            if answer is None:
                self.send_error(HTTPStatus.NOT_FOUND)
            else:
                content_type, content = answer
                self._send(HTTPStatus.OK, content_type, content)

    def do_HEAD(self) -> None:  # noqa: N802  the name of the base class
        """Answer as for GET, without the content."""
        self.do_GET()

    def _find_address(self, path: str) -> str | None:
        """Return the relative address of the requested file; None without the token or for another host."""
        _, _, rest = path.partition("/")
        token, slash, address = rest.partition("/")
        is_known = hmac.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode())
        if not (is_known and slash and self.headers.get("Host") in self.server.hosts):
            return None
        return unquote(address)

    def _send_problem(self, message: str) -> None:
        self._send(HTTPStatus.INTERNAL_SERVER_ERROR, JSON_TYPE, json.dumps({"error": message}).encode())

    def _send(self, status: HTTPStatus, content_type: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            # The time limit holds for each chunk, so that a slow connection is not cut off.
            for start in range(0, len(content), _CHUNK_BYTES):
                self.wfile.write(content[start : start + _CHUNK_BYTES])

    def send_error(self, code: int, *_: Any) -> None:
        """Answer with only the status, also to other methods and malformed requests, and close the connection."""
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
        """Return the `Server` header, without versions."""
        return "hecktor"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name of the base class
        """Log nothing: addresses contain the token and names of cases."""


@contextmanager
def serve_viewer(cohort: ViewerCohort, port: int = 0) -> Iterator[str]:
    """Serve a viewer while the block runs, and yield its address; port 0 takes any free port.

    Raises:
        HecktorError: The port cannot be used.
    """
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
