"""`scripts/bench`: measure everything, print a table, write JSON."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from algorithm.network.package import DEFAULT_PACKAGE, load_package
from benchmarks import data as bench_data
from benchmarks.cases import Measurement, all_measurements
from benchmarks.data import Data, make_data
from benchmarks.machine import machine_facts
from benchmarks.table import FORMAT_VERSION, heading, report_rows, table
from benchmarks.timing import Timing
from contract.errors import HecktorError, run_main
from contract.files import read_json, write_json


def main(argv: Sequence[str] | None = None) -> int:
    """Make the data, measure, report. Raises `HecktorError` where a measurement fails."""
    options = _parser().parse_args(argv)
    begun, machine = time.monotonic(), machine_facts()
    model = load_package(options.model)
    data = Data(options.output / "data" / ("quick" if options.quick else "full"), options.quick)
    for line in make_data(data):
        _say(f"data: {line}")
    chosen = [m for m in all_measurements() if fnmatch(m.key, options.only) and (m.in_quick or not options.quick)]
    measured = list(_measure_all(chosen, data, options.model))
    report: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "quick": options.quick,
        "machine": machine,
        "model": {"name": model.manifest["name"], "purpose": model.manifest["purpose"], "folds": len(model.fold_files)},
        "data": bench_data.facts(data),
        "measurements": report_rows(measured),
        "seconds": time.monotonic() - begun,
    }
    target = options.output / ("bench-quick.json" if options.quick else "bench.json")
    write_json(target, report)
    print(heading(report))
    print(table(report["measurements"]))
    print(f"\n{len(measured)} measurements in {report['seconds']:.0f} s, written to {target}")
    return 0


def _measure_all(chosen: Sequence[Measurement], data: Data, model_dir: Path) -> Iterator[tuple[Measurement, Timing]]:
    for number, measurement in enumerate(chosen, start=1):
        timing = _measure(measurement, data, model_dir)
        _say(f"[{number}/{len(chosen)}] {measurement.key}: {timing.median_s:.4g} s, {timing.peak_memory_mib:.0f} MiB")
        yield measurement, timing


def _measure(measurement: Measurement, data: Data, model_dir: Path) -> Timing:
    with tempfile.TemporaryDirectory(dir=data.root, prefix=".scratch-") as folder:
        result = Path(folder) / "timing.json"
        command = [sys.executable, "-m", "benchmarks.worker", measurement.key, "--data", str(data.root)]
        command += ["--model", str(model_dir), "--scratch", folder, "--result", str(result)]
        done = subprocess.run(command + ["--quick"] * data.quick, capture_output=True, text=True, check=False)
        if done.returncode:
            _say(done.stderr)
            raise HecktorError(f"{measurement.key}: its process ended with status {done.returncode}")
        return Timing.from_json(read_json(result))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measure seconds and memory.")
    parser.add_argument("--quick", action="store_true", help="coarse phantoms, one repeat: whether it runs at all")
    parser.add_argument("--output", type=Path, default=Path("out/bench"), help="data and bench.json (%(default)s)")
    parser.add_argument("--model", type=Path, default=DEFAULT_PACKAGE, help="model package (default: the shipped one)")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="measurements like 'whole_body/*'")
    return parser


if __name__ == "__main__":
    sys.exit(run_main(main))
