"""How the evaluation's cost grows with the number of cases: whole processes at three sizes, doubling each time."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.timing import Repeats, time_command

CASES: Final = (50, 100, 200)
REPEATS: Final = Repeats(least=3)


@dataclass(frozen=True)
class Growth:
    """Seconds and MiB of one whole evaluation of `cases` cases, all metrics and intervals."""

    cases: int
    seconds: float
    peak_memory_mib: float

    def as_text(self) -> str:
        """One line."""
        return (
            f"(f) evaluation of {self.cases} cases: {self.seconds:.2f} s, {self.seconds / self.cases * 1000:.0f} ms a "
            f"case, peak {self.peak_memory_mib:.0f} MiB"
        )

    def as_json(self) -> dict[str, Any]:
        """All figures."""
        return dict(self.__dict__)


def measure_growth(reference: Path, prediction: Path, folder: Path) -> Iterator[Growth]:
    """Evaluate ever more copies (hard links) of one pair of masks, as `hecktor evaluate --task 1` does."""
    for cases in CASES:
        root = folder / f"{cases}_cases"
        _link_copies(reference, root / "ground_truth", cases)
        _link_copies(prediction, root / "predictions", cases)
        command = [sys.executable, "-m", "hecktor.cli", "evaluate", "--task", "1", "--predictions"]
        command += [str(root / "predictions"), "--ground-truth", str(root / "ground_truth")]
        timing = time_command([*command, "--output", str(root / "output")], REPEATS)
        yield Growth(cases, timing.median_s, timing.peak_memory_mib)


def steady_ms_a_case(rows: list[Growth]) -> float:
    """Milliseconds that each case beyond those of the smallest size costs: start-up drops out."""
    first, last = rows[0], rows[-1]
    return (last.seconds - first.seconds) / (last.cases - first.cases) * 1000


def _link_copies(mask: Path, folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        os.link(mask, folder / f"GRO-{number:03d}.mha")
