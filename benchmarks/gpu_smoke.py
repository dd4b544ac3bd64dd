"""`scripts/gpu-smoke`: plans of full size on whole patients within the tasks' limits, on a CUDA card."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks.bounds import Bound, bounds_table, markdown
from benchmarks.data import SIZES, Data, make_patient_of
from benchmarks.full_plans import PLAN_NAMES, write_random_package
from benchmarks.machine import machine_facts
from benchmarks.smoke_run import HEADER, SmokeRun, smoke_run, tiles_a_pass
from contract.errors import run_main
from contract.files import write_json
from contract.tasks import HPV, RFS, SEGMENTATION

NO_CARD: Final = 3
MOST_GPU_GIB: Final = 15.0
TASKS: Final = (SEGMENTATION.name, RFS.name, HPV.name)


def main(argv: Sequence[str] | None = None) -> int:
    """Make phantoms and packages, run every task, report; 3 where no CUDA card answers.

    Raises:
        HecktorError: a run failed.
    """
    options = _parser().parse_args(argv)
    if options.device == "cuda" and not _card_answers():
        _say("gpu-smoke: no CUDA card answers; nothing was run (--device cpu --quick tries the script without one)")
        return NO_CARD
    data = Data(options.output / "data" / ("quick" if options.quick else "full"), options.quick)
    for size in options.sizes:
        make_patient_of(size, data)
    runs: list[SmokeRun] = []
    rates: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=options.output, prefix=".scratch-") as scratch:
        for plan in options.plans:
            runs += _measure(plan, options, data, Path(scratch), rates)
    bounds = list(_bounds(runs))
    report = {
        "machine": machine_facts(),
        "quick": options.quick,
        "rates": rates,
        "runs": [run.as_json() for run in runs],
        "bounds": [bound.as_json() for bound in bounds],
    }
    target = options.output / ("gpu-smoke-quick.json" if options.quick else "gpu-smoke.json")
    write_json(target, report)
    _say(f"\n{markdown(HEADER, [run.cells() for run in runs])}\n\n{bounds_table(bounds)}\n\nwritten to {target}")
    return 0


def _measure(
    plan: str, options: argparse.Namespace, data: Data, scratch: Path, rates: list[dict[str, Any]]
) -> Iterator[SmokeRun]:
    from benchmarks.flop_rate import rate_in_a_process

    package = write_random_package(scratch / plan, plan, quick=options.quick)
    rate = rate_in_a_process(package, options.device, 3 if options.quick else 10, scratch / "rate.json")
    rates.append({"plan": plan, **asdict(rate), "tflops": rate.tflops})
    _say(
        f"{plan}: {rate.flops_a_tile / 1e9:.3g} GFLOP a tile, {1000 * rate.seconds_a_tile:.3g} ms a tile on "
        f"{rate.device}, {rate.tflops:.3g} TFLOP/s"
    )
    for size in options.sizes:
        tiles = tiles_a_pass(package, data.input_dir(size))
        for task in options.tasks:
            run = smoke_run(plan, size, task, options.device, package, data.input_dir(size), rate, tiles)
            _say(f"{plan}, {size}, {task}: {run.said}")
            yield run


def _bounds(runs: Sequence[SmokeRun]) -> Iterator[Bound]:
    yield Bound("fewest passes done", min(run.passes_done for run in runs), 1, "at least")
    yield Bound("smallest margin to the time limit", min(run.margin_s for run in runs), 0, "at least", "s")
    cards = [run.card_peak_mib or run.gpu_peak_mib or 0.0 for run in runs]
    if any(cards):
        yield Bound("peak memory on the card", max(cards) / 1024, MOST_GPU_GIB, "at most", "GiB")


def _card_answers() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/gpu-smoke", description="Full-size plans on a CUDA card.")
    parser.add_argument("--output", type=Path, default=Path("out"), help="phantoms and gpu-smoke.json (%(default)s)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="tiny networks, coarse phantoms: whether it runs at all")
    parser.add_argument("--plans", nargs="+", choices=PLAN_NAMES, default=PLAN_NAMES)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=SIZES)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    return parser


if __name__ == "__main__":
    sys.exit(run_main(main))
