"""The platform's side of `invoke`: asks a server for its health and for a case, and looks for files it keeps open.

A program of its own with the standard library alone: a container without network can only be called from within, so
the rehearsal hands this file to a Python that stands beside the server (`python3 - COMMAND ... < client.py`).
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

POLL_S = 0.1


def wait_until_ready(port: int, overall_s: float, call_s: float) -> dict[str, Any]:
    """Ask `GET /health` until it answers 200; no redirect is followed.

    Args:
        port: on the loopback interface.
        overall_s: how long to go on asking.
        call_s: how long one call may take.

    Returns:
        What `request` does of the last call, with the seconds since the first.
    """
    begun = time.monotonic()
    while True:
        reply = request("GET", "/health", port, call_s)
        reply["seconds"] = time.monotonic() - begun
        if reply["status"] == 200 or reply["seconds"] + POLL_S > overall_s:
            return reply
        time.sleep(POLL_S)


def request(method: str, path: str, port: int, limit_s: float) -> dict[str, Any]:
    """One call: `status` (None where no answer came), `text` (its first line, or why not), `seconds`, `timed_out`."""
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
    """Files and working directories of running processes at or below `folders`, as far as this user may see them."""
    found = set()
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
                found.add(target)
    return {"open": sorted(found)}


def main(arguments: list[str]) -> None:
    """`ready PORT OVERALL_S CALL_S`, `invoke PORT LIMIT_S` or `open FOLDER...`."""
    command, rest = arguments[0], arguments[1:]
    if command == "ready":
        found = wait_until_ready(int(rest[0]), float(rest[1]), float(rest[2]))
    elif command == "invoke":
        found = request("POST", "/invoke", int(rest[0]), float(rest[1]))
    else:
        found = open_below(rest)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
