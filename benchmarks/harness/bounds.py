"""Bounds that a measured figure must keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

TIME_RATIO: Final = "time ratio"
MEMORY_RATIO: Final = "memory ratio"
PEAK_GB: Final = "peak memory (GB)"
MEDIAN_S: Final = "median (s)"


@dataclass(frozen=True)
class Bound:
    """A limit on the figure called `figure`: one of the names above, or one of a timing's own figures."""

    figure: str
    kind: Literal["at most", "at least"]
    limit: float

    def held(self, figures: Mapping[str, float | None]) -> bool | None:
        """Whether the bound holds (NaN never does), None if the figure was not measured."""
        measured = figures.get(self.figure)
        if measured is None:
            return None
        return measured <= self.limit if self.kind == "at most" else measured >= self.limit

    def text(self, figures: Mapping[str, float | None]) -> str:
        """The bound and whether it holds."""
        verdict = {True: "held", False: "**not held**", None: "not measured"}[self.held(figures)]
        return f"{self.figure} {self.kind} {self.limit:.3g}: {verdict}"


def gigabytes(mib: float) -> float:
    """10^9 bytes from MiB."""
    return mib * 2**20 / 1e9
