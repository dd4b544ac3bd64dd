"""Options that several commands share."""

from __future__ import annotations

import argparse

from contract.cpus import usable_cpus
from contract.options import whole_number
from evaluation.pipeline import DEFAULT_BOOTSTRAPS, DEFAULT_SEED


def add_workers(parser: argparse.ArgumentParser) -> None:
    """How many processes work on cases."""
    parser.add_argument(
        "--workers", type=whole_number(0), default=usable_cpus(), help="processes; 0 stays in this one (%(default)s)"
    )


def add_bootstrap(parser: argparse.ArgumentParser) -> None:
    """Seed and number of bootstrap replicates."""
    parser.add_argument(
        "--seed", type=whole_number(0), default=DEFAULT_SEED, help="seed of the bootstrap (%(default)s)"
    )
    parser.add_argument(
        "--bootstraps",
        type=whole_number(0),
        default=DEFAULT_BOOTSTRAPS,
        help="replicates, 0 for no intervals (%(default)s)",
    )
