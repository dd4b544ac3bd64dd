"""All servers answer requests that no well-behaved caller sends."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from typing import ClassVar

import pytest

from contract.servers import RequestHandler

BEGUN = b"POST /case?x=1 HTTP/1.0\r\n"


class Handler(RequestHandler):
    timeout = 10
    addresses: ClassVar[list[str]] = []

    def do_POST(self) -> None:  # noqa: N802
        address = self.read_address()
        if address is not None:
            self.addresses.append(address.path)
            self.send_response(HTTPStatus.CREATED)
            self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    Handler.addresses.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def read_reply(port: int, request: bytes) -> bytes:
    """Return the first line of the reply."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(request)
        return connection.makefile("rb").readline()


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (BEGUN + b"\r\n", 201),
        (BEGUN + b"Content-Length: 2\r\n\r\n{}", 201),
        (BEGUN + "Content-Length: \u00b2\r\n\r\n".encode("latin-1"), 400),
        (BEGUN + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n", 400),
        (BEGUN + b"Content-Length: -1\r\n\r\n", 400),
        (BEGUN + b"Content-Length: \r\n\r\n", 400),
        (b"POST http://[/ HTTP/1.0\r\n\r\n", 400),
    ],
)
def test_every_request_has_an_answer(port: int, request_text: bytes, status: int) -> None:
    assert read_reply(port, request_text).split()[1] == b"%d" % status
    assert Handler.addresses == (["/case"] if status == 201 else [])


@pytest.mark.parametrize("start", [BEGUN + b"X: ", BEGUN + b"Content-Length: 60000\r\n\r\n"])
def test_a_slow_caller_has_a_deadline(port: int, start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although bytes come within the time limit, the request does not, and its part is not answered as a request."""
    monkeypatch.setattr(Handler, "timeout", 0.5)
    with socket.create_connection(("127.0.0.1", port), timeout=0.1) as connection:
        connection.sendall(start)
        for _ in range(300):
            try:
                received = connection.recv(100)
                break
            except TimeoutError:
                with suppress(ConnectionError):  # the server may close the connection now; its reply can still be read
                    connection.sendall(b"x")
                time.sleep(0.05)
    assert received.split()[1] == b"408"
    assert Handler.addresses == []
