"""What is measured: one declaration a figure, each run in a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.data import Data
from benchmarks.timing import Repeats, Timing, time_calls, time_command
from contract.errors import HecktorError

STAGE = Repeats(least=5, least_s=0.5)
PROCESS = Repeats(least=3)
LONG = Repeats(least=1)
ONCE = Repeats(least=1)


@dataclass(frozen=True)
class Setting:
    """What every measurement may use: the data, the model package, and a folder that may be written."""

    data: Data
    model_dir: Path
    scratch: Path

    def algorithm(self, task: str, size: str, *extra: str) -> Command:
        """The whole algorithm process on one patient."""
        return Command(
            (
                *(sys.executable, "-m", "algorithm", "--task", task, "--device", "cpu", "--model", str(self.model_dir)),
                *("--input", str(self.data.input_dir(size)), "--output", str(self.scratch), *extra),
            )
        )

    def evaluation(self, task: str, *extra: str) -> Command:
        """The whole evaluation process on the cohort."""
        folder = self.data.evaluation
        return Command(
            (
                *(sys.executable, "-m", "evaluation", "--task", task, "--input", str(folder / "input")),
                *("--ground-truth", str(folder / "ground_truth"), "--output", str(self.scratch), *extra),
            )
        )


@dataclass(frozen=True)
class Command:
    """A process to be timed from start to end."""

    argv: tuple[str, ...]


Work = Callable[[], object] | Command


@dataclass(frozen=True)
class Measurement:
    """One figure.

    ``prepare`` does what is not to be timed and hands back what is: a call, or a command. ``against`` names the
    measurement by whose median this one's is divided, None for what is itself a limit or a peer.
    """

    group: str
    name: str
    what: str
    prepare: Callable[[Setting], Work]
    against: str | None = None
    repeats: Repeats = STAGE
    in_quick: bool = True

    @property
    def key(self) -> str:
        """Unique among all measurements: group and name."""
        return f"{self.group}/{self.name}"


def run(measurement: Measurement, setting: Setting) -> Timing:
    """Prepare and time one measurement in this process."""
    work = measurement.prepare(setting)
    repeats = ONCE if setting.data.quick else measurement.repeats
    if isinstance(work, Command):
        return time_command(work.argv, repeats)
    return time_calls(work, repeats, warm_up=not setting.data.quick)


def all_measurements() -> tuple[Measurement, ...]:
    """Every measurement; limits and peers stand before those that are divided by them."""
    from benchmarks import algorithm_cases, evaluation_cases

    return (*algorithm_cases.measurements(), *evaluation_cases.measurements())


def measurement_named(key: str) -> Measurement:
    """The measurement called ``group/name``.

    Raises:
        HecktorError: there is none.
    """
    for measurement in all_measurements():
        if measurement.key == key:
            return measurement
    raise HecktorError(f"no measurement {key!r}")
