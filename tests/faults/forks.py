"""Run the entry points with faults in them: a program that imports the libraries once and forks for each run.

Each line of stdin is a run, a JSON object:

    command  words of the command line, "algorithm" or "hecktor" first
    faults   faults, as in `faulty.py`
    limits   resource limits: the name of each, as in the module `resource`, with its value
    folder   holds the named pipes `stdout` and `stderr`
    log      if not null: the file that stdout and stderr go to instead

Each run answers with two lines on stdout: its process number when it begins, and its exit status (negative: the signal)
when it has ended.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[2])
    sys.path.append(str(Path(__file__).parent))

from faulty import inject

LONGEST_S = 180
PRELOADED = (
    "algorithm.command",
    "algorithm.network.passes",
    "dynamic_network_architectures.architectures.unet",
    "hecktor.cli",
    "scipy.signal",
    "skimage.measure",
)


def begin(run: dict[str, Any]) -> None:
    signal.alarm(LONGEST_S)  # a run that hangs is killed
    said = [run["log"] or Path(run["folder"], name) for name in ("stdout", "stderr")]
    for number, path, flags in ((0, os.devnull, os.O_RDONLY), (1, said[0], os.O_WRONLY), (2, said[1], os.O_WRONLY)):
        os.dup2(os.open(path, flags), number)
    for name, value in run["limits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))
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
