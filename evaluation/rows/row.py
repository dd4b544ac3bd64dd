"""What the rows of every task have in common."""

from __future__ import annotations

from typing import Any, Protocol


class Row(Protocol):
    """One case: its name, why there is no usable prediction if so, and its form in metrics.json."""

    @property
    def case(self) -> str:
        """The case."""

    @property
    def error(self) -> str | None:
        """Why there is no usable prediction; None where there is one."""

    @property
    def failed(self) -> bool:
        """Whether a prediction was tried and cannot be used."""

    @property
    def reference(self) -> tuple[object, ...]:
        """What the row holds of the reference: equal for all teams that were measured against the same one."""

    def as_json(self) -> dict[str, Any]:
        """The row for metrics.json."""
