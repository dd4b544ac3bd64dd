"""Progress of a training: one line for each epoch, the time left, and an end by SIGTERM or Ctrl-C that loses little."""

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

# Number of epochs from which the time of one is estimated.
_RECENT: Final = 10


def epoch_seconds(log: Any) -> list[float]:
    """Seconds of each finished epoch in the log of nnU-Net's trainer, including those before a resumption."""
    starts, ends = (log.get_value(f"epoch_{edge}_timestamps", step=None) for edge in ("start", "end"))
    return [float(end - start) for start, end in zip(starts, ends, strict=True)]


def epoch_line(job: str, epochs: int, log: Any, seconds: Sequence[float]) -> str:
    """One line about the latest epoch: losses, pseudo-Dice, and the time left at the speed of the latest ten epochs.

    Args:
        job: fold and backbone.
        epochs: number of planned epochs.
        log: of nnU-Net's trainer.
        seconds: of each finished epoch.
    """
    training, validation = (float(log.get_value(f"{name}_losses", step=-1)) for name in ("train", "val"))
    values = log.get_value("dice_per_class_or_region", step=-1)
    named = zip((labels.NAMES[label] for label in labels.FOREGROUND), values, strict=True)
    dice = ", ".join(f"{name} {value:.3f}" for name, value in named)
    left = max(0, epochs - len(seconds)) * statistics.median_low(seconds[-_RECENT:])
    return (
        f"{job}: epoch {len(seconds)} of {epochs}, loss {training:.3f}, validation {validation:.3f}, "
        f"pseudo-Dice {dice}; {duration(left)} left"
    )


def duration(seconds: float) -> str:
    """Seconds in a readable unit: 12 s, 4 min 05 s, 3 h 20 min, 2 d 03 h."""
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
