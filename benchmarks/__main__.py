"""`scripts/bench` and `scripts/gpu-smoke`: the first argument chooses the suite."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from contract.errors import run_main

SUITES: Final = {
    "--peers": "benchmarks.peers.evaluation",
    "--nnunet": "benchmarks.peers.nnunet",
    "--localisation": "benchmarks.cases.localisation",
    "--heads": "benchmarks.cases.heads",
    "--experts": "benchmarks.studies.experts",
    "--gpu-smoke": "benchmarks.smoke.gpu",
}
STAGES: Final = "benchmarks.stages"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the suite; without a suite's name, the stages of algorithm and evaluation."""
    arguments = list(argv or ())
    suite = SUITES.get(arguments[0]) if arguments else None
    status: int = import_module(suite or STAGES).main(arguments[1:] if suite else arguments)
    return status


if __name__ == "__main__":
    sys.exit(run_main(main, sys.argv[1:]))
