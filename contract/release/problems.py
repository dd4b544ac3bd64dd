"""A problem of a release: what is wrong with which file of which patient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ERROR: Final = "error"
WARNING: Final = "warning"


@dataclass(frozen=True)
class Problem:
    """One problem of the release.

    `severity` is "error" (the case cannot be used for training as it is) or "warning" (it can, but should be checked).
    `patient_id` is empty if the problem concerns no single patient. `file` is relative to the release's folder.
    """

    severity: str
    kind: str
    patient_id: str
    file: str
    found: str
    expected: str

    @property
    def is_error(self) -> bool:
        return self.severity == ERROR
