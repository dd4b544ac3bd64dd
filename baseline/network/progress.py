"""Progress of a training: one line for each epoch, and the time that the epochs took."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, Final

from contract import labels

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
