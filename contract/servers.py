"""Requests of a server, whose callers need not be well-behaved."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import ClassVar, Final
from urllib.parse import SplitResult, urlsplit

_BODY_LIMIT_BYTES: Final = 1 << 16


class RequestHandler(BaseHTTPRequestHandler):
    """Reads one request within `timeout` seconds in all, so that a slow caller does not keep a thread.

    A method calls `received` before it answers.
    """

    timeout: ClassVar[float]

    def handle_one_request(self) -> None:
        """Answer one request; the reading side of the connection is closed when the time is over."""
        self._is_late = threading.Event()
        self._deadline = threading.Timer(self.timeout, self._stop_reading)
        self._deadline.daemon = True
        self._deadline.start()
        try:
            super().handle_one_request()
        finally:
            self._deadline.cancel()

    def received(self) -> SplitResult | None:
        """The address of the request, once its body is read; None if it was refused with an error.

        Closing a connection with unread bytes could lose the reply.
        """
        length = self.headers.get("Content-Length", "0")
        address = _address(self.path)
        if not re.fullmatch(r"[0-9]{1,18}", length) or address is None:
            self.send_error(HTTPStatus.BAD_REQUEST)
            return None
        self.rfile.read(min(int(length), _BODY_LIMIT_BYTES))
        self._deadline.cancel()
        if self._is_late.is_set():
            self.send_error(HTTPStatus.REQUEST_TIMEOUT)
            return None
        return address

    def _stop_reading(self) -> None:
        self._is_late.set()
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RD)


def _address(path: str) -> SplitResult | None:
    try:
        return urlsplit(path)
    except ValueError:  # such as http://[/
        return None
