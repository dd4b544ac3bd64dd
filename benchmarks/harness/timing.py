"""Seconds and peak memory of repeated calls and commands."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness.memory import (
    PeakSampler,
    peak_memory_mib,
    reset_peak,
    tree_memory_mib,
)
from contract.errors import HecktorError


@dataclass(frozen=True)
class Repeats:
    """Number of repeats: `least`, then on until `least_s` seconds are spent or `most` is reached."""

    least: int
    least_s: float = 0.0
    most: int = 200

    def another(self, done: int, spent_s: float) -> bool:
        """Whether another repeat is due."""
        return done < self.least or (spent_s < self.least_s and done < self.most)


@dataclass(frozen=True)
class Timing:
    """Seconds of each repeat, peak resident memory in MiB, and further figures by name."""

    seconds: tuple[float, ...]
    peak_memory_mib: float
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def median_s(self) -> float:
        """Median over the repeats."""
        return float(np.median(self.seconds))

    def to_dict(self) -> dict[str, Any]:
        """Minimum, median and p90 (interpolated between repeats) in seconds, every repeat, and the other figures."""
        return {
            "seconds": {
                "min": min(self.seconds),
                "median": self.median_s,
                "p90": float(np.percentile(self.seconds, 90)),
                "all": list(self.seconds),
            },
            "peak_memory_mib": self.peak_memory_mib,
            "figures": dict(self.figures),
        }


def time_calls(call: Callable[[], object], repeats: Repeats, *, warm_up: bool = True) -> Timing:
    """Time `call` in this process, after one uncounted call unless `warm_up` is False.

    The uncounted call fills file and allocator caches; its memory does count.
    """
    reset_peak()
    if warm_up:
        call()
    seconds: list[float] = []
    while repeats.another(len(seconds), sum(seconds)):
        begun = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begun)
    return Timing(tuple(seconds), peak_memory_mib())


@dataclass(frozen=True)
class Command:
    """A process that is timed from start to end.

    Args:
        environment: added to this process's own.
        memory_limit_mib: the process and its descendants are killed if they take more together.
        figures: reads further figures after the last run.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    memory_limit_mib: float = math.inf
    figures: Callable[[], Mapping[str, float]] | None = None


@dataclass(frozen=True)
class CommandRun:
    """Seconds of one run of a command, peak memory of it and its descendants, exit status and output."""

    seconds: float
    peak_memory_mib: float
    status: int
    output: str
    killed: bool = False


def run_command(command: Command) -> CommandRun:
    """Run a command to its end or up to its memory limit; memory is sampled every 20 ms or less often."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        command.argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **command.environment},
        start_new_session=True,
    )
    kill = partial(_kill_session, process.pid)
    with PeakSampler(partial(tree_memory_mib, process.pid), command.memory_limit_mib, kill) as sampler:
        try:
            output, _ = process.communicate()
        except BaseException:  # an interrupt reaches this process alone
            kill()
            raise
        seconds = time.perf_counter() - begun
    killed = sampler.peak_mib > command.memory_limit_mib
    return CommandRun(seconds, sampler.peak_mib, process.returncode, output, killed)


def time_command(command: Command, repeats: Repeats) -> Timing:
    """Time whole processes; memory is that of the process and its descendants.

    A command that was killed at its memory limit gives lower bounds and the figure `killed`.

    Raises:
        HecktorError: the command failed.
    """
    runs: list[CommandRun] = []
    while repeats.another(len(runs), sum(run.seconds for run in runs)):
        run = run_command(command)
        if run.status and not run.killed:
            raise HecktorError(f"{' '.join(command.argv)}: exit status {run.status}, expected 0: {run.output[-2000:]}")
        runs.append(run)
    figures = {"killed": 1.0} if any(run.killed for run in runs) else dict(command.figures() if command.figures else {})
    return Timing(tuple(run.seconds for run in runs), max(run.peak_memory_mib for run in runs), figures)


def _kill_session(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
