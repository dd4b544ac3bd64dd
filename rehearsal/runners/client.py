"""The platform's side of `invoke`: asks a server for its health or a case, and lists files that it keeps open.

A separate program that needs only the standard library. A container without network can only be called from within,
so the rehearsal passes this file to the Python in the server's container (`python3 - COMMAND ... < client.py`).
Each command prints one JSON object.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def wait_until_ready(port: int, tries: int, apart_s: float, call_s: float) -> dict[str, Any]:
    """Ask `GET /health` on the loopback interface until it answers 200, `tries` times at most; follow no redirect.

    `call_s` limits one call. Returns the last result of `request`, its seconds since the first call.
    """
    begun = time.monotonic()
    for number in range(tries):
        if number:
            time.sleep(apart_s)
        reply = request("GET", "/health", port, call_s)
        if reply["status"] == 200:
            break
    return {**reply, "seconds": time.monotonic() - begun}


def request(method: str, path: str, port: int, limit_s: float) -> dict[str, Any]:
    """One call: `status` (None without an answer), `text` (its first line, or the error), `seconds`, `timed_out`."""
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


def open_below(folders: list[str]) -> dict[str, Any]:
    """Open files and working directories of this user's processes at or below `folders`."""
    opened = set()
    for process in Path("/proc").glob("[0-9]*"):
        links = [process / "cwd"]
        try:
            links += (process / "fd").iterdir()
        except OSError:
            continue
        for link in links:
            try:
                target = os.readlink(link)  # noqa: PTH115 - Path.readlink needs Python 3.9
            except OSError:
                continue
            if any(target == folder or target.startswith(folder + "/") for folder in folders):
                opened.add(target)
    return {"open": sorted(opened)}


def main(arguments: list[str]) -> None:
    """`ready PORT TRIES APART_S CALL_S`, `invoke PORT LIMIT_S` or `open FOLDER...`."""
    command, rest = arguments[0], arguments[1:]
    if command == "ready":
        answer = wait_until_ready(int(rest[0]), int(rest[1]), float(rest[2]), float(rest[3]))
    elif command == "invoke":
        answer = request("POST", "/invoke", int(rest[0]), float(rest[1]))
    else:
        answer = open_below(rest)
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
