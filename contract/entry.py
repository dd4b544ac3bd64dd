"""How the process of a command begins and ends."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NoReturn

from contract.errors import run_main

# Python's own exit status when stdout cannot be flushed.
_UNWRITTEN_STDOUT: Final = 120


def hold_sigterm() -> None:
    """Block SIGTERM until the command handles it: the first process of a container loses an unhandled signal."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def run_program(main: Callable[[Sequence[str] | None], int], argv: Sequence[str] | None = None) -> NoReturn:
    """Run a command's `main` and end the process with its status, 1 after an error or a bug.

    Functions registered with `atexit` still run. The rest of Python's shutdown is skipped: after an early end a thread
    may still compute, and the libraries would wait for it or crash.
    """
    try:
        status = run_main(main, argv)
    except Exception:  # noqa: BLE001  a bug: its trace, and the end below
        traceback.print_exc()
        status = 1
    atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stderr.flush()
    try:
        sys.stdout.flush()
    except OSError:
        status = status or _UNWRITTEN_STDOUT
    os._exit(status)
