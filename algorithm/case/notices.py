"""Warnings about a case; in strict mode each is an error."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from contract.errors import Finding, InputError

LOGGER = logging.getLogger("hecktor")


@dataclass
class Notices:
    """Collects the findings about a case.

    A degenerate but readable input is answered, since one failed case fails a whole submission; the log says what was
    done about it. With `strict` the first finding is an `InputError` instead.
    """

    strict: bool = False
    findings: list[Finding] = field(default_factory=list)

    def warn(self, finding: Finding) -> None:
        """Log a finding, or raise it in strict mode."""
        if self.strict:
            raise InputError(f"{finding} (strict mode)")
        self.note(finding)

    def note(self, finding: Finding) -> None:
        """Log a finding that does not concern the input, in strict mode too."""
        self.findings.append(finding)
        LOGGER.warning("%s", finding)
