"""`scripts/bench --localisation`: count how often the region holds every reference voxel, by kind of scan."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.cases.regions import RegionCheck, RegionStudy, check_region
from benchmarks.harness.machine import machine_facts
from benchmarks.harness.suite import progress
from benchmarks.harness.table import markdown
from contract.files import write_json
from rehearsal.phantoms.variants import KINDS

HEADER: Final = ("kind of scan", "cases", "contained", "smallest margin mm", "median litres", "largest litres", "sure")


def main(argv: Sequence[str] | None = None) -> int:
    """Make phantoms, localise, report; returns 1 if a region misses a reference voxel."""
    options = _parser().parse_args(argv)
    study = RegionStudy(options.seed, options.patients, options.coarsening, options.output)
    checks = list(_check_all(study, options.jobs))
    rows, missed = by_kind(checks), [check.case for check in checks if not check.contained]
    report = {"format_version": 2, "machine": machine_facts(), "kinds": rows, "missed": missed}
    report |= {name: getattr(options, name) for name in ("seed", "patients", "coarsening")}
    target = options.output / f"localisation-seed-{study.seed}.json"
    write_json(target, report | {"cases": [asdict(check) for check in checks]})
    last = f"{len(missed)} of {len(checks)} regions miss a reference voxel; written to {target}"
    sys.stdout.write(f"{table(rows)}\n\n{last}\n")
    if options.sheet:
        from benchmarks.cases.sheet import draw_sheet

        draw_sheet(study, checks, options.sheet)
    return 1 if missed else 0


def _check_all(study: RegionStudy, jobs: int) -> Iterator[RegionCheck]:
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for check in pool.map(partial(check_region, study), range(study.patients)):
            if not check.contained:
                progress(f"missed: case {check.case}, {check.kind}, {check.region.found_by}, {check.margin_mm} mm")
            yield check


def by_kind(checks: Sequence[RegionCheck]) -> dict[str, dict[str, Any]]:
    """A summary for each kind of scan in the order of `KINDS`, then for all."""
    kinds = {kind: [check for check in checks if check.kind == kind] for kind in KINDS}
    return {kind: _summary(members) for kind, members in kinds.items() if members} | {"all": _summary(checks)}


def _summary(checks: Sequence[RegionCheck]) -> dict[str, Any]:
    volumes = [check.region.volume_litres for check in checks]
    return {
        "cases": len(checks),
        "contained": sum(check.contained for check in checks),
        "smallest_margin_mm": min((c.margin_mm for c in checks if c.margin_mm is not None), default=None),
        "median_litres": float(np.median(volumes)),
        "largest_litres": max(volumes),
        "sure_share": sum(check.region.sure for check in checks) / len(checks),
    }


def table(rows: dict[str, dict[str, Any]]) -> str:
    """The summaries as a Markdown table."""
    return "\n".join(markdown([HEADER, *(_cells(kind, row) for kind, row in rows.items())]))


def _cells(kind: str, row: dict[str, Any]) -> tuple[str, ...]:
    margin = row["smallest_margin_mm"]
    litres = (f"{row[name]:.1f}" for name in ("median_litres", "largest_litres"))
    shown = "none cut" if margin is None else f"{margin:.0f}"
    return (kind, str(row["cases"]), str(row["contained"]), shown, *litres, f"{100 * row['sure_share']:.0f}%")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench --localisation", description="Test the localiser.")
    parser.add_argument("--patients", type=int, default=308, help="number of phantoms (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the phantoms (%(default)s)")
    parser.add_argument("--coarsening", type=int, default=2, help="divide the CT's matrix in plane (%(default)s)")
    parser.add_argument("--output", type=Path, default=Path("out/localisation"), help="phantoms and JSON (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes (%(default)s)")
    parser.add_argument("--sheet", type=Path, metavar="PNG", help="draw one case of each kind")
    return parser
