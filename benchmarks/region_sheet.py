"""Contact sheet of the localiser: one scan of each kind with its region and the reference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from algorithm.case.read import AIR_HU
from algorithm.region import grids
from benchmarks.regions import RegionCheck, RegionStudy
from contract.files import atomic_path
from tests.rehearsal.phantoms.variants import KINDS

STEP_MM: Final = 4.0
COLUMNS: Final = 5
SUV_WINDOW: Final = 10.0
BONE_WINDOW_HU: Final = (-200.0, 900.0)
# Below 0.5, so that lesions of a few voxels show at the sheet's size.
REFERENCE_LEVEL: Final = 0.2


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
