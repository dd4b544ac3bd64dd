"""The platform's side of `invoke`: request the health of a server, or the answer to a case.

This file is a program that needs only the standard library. A container without a network can only be called from
inside. Therefore the rehearsal passes this file to the Python in the server's container, as `python3 - METHOD PATH PORT
LIMIT_S`, and reads the JSON object that it prints.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from typing import Any


def request(method: str, path: str, port: int, limit_s: float) -> dict[str, Any]:
    """Send one request without following redirects.

    Returns:
        `status` (None without an answer), `text` (the first line of the answer, or the error), `seconds` and
        `timed_out`.
    """
    start_s = time.monotonic()
    timed_out = False
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=limit_s)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        status: int | None = response.status
        text = response.read(1 << 16).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        status = None
        text = type(error).__name__
        timed_out = time.monotonic() - start_s >= limit_s
    finally:
        connection.close()
    line = text.strip().splitlines()[0] if text.strip() else ""
    return {"status": status, "text": line, "seconds": time.monotonic() - start_s, "timed_out": timed_out}


def main(arguments: list[str]) -> None:
    """Send the request of the arguments METHOD PATH PORT LIMIT_S and print its result."""
    method, path, port, limit_s = arguments
    sys.stdout.write(json.dumps(request(method, path, int(port), float(limit_s))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
