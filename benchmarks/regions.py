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

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from algorithm.case.notices import Notices
from algorithm.case.read import AIR_HU, Case, clean_ct, clean_pet
from algorithm.region import grids
from algorithm.region.localise import Region, localise
from benchmarks.suite import markdown
from contract.errors import HecktorError
from contract.files import atomic_path, write_json
from contract.images.volumes import Volume, read_volume, write_volume
from contract.patient import Patient
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import make_case
from rehearsal.phantoms.protocol import coarsened
from tests.rehearsal.phantoms.variants import KINDS, vary

HEADER: Final = ("kind of scan", "cases", "contained", "smallest margin mm", "median litres", "largest litres", "sure")
IMAGES: Final = ("ct", "pet", "mask")
STEP_MM: Final = 4.0
COLUMNS: Final = 5
# Patients and coarsening of `--quick`.
QUICK: Final = (2, 8)
SUV_WINDOW: Final = 10.0
BONE_WINDOW_HU: Final = (-200.0, 900.0)
# Below 0.5, so that lesions of a few voxels show at the sheet's size.
REFERENCE_LEVEL: Final = 0.2


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
    if options.quick:
        options.patients, options.coarsening = QUICK
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


def draw_sheet(study: RegionStudy, checks: Sequence[RegionCheck], target: Path) -> None:
    """Draw the first case of every kind as a PNG.

    Each case shows the CT's mean from the front and the PET's maximum from the left, the region as a box (green
    if sure, else orange) and the outline of the reference in magenta.
    """
    mpl.use("Agg")
    first = {check.kind: check for check in reversed(checks)}
    cases = [first[kind] for kind in KINDS if kind in first]
    rows = -(-len(cases) // COLUMNS)
    figure = Figure(figsize=(2.4 * COLUMNS, 2.9 * rows), dpi=72, facecolor="white")
    panels = figure.subplots(rows, 2 * COLUMNS, squeeze=False, gridspec_kw={"wspace": 0.03, "hspace": 0.1})
    for panel in panels.flat:
        panel.set_axis_off()
        panel.set_anchor("N")
    for number, check in enumerate(cases):
        row, column = divmod(number, COLUMNS)
        _draw_case(panels[row][2 * column], panels[row][2 * column + 1], check, study)
    figure.subplots_adjust(left=0.005, right=0.995, bottom=0.01, top=0.95)
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(target) as partial:
        figure.savefig(partial, format="png")


def _draw_case(front: Any, side: Any, check: RegionCheck, study: RegionStudy) -> None:
    images = study.phantom(check.case)
    corners = images["ct"].geometry.corners_mm()
    grid = grids.grid_over(corners.min(0), corners.max(0), (STEP_MM,) * 3)
    ct, pet = grids.resample(images["ct"], grid, AIR_HU), grids.resample(images["pet"], grid, 0.0)
    reference = grids.resample_mask(images["mask"], grid)
    front.set_title(check.kind, fontsize=8, loc="left", pad=3)
    # The patient's axis that runs to the right is x from the front and y from the left; z runs up.
    for panel, axis, plane, colours, low, high in (
        (front, 0, np.clip(ct, *BONE_WINDOW_HU).mean(axis=1), "gray", -200.0, 40.0),
        (side, 1, pet.max(axis=2), "gray_r", 0.0, SUV_WINDOW),
    ):
        left, bottom = grid.origin_mm[axis] - STEP_MM / 2, grid.origin_mm[2] - STEP_MM / 2
        extent = (left, left + plane.shape[1] * STEP_MM, bottom, bottom + plane.shape[0] * STEP_MM)
        panel.imshow(plane, cmap=colours, vmin=low, vmax=high, origin="lower", extent=extent, aspect="equal")
        outline = reference.max(axis=1 + axis) > 0
        if outline.any():
            panel.contour(outline, [REFERENCE_LEVEL], colors="magenta", linewidths=0.8, extent=extent, origin="lower")
        box_low, box_high = (np.take(corner, (axis, 2)) for corner in (check.region.lower_mm, check.region.upper_mm))
        colour = "limegreen" if check.region.sure else "darkorange"
        box = Rectangle((box_low[0], box_low[1]), *(box_high - box_low), fill=False, edgecolor=colour, linewidth=1.2)
        panel.add_patch(box)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench --regions", description="Test the localiser.")
    parser.add_argument("--quick", action="store_true", help="two coarse phantoms, only to see it run")
    parser.add_argument("--patients", type=int, default=308, help="number of phantoms (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the phantoms (%(default)s)")
    parser.add_argument("--coarsening", type=int, default=2, help="divide the CT's matrix in plane (%(default)s)")
    parser.add_argument("--output", type=Path, default=Path("out/localisation"), help="phantoms and JSON (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes (%(default)s)")
    parser.add_argument("--sheet", type=Path, metavar="PNG", help="draw one case of each kind")
    return parser
