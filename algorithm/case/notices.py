"""Warnings that nobody overlooks; in strict mode each is an error."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from contract.errors import Finding, InputError

LOGGER = logging.getLogger("hecktor")


@dataclass
class Notices:
    """Collects what was odd about a case.

    A degenerate but readable input is answered, since one failed case fails a whole submission; what was done
    about it is logged here. With `strict` the first such notice is an `InputError` instead.
    """

    strict: bool = False
    messages: list[str] = field(default_factory=list)

    def warn(self, notice: str | Finding) -> None:
        """Log one warning line, or raise it in strict mode."""
        message = str(notice)
        if self.strict:
            raise InputError(f"{message} (strict mode)")
        self.messages.append(message)
        LOGGER.warning("*** WARNING *** %s", message)
