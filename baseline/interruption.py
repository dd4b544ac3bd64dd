"""SIGTERM, by which clusters and parents end a training, ends it as Ctrl-C does: tidily, and with one plain line."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from baseline.network.plans import SAVE_EVERY
from contract.errors import HecktorError

# What a shell makes of an end by Ctrl-C.
_BY_CTRL_C: Final = 130


def end_by_sigterm() -> Any:
    """From now on SIGTERM is a KeyboardInterrupt in this process; returns what it was before."""
    owner = os.getpid()

    def stop(number: int, frame: Any) -> None:
        if os.getpid() != owner:  # a forked helper, which has nothing to tidy up
            os._exit(128 + number)
        signal.default_int_handler(number, frame)

    return signal.signal(signal.SIGTERM, stop)


@contextmanager
def interruptible() -> Iterator[None]:
    """A block in which networks are trained.

    Raises:
        HecktorError: SIGTERM or Ctrl-C came; it says what is lost.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    before = end_by_sigterm()
    try:
        yield
    except KeyboardInterrupt:
        raise HecktorError(
            "interrupted",
            (
                "trained networks are kept, and the same command takes up the others from their last "
                f"checkpoint, at most {SAVE_EVERY} epochs back"
            ),
        ) from None
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def ended_at_once(said: str) -> Iterator[None]:
    """A block that Ctrl-C ends together with the process, after the line `said`.

    For pools of processes that are not ours: where Ctrl-C catches one of theirs in the middle of an answer, waiting for
    them to end tidily is waiting for ever. They end by themselves once this process is gone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    owner = os.getpid()

    def stop(_number: int, _frame: Any) -> None:
        if os.getpid() == owner:
            sys.stderr.write(f"\nerror: interrupted: {said}\n")
            sys.stderr.flush()
        os._exit(_BY_CTRL_C)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
