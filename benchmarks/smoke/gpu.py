"""`scripts/gpu-smoke`: plans of full size within the tasks' limits, and epochs of each full preset, on a CUDA card."""

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
from benchmarks.smoke.page import TILE, TRAINING, smoke_page
from benchmarks.smoke.patients import CARD_GIB, DRIVER_GIB, MARGIN_S, PASSES, T4_PASSES, TASKS, run_patient
from benchmarks.smoke.plans import PLAN_NAMES, write_random_package
from benchmarks.smoke.training import FITS, FULL_PRESETS, PUBLISHED_GB, WAYS, time_training
from contract.files import read_json, write_text

NO_CARD: Final = 3
BOUNDS: Final = (Bound(PASSES, "at least", 1), Bound(MARGIN_S, "at least", 0), Bound(T4_PASSES, "at least", 1))
# The process limits itself to 14 GiB; a T4 has 15 for it and the driver's libraries.
CARD_BOUNDS: Final = (Bound(CARD_GIB, "at most", 14.0), Bound(DRIVER_GIB, "at most", 15.0))
# The default, which gives the same bytes each time, is kept while no way takes less than this share of its time.


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
        facts = {"card": torch.cuda.get_device_name() if options.device == "cuda" else None}
        run_suite("gpu-smoke", list(_measurements(options, data, Path(scratch))), options, facts)
    report = options.output / ("gpu-smoke-quick.json" if options.quick else "gpu-smoke.json")
    write_text(report.with_suffix(".html"), smoke_page(read_json(report)))
    sys.stdout.write(f"page: {report.with_suffix('.html')}\n")
    return 0


def _measurements(options: argparse.Namespace, data: BenchData, folder: Path) -> Iterator[Measurement]:
    bounds = (*BOUNDS, *CARD_BOUNDS) if options.device == "cuda" else BOUNDS
    for plan in options.plans:
        packages = {
            edition: write_random_package(folder / plan / edition, plan, edition, quick=options.quick)
            for edition in dict.fromkeys(TASKS[task][0] for task in options.tasks)
        }
        package = next(iter(packages.values()))
        yield Measurement(plan, TILE, partial(time_tile, package, options.device))
        for size in options.sizes:
            for task in options.tasks:
                package, name = packages[TASKS[task][0]], f"{size.replace('_', ' ')}, {task}"
                work = partial(run_patient, task, options.device, package, data.input_dir(size))
                yield Measurement(plan, name, work, (f"{plan}/{TILE}",), bounds)
    for preset in options.presets:
        yield from _trainings(preset, options.device, quick=options.quick)


def _trainings(preset: str, device: str, *, quick: bool) -> Iterator[Measurement]:
    """Epochs of a preset; those of the first one also in the other ways, on a card."""
    memory = (Bound(CARD_GIB, "at most", PUBLISHED_GB[preset]),) if device == "cuda" else ()
    ways = WAYS if device == "cuda" and preset == FULL_PRESETS[0] else ()
    for way in (None, *ways):
        train = partial(time_training, preset, way, device, quick)
        name, against = (preset, ()) if way is None else (f"{preset}, {way}", (f"{TRAINING}/{preset}",))
        yield Measurement(TRAINING, name, train, against, (Bound(FITS, "at least", 1), *memory))


def _parser() -> argparse.ArgumentParser:
    parser = suite_parser("scripts/gpu-smoke", "Run full-size plans on a CUDA card.")
    parser.set_defaults(output=Path("out"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--plans", nargs="+", choices=PLAN_NAMES, default=PLAN_NAMES)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=SIZES)
    parser.add_argument("--tasks", nargs="+", choices=tuple(TASKS), default=tuple(TASKS))
    parser.add_argument("--presets", nargs="*", choices=FULL_PRESETS, default=FULL_PRESETS, help="presets to train")
    return parser
