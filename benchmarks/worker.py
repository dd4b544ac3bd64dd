"""One measurement in a process of its own, so that its peak memory is its own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cases import Setting, measurement_named, run
from benchmarks.data import Data
from contract.errors import run_main
from contract.files import write_json


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write the timing to a file, since what is measured may print."""
    parser = argparse.ArgumentParser(prog="benchmarks.worker")
    parser.add_argument("key")
    for name in ("data", "model", "scratch", "result"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(argv)
    setting = Setting(Data(options.data, options.quick), options.model, options.scratch)
    write_json(options.result, run(measurement_named(options.key), setting).as_json())
    return 0


if __name__ == "__main__":
    sys.exit(run_main(main))
