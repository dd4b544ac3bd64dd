"""A part as its own process sees it: options, shared files, and the rows that it reports while it runs."""

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
    """A limit on a figure."""

    figure: str
    least: float = -float("inf")
    most: float = float("inf")

    def failure(self, figures: Mapping[str, Any]) -> str | None:
        """The fault, None if the figure keeps the limit; one that was not measured does not."""
        value = figures.get(self.figure)
        if value is None:
            return f"{self.figure}: not measured"
        bound = f"at least {self.least:g}" if self.least > -float("inf") else f"at most {self.most:g}"
        return None if self.least <= value <= self.most else f"{self.figure}: found {value:.4g}, expected {bound}"


@dataclass
class CheckJob:
    """One part in its process.

    Attributes:
        device: `cuda` or `cpu`.
        quick: tiny networks and images.
        folder: phantoms, packages and work folders, which later parts use again.
        result: JSON with the rows so far; it is complete even if the process is killed.
        seconds: the part's deadline.
        image: name of the image to run.
    """

    device: str
    quick: bool
    folder: Path
    result: Path
    seconds: float
    image: str | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    begun_s: float = field(default_factory=time.monotonic)

    @property
    def on_card(self) -> bool:
        return self.device == "cuda"

    def left_s(self) -> float:
        """Seconds until the part is killed."""
        return self.seconds - (time.monotonic() - self.begun_s)

    def row(
        self, name: str, figures: Mapping[str, Any], limits: Iterable[Limit] = (), failures: Sequence[str] = ()
    ) -> None:
        """Report figures, the limits that they break, and other failures."""
        broken = [text for limit in limits if (text := limit.failure(figures))]
        self.rows.append({"name": name, "figures": dict(figures), "failures": [*failures, *broken]})
        write_json(self.result, self.rows)

    def skipped(self, why: str) -> None:
        """Report that the part does not apply to this machine."""
        self.row("skipped", {"why": why})

    def input_dir(self, size: str) -> Path:
        """The input of the phantom of this size, made once."""
        data = BenchData(self.folder / "data", self.quick)
        make_patients(data, size, 1)
        return data.input_dir(size)

    def package(self, plan: str) -> Path:
        """A package of random networks of full size, made once; the manifest is written last."""
        root = self.folder / "packages" / plan
        if not (root / MANIFEST).is_file():
            write_random_package(root, plan, DEFAULT_EDITION, quick=self.quick)
        return root
