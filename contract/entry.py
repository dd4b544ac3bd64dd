"""Start and end the process of a command."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, TextIO, cast

from contract import platform
from contract.errors import HecktorError, replace_unprintable, run_main

# Python's own exit status when stdout cannot be flushed.
_UNWRITTEN_STDOUT: Final = 120
WARNING_MARK: Final = "*** WARNING ***"
_MARKED: Final = "*** "


def hold_sigterm() -> None:
    """Block SIGTERM until the command handles it: PID 1 of a container loses a signal that it does not handle."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def read_image_arguments() -> list[str]:
    """Return the default arguments that the variables of an image declare.

    An entry point puts them before the arguments of its command line, which therefore override them. An empty variable
    counts as absent.

    Raises:
        HecktorError: The API method is unknown.
    """
    arguments = read_image_task()
    api_method = os.environ.get(platform.API_METHOD_VARIABLE) or "exec"
    if api_method not in platform.API_METHODS:
        raise HecktorError(platform.API_METHOD_VARIABLE, f"found {api_method!r}", " or ".join(platform.API_METHODS))
    if api_method == "invoke":
        arguments.append("--serve")
    if os.environ.get(platform.REQUIRE_MODEL_VARIABLE):
        arguments.append("--require-model")
    return arguments


def read_image_task() -> list[str]:
    """Return `--edition` and `--task` as the variables of an image declare them."""
    arguments = []
    for option, variable in (("--edition", platform.EDITION_VARIABLE), ("--task", platform.TASK_VARIABLE)):
        value = os.environ.get(variable)
        if value:
            arguments += [option, value]
    return arguments


def run_program(main: Callable[[Sequence[str] | None], int], argv: Sequence[str] | None = None) -> NoReturn:
    """Run a command's `main` and end the process with its status, 1 after an error or a bug.

    A stdout or stderr that is closed, full or broken does not end the command; a full stdout changes the status at the
    end. Any other exception is a bug and is passed to `sys.excepthook`. Functions registered with `atexit` still run.
    The rest of Python's shutdown is skipped: a thread may still be computing, and libraries would wait for it or crash.
    """
    mark_last_resort()
    stdout = _ErrorTolerantStream(sys.stdout)
    sys.stdout, sys.stderr = cast(TextIO, stdout), cast(TextIO, _ErrorTolerantStream(sys.stderr))
    try:
        status = run_main(main, argv)
    except SystemExit as end:  # from argparse
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception:  # noqa: BLE001 - a bug, whose trace is printed
        sys.excepthook(*sys.exc_info())
        status = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    if stdout.problem is not None and not isinstance(stdout.problem, BrokenPipeError):
        sys.stderr.write(f"error: stdout: cannot be written ({stdout.problem.strerror}), expected space for it\n")
        status = status or _UNWRITTEN_STDOUT
    sys.stderr.flush()
    os._exit(status)


class _ErrorTolerantStream:
    """A stream that stores its last error in `problem` instead of raising it.

    If `stream` is None, since it was closed when the process started, everything written is discarded.
    """

    def __init__(self, stream: TextIO | None) -> None:
        # The file is not closed, because it is used until the process ends.
        self._stream = Path(os.devnull).open("w") if stream is None else stream  # noqa: SIM115
        self.problem: OSError | None = None

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as problem:
            self.problem = problem
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as problem:
            self.problem = problem

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class MarkedFormatter(logging.Formatter):
    """Formatter of one line for each message, with WARNING_MARK before warnings that do not begin with a mark."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - a name of logging
        record.message = replace_unprintable(record.message)  # It may contain names from packages, files and images.
        if record.levelno == logging.WARNING and not record.message.startswith(_MARKED):
            record.message = f"{WARNING_MARK} {record.message}"
        return super().formatMessage(record)


def mark_last_resort() -> None:
    """Mark the warnings of a process that configures no log, which Python prints on stderr."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(MarkedFormatter())


def log_to_stderr() -> None:
    """Log every message of level INFO or above with its time, for a program in one of the platform's images."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(MarkedFormatter("%(asctime)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
