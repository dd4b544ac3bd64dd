"""A contact sheet of the localiser: one scan of each kind, its region and the reference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from algorithm.case.read import AIR_HU
from algorithm.region import grids
from benchmarks.localisation import Found, Study, phantom
from contract.files import atomic_path
from contract.images.geometry import Geometry
from rehearsal.phantoms.variants import KINDS

SPACING_MM: Final = (4.0, 4.0, 4.0)
COLUMNS: Final = 5
SUV_WINDOW: Final = 10.0
BONE_WINDOW_HU: Final = (-200.0, 900.0)
# A lesion of a few voxels would vanish at the sheet's size.
REFERENCE_LEVEL: Final = 0.2

_Plane = npt.NDArray[np.float32]


def draw_sheet(study: Study, found: Sequence[Found], root: Path, target: Path) -> None:
    """Draw the first case of every kind as a PNG.

    Each case shows the CT's mean from the front and the PET's maximum from the left, the region as a box (green:
    sure, orange: not) and the reference's outline in magenta.
    """
    mpl.use("Agg")
    shown = [next((one for one in found if one.kind == kind), None) for kind in KINDS]
    cases = [one for one in shown if one is not None]
    rows = -(-len(cases) // COLUMNS)
    figure = Figure(figsize=(2.4 * COLUMNS, 2.9 * rows), dpi=72, facecolor="white")
    panels = figure.subplots(rows, 2 * COLUMNS, squeeze=False, gridspec_kw={"wspace": 0.03, "hspace": 0.1})
    for panel in panels.flat:
        panel.set_axis_off()
        panel.set_anchor("N")
    for number, one in enumerate(cases):
        row, column = divmod(number, COLUMNS)
        _draw_case(panels[row][2 * column], panels[row][2 * column + 1], one, study, root)
    figure.subplots_adjust(left=0.005, right=0.995, bottom=0.01, top=0.95)
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(target) as partial:
        figure.savefig(partial, format="png")


def _draw_case(front: Any, side: Any, one: Found, study: Study, root: Path) -> None:
    images = phantom(study, one.case, root)
    corners = images["ct"].geometry.corners_mm()
    grid = grids.grid_over(corners.min(0), corners.max(0), SPACING_MM)
    ct = grids.resample(images["ct"], grid, AIR_HU)
    pet = grids.resample(images["pet"], grid, 0.0)
    reference = grids.resample_mask(images["mask"], grid)
    front.set_title(one.kind, fontsize=8, loc="left", pad=3)
    _draw(front, np.clip(ct, *BONE_WINDOW_HU).mean(axis=1), "gray", (-200, 40), reference.max(axis=1), grid, 0, one)
    _draw(side, pet.max(axis=2), "gray_r", (0, SUV_WINDOW), reference.max(axis=2), grid, 1, one)


def _draw(
    panel: Any,
    plane: _Plane,
    colours: str,
    window: tuple[float, float],
    reference: npt.NDArray[np.uint8],
    grid: Geometry,
    axis: int,
    one: Found,
) -> None:
    """One projection; `axis` is the patient's axis (0 for x, 1 for y) that runs to the right, z runs up."""
    low = np.asarray(grid.origin_mm) - np.asarray(SPACING_MM) / 2
    high = low + np.asarray(grid.size) * np.asarray(SPACING_MM)
    extent = (low[axis], high[axis], low[2], high[2])
    panel.imshow(plane, cmap=colours, vmin=window[0], vmax=window[1], origin="lower", extent=extent, aspect="equal")
    if reference.any():
        panel.contour(reference > 0, [REFERENCE_LEVEL], colors="magenta", linewidths=0.8, extent=extent, origin="lower")
    (left, bottom), (right, top) = ((corner[axis], corner[2]) for corner in (one.lower_mm, one.upper_mm))
    colour = "limegreen" if one.sure else "darkorange"
    panel.add_patch(Rectangle((left, bottom), right - left, top - bottom, fill=False, edgecolor=colour, linewidth=1.2))
