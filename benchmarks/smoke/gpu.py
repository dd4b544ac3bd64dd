"""`scripts/gpu-smoke`: plans of full size on whole patients within the tasks' limits, on a CUDA card."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import torch

from benchmarks.cases.data import SIZES, BenchData, bench_data, make_patient
from benchmarks.harness.bounds import Bound
from benchmarks.harness.measurement import Measurement
from benchmarks.harness.suite import run_suite, suite_parser
from benchmarks.smoke.operations import time_tile
from benchmarks.smoke.patients import CARD_GIB, MARGIN_S, PASSES, run_patient
from benchmarks.smoke.plans import PLAN_NAMES, write_random_package
from contract.editions import load_edition

NO_CARD: Final = 3
TASKS: Final = tuple(algorithm.name for algorithm in load_edition().algorithms)
BOUNDS: Final = (Bound(PASSES, "at least", 1), Bound(MARGIN_S, "at least", 0))
CARD_BOUND: Final = Bound(CARD_GIB, "at most", 15.0)


def main(argv: Sequence[str] | None = None) -> int:
    """Make phantoms and packages, run every task, report; returns 3 without a CUDA card.

    Raises:
        HecktorError: a run failed.
    """
    options = _parser().parse_args(argv)
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.stdout.write("gpu-smoke: no CUDA card found, nothing was run (without one: --device cpu --quick)\n")
        return NO_CARD
    data = bench_data(options)
    for size in options.sizes:
        make_patient(size, data)
    with tempfile.TemporaryDirectory(dir=options.output, prefix=".scratch-") as scratch:
        run_suite("gpu-smoke", list(_measurements(options, data, Path(scratch))), options)
    return 0


def _measurements(options: argparse.Namespace, data: BenchData, folder: Path) -> Iterator[Measurement]:
    bounds = (*BOUNDS, CARD_BOUND) if options.device == "cuda" else BOUNDS
    for plan in options.plans:
        package = write_random_package(folder / plan, plan, quick=options.quick)
        tile = Measurement(plan, "one tile", partial(time_tile, package, options.device))
        yield tile
        for size in options.sizes:
            for task in options.tasks:
                work = partial(run_patient, task, options.device, package, data.input_dir(size))
                yield Measurement(plan, f"{size.replace('_', ' ')}, {task}", work, (tile.key,), bounds)


def _parser() -> argparse.ArgumentParser:
    parser = suite_parser("scripts/gpu-smoke", "Run full-size plans on a CUDA card.")
    parser.set_defaults(output=Path("out"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--plans", nargs="+", choices=PLAN_NAMES, default=PLAN_NAMES)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=SIZES)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    return parser
