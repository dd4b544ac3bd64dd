"""The mark of a warning in the log."""

from __future__ import annotations

import logging
from typing import Final

WARNING_MARK: Final = "*** WARNING ***"
_MARKED: Final = "*** "


class MarkedFormatter(logging.Formatter):
    """Puts WARNING_MARK before each warning that does not begin with a mark of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - a name of logging
        if record.levelno == logging.WARNING and not record.message.startswith(_MARKED):
            record.message = f"{WARNING_MARK} {record.message}"
        return super().formatMessage(record)


def mark_last_resort() -> None:
    """Mark the warnings of a process that configures no log, which Python prints on stderr."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(MarkedFormatter())
