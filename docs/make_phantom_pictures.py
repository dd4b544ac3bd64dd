"""Draw the pictures of docs/cases.md: `.venv/bin/python docs/make_phantom_pictures.py`."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from PIL import Image

from contract import labels
from contract.files import atomic_path
from contract.images.volumes import Volume
from rehearsal.phantoms.anatomy.canvas import Axes, sample
from rehearsal.phantoms.centres import CENTRES, centre_named
from rehearsal.phantoms.cohort import PhantomCase, make_case
from rehearsal.phantoms.protocol import axes_of
from rehearsal.phantoms.scanner import Rendered, render

IMAGES: Final = Path(__file__).parent / "images"
SEED: Final = 7
DRAWS: Final = 2000
CONTOURS: Final = {labels.GTVP: "#00d5ff", labels.GTVN: "#ff3df0"}
WINDOW_HU: Final = {"vmin": -160, "vmax": 240}
SUV_SHOWN: Final = 12.0
FIELD_MM: Final = (230.0, 230.0, 290.0)
# Coronal and sagittal pictures extend further up than down.
UP_MM: Final = 30.0


def main() -> int:
    """Write the pictures."""
    mpl.use("Agg")
    for name, draw in (("planes", draw_planes), ("mips", draw_mips), ("centres", draw_centres)):
        path = IMAGES / f"phantoms-{name}.png"
        save(draw(), path)
        sys.stdout.write(f"{path.name}: {path.stat().st_size / 1000:.0f} kB\n")
    return 0


def save(figure: Any, path: Path) -> None:
    """Write a figure as a PNG of 256 colours."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=90, facecolor="black")
    plt.close(figure)
    with atomic_path(path) as partial:
        Image.open(buffer).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
            partial, optimize=True
        )


def first(view: str, condition: Callable[[PhantomCase], bool]) -> PhantomCase:
    """Return the first patient of the seed with this field of view that meets the condition."""
    cases = (make_case(SEED, index, CENTRES, view) for index in range(DRAWS))
    return next(case for case in cases if condition(case))


def faint_primary_and_hot_tonsil(case: PhantomCase) -> bool:
    """Whether a PET threshold would select a tonsil instead of the tumour."""
    primary, left, right = case.disease.lesions[0], case.body.uptake.tonsil_left, case.body.uptake.tonsil_right
    hot = max(left / right, right / left) > 1.35 and max(left, right) > 4
    return primary.label == labels.GTVP and primary.suv < 7 and hot and len(case.disease.nodes) > 0


def draw_planes() -> Any:
    """Draw three patients in three planes through a lesion: CT with PET overlay and contours."""
    patients = {
        "necrotic primary, dental metal": first(
            "head_and_neck",
            lambda c: c.disease.lesions[0].core_share > 0 and c.disease.gtvp_ml > 15 and len(c.body.metal) > 1,
        ),
        "faint primary beside a hot tongue and tonsil": first(
            "head_and_neck",
            faint_primary_and_hot_tonsil,
        ),
        "no primary, cystic nodes": first(
            "head_and_neck", lambda c: c.disease.gtvp_ml == 0 and c.disease.cystic_share > 0.5
        ),
    }
    figure, panels = plt.subplots(len(patients), 4, figsize=(9.6, 3.1 * len(patients)))
    figure.subplots_adjust(0.005, 0.005, 0.995, 0.965, 0.02, 0.12)
    for row, (title, case) in zip(panels, patients.items(), strict=True):
        rendered = render(case)
        middle = case.frame.to_patient(case.disease.lesions[0].place)
        for panel, plane in zip(row[:3], ("axial", "coronal", "sagittal"), strict=True):
            show_slice(panel, rendered, middle, plane)
        show_mip(row[3], rendered.pet, (middle[2] - 125, middle[2] + 185), case.frame.origin_mm[0], 270)
        figure.text(0.005, row[0].get_position().y1 + 0.02, f"{case.patient_id}: {title}", color="white", fontsize=9)
    return figure


def draw_mips() -> Any:
    """Draw maximum intensity projections of the PET over the whole field of view."""
    views = ("whole_body", "whole_body", "head_and_neck", "head", "cut")
    figure, panels = plt.subplots(1, len(views), figsize=(9.6, 5.9))
    for number, (panel, view) in enumerate(zip(panels, views, strict=True)):
        centre = CENTRES[(2, 8, 0, 9, 4)[number]]
        case = make_case(SEED, number, [centre], view)
        pet = render(case).pet
        z = axes_of(pet.geometry).z
        show_mip(panel, pet, (float(z[0]), float(z[-1])), case.frame.origin_mm[0], 460)
        panel.set_anchor("N")
        panel.set_title(f"{case.patient_id}\n{view.replace('_', ' ')}", color="white", fontsize=9)
    figure.subplots_adjust(0.005, 0.005, 0.995, 0.92, 0.03, 0)
    return figure


def draw_centres() -> Any:
    """Draw one patient at three centres that differ in grid, blur, noise and SUV bias."""
    codes = ("CHB", "HMR", "CHUN")
    index = first("head_and_neck", lambda c: c.disease.gtvp_ml > 10 and len(c.disease.nodes) > 1).index
    figure, panels = plt.subplots(2, 3, figsize=(9.6, 6.4))
    for column, code in zip(panels.T, codes, strict=True):
        case = make_case(SEED, index, [centre_named(code)], "head_and_neck")
        rendered = render(case)
        middle = case.frame.to_patient(case.disease.lesions[0].place)
        show_slice(column[0], rendered, middle, "axial", with_pet=False)
        show_slice(column[1], rendered, middle, "coronal", pet_only=True)
        column[0].set_title(f"{code}: {case.centre.scanner}", color="white", fontsize=9)
    figure.subplots_adjust(0.005, 0.005, 0.995, 0.955, 0.02, 0.02)
    return figure


def show_slice(
    panel: Any,
    rendered: Rendered,
    middle_mm: tuple[float, float, float],
    plane: str,
    *,
    with_pet: bool = True,
    pet_only: bool = False,
) -> None:
    """Draw a slice of 0.8 mm pixels through `middle_mm`, seen from the feet, the front or the left."""
    axes = _plane_axes(middle_mm, plane)
    source = axes_of(rendered.ct.geometry)
    ct = _flat(sample(rendered.ct.array.astype(np.float32), source, axes, -1024.0))
    pet = _flat(sample(rendered.pet.array, axes_of(rendered.pet.geometry), axes, 0.0))
    panel.set_axis_off()
    if pet_only:
        panel.imshow(pet, cmap="gray_r", vmin=0, vmax=SUV_SHOWN, interpolation="nearest")
    else:
        panel.imshow(ct, cmap="gray", interpolation="nearest", **WINDOW_HU)
    if with_pet and not pet_only:
        panel.imshow(pet, cmap="hot", vmin=0, vmax=SUV_SHOWN, alpha=np.clip(pet / 6, 0, 0.55))
    for label, colour in CONTOURS.items():
        inside = _flat(sample((rendered.mask.array == label).astype(np.float32), source, axes, 0.0))
        if (inside > 0.5).any():
            panel.contour(inside, [0.5], colors=colour, linewidths=1.2)


def _plane_axes(middle_mm: tuple[float, float, float], plane: str) -> Axes:
    """Sampling axes of a slice, two equal planes thick, with rows from top to bottom."""
    x, y, z = (
        np.arange(centre - field / 2, centre + field / 2, 0.8, dtype=np.float32)
        for centre, field in zip((*middle_mm[:2], middle_mm[2] + UP_MM), FIELD_MM, strict=True)
    )
    fixed = [np.array([value, value], dtype=np.float32) for value in middle_mm]
    return {
        "axial": Axes(fixed[2], y, x),
        "coronal": Axes(z[::-1], fixed[1], x),
        "sagittal": Axes(z[::-1], y, fixed[0]),
    }[plane]


def _flat(array: np.ndarray) -> np.ndarray:
    """Return the first of the two planes."""
    plane: np.ndarray = np.take(array, 0, array.shape.index(2))
    return plane


def show_mip(panel: Any, pet: Volume, z_mm: tuple[float, float], middle_x_mm: float, width_mm: float) -> None:
    """Draw a coronal maximum intensity projection between two heights, with high uptake dark."""
    axes = axes_of(pet.geometry)
    rows = (axes.z >= z_mm[0]) & (axes.z <= z_mm[1])
    columns = np.abs(axes.x - middle_x_mm) < width_mm / 2
    mip = pet.array[rows].max(axis=1)[::-1, columns]
    extent = (float(axes.x[columns][0]), float(axes.x[columns][-1]), float(axes.z[rows][0]), float(axes.z[rows][-1]))
    panel.imshow(mip, cmap="gray_r", vmin=0, vmax=SUV_SHOWN, extent=extent, interpolation="nearest")
    panel.set_axis_off()


if __name__ == "__main__":
    sys.exit(main())
