"""One measurement, declared once and run in a process of its own."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.harness.bounds import Bound
from benchmarks.harness.timing import Command, Repeats, Timing, time_calls, time_command
from contract.errors import HecktorError

STAGE: Final = Repeats(least=5, least_s=0.5)
PROCESS: Final = Repeats(least=3)
ONCE: Final = Repeats(least=1)

Work = Callable[[], object] | Command | Timing


@dataclass(frozen=True)
class Measurement:
    """One row of the table.

    Args:
        prepare: does the untimed part, given an empty folder, and returns a call or a command to time, or a finished
            timing. It must be picklable.
        against: keys of the limits or peers; seconds are divided by the fastest, memory by the leanest of them.
        quick: whether `--quick` runs it.
    """

    group: str
    name: str
    prepare: Callable[[Path], Work]
    against: tuple[str, ...] = ()
    bounds: tuple[Bound, ...] = ()
    repeats: Repeats = STAGE
    quick: bool = True

    @property
    def key(self) -> str:
        """Unique within a suite."""
        return f"{self.group}/{self.name}"


def run(measurement: Measurement, scratch: Path, quick: bool) -> Timing:
    """Prepare and time one measurement in this process; `quick` runs it once without a warm-up."""
    work = measurement.prepare(scratch)
    if isinstance(work, Timing):
        return work
    repeats = ONCE if quick else measurement.repeats
    if isinstance(work, Command):
        return time_command(work, repeats)
    return time_calls(work, repeats, warm_up=not quick)


def run_all(
    measurements: Sequence[Measurement], scratch_root: Path, quick: bool
) -> Iterator[tuple[Measurement, Timing]]:
    """Run each measurement in a new process, so that its peak memory is its own.

    Raises:
        HecktorError: a measurement failed or its process died.
    """
    context = multiprocessing.get_context("spawn")
    scratch_root.mkdir(parents=True, exist_ok=True)
    for measurement in measurements:
        with (
            tempfile.TemporaryDirectory(dir=scratch_root, prefix=".scratch-") as scratch,
            ProcessPoolExecutor(1, mp_context=context) as pool,
        ):
            try:
                timing = pool.submit(run, measurement, Path(scratch), quick).result()
            except BrokenProcessPool as problem:
                raise HecktorError(f"{measurement.key}: its process died") from problem
        yield measurement, timing
