"""`scripts/bench --regions`: count how often the region holds every reference voxel of phantoms."""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from algorithm.case.notices import Notices
from algorithm.case.read import Case, clean_ct, clean_pet
from algorithm.region.localise import Region, localise
from benchmarks.suite import markdown
from contract.errors import HecktorError
from contract.files import write_json
from contract.images.volumes import Volume, read_volume, write_volume
from contract.patient import Patient
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import make_case
from rehearsal.phantoms.protocol import coarsened
from tests.rehearsal.phantoms.variants import KINDS, vary

HEADER: Final = ("kind of scan", "cases", "contained", "smallest margin mm", "median litres", "largest litres", "sure")
IMAGES: Final = ("ct", "pet", "mask")


@dataclass(frozen=True)
class RegionStudy:
    """The phantoms of a study: patient `n` is scanned as kind `n` modulo the number of kinds.

    `coarsening` divides the CT's matrix in plane. The phantoms are cached under `root`.
    """

    seed: int
    patients: int
    coarsening: int
    root: Path

    def kind(self, index: int) -> str:
        """How a patient is scanned."""
        return KINDS[index % len(KINDS)]

    def phantom(self, index: int) -> dict[str, Volume]:
        """CT, PET and mask of a patient."""
        folder = self.root / "phantoms" / f"seed-{self.seed}-coarsening-{self.coarsening}" / f"{index:04d}"
        if folder.is_dir():
            return {name: read_volume(folder / f"{name}.mha") for name in IMAGES}
        case = make_case(self.seed, index, CENTRES)
        case = replace(case, protocol=coarsened(case.protocol, self.coarsening))
        scan = vary(case, self.kind(index), np.random.default_rng((self.seed, index)))
        images = {"ct": scan.ct, "pet": scan.pet, "mask": scan.mask}
        partial_folder = folder.with_name(f".partial-{folder.name}")
        shutil.rmtree(partial_folder, ignore_errors=True)
        partial_folder.mkdir(parents=True)
        for name, volume in images.items():
            write_volume(partial_folder / f"{name}.mha", volume, compress=name == "mask")
        partial_folder.rename(folder)
        return images


@dataclass(frozen=True)
class RegionCheck:
    """The region of one patient beside its reference.

    `margin_mm` is the smallest distance from a reference voxel's outside to a face of the region, negative if the
    face cuts it. Faces where the CT itself ends do not count; None if there is no other face.
    """

    case: int
    kind: str
    contained: bool
    margin_mm: float | None
    reference_voxels: int
    region: Region


def main(argv: Sequence[str] | None = None) -> int:
    """Make phantoms, localise, report; returns 1 if a region misses a reference voxel."""
    options = _parser().parse_args(argv)
    study = RegionStudy(options.seed, options.patients, options.coarsening, options.output)
    checks = list(_check_all(study, options.jobs))
    rows, missed = by_kind(checks), [check.case for check in checks if not check.contained]
    report = {"format_version": 5, "kinds": rows, "missed": missed}
    report |= {name: getattr(options, name) for name in ("seed", "patients", "coarsening")}
    report |= {"cases": [_as_json(check) for check in checks]}
    target = options.output / f"localisation-seed-{study.seed}.json"
    write_json(target, report)
    sys.stdout.write(f"{table(rows)}\n\n{len(missed)} of {len(checks)} regions miss a reference voxel\n")
    sys.stdout.write(f"written to {target}\n")
    if options.sheet:
        from benchmarks.region_sheet import draw_sheet

        draw_sheet(study, checks, options.sheet)
    return 1 if missed else 0


def _check_all(study: RegionStudy, jobs: int) -> Iterator[RegionCheck]:
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for check in pool.map(partial(check_region, study), range(study.patients)):
            if not check.contained:
                what = f"{check.kind}, {check.region.found_by}, {check.margin_mm} mm"
                sys.stderr.write(f"missed: case {check.case}, {what}\n")
            yield check


def check_region(study: RegionStudy, index: int) -> RegionCheck:
    """Localise one patient and compare the region with the reference.

    Raises:
        HecktorError: the scan shows no reference voxel.
    """
    images, notices = study.phantom(index), Notices()
    ct = clean_ct(images["ct"], "CT", notices)
    region = localise(Case(ct, clean_pet(images["pet"], ct, "PET", notices), Patient()))
    low, high, count = reference_extent_mm(images["mask"])
    if not count:
        raise HecktorError(f"case {index} ({study.kind(index)}): found no reference voxel, expected at least 1")
    above, below = low >= np.subtract(region.lower_mm, 1e-6), high <= np.add(region.upper_mm, 1e-6)
    margin_mm = smallest_margin_mm(region, ct, low, high)
    return RegionCheck(index, study.kind(index), bool(above.all() and below.all()), margin_mm, count, region)


def reference_extent_mm(mask: Volume) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], int]:
    """Lowest and highest corner (x, y, z, LPS) of the box around all foreground voxels, and their number.

    Voxels count with their whole extent. Without any the corners are infinite.
    """
    index = np.argwhere(mask.array > 0)[:, ::-1]
    matrix = mask.geometry.index_to_physical_matrix()
    if not len(index):
        return np.full(3, np.inf), np.full(3, -np.inf), 0
    points = index @ matrix[:3, :3].T + matrix[:3, 3]
    half = np.abs(matrix[:3, :3]).sum(axis=1) / 2
    return points.min(0) - half, points.max(0) + half, len(index)


def smallest_margin_mm(
    region: Region, ct: Volume, low: npt.NDArray[np.float64], high: npt.NDArray[np.float64]
) -> float | None:
    """See `RegionCheck.margin_mm`; `low` and `high` are the corners of the reference."""
    corners = ct.geometry.corners_mm()
    below = np.where(np.isclose(region.lower_mm, corners.min(0)), np.inf, low - region.lower_mm)
    above = np.where(np.isclose(region.upper_mm, corners.max(0)), np.inf, region.upper_mm - high)
    margin = float(min(below.min(), above.min()))
    return margin if np.isfinite(margin) else None


def _as_json(check: RegionCheck) -> dict[str, Any]:
    return vars(check) | {"region": check.region.as_json() | {"volume_litres": check.region.volume_litres}}


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
    parser.add_argument("--jobs", type=int, default=2, help="number of processes (%(default)s)")
    parser.add_argument("--sheet", type=Path, metavar="PNG", help="draw one case of each kind")
    return parser
