"""Run a suite of measurements: options, progress, one table, one JSON file."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.machine import machine_facts, machine_line
from benchmarks.harness.measurement import Measurement, run_all
from benchmarks.harness.table import report_rows, table
from contract.files import write_json

FORMAT_VERSION: Final = 2


def suite_parser(prog: str, description: str) -> argparse.ArgumentParser:
    """A parser with the options that every suite has."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--quick", action="store_true", help="run each part once on small inputs, only to see it run")
    parser.add_argument("--output", type=Path, default=Path("out/bench"), help="folder for data and JSON (%(default)s)")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="run the measurements that match: whole_body/*")
    return parser


def run_suite(
    name: str,
    measurements: Iterable[Measurement],
    options: argparse.Namespace,
    facts: Mapping[str, Any] | None = None,
    heading: Sequence[str] = (),
) -> None:
    """Run the chosen measurements, print the table and write `<output>/<name>.json`.

    Args:
        options: of a `suite_parser`.
        facts: about the inputs, for the JSON file.
        heading: lines about the inputs, printed above the table.

    Raises:
        HecktorError: a measurement failed.
    """
    begun, machine = time.monotonic(), machine_facts()
    chosen = [m for m in measurements if fnmatch(m.key, options.only) and (m.quick or not options.quick)]
    measured = []
    for number, (measurement, timing) in enumerate(run_all(chosen, options.output, options.quick), start=1):
        progress(
            f"[{number}/{len(chosen)}] {measurement.key}: {timing.median_s:.4g} s, {timing.peak_memory_mib:.0f} MiB"
        )
        measured.append((measurement, timing))
    rows = report_rows(measured)
    report = {"format_version": FORMAT_VERSION, "quick": options.quick, "machine": machine, **(facts or {})}
    report |= {"measurements": rows, "total_seconds": time.monotonic() - begun}
    target = options.output / (f"{name}-quick.json" if options.quick else f"{name}.json")
    write_json(target, report)
    lines = [machine_line(machine), *heading, table(rows)]
    lines.append(f"\n{len(rows)} measurements in {report['total_seconds']:.0f} s, written to {target}")
    sys.stdout.write("\n".join(lines) + "\n")


def progress(line: str) -> None:
    """Print a line to standard error at once."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
