"""`scripts/bench --nnunet`: whole patients against nnU-Net, the time around the network, and growth with slices."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from algorithm.network.package import DEFAULT_PACKAGE, load_package
from benchmarks import data as bench_data
from benchmarks.bounds import Bound, bounds_table, markdown
from benchmarks.data import Data, make_data
from benchmarks.machine import machine_facts
from benchmarks.outside_network import measure_outside
from benchmarks.slice_growth import HEADER, growth_bounds, measure_growth
from benchmarks.table import heading
from benchmarks.timing import Repeats
from benchmarks.whole_patient import measure_whole_patients
from contract.errors import run_main
from contract.files import write_json


def main(argv: Sequence[str] | None = None) -> int:
    """Make the data, measure, report; a bound that does not hold is said and fails nothing."""
    options = _parser().parse_args(argv)
    begun, machine = time.monotonic(), machine_facts()
    package, data = load_package(options.model), Data(options.output / "data" / "full", quick=False)
    for line in make_data(data):
        _say(f"data: {line}", sys.stderr)
    bounds: list[Bound] = []
    report: dict[str, Any] = {
        "machine": machine,
        "model": {"name": package.manifest["name"], "folds": len(package.fold_files)},
        "data": bench_data.facts(data),
    }
    _say(heading(report))
    if "a" in options.parts:
        patients = []
        for patient in measure_whole_patients(package, data, Repeats(least=options.repeats)):
            patients.append(patient.as_json())
            bounds += patient.bounds()
            _say(f"(a) {patient.size}: {patient.as_json()}", sys.stderr)
        report["whole_patient"] = patients
    if "b" in options.parts:
        outside = list(measure_outside(package, data.input_dir("head_and_neck"), options.repeats))
        bounds += [found.bound() for found in outside]
        report["outside_network"] = [found.as_json() for found in outside]
        for found in outside:
            rows = [(name, f"{1000 * seconds:.0f} ms") for name, seconds in found.parts.items()]
            _say(f"\n{markdown((found.begin, f'{found.total_s:.2f} s'), rows)}")
    if "c" in options.parts:
        growth = list(measure_growth(package, data.input_dir("whole_body"), data.root / "slices", options.repeats))
        bounds += growth_bounds(growth)
        report["slices"] = [row.as_json() for row in growth]
        _say(f"\n{markdown(HEADER, [row.cells() for row in growth])}")
    report |= {"bounds": [bound.as_json() for bound in bounds], "seconds": time.monotonic() - begun}
    target = options.output / "nnunet.json"
    write_json(target, report)
    _say(f"\n{bounds_table(bounds)}\n\n{report['seconds']:.0f} s, written to {target}")
    return 0


def _say(text: str, stream: Any = None) -> None:
    (stream or sys.stdout).write(f"{text}\n")
    (stream or sys.stdout).flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench --nnunet", description="The algorithm against nnU-Net.")
    parser.add_argument("--output", type=Path, default=Path("out/bench"), help="data and nnunet.json (%(default)s)")
    parser.add_argument("--model", type=Path, default=DEFAULT_PACKAGE, help="model package (default: the shipped one)")
    parser.add_argument("--repeats", type=int, default=3, help="of all but nnU-Net, which runs once (%(default)s)")
    parser.add_argument(
        "--parts", default="abc", help="a: against nnU-Net, b: around the network, c: slices (%(default)s)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(run_main(main))
