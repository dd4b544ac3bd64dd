"""Handle SIGTERM like Ctrl-C: end a training cleanly with one line of explanation."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from contract.errors import HecktorError

# Epochs between two checkpoints, the most that an interruption can lose.
SAVE_EVERY: Final = 5
# Exit status of a shell command that Ctrl-C ended.
_BY_CTRL_C: Final = 130


def end_by_sigterm() -> Any:
    """Make SIGTERM raise KeyboardInterrupt in this process; returns the previous handler."""
    owner = os.getpid()

    def stop(number: int, frame: Any) -> None:
        if os.getpid() != owner:  # a forked worker has nothing to clean up
            os._exit(128 + number)
        signal.default_int_handler(number, frame)

    return signal.signal(signal.SIGTERM, stop)


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn SIGTERM and Ctrl-C into a HecktorError that says which training progress is lost."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return
    before = end_by_sigterm()
    try:
        yield
    except KeyboardInterrupt:
        raise HecktorError(
            "interrupted",
            "trained networks are complete, and the same command resumes the others from their last checkpoint, "
            f"at most {SAVE_EVERY} epochs back",
        ) from None
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def end_at_once(message: str) -> Iterator[None]:
    """Let Ctrl-C end the whole process at once, after printing `message`.

    For process pools of other libraries: waiting for workers that Ctrl-C caught in the middle of an answer can block
    forever. The workers end once this process is gone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return
    owner = os.getpid()

    def stop(_number: int, _frame: Any) -> None:
        if os.getpid() == owner:
            sys.stderr.write(f"\nerror: interrupted: {message}\n")
            sys.stderr.flush()
        os._exit(_BY_CTRL_C)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
