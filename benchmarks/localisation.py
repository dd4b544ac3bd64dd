"""`scripts/bench --localisation`: does the region hold every reference voxel, whatever the kind of scan?

Makes phantoms of every kind, localises each from CT and PET, and reports by kind how many regions hold all of GTVp
and GTVn, how near the lesions come to a cut, and how large the regions are. The phantoms are kept in the output
folder, so a second run only localises.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from algorithm.case.notices import Notices
from algorithm.case.read import Case, clean_ct, clean_pet
from algorithm.region.localise import Region, localise
from benchmarks.machine import machine_facts
from contract.errors import HecktorError, run_main
from contract.files import write_json
from contract.images.volumes import Volume, read_volume, write_volume
from contract.patient import Patient
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import make_case
from rehearsal.phantoms.protocol import coarsened
from rehearsal.phantoms.variants import KINDS, vary

FORMAT_VERSION: Final = 1
IMAGES: Final = ("ct", "pet", "mask")


@dataclass(frozen=True)
class Study:
    """Which phantoms: patient `n` of `seed` is scanned as kind `n` modulo the number of kinds says.

    `coarsening` divides the CT's matrix in plane.
    """

    seed: int
    patients: int
    coarsening: int

    def kind(self, index: int) -> str:
        """How a patient is scanned."""
        return KINDS[index % len(KINDS)]

    def folder(self, root: Path, index: int) -> Path:
        """Where a patient's images lie."""
        return root / "phantoms" / f"seed-{self.seed}-coarsening-{self.coarsening}" / f"{index:04d}"


@dataclass(frozen=True)
class Found:
    """One patient's region.

    `margin_mm` is the smallest distance from a reference voxel's outside to a face of the region, negative where the
    face cuts it; faces where the CT itself ends do not count. None where the region ends nowhere else.
    """

    case: int
    kind: str
    contained: bool
    margin_mm: float | None
    volume_litres: float
    sure: bool
    found_by: str
    reference_voxels: int
    lower_mm: tuple[float, float, float]
    upper_mm: tuple[float, float, float]
    reference_lower_mm: tuple[float, float, float]
    reference_upper_mm: tuple[float, float, float]


def phantom(study: Study, index: int, root: Path) -> dict[str, Volume]:
    """CT, PET and mask of a patient, read where they lie on disk and made where not."""
    folder = study.folder(root, index)
    if folder.is_dir():
        return {name: read_volume(folder / f"{name}.mha") for name in IMAGES}
    case = make_case(study.seed, index, CENTRES)
    case = replace(case, protocol=coarsened(case.protocol, study.coarsening))
    scan = vary(case, study.kind(index), np.random.default_rng((study.seed, index)))
    images = {"ct": scan.ct, "pet": scan.pet, "mask": scan.mask}
    partial = folder.with_name(f".partial-{folder.name}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for name, volume in images.items():
        write_volume(partial / f"{name}.mha", volume, compress=name == "mask")
    partial.rename(folder)
    return images


def examine(study: Study, index: int, root: Path) -> Found:
    """Localise one patient and compare the region with the reference.

    Raises:
        HecktorError: the scan shows no reference voxel, so that it could not tell anything.
    """
    images = phantom(study, index, root)
    notices = Notices()
    ct = clean_ct(images["ct"], "CT", notices)
    case = Case(ct, clean_pet(images["pet"], ct, "PET", notices), Patient())
    region = localise(case)
    low, high, count = reference_extent_mm(images["mask"])
    if not count:
        raise HecktorError(f"case {index} ({study.kind(index)}): no reference voxel in view")
    return Found(
        case=index,
        kind=study.kind(index),
        contained=bool(np.all(low >= np.subtract(region.lower_mm, 1e-6)))
        and bool(np.all(high <= np.add(region.upper_mm, 1e-6))),
        margin_mm=smallest_margin_mm(region, ct, low, high),
        volume_litres=region.volume_litres,
        sure=region.sure,
        found_by=region.found_by,
        reference_voxels=count,
        lower_mm=region.lower_mm,
        upper_mm=region.upper_mm,
        reference_lower_mm=(float(low[0]), float(low[1]), float(low[2])),
        reference_upper_mm=(float(high[0]), float(high[1]), float(high[2])),
    )


def reference_extent_mm(mask: Volume) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], int]:
    """Lowest and highest corner (x, y, z, LPS) of a box that holds all of GTVp's and GTVn's voxels, and their count.

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
    """See `Found.margin_mm`; `low` and `high` are the corners of the reference."""
    corners = ct.geometry.corners_mm()
    below = np.where(np.isclose(region.lower_mm, corners.min(0)), np.inf, low - region.lower_mm)
    above = np.where(np.isclose(region.upper_mm, corners.max(0)), np.inf, region.upper_mm - high)
    margin = float(min(below.min(), above.min()))
    return margin if np.isfinite(margin) else None


def run_study(study: Study, root: Path, jobs: int) -> Iterator[Found]:
    """Examine all patients, in their order."""
    numbers = range(study.patients)
    if jobs <= 1:
        yield from (examine(study, index, root) for index in numbers)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        yield from pool.map(examine, [study] * study.patients, numbers, [root] * study.patients)


def summary(found: Sequence[Found]) -> dict[str, Any]:
    """What the table shows of some cases."""
    margins = [one.margin_mm for one in found if one.margin_mm is not None]
    volumes = [one.volume_litres for one in found]
    return {
        "cases": len(found),
        "contained": sum(one.contained for one in found),
        "smallest_margin_mm": min(margins) if margins else None,
        "median_litres": float(np.median(volumes)),
        "largest_litres": max(volumes),
        "sure_share": sum(one.sure for one in found) / len(found),
    }


def by_kind(found: Sequence[Found]) -> dict[str, dict[str, Any]]:
    """A summary for each kind in their order, and for all together."""
    kinds = {kind: [one for one in found if one.kind == kind] for kind in KINDS}
    return {kind: summary(cases) for kind, cases in kinds.items() if cases} | {"all": summary(found)}


def table(rows: dict[str, dict[str, Any]]) -> str:
    """The summaries as a Markdown table."""
    lines = [
        "| kind of scan | cases | contained | smallest margin mm | median litres | largest litres | sure |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind, row in rows.items():
        margin = row["smallest_margin_mm"]
        shown = "none cut" if margin is None else f"{margin:.0f}"
        lines.append(
            f"| {kind} | {row['cases']} | {row['contained']} | {shown} | {row['median_litres']:.1f} "
            f"| {row['largest_litres']:.1f} | {100 * row['sure_share']:.0f}% |"
        )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Make, localise, report; exit status 1 where a region misses a reference voxel."""
    options = _parser().parse_args(argv)
    study = Study(options.seed, options.patients, options.coarsening)
    found = []
    for one in run_study(study, options.output, options.jobs):
        found.append(one)
        if not one.contained:
            _say(f"missed: case {one.case}, {one.kind}, found by {one.found_by}, margin {one.margin_mm} mm")
        if len(found) % 50 == 0:
            _say(f"{len(found)} of {study.patients}")
    rows = by_kind(found)
    missed = [one.case for one in found if not one.contained]
    report = {"format_version": FORMAT_VERSION, **asdict(study), "machine": machine_facts(), "kinds": rows}
    target = options.output / f"localisation-seed-{study.seed}.json"
    write_json(target, report | {"missed": missed, "cases": [asdict(one) for one in found]})
    _say(table(rows))
    _say(f"\n{len(missed)} of {len(found)} regions miss a reference voxel; written to {target}")
    if options.sheet:
        from benchmarks.localisation_sheet import draw_sheet

        draw_sheet(study, found, options.output, options.sheet)
        _say(f"drawn: {options.sheet}")
    return 1 if missed else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench --localisation", description="Test the localiser.")
    parser.add_argument("--patients", type=int, default=308, help="how many phantoms (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the phantoms (%(default)s)")
    parser.add_argument("--coarsening", type=int, default=2, help="divides the CT's matrix in plane (%(default)s)")
    parser.add_argument("--output", type=Path, default=Path("out/localisation"), help="phantoms and JSON (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (%(default)s)")
    parser.add_argument("--sheet", type=Path, metavar="PNG", help="draw one case of each kind")
    return parser


if __name__ == "__main__":
    sys.exit(run_main(main))
