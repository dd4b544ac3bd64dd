"""`python -m hecktor.training_report`: the step `report` of `hecktor train`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from contract.arguments import whole_number
from contract.errors import run_main
from hecktor.training_report.report import make_report


def main(argv: Sequence[str] | None = None) -> int:
    """Make the page of a working directory and say where it lies."""
    parser = argparse.ArgumentParser(prog="hecktor train report", description="Make the page of a training.")
    parser.add_argument("--work", type=Path, required=True, help="working directory of the training")
    parser.add_argument("--jobs", type=whole_number(1), default=1, help="processes")
    options = parser.parse_args(argv)
    print(f"report: {make_report(options.work.resolve(), options.jobs)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(run_main(main))
