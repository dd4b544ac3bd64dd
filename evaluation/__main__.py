"""The evaluation container's entry point: `python -m evaluation --task segmentation|rfs|hpv`."""

from __future__ import annotations

import sys

from contract.errors import run_main
from evaluation.cli import main

if __name__ == "__main__":
    sys.exit(run_main(main))
