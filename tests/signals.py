"""Programs that tests send signals to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_SIGNALS = "HUP,INT,QUIT,TERM"


def reset_signals(command: Sequence[str | Path]) -> list[str]:
    """Return the command of a program that ignores no signal that this process ignores.

    A program inherits which signals are ignored: SIGHUP under `nohup`, SIGINT and SIGQUIT in a shell's background job.
    """
    return ["env", f"--default-signal={_SIGNALS}", *map(str, command)]
