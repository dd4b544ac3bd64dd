"""Run an entry point with faults in it, in a process of its own.

    faulty.py "pause algorithm.network.tiles:_compute_tile_logits 3 600" algorithm --task rfs ...
    faulty.py "pause algorithm.network.tiles:_compute_tile_logits 3 600" hecktor predict --task rfs ...

The first argument holds one fault per line: action, function, number of the call (from 1; 0 is every call) and a
parameter:

    pause   print `paused`, sleep for the given seconds, continue
    raise   raise one of PROBLEMS
    run     evaluate a Python expression (`arguments` are the call's arguments), continue
    after   evaluate a Python expression before the call returns
    return  return the value of a Python expression instead of calling

Without arguments the program imports the libraries once and forks for each run. A run is a line of stdin, a JSON object:

    command  words of the command line, "algorithm" or "hecktor" first
    faults   faults as above
    limits   resource limits: the name of each, as in the module `resource`, with its value
    folder   holds the named pipes `stdout` and `stderr`
    log      if not null: the file that stdout and stderr go to instead

For each run two lines of stdout follow: its process number when it begins, and its exit status (negative: the signal)
when it has ended.
"""

from __future__ import annotations

import errno
import functools
import importlib
import itertools
import json
import os
import resource
import runpy
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

OUR_OWN = ("algorithm", "contract", "evaluation", "hecktor")
MAX_SECONDS = 180
PRELOADED = (
    "algorithm.command",
    "algorithm.network.passes",
    "dynamic_network_architectures.architectures.unet",
    "hecktor.cli",
    "scipy.signal",
    "skimage.measure",
)


def out_of_memory() -> Exception:
    import torch

    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


PROBLEMS: dict[str, Callable[[], BaseException]] = {
    "out-of-memory": out_of_memory,
    # torch.AcceleratorError since 2.8, a RuntimeError like the plain one of earlier versions.
    "lost": lambda: RuntimeError("CUDA error: unspecified launch failure\nCompile with `TORCH_USE_CUDA_DSA`"),
    "no-memory": MemoryError,
    "read-error": lambda: OSError(errno.EIO, os.strerror(errno.EIO)),
    "bug": lambda: ZeroDivisionError("a bug"),
}


def three_backends() -> tuple[Any, ...]:
    """Return the backends of a GPU, all on the CPU."""
    import torch

    from algorithm.network.tiles import Backend

    return tuple(Backend(torch.device("cpu"), torch.device("cpu")) for _ in range(3))


def strike(what: str, more: str, arguments: tuple[Any, ...]) -> Any:
    if what == "pause":
        print("paused", flush=True)
        time.sleep(float(more))
    elif what == "raise":
        raise PROBLEMS[more]()
    else:
        names = {"Path": Path, "os": os, "sys": sys, "time": time, "three_backends": three_backends}
        return eval(more, {**names, "arguments": arguments})
    return None


def inject(fault: str) -> None:
    what, where, call, more = fault.split(" ", 3)
    module, _, path = where.partition(":")
    *owners, name = path.split(".")
    owner = functools.reduce(getattr, owners, importlib.import_module(module))
    real, calls = getattr(owner, name), itertools.count(1)

    @functools.wraps(real)
    def faulty(*arguments: Any, **options: Any) -> Any:
        struck = int(call) in (0, next(calls))
        if struck and what != "after":
            value = strike(what, more, arguments)
            if what == "return":
                return value
        result = real(*arguments, **options)
        if struck and what == "after":
            strike(what, more, arguments)
        return result

    setattr(owner, name, faulty)
    if getattr(real, "__module__", None) != module:
        return  # imported by name itself: only this module gets the fault
    for key, importer in list(sys.modules.items()):
        if key.partition(".")[0] in OUR_OWN and vars(importer).get(name) is real:
            setattr(importer, name, faulty)


def run_program(module: str, *arguments: str) -> None:
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def run_fork(run: dict[str, Any]) -> None:
    signal.alarm(MAX_SECONDS)  # a run that hangs is killed
    out, err = (run["log"] or Path(run["folder"], name) for name in ("stdout", "stderr"))
    for number, path, flags in ((0, os.devnull, os.O_RDONLY), (1, out, os.O_WRONLY), (2, err, os.O_WRONLY)):
        os.dup2(os.open(path, flags), number)
    for name, value in run["limits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))
    for fault in run["faults"]:
        inject(fault)
    run_program(*run["command"])


def serve() -> None:
    for module in PRELOADED:
        importlib.import_module(module)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            run_fork(json.loads(line))
            return
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[2])
    if len(sys.argv) == 1:
        serve()
    else:
        for line in sys.argv[1].splitlines():
            inject(line)
        run_program(*sys.argv[2:])
