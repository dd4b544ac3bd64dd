"""`hecktor study boxes`: a box of 144 mm around the oropharynx, found from the PET below the brain."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from contract import labels
from contract.errors import GroundTruthError
from contract.images.geometry import Geometry
from contract.images.volumes import read_header
from evaluation.inputs.masks import BoundingBox, read_labels
from evaluation.inputs.plain_files import BOX_COLUMNS
from evaluation.metrics.overlap import MM3_PER_ML
from reporting.analyses.scans import PatientFiles
from reporting.studies.outputs import StudyResult, write_table
from reporting.studies.scans import add_cohort, measure_cohort, uptake_on

TABLE: Final = "boxes.csv"
EDGE_MM: Final = 144.0
# Distance of the box's top above the brain's lower end, and of its centre in front of the brain's.
ABOVE_BRAIN_END_MM: Final = 30.0
IN_FRONT_MM: Final = 30.0
# Grid spacing, smoothing, SUV thresholds in the order in which they are tried, and the volume of a visible brain.
GRID_MM: Final = 4.0
SIGMA_MM: Final = 6.0
BRAIN_SUV: Final = (4.0, 3.0, 2.0)
SMALLEST_BRAIN_ML: Final = 200.0
LARGEST_BRAIN_ML: Final = 2500.0

_Float = npt.NDArray[np.float32]
_Mask = npt.NDArray[np.bool_]


def upright_grid(corners_mm: npt.NDArray[np.float64]) -> Geometry:
    """An axis-aligned LPS grid over the extent of a scan."""
    low, high = corners_mm.min(0), corners_mm.max(0)
    x, y, z = (max(1, int(np.floor((last - first) / GRID_MM))) for first, last in zip(low, high, strict=True))
    first_x, first_y, first_z = (float(v) + GRID_MM / 2 for v in low)
    return Geometry((x, y, z), (GRID_MM,) * 3, (first_x, first_y, first_z))


def find_brain(suv: _Float) -> _Mask | None:
    """The brain on an upright grid of 4 mm, (z, y, x); None if no uptake has its size.

    It is the largest component of the smoothed uptake that reaches the upper third of the scan, at the highest of three
    SUV thresholds where this component is as large as a brain.
    """
    from scipy import ndimage  # slow to import; --help does not need it

    smooth = ndimage.gaussian_filter(suv, SIGMA_MM / GRID_MM)
    for threshold in BRAIN_SUV:
        parts, count = ndimage.label(smooth > threshold)
        sizes = np.bincount(parts.ravel(), minlength=count + 1) * GRID_MM**3 / MM3_PER_ML
        high_up = np.unique(parts[-(-2 * len(parts) // 3) :])
        fitting = [part for part in high_up if part and SMALLEST_BRAIN_ML <= sizes[part] <= LARGEST_BRAIN_ML]
        if fitting:
            return np.asarray(parts == max(fitting, key=lambda part: sizes[part]))
    return None


def box_below(brain: _Mask, grid: Geometry) -> BoundingBox:
    """The box from 30 mm above the brain's lower end downwards, shifted into the scan if necessary.

    Source: the HECKTOR 2020 overview, which starts at the brain and goes down; Andrearczyk et al. 2020, Oropharynx
    detection in PET-CT for tumor segmentation.
    """
    z, y, x = np.nonzero(brain)
    corners = grid.corners_mm()
    low, high = corners.min(0), corners.max(0)
    middle_x, middle_y = (
        float(grid.origin_mm[axis] + GRID_MM * (voxels.min() + voxels.max()) / 2) for axis, voxels in ((0, x), (1, y))
    )
    end = float(grid.origin_mm[2] + GRID_MM * (int(z.min()) - 0.5))
    wanted = (middle_x - EDGE_MM / 2, middle_y - IN_FRONT_MM - EDGE_MM / 2, end + ABOVE_BRAIN_END_MM - EDGE_MM)
    first = [
        float(max(least, min(start, most - EDGE_MM))) for start, least, most in zip(wanted, low, high, strict=True)
    ]
    first_x, first_y, first_z = first
    return BoundingBox((first_x, first_y, first_z), (first_x + EDGE_MM, first_y + EDGE_MM, first_z + EDGE_MM))


def find_box(scans: PatientFiles) -> dict[str, Any]:
    """The line of boxes.csv: PatientID, the box in mm and the fraction of the reference's GTVp inside it.

    The fraction is None without a GTVp; without a brain the line is PatientID alone. Raises GroundTruthError if the PET
    or the mask cannot be used.
    """
    grid = upright_grid(read_header(scans.pet, error=GroundTruthError).geometry.corners_mm())
    brain = find_brain(uptake_on(scans.pet, grid))
    if brain is None:
        return {"PatientID": scans.case}
    box = box_below(brain, grid)
    mask = read_labels(scans.reference, GroundTruthError)
    primary = mask.array == labels.GTVP
    inside = int(np.count_nonzero(box.region(mask.geometry).cut(primary)))
    total = int(np.count_nonzero(primary))
    corners = (round(end, 3) for ends in zip(box.low_mm, box.high_mm, strict=True) for end in ends)
    sides = dict(zip(BOX_COLUMNS, corners, strict=True))
    return {"PatientID": scans.case, **sides, "gtvp_inside": inside / total if total else None}


def run(_: argparse.ArgumentParser, options: argparse.Namespace) -> StudyResult:
    """`hecktor study boxes`: boxes.csv has a line for each case with a box, as `--bounding-boxes` takes it."""
    measured = measure_cohort(find_box, options, "looked for its box")
    lines = [line for line in measured if "gtvp_inside" in line]
    if not lines:
        expected = f"a PET that shows {SMALLEST_BRAIN_ML:g} ml above SUV {BRAIN_SUV[-1]:g} in its upper third"
        raise GroundTruthError(Path(options.cohort).name, f"no brain in {len(measured)} cases", expected)
    without = [line["PatientID"] for line in measured if "gtvp_inside" not in line]
    cut = [line["PatientID"] for line in lines if line["gtvp_inside"] is not None and line["gtvp_inside"] < 1]
    notes = [
        f"warning: {title}: {', '.join(cases)}\n"
        for title, cases in (("no brain found, so no box", without), ("GTVp not wholly inside", cut))
        if cases
    ]
    write_table(options.output / TABLE, lines)
    about = {"edge_mm": EDGE_MM, "cases": len(measured), "without_box": without, "gtvp_not_inside": cut}
    summary = f"{''.join(notes)}{len(lines)} boxes of {len(measured)} cases; "
    return StudyResult({**about, "boxes": lines}, (), summary, files=(TABLE,))


add_options = add_cohort
