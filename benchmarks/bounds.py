"""A measured figure beside the bound that it must keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

HEADER: Final = ("what", "measured", "bound", "")


@dataclass(frozen=True)
class Bound:
    """`measured` must be at most, or at least, `limit`; `note` says what else was seen."""

    name: str
    measured: float
    limit: float
    kind: Literal["at most", "at least"]
    unit: str = ""
    note: str = ""

    @property
    def held(self) -> bool:
        """Whether the bound holds; what is no number does not hold."""
        return self.measured <= self.limit if self.kind == "at most" else self.measured >= self.limit

    def as_json(self) -> dict[str, Any]:
        """All figures, and whether the bound holds."""
        return {**self.__dict__, "held": self.held}

    def cells(self) -> tuple[str, ...]:
        """As the table shows it."""
        unit = f" {self.unit}" if self.unit else ""
        said = "held" if self.held else "**not held**"
        return (
            self.name,
            f"{self.measured:.3g}{unit}" if self.measured < 1000 else f"{self.measured:.0f}{unit}",
            f"{self.kind} {self.limit:g}{unit}",
            f"{said}; {self.note}" if self.note else said,
        )


def gigabytes(mib: float) -> float:
    """10^9 bytes from MiB."""
    return mib * 2**20 / 1e9


def bounds_table(bounds: Sequence[Bound]) -> str:
    """All bounds as one Markdown table."""
    return markdown(HEADER, [bound.cells() for bound in bounds])


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table that also reads well as plain text."""
    return "\n".join(_lines(header, rows))


def _lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for cells in (header, ["-" * width for width in widths], *rows):
        yield "| " + " | ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)) + " |"
