"""`scripts/bench`: the first argument chooses the suite."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from contract.errors import run_main

STAGES: Final = "--stages"
SUITES: Final = {
    STAGES: "benchmarks.stages",
    "--peers": "benchmarks.peers.evaluation",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the suite; without a suite's name, one patient of each size, the evaluation, and rank and report."""
    arguments = list(argv or ())
    suite = arguments.pop(0) if arguments and arguments[0] in SUITES else STAGES
    status: int = import_module(SUITES[suite]).main(arguments)
    return status


if __name__ == "__main__":
    sys.exit(run_main(main, sys.argv[1:]))
