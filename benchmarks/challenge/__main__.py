"""Write a simulated challenge: `python -m benchmarks.challenge --output DIR --edition hecktor2025`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.challenge.writing import ChallengeSize, write_challenge
from contract.errors import run_main
from contract.options import whole_number
from evaluation.editions import DEFAULT_PROFILE


def main(argv: Sequence[str] | None = None) -> int:
    """Write the results folder."""
    size = ChallengeSize()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.challenge", description=__doc__)
    add = parser.add_argument
    add("--output", type=Path, required=True, help="folder for task1/<team>/metrics.json, task1/leaderboard.json, ...")
    add("--edition", default=DEFAULT_PROFILE, help="evaluation profile (default: %(default)s)")
    add("--teams", type=whole_number(1), default=size.teams, help="number of teams (default: %(default)s)")
    add("--cases", type=whole_number(9), default=size.cases, help="number of cases (default: %(default)s)")
    add("--seed", type=whole_number(0), default=2026, help="seed of the simulation (default: %(default)s)")
    options = parser.parse_args(argv)
    write_challenge(options.output, options.edition, ChallengeSize(options.teams, options.cases), options.seed)
    return 0


if __name__ == "__main__":
    sys.exit(run_main(main, sys.argv[1:]))
