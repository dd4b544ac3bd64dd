"""`scripts/bench --regions`: count how often the region holds what it must, on phantoms and real patients' organs.

On phantoms of every kind of scan that is every reference voxel, on simple bodies with the organs of real patients the
salivary glands and the neck.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from benchmarks.regions.anatomy import read_people
from benchmarks.regions.people import ANATOMY, BodyCheck, body_table, by_view, check_person
from benchmarks.regions.phantoms import RegionCheck, RegionStudy, check_region
from benchmarks.suite import markdown
from contract.files import write_json
from tests.rehearsal.phantoms.variants import KINDS

HEADER: Final = ("kind of scan", "cases", "contained", "smallest margin mm", "median litres", "largest litres", "sure")

_Item = TypeVar("_Item")
_Check = TypeVar("_Check", RegionCheck, BodyCheck)


def main(argv: Sequence[str] | None = None) -> int:
    """Make phantoms and bodies, localise, report; returns 1 if a region misses what it must hold."""
    options = _parser().parse_args(argv)
    study = RegionStudy(options.seed, options.patients, options.coarsening, options.output)
    checks = list(_check_phantoms(study, options.jobs))
    rows, missed = by_kind(checks), [check.case for check in checks if not check.contained]
    report = {"format_version": 4, "kinds": rows, "missed": missed}
    report |= {name: getattr(options, name) for name in ("seed", "patients", "coarsening")}
    report |= {"cases": [_as_json(check) for check in checks]}
    target = options.output / f"localisation-seed-{study.seed}.json"
    if rows:
        sys.stdout.write(f"{table(rows)}\n\n{len(missed)} of {len(checks)} regions miss a reference voxel\n\n")
    bodies = _check_bodies(options.anatomy, options.jobs)
    write_json(target, report | _body_report(bodies))
    sys.stdout.write(f"written to {target}\n")
    if options.sheet:
        from benchmarks.regions.sheet import draw_sheet

        draw_sheet(study, checks, options.sheet)
    return 1 if missed or not all(check.contained for check in bodies) else 0


def _check_phantoms(study: RegionStudy, jobs: int) -> Iterator[RegionCheck]:
    for check in _in_parallel(partial(check_region, study), range(study.patients), jobs):
        if not check.contained:
            what = f"{check.kind}, {check.region.found_by}, {check.margin_mm} mm"
            sys.stderr.write(f"missed: case {check.case}, {what}\n")
        yield check


def _check_bodies(path: Path, jobs: int) -> list[BodyCheck]:
    """Localise the bodies of a table's rows and print a summary; none if there is no table."""
    if not path.is_file():
        sys.stdout.write(f"no bodies of real patients: {path} not found\n")
        return []
    people = read_people(path)
    checks = list(_in_parallel(check_person, people, jobs))
    missed = [check.row for check in checks if not check.contained]
    doubtful = sum(person.glands_doubtful for person in people)
    sys.stdout.write(f"{body_table(by_view(checks))}\n\n{len(missed)} of {len(checks)} rows not contained")
    sys.stdout.write(f"{': ' if missed else ''}{', '.join(map(str, missed))}; glands left out in {doubtful} rows\n\n")
    return checks


def _body_report(checks: Sequence[BodyCheck]) -> dict[str, Any]:
    missed = [check.row for check in checks if not check.contained]
    return {"bodies": by_view(checks), "missed_rows": missed, "rows": [_as_json(check) for check in checks]}


def _as_json(check: RegionCheck | BodyCheck) -> dict[str, Any]:
    return vars(check) | {"region": check.region.as_json() | {"volume_litres": check.region.volume_litres}}


def _in_parallel(check: Callable[[_Item], _Check], items: Iterable[_Item], jobs: int) -> Iterator[_Check]:
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(check, items)


def by_kind(checks: Sequence[RegionCheck]) -> dict[str, dict[str, Any]]:
    """A summary for each kind of scan in the order of `KINDS`, then for all."""
    kinds = {kind: [check for check in checks if check.kind == kind] for kind in KINDS}
    return {kind: _summary(members) for kind, members in (kinds | {"all": checks}).items() if members}


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
    parser = argparse.ArgumentParser(prog="scripts/bench --regions", description="Test the localiser.")
    parser.add_argument("--patients", type=int, default=308, help="number of phantoms (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the phantoms (%(default)s)")
    parser.add_argument("--coarsening", type=int, default=2, help="divide the CT's matrix in plane (%(default)s)")
    parser.add_argument("--output", type=Path, default=Path("out/localisation"), help="phantoms and JSON (%(default)s)")
    parser.add_argument("--anatomy", type=Path, default=ANATOMY, help="organ positions, a CSV (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes (%(default)s)")
    parser.add_argument("--sheet", type=Path, metavar="PNG", help="draw one case of each kind")
    return parser
