"""Calls of a server on this machine."""

from __future__ import annotations

import http.client

Reply = tuple[int, str]


def call(port: int, method: str, path: str, body: bytes | None = None) -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, body)
    response = connection.getresponse()
    reply = response.status, response.read().decode().rstrip("\n")
    connection.close()
    return reply
