"""PET uptake of a cohort, and two studies of the uptake: `hecktor study baselines` and `hecktor study boxes`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from contract import labels
from contract.editions import load_edition
from contract.errors import GroundTruthError
from contract.images.geometry import Geometry
from contract.images.volumes import read_header, read_volume, to_sitk
from contract.options import add_edition_option
from evaluation.inputs.masks import BoundingBox, read_labels
from evaluation.inputs.plain_files import BOX_COLUMNS
from evaluation.metrics.overlap import MM3_PER_ML, Booleans, Box, Floats, find_foreground_box
from evaluation.options import add_workers_option
from reporting.analyses.scans import PatientFiles, find_scans
from reporting.studies.outputs import Row, StudyResult, measure_cases, write_table

RISKS: Final = ("gtvp_volume_ml", "gtvp_suv_max", "tumour_volume_ml", "tumour_suv_max")

BOXES_CSV: Final = "boxes.csv"
EDGE_MM: Final = 144.0
# The box's top lies above the brain's lower end, and its centre in front of the brain's centre.
TOP_ABOVE_BRAIN_END_MM: Final = 30.0
CENTRE_IN_FRONT_OF_BRAIN_MM: Final = 30.0
# The brain is searched on a smoothed grid, with one SUV threshold after the other, until a region has its volume.
GRID_MM: Final = 4.0
SIGMA_MM: Final = 6.0
BRAIN_SUV: Final = (4.0, 3.0, 2.0)
MIN_BRAIN_ML: Final = 200.0
MAX_BRAIN_ML: Final = 2500.0


@dataclass(frozen=True)
class Tumour:
    """Reference labels and PET uptake in the box around all labels, both (z, y, x) on the mask's grid."""

    labels: npt.NDArray[np.uint8]
    uptake: npt.NDArray[np.float32]
    voxel_ml: float


def crop_grid(grid: Geometry, region: Box) -> Geometry:
    """Return the sub-grid of a non-empty region, (z, y, x)."""
    z, y, x = region
    return grid.crop((x.start, y.start, z.start), (x.stop - x.start, y.stop - y.start, z.stop - z.start))


def resample_uptake(pet: Path, grid: Geometry) -> npt.NDArray[np.float32]:
    """Return the PET on another grid, (z, y, x), interpolated linearly and 0 beyond the PET.

    Raises:
        GroundTruthError: The PET cannot be read, or contains a value that is not finite.
    """
    import SimpleITK as sitk  # slow to import; --help does not need it

    volume = read_volume(pet, np.float32, error=GroundTruthError)
    if not np.isfinite(volume.array).all():
        raise GroundTruthError(pet.name, "a voxel that is not finite", "SUV")
    placement = (grid.origin_mm, grid.spacing_mm, grid.direction)
    resampled = sitk.Resample(to_sitk(volume), grid.size, sitk.Transform(), sitk.sitkLinear, *placement)
    return np.asarray(sitk.GetArrayFromImage(resampled))


def read_tumour(scans: PatientFiles) -> Tumour:
    """Read the reference mask and the PET of one case; raise GroundTruthError if either cannot be used."""
    mask = read_labels(scans.reference, GroundTruthError)
    region = find_foreground_box(mask.array)
    inside = mask.array[region]
    if inside.size:
        uptake = resample_uptake(scans.pet, crop_grid(mask.geometry, region))
    else:
        uptake = np.zeros(inside.shape, np.float32)
    return Tumour(inside, uptake, mask.geometry.voxel_volume_mm3 / MM3_PER_ML)


def add_cohort_folder(parser: argparse.ArgumentParser) -> None:
    """Add the options `--cohort`, `--edition` and `--workers`."""
    cohort = "folder with CT, PET and reference, in the platform's or the release's layout"
    parser.add_argument("--cohort", type=Path, required=True, help=cohort)
    add_edition_option(parser)
    add_workers_option(parser)


def find_cohort_scans(options: argparse.Namespace) -> list[PatientFiles]:
    """Return the cases of `--cohort`."""
    return find_scans(options.cohort, load_edition(options.edition))


def measure_cohort(work: Callable[[PatientFiles], Row], options: argparse.Namespace, action: str) -> list[Row]:
    """Apply `work` to every case of `--cohort`, see `measure_cases`."""
    return measure_cases(work, find_cohort_scans(options), options.workers, action)


def measure_burden(scans: PatientFiles) -> dict[str, Any]:
    """Measure the volume in ml and SUVmax of the GTVp, and of GTVp and GTVn together; 0 without such a tumour.

    Raises:
        GroundTruthError: The mask or the PET cannot be used.
    """
    tumour = read_tumour(scans)
    figures: list[float] = []
    for part in (tumour.labels == labels.GTVP, tumour.labels != labels.BACKGROUND):
        figures += [int(part.sum()) * tumour.voxel_ml, float(tumour.uptake[part].max(initial=0.0))]
    return {"case": scans.case, **dict(zip(RISKS, figures, strict=True))}


def run_baselines(_: argparse.ArgumentParser, options: argparse.Namespace) -> StudyResult:
    """Write one table of risks for each measure, for `hecktor evaluate` to score."""
    lines = measure_cohort(measure_burden, options, action="measured it")
    tables = [f"{risk}.csv" for risk in RISKS]
    for risk, table in zip(RISKS, tables, strict=True):
        write_table(options.output / table, [{"PatientID": line["case"], "risk": line[risk]} for line in lines])
    content = {"cases": len(lines), "risks": tables}
    return StudyResult(content, lines, f"{len(lines)} cases; ", files=tuple(tables))


def add_baselines_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the cohort's folder."""
    add_cohort_folder(parser)


def make_upright_grid(corners_mm: Floats) -> Geometry:
    """Make an axis-aligned LPS grid of 4 mm over the extent of a scan; `corners_mm` has shape (8, 3)."""
    low, high = corners_mm.min(0), corners_mm.max(0)
    x, y, z = (max(1, int(np.floor((end - start) / GRID_MM))) for start, end in zip(low, high, strict=True))
    first_x, first_y, first_z = (float(start) + GRID_MM / 2 for start in low)
    return Geometry((x, y, z), (GRID_MM,) * 3, (first_x, first_y, first_z))


def find_brain(suv: npt.NDArray[np.float32]) -> Booleans | None:
    """Find the brain on an upright grid of 4 mm, (z, y, x); return None if no uptake has its size.

    The brain is the largest component of the smoothed uptake that reaches the upper third of the scan, at the highest
    of three SUV thresholds at which this component is as large as a brain.
    """
    from scipy import ndimage  # slow to import; --help does not need it

    smooth = ndimage.gaussian_filter(suv, SIGMA_MM / GRID_MM)
    for threshold in BRAIN_SUV:
        components, count = ndimage.label(smooth > threshold)
        volumes_ml = np.bincount(components.ravel(), minlength=count + 1) * GRID_MM**3 / MM3_PER_ML
        upper_third = components[-(-2 * len(components) // 3) :]
        candidates = [
            number for number in np.unique(upper_third) if number and MIN_BRAIN_ML <= volumes_ml[number] <= MAX_BRAIN_ML
        ]
        if candidates:
            return np.asarray(components == max(candidates, key=lambda number: volumes_ml[number]))
    return None


def place_box(brain: Booleans, grid: Geometry) -> BoundingBox:
    """Place the box from 30 mm above the brain's lower end downwards, shifted into the scan if necessary.

    Source: the HECKTOR 2020 overview, which starts at the brain and goes down; Andrearczyk et al. 2020, Oropharynx
    detection in PET-CT for tumor segmentation.
    """
    z, y, x = np.nonzero(brain)
    corners = grid.corners_mm()
    low, high = corners.min(0), corners.max(0)
    middle_x, middle_y = (
        float(grid.origin_mm[axis] + GRID_MM * (voxels.min() + voxels.max()) / 2) for axis, voxels in ((0, x), (1, y))
    )
    brain_end = float(grid.origin_mm[2] + GRID_MM * (int(z.min()) - 0.5))
    wanted = (
        middle_x - EDGE_MM / 2,
        middle_y - CENTRE_IN_FRONT_OF_BRAIN_MM - EDGE_MM / 2,
        brain_end + TOP_ABOVE_BRAIN_END_MM - EDGE_MM,
    )
    first_x, first_y, first_z = (
        float(max(scan_start, min(start, scan_end - EDGE_MM)))
        for start, scan_start, scan_end in zip(wanted, low, high, strict=True)
    )
    return BoundingBox((first_x, first_y, first_z), (first_x + EDGE_MM, first_y + EDGE_MM, first_z + EDGE_MM))


def find_box(scans: PatientFiles) -> dict[str, Any]:
    """Return the line of boxes.csv: PatientID, the box in mm, and the fraction of the reference's GTVp inside it.

    The fraction is None without a GTVp. If no brain is found, the line has only the PatientID.

    Raises:
        GroundTruthError: The PET or the mask cannot be used.
    """
    grid = make_upright_grid(read_header(scans.pet, error=GroundTruthError).geometry.corners_mm())
    brain = find_brain(resample_uptake(scans.pet, grid))
    if brain is None:
        return {"PatientID": scans.case}
    box = place_box(brain, grid)
    mask = read_labels(scans.reference, GroundTruthError)
    primary = mask.array == labels.GTVP
    inside = int(np.count_nonzero(box.find_region(mask.geometry).cut(primary)))
    total = int(np.count_nonzero(primary))
    ends = (round(end, 3) for ends in zip(box.low_mm, box.high_mm, strict=True) for end in ends)
    return {
        "PatientID": scans.case,
        **dict(zip(BOX_COLUMNS, ends, strict=True)),
        "gtvp_inside": inside / total if total else None,
    }


def run_boxes(_: argparse.ArgumentParser, options: argparse.Namespace) -> StudyResult:
    """Write boxes.csv, a line for each case with a box, in the format of `--bounding-boxes`."""
    measured = measure_cohort(find_box, options, action="looked for its box")
    lines = [line for line in measured if "gtvp_inside" in line]
    if not lines:
        expected = f"a PET that shows {MIN_BRAIN_ML:g} ml above SUV {BRAIN_SUV[-1]:g} in its upper third"
        raise GroundTruthError(Path(options.cohort).name, f"no brain in {len(measured)} cases", expected)
    without_box = [line["PatientID"] for line in measured if "gtvp_inside" not in line]
    not_inside = [line["PatientID"] for line in lines if line["gtvp_inside"] is not None and line["gtvp_inside"] < 1]
    summary = ""
    if without_box:
        summary += f"warning: no brain found, so no box: {', '.join(without_box)}\n"
    if not_inside:
        summary += f"warning: GTVp not wholly inside: {', '.join(not_inside)}\n"
    summary += f"{len(lines)} boxes of {len(measured)} cases; "
    write_table(options.output / BOXES_CSV, lines)
    content = {
        "edge_mm": EDGE_MM,
        "cases": len(measured),
        "without_box": without_box,
        "gtvp_not_inside": not_inside,
        "boxes": lines,
    }
    return StudyResult(content, (), summary, files=(BOXES_CSV,))


def add_boxes_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the cohort's folder."""
    add_cohort_folder(parser)
