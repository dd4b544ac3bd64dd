"""Send SIGTERM to the entry points at exact moments: a program that imports the libraries once and forks for each run.

Each line of stdin is a run, a JSON object:

    command  words of the command line, "algorithm" or "hecktor" first
    log      file for stderr
    marks    functions, as in `faulty.py`: "algorithm.network.windows:_tile_logits 9" is the ninth call
    mark     index of the mark after which the signal is sent; null sends none
    delay_s  seconds from that mark to the signal

Each line of stdout is a run's end: `status` (negative: the signal), `seconds` from the signal to the end, and `at_s`, a
list of [mark, seconds since the start], the end of the process as the last one.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[2])
    sys.path.append(str(Path(__file__).parent))

from faulty import inject

LONGEST_S = 60
PRELOADED = ("algorithm.cli", "algorithm.network.segment", "hecktor.cli", "scipy.signal", "skimage.measure")


def watch(child: int, marks: int, run: dict[str, Any]) -> dict[str, Any]:
    begun, sent, at_s = time.monotonic(), None, []
    while mark := os.read(marks, 1):
        at_s.append([mark[0], time.monotonic() - begun])
        if mark[0] == run["mark"] and sent is None:
            time.sleep(run["delay_s"])
            sent = time.monotonic()
            os.kill(child, signal.SIGTERM)
    signal.alarm(LONGEST_S)  # ends this program, and with it the test
    _, status = os.waitpid(child, 0)
    signal.alarm(0)
    ended = time.monotonic()
    at_s.append([len(run["marks"]), ended - begun])
    return {"status": os.waitstatus_to_exitcode(status), "seconds": ended - (sent or begun), "at_s": at_s}


def begin(marks: int, run: dict[str, Any]) -> None:
    with Path(run["log"]).open("w") as log:
        os.dup2(log.fileno(), 2)
        os.dup2(log.fileno(), 1)
    for number, function in enumerate(run["marks"]):
        inject(f"run {function} os.write({marks}, bytes([{number}]))")
    module, *arguments = run["command"]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def serve() -> None:
    for line in sys.stdin:
        run = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            begin(writing, run)
            return
        os.close(writing)
        print(json.dumps(watch(child, reading, run)), flush=True)
        os.close(reading)


if __name__ == "__main__":
    for module in PRELOADED:
        importlib.import_module(module)
    serve()
