"""The evaluation container's entry point: `python -m evaluation --task NAME`, or `... rank METRICS_JSON ...`."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from types import TracebackType

from contract.entry import read_image_arguments, read_image_task, run_program
from evaluation.cli import main as evaluate

_TASK_OPTIONS = {"--edition", "--task"}


def main(argv: Sequence[str] | None = None) -> int:
    """Evaluate a submission; with the argument `rank`, rank teams as `hecktor rank` does.

    The variables of an image declare default arguments. Only `--edition` and `--task` may come before `rank`.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    place = 0
    while place < len(arguments) and arguments[place].partition("=")[0] in _TASK_OPTIONS:
        place += 1 if "=" in arguments[place] else 2
    if arguments[place : place + 1] == ["rank"]:
        from evaluation.ranking.cli import main as rank

        return rank([*read_image_task(), *arguments[:place], *arguments[place + 1 :]])
    return evaluate([*read_image_arguments(), *arguments])


def print_unexpected(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
    """Print the trace of an unexpected error, then a last line without its message, which may name a path."""
    traceback.print_exception(kind, problem, trace)
    sys.stderr.write(f"error: the evaluation ended unexpectedly ({kind.__name__}); see its log\n")


if __name__ == "__main__":
    sys.excepthook = print_unexpected
    run_program(main)
