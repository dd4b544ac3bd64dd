"""Run the entry points with faults in them: a program that imports the libraries once and forks for each run.

Each line of stdin is a run, a JSON object:

    command  words of the command line, "algorithm" or "hecktor" first
    faults   faults, as in `faulty.py`
    fresh    whether the run imports our own packages anew, so that a fault in a function also reaches the modules that
             import it by name
    folder   holds the named pipe `stdout`; the run writes its stderr to the file `stderr` there

Each run answers with two lines on stdout: its process number when it begins, and its exit status (negative: the signal)
when it has ended.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[2])
    sys.path.append(str(Path(__file__).parent))

from faulty import inject

LONGEST_S = 60
PRELOADED = ("algorithm.command", "algorithm.network.passes", "hecktor.cli", "scipy.signal", "skimage.measure")
OUR_OWN = ("algorithm", "contract", "evaluation", "hecktor")


def begin(run: dict[str, Any]) -> None:
    signal.alarm(LONGEST_S)  # a run that hangs is killed
    for number, name, flags in ((0, os.devnull, os.O_RDONLY), (1, "stdout", os.O_WRONLY), (2, "stderr", os.O_WRONLY)):
        os.dup2(os.open(Path(run["folder"], name), flags | os.O_CREAT), number)
    if run["fresh"]:
        for name in [name for name in sys.modules if name.partition(".")[0] in OUR_OWN]:
            del sys.modules[name]
    for fault in run["faults"]:
        inject(fault)
    module, *arguments = run["command"]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def serve() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            begin(json.loads(line))
            return
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    for module in PRELOADED:
        importlib.import_module(module)
    serve()
