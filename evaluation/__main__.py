"""The evaluation container's entry point: `python -m evaluation --task segmentation|rfs|hpv`."""

from __future__ import annotations

import sys
import traceback
from types import TracebackType

from contract.errors import run_main
from evaluation.cli import main


def print_unexpected(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
    """Print an unexpected error's trace, then a last line without its message, which may name a path."""
    traceback.print_exception(kind, problem, trace)
    sys.stderr.write(f"error: the evaluation ended unexpectedly ({kind.__name__}); see its log\n")


if __name__ == "__main__":
    sys.excepthook = print_unexpected
    sys.exit(run_main(main))
