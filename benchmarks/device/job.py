"""One part in its own process: options, shared files, and the rows that it reports while it runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.data import BenchData, make_patients
from benchmarks.device.packages import write_random_package
from contract.editions import DEFAULT_EDITION
from contract.io.files import write_json
from contract.packages import MANIFEST

CARD_GIB: Final = "peak memory on the card (GiB)"


@dataclass(frozen=True)
class Limit:
    """The minimum or maximum of a figure."""

    figure: str
    minimum: float = -float("inf")
    maximum: float = float("inf")

    def find_failure(self, figures: Mapping[str, Any]) -> str | None:
        """Return the failure, None if the figure keeps the limit; a figure that was not measured is a failure."""
        value = figures.get(self.figure)
        if value is None:
            return f"{self.figure}: not measured"
        bound = f"at least {self.minimum:g}" if self.minimum > -float("inf") else f"at most {self.maximum:g}"
        return None if self.minimum <= value <= self.maximum else f"{self.figure}: found {value:.4g}, expected {bound}"


@dataclass
class CheckJob:
    """One part in its process.

    Attributes:
        device: `cuda` or `cpu`.
        quick: Whether networks and images are tiny.
        folder: Folder of phantoms, packages and work folders, which later parts use again.
        result: JSON with the rows so far, which is valid even if the process is killed.
        seconds: Time until the deadline of the part.
        image: Name of the image to run.
        rows: The rows so far.
        start_s: Start of the part on the monotonic clock.
    """

    device: str
    quick: bool
    folder: Path
    result: Path
    seconds: float
    image: str | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    start_s: float = field(default_factory=time.monotonic)

    @property
    def on_card(self) -> bool:
        return self.device == "cuda"

    def remaining_s(self) -> float:
        """Return the seconds until the part is killed."""
        return self.seconds - (time.monotonic() - self.start_s)

    def report(
        self, name: str, figures: Mapping[str, Any], limits: Iterable[Limit] = (), failures: Sequence[str] = ()
    ) -> None:
        """Report figures, the limits that they break, and other failures."""
        broken_limits = [limit.find_failure(figures) for limit in limits]
        row_failures = [*failures, *(text for text in broken_limits if text is not None)]
        self.rows.append({"name": name, "figures": dict(figures), "failures": row_failures})
        write_json(self.result, self.rows)

    def skip(self, reason: str) -> None:
        """Report that the part does not apply to this machine."""
        self.report("skipped", {"why": reason})

    def input_dir(self, size: str) -> Path:
        """Return the input of the phantom of this size, which is made once."""
        data = BenchData(self.folder / "data", self.quick)
        make_patients(data, size, 1)
        return data.input_dir(size)

    def package(self, plan: str) -> Path:
        """Return a package of random networks of full size, which is made once; its manifest is written last."""
        root = self.folder / "packages" / plan
        if not (root / MANIFEST).is_file():
            write_random_package(root, plan, DEFAULT_EDITION, quick=self.quick)
        return root
