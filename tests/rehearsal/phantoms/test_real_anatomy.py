"""Heights and fields of view of whole-body phantoms, compared with 150 real FDG PET/CTs and with the painted organs."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from rehearsal.phantoms import body as landmarks
from rehearsal.phantoms.body import BRAIN, CEREBELLUM, build_body_parts
from rehearsal.phantoms.canvas import Canvas, make_regular_axes
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import PhantomCase, make_case
from tests.shared_data import shared

Values = NDArray[np.float64]
QUANTILES = (10, 25, 50, 75, 90)
# The segmentation of the table misses the brain in the uppermost 8 mm of a scan that cuts it.
UNSEEN_BRAIN_MM = 8.0
# Heights of brain voxels, and their area at each, in anatomical mm.
LEVELS = np.arange(20, 162, dtype=np.float32)


def compute_brain_areas() -> Values:
    """Compute the area of brain and cerebellum in mm2 at each of `LEVELS`, before scaling."""
    line = np.arange(-100, 101, 2, dtype=np.float32)
    x, y, z = line[None, None, :], line[None, :, None], LEVELS[:, None, None]
    inside = np.minimum(BRAIN.distance(x, y, z), CEREBELLUM.distance(x, y, z)) < 0
    return np.asarray(4.0 * inside.sum(axis=(1, 2)))


def measure(case: PhantomCase, areas: Values) -> dict[str, float]:
    """Return a row as in the table, relative to the brain's lower end; without a brain in view its figures are NaN."""
    frame = case.frame
    top = float(case.protocol.ct.corners_mm()[:, 2].max())
    brain_end = frame.height_mm(landmarks.BRAIN_BOTTOM)
    z = frame.origin_mm[2] + frame.heights.to_mm(LEVELS)
    volumes = areas * np.prod(frame.scale) * np.gradient(z) * (z < top - UNSEEN_BRAIN_MM)
    in_view = top - brain_end > 2 * UNSEEN_BRAIN_MM

    def find_distance(height: float) -> float:
        return landmarks.BRAIN_BOTTOM - float(frame.heights.to_mm(height))

    return {
        "field top": top - brain_end if in_view else np.nan,
        "brain ml": volumes.sum() / 1000 if in_view else np.nan,
        "brain centre": brain_end - np.average(z, weights=volumes) if in_view else np.nan,
        "glands top": find_distance(landmarks.GLANDS_TOP),
        "glands bottom": find_distance(landmarks.GLANDS_BOTTOM),
        "lung apex": find_distance(landmarks.LUNG_APEX),
        "lungs bottom": find_distance(landmarks.LUNGS_BOTTOM),
        "heart top": find_distance(landmarks.HEART_TOP),
        "liver top": find_distance(landmarks.LIVER_TOP),
        "bladder bottom": find_distance(landmarks.BLADDER_BOTTOM),
    }


@pytest.fixture(scope="module")
def phantoms() -> dict[str, Values]:
    areas = compute_brain_areas()
    cases = (make_case(seed, index, CENTRES, "whole_body") for seed in (21, 22, 23, 24) for index in range(200))
    rows = [measure(case, areas) for case in cases]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


@pytest.fixture(scope="module")
def people() -> dict[str, Values]:
    with shared("golden/real_anatomy.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    table = {name: np.array([float(row[name] or "nan") for row in rows]) for name in rows[0]}
    brain_end = table["brain_bottom"]
    organs = ("brain_centre", "glands_top", "glands_bottom", "lung_apex", "lungs_bottom", "heart_top", "liver_top")
    heights = {name.replace("_", " "): table[name] - brain_end for name in (*organs, "bladder_bottom")}
    return {"field top": brain_end, "brain ml": table["brain_ml"], **heights}


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        ("field top", 14),
        ("brain ml", 120),
        ("brain centre", 6),
        ("glands top", 6),
        ("glands bottom", 6),
        ("lung apex", 6),
        ("lungs bottom", 14),
        ("heart top", 8),
        ("liver top", 14),
        ("bladder bottom", 22),
    ],
)
def test_quantiles_agree_with_real_people(
    name: str, tolerance: float, phantoms: Mapping[str, Values], people: Mapping[str, Values]
) -> None:
    """Deciles and quartiles of 800 phantoms agree with the table's within a tolerance in mm (brain: ml).

    Quantiles of 150 people have a standard error of about 1.3 sd / sqrt(150), a tenth of the spread: 1 mm for the
    glands, 4 mm for the liver, and more in the long upper tail of the fields' tops.
    """
    real, drawn = (np.nanpercentile(values[name], QUANTILES) for values in (people, phantoms))
    np.testing.assert_allclose(drawn, real, rtol=0, atol=tolerance)


def test_organs_lie_where_the_heights_say() -> None:
    """Paint organs with different uptake on a canvas of 2 mm.

    Where two organs meet, uptake between both could look like a third organ. The hotter ones therefore lie away from
    the end that is measured; the brain is measured in the midline of the head, the lungs next to the trachea.

    Surfaces are rough by 1 to 3 mm and edges one voxel wide, so ends may lie 6 mm off; the liver's bumps 8 mm.
    """
    case = make_case(21, 3, CENTRES)
    markers = {"parotid": 6e3, "submandibular": 5e3, "liver": 4e3, "heart": 3e3, "bladder": 2e3, "brain": 1e3}
    body = replace(case.body, uptake=replace(case.body.uptake, brown_fat=0.0, **markers))
    frame = case.frame
    x, y, _ = frame.origin_mm
    ends = frame.height_mm(landmarks.BLADDER_BOTTOM - 40), frame.height_mm(landmarks.BRAIN_TOP + 20)
    axes = make_regular_axes((x - 180, y - 120, ends[0]), (x + 180, y + 130, ends[1]), (2.0, 2.0, 2.0))
    canvas = Canvas(axes, frame, np.random.default_rng(0))
    for part in build_body_parts(body):
        canvas.paint(part)

    def find_end(inside: NDArray[np.bool_], pick: Callable[[Values], float]) -> float:
        return float(pick(axes.z[np.count_nonzero(inside, axis=(1, 2)) >= 3]))

    def find_organ(organ: str) -> NDArray[np.bool_]:
        return np.abs(canvas.suv / markers[organ] - 1) < 0.15

    trunk = (axes.z < frame.height_mm(landmarks.LUNG_APEX + 20))[:, None, None]
    midline = (np.abs(axes.x - x) < 15)[None, None, :]
    brain = find_organ("brain") & midline & ~trunk
    lungs = (canvas.hu < -700) & (canvas.suv > 0.3) & ~midline & trunk
    for anatomical, measured, tolerance in (
        (landmarks.BRAIN_TOP, find_end(brain, np.max), 6),
        (landmarks.BRAIN_BOTTOM, find_end(brain, np.min), 6),
        (landmarks.GLANDS_TOP, find_end(find_organ("parotid"), np.max), 6),
        (landmarks.GLANDS_BOTTOM, find_end(find_organ("submandibular"), np.min), 6),
        (landmarks.LUNG_APEX, find_end(lungs, np.max), 6),
        (landmarks.LUNGS_BOTTOM, find_end(lungs, np.min), 6),
        (landmarks.HEART_TOP, find_end(find_organ("heart") & trunk, np.max), 6),
        (landmarks.LIVER_TOP, find_end(find_organ("liver") & trunk, np.max), 8),
        (landmarks.BLADDER_BOTTOM, find_end(find_organ("bladder"), np.min), 6),
    ):
        assert measured == pytest.approx(frame.height_mm(anatomical), abs=tolerance), anatomical
