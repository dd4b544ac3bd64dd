"""The platform's side of `invoke`: asks a server for its health or a case.

A separate program that needs only the standard library. A container without network can only be called from within,
so the rehearsal passes this file to the Python in the server's container, `python3 - METHOD PATH PORT LIMIT_S`.
It prints one JSON object.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from typing import Any


def request(method: str, path: str, port: int, limit_s: float) -> dict[str, Any]:
    """One call, which follows no redirect.

    Returns `status` (None without an answer), `text` (its first line, or the error), `seconds` and `timed_out`.
    """
    begun = time.monotonic()
    status, text, timed_out = None, "", False
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=limit_s)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        status, text = response.status, response.read(1 << 16).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as problem:
        status, text = None, type(problem).__name__
        timed_out = time.monotonic() - begun >= limit_s
    finally:
        connection.close()
    line = text.strip().splitlines()[0] if text.strip() else ""
    return {"status": status, "text": line, "seconds": time.monotonic() - begun, "timed_out": timed_out}


def main(arguments: list[str]) -> None:
    """METHOD PATH PORT LIMIT_S."""
    method, path, port, limit_s = arguments
    sys.stdout.write(json.dumps(request(method, path, int(port), float(limit_s))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
