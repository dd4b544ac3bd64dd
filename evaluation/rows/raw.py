"""One row of a metrics.json, read field by field: a figure that no evaluation can have written is an error."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from contract.editions.values import described, is_integer, is_member, is_number, is_text
from contract.errors import HecktorError
from contract.images.volumes import MAX_VOXELS

# Files of other machines may differ in the last digits.
_TOLERANCE: Final = 1e-9


@dataclass(frozen=True)
class RawRow:
    """A row as JSON; `where` is its file and case, for messages. All methods raise HecktorError for other values."""

    content: Mapping[str, Any]
    where: str

    def fault(self, found: str, expected: str) -> HecktorError:
        return HecktorError(self.where, found, expected)

    @property
    def case(self) -> str:
        return str(self.content["case"])

    def outcome(self) -> tuple[str | None, bool]:
        """The reason why there is no usable prediction (None if there is one), and whether something was submitted."""
        error, failed = self._value("error"), self.flag("failed")
        if error is not None and not is_text(error):
            raise self._not("error", "a text or null")
        if failed and error is None:
            raise self.fault("failed without an error", "the reason")
        return error, failed

    def flag(self, key: str) -> bool:
        value = self._value(key)
        if not isinstance(value, bool):
            raise self._not(key, "true or false")
        return value

    def count(self, key: str) -> int:
        """A number of voxels or lesions, at most the voxels of the largest image."""
        value = self._value(key)
        if not is_integer(value) or not 0 <= value <= MAX_VOXELS:
            raise self._not(key, f"a whole number from 0 to {MAX_VOXELS}")
        return int(value)

    def number(self, key: str, low: float = -math.inf, high: float = math.inf) -> float:
        """A finite number from `low` to `high`, both included."""
        value = self._value(key)
        if not is_number(value) or not low <= value <= high:
            limits = [f"at least {low:g}"] * (low > -math.inf) + [f"at most {high:g}"] * (high < math.inf)
            raise self._not(key, " ".join(["a finite number", " and ".join(limits)]).strip())
        return float(value)

    def member(self, key: str, values: Sequence[Any]) -> Any:
        value = self._value(key)
        if not is_member(value, values):
            raise self._not(key, f"one of {', '.join(map(str, values))}")
        return value

    def is_null(self, key: str) -> bool:
        return self._value(key) is None

    def check_null(self, key: str, *, because: bool) -> None:
        """A prediction is null if, and only if, there is an error."""
        if self.is_null(key) != because:
            found = f"{key} and an error" if because else f"neither {key} nor an error"
            raise self.fault(found, "a prediction, or the reason why there is none")

    def check(self, key: str, expected: Any, by: str) -> None:
        """Compare a figure with the one that follows from others; `by` names these."""
        value = self._value(key)
        if type(value) is type(expected) and value == expected:  # most figures, without the tests of numbers
            return
        if is_number(expected) and is_number(value):
            equal = math.isclose(value, expected, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
        else:
            equal = is_member(value, [expected])
        if not equal:
            wanted = "null" if expected is None else f"{expected:.6g}" if is_number(expected) else str(expected)
            raise self._not(key, f"{wanted} by {by}")

    def _value(self, key: str) -> Any:
        if key not in self.content:
            raise self.fault(f"no {key}", "a row of `hecktor evaluate`")
        return self.content[key]

    def _not(self, key: str, expected: str) -> HecktorError:
        value = self.content[key]
        return self.fault(f"{key} {'null' if value is None else described(value)}", expected)
