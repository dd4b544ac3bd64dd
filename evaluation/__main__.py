"""The evaluation container's entry point: `python -m evaluation --task NAME`, or `... rank METRICS_JSON ...`."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from types import TracebackType

from contract.entry import run_program
from evaluation.cli import main as evaluate

_IMAGE_OPTIONS = {"--edition", "--task"}


def main(argv: Sequence[str] | None = None) -> int:
    """Evaluate a submission; with the word `rank`, rank teams as `hecktor rank` does.

    The image puts its `--edition` and `--task` before the user's arguments, so that `rank` may follow these options.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    for index in range(0, 2 * len(_IMAGE_OPTIONS) + 1, 2):
        if arguments[index : index + 1] == ["rank"] and set(arguments[:index:2]) <= _IMAGE_OPTIONS:
            from evaluation.ranking.cli import main as rank

            return rank([*arguments[:index], *arguments[index + 1 :]])
    return evaluate(arguments)


def print_unexpected(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
    """Print an unexpected error's trace, then a last line without its message, which may name a path."""
    traceback.print_exception(kind, problem, trace)
    sys.stderr.write(f"error: the evaluation ended unexpectedly ({kind.__name__}); see its log\n")


if __name__ == "__main__":
    sys.excepthook = print_unexpected
    run_program(main)
