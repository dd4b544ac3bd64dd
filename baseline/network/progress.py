"""Progress of a training: one line for each epoch, the time left, and interruptions by SIGTERM or Ctrl-C."""

from __future__ import annotations

import os
import signal
import statistics
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from contract import labels
from contract.errors import HecktorError

# The time of an epoch is estimated from this number of epochs.
_RECENT_EPOCHS: Final = 10


def read_epoch_seconds(log: Any) -> list[float]:
    """Read the seconds of each finished epoch in the log of nnU-Net's trainer, including those before a resumption."""
    starts, ends = (log.get_value(f"epoch_{edge}_timestamps", step=None) for edge in ("start", "end"))
    return [float(end - start) for start, end in zip(starts, ends, strict=True)]


def format_epoch(job: str, epochs: int, log: Any, seconds: Sequence[float]) -> str:
    """Format the latest epoch: losses, pseudo-Dice, and the time left at the speed of the latest ten epochs.

    Args:
        job: Fold and backbone.
        epochs: Number of planned epochs.
        log: Log of nnU-Net's trainer.
        seconds: Seconds of each finished epoch.
    """
    training, validation = (float(log.get_value(f"{name}_losses", step=-1)) for name in ("train", "val"))
    values = log.get_value("dice_per_class_or_region", step=-1)
    named = zip((labels.NAMES[label] for label in labels.FOREGROUND), values, strict=True)
    dice = ", ".join(f"{name} {value:.3f}" for name, value in named)
    left_s = max(0, epochs - len(seconds)) * statistics.median_low(seconds[-_RECENT_EPOCHS:])
    return (
        f"{job}: epoch {len(seconds)} of {epochs}, loss {training:.3f}, validation {validation:.3f}, "
        f"pseudo-Dice {dice}; {format_duration(left_s)} left"
    )


def format_duration(seconds: float) -> str:
    """Format seconds in a readable unit: 12 s, 4 min 05 s, 3 h 20 min, 2 d 03 h."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24:02d} h"


# Number of epochs between two checkpoints, the maximum that an interruption can lose.
SAVE_EVERY: Final = 5
# Exit status of a shell command that Ctrl-C ended.
_CTRL_C_STATUS: Final = 130


def raise_at_sigterm() -> Any:
    """Make SIGTERM raise KeyboardInterrupt in this process; return the previous handler."""
    owner = os.getpid()

    def stop(number: int, frame: Any) -> None:
        if os.getpid() != owner:  # a forked worker has nothing to clean up
            os._exit(128 + number)
        signal.default_int_handler(number, frame)

    return signal.signal(signal.SIGTERM, stop)


@contextmanager
def explain_interruption() -> Iterator[None]:
    """Raise a `HecktorError` at SIGTERM and Ctrl-C that says which progress of the training is lost."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return
    original = raise_at_sigterm()
    try:
        yield
    except KeyboardInterrupt:
        raise HecktorError(
            "interrupted",
            "trained networks are complete, and the same command resumes the others from their last checkpoint, "
            f"at most {SAVE_EVERY} epochs back",
        ) from None
    finally:
        signal.signal(signal.SIGTERM, original)


@contextmanager
def exit_at_interrupt(message: str) -> Iterator[None]:
    """Let Ctrl-C end the whole process at once, after printing `message`.

    This is for process pools of other libraries, because waiting for workers that Ctrl-C interrupted in the middle of a
    result can block forever. The workers end when this process has ended.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return
    owner = os.getpid()

    def stop(_number: int, _frame: Any) -> None:
        if os.getpid() == owner:
            sys.stderr.write(f"\nerror: interrupted: {message}\n")
            sys.stderr.flush()
        os._exit(_CTRL_C_STATUS)

    original = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, original)
