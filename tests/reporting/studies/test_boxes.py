"""The box below the brain: by hand on balls of uptake, on any grid, and as the editions of 2020 and 2021 take it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from contract.errors import GroundTruthError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from evaluation.cli import main as evaluate
from tests.reporting.cohorts import write_case
from tests.reporting.studies.runs import run_study

# Voxel centres of 4 mm at -100, ..., 96 in x and y, and at 2, ..., 398 in z: outer borders -102, 98, 0 and 400.
GRID = Geometry((50, 50, 100), (4.0, 4.0, 4.0), (-100.0, -100.0, 2.0))


def make_ball(centre_mm, radius_mm, grid=GRID):
    z, y, x = np.indices(grid.array_shape)
    matrix = grid.index_to_physical_matrix()
    places = np.einsum("ij,jzyx->izyx", matrix[:3, :3], np.stack([x, y, z])) + matrix[:3, 3].reshape(3, 1, 1, 1)
    return np.linalg.norm(places - np.reshape(centre_mm, (3, 1, 1, 1)), axis=0) <= radius_mm


def write_scan(tmp_path, case, suv, mask, grid=GRID):
    return write_case(tmp_path / "cohort", case, Volume(mask, grid), Volume(suv.astype(np.float32), grid))


def find_boxes(cohort, tmp_path):
    return run_study("boxes", tmp_path / "out", "--cohort", cohort, "--workers", 0)


def test_a_box_by_hand(tmp_path):
    """The brain is a ball of 48 mm around (0, 10, 330), 463 ml; a larger bladder low in the scan and a small hot tumour
    do not count. Its end is near 282, from smoothing within a voxel or two; the box reaches 30 mm above it and 114 mm below.
    Its middle is at x 0 and 30 mm in front of the brain, y -20. 100 of 150 voxels of the GTVp are inside.
    """
    suv = 8 * make_ball((0, 10, 330), 48) + 20 * make_ball((0, 0, 60), 58) + 15 * make_ball((30, -30, 230), 12)
    mask = np.zeros(GRID.array_shape)
    mask[50, 20:30, 20:30] = 1
    mask[5, 20:25, 20:30] = 1
    content = find_boxes(write_scan(tmp_path, "a", suv, mask), tmp_path)
    (line,) = content["boxes"]
    assert (line["x1"], line["x2"]) == pytest.approx((-72, 72), abs=2)
    assert (line["y1"], line["y2"]) == pytest.approx((-92, 52), abs=2)
    assert line["z2"] == pytest.approx(282 + 30, abs=8)
    assert [line[f"{axis}2"] - line[f"{axis}1"] for axis in "xyz"] == pytest.approx([144] * 3)
    assert line["gtvp_inside"] == pytest.approx(100 / 150)
    assert (content["gtvp_not_inside"], content["without_box"]) == (["a"], [])


def test_the_grid_of_the_pet_does_not_matter(tmp_path):
    """Scan the same patient on a grid from right to left and from above, with slices of 6 mm."""
    flipped = Geometry((50, 50, 66), (4.0, 4.0, 6.0), (96.0, 96.0, 396.0), (-1.0, 0, 0, 0, -1.0, 0, 0, 0, -1.0))
    for case, grid in (("a", GRID), ("b", flipped)):
        suv = 8 * make_ball((0, 10, 330), 48, grid)
        cohort = write_scan(tmp_path, case, suv, np.zeros(grid.array_shape), grid)
    box, flipped_box = find_boxes(cohort, tmp_path)["boxes"]
    for column in ("x1", "y1", "z1"):
        assert box[column] == pytest.approx(flipped_box[column], abs=4)
    assert box["gtvp_inside"] is None


def test_a_box_stays_in_the_scan(tmp_path):
    """The scan is short: the brain's end lies 90 mm above its lower end, its middle 20 mm from the left border."""
    short = Geometry((50, 50, 60), GRID.spacing_mm, GRID.origin_mm)
    suv = 8 * make_ball((78, 10, 145), 55, short)
    (line,) = find_boxes(write_scan(tmp_path, "a", suv, np.zeros(short.array_shape), short), tmp_path)["boxes"]
    assert (line["z1"], line["z2"]) == (0, 144)
    assert (line["x1"], line["x2"]) == (-46, 98)


def test_a_case_without_a_brain_has_no_box(tmp_path, capsys):
    """The evaluation refuses to score such a case in the whole image."""
    cohort = write_scan(tmp_path, "a", 8 * make_ball((0, 10, 330), 48), make_ball((0, -20, 250), 15))
    write_scan(tmp_path, "b", 8 * make_ball((0, 10, 330), 20), make_ball((0, -20, 250), 15))
    assert find_boxes(cohort, tmp_path)["without_box"] == ["b"]
    assert "warning: no brain found, so no box: b\n1 boxes of 2 cases; " in capsys.readouterr().out
    with pytest.raises(GroundTruthError, match=r"^boxes\.csv: no bounding box of b"):
        score(tmp_path, cohort)


def test_no_brain_at_all(tmp_path):
    cohort = write_scan(tmp_path, "a", np.full(GRID.array_shape, 1.0), np.zeros(GRID.array_shape))
    with pytest.raises(GroundTruthError, match=r"^cohort: no brain in 1 cases"):
        find_boxes(cohort, tmp_path)
    assert not (tmp_path / "out" / "boxes.csv").exists()


def score(tmp_path, cohort):
    arguments = ["--task", "1", "--edition", "hecktor2020", "--workers", "0", "--output", str(tmp_path / "scored")]
    masks = ["--predictions", str(cohort / "ground_truth"), "--ground-truth", str(cohort / "ground_truth")]
    evaluate([*arguments, *masks, "--bounding-boxes", str(tmp_path / "out" / "boxes.csv")])
    return json.loads((tmp_path / "scored" / "metrics.json").read_text())


def test_2020_scores_inside_these_boxes(tmp_path):
    """Only voxels inside the box count of a GTVp at its lower border."""
    suv, primary = 8 * make_ball((0, 10, 330), 48), np.zeros(GRID.array_shape)
    primary[35:60, 20:24, 20:24] = 1
    cohort = write_scan(tmp_path, "a", suv, primary)
    (line,) = find_boxes(cohort, tmp_path)["boxes"]
    (row,) = score(tmp_path, cohort)["results"]
    assert row["gtvp"]["reference_voxels"] == round(line["gtvp_inside"] * primary.sum()) < primary.sum()
