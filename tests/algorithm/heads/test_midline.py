"""Side of a lesion in a region that is wider on one side and cuts the shoulders unevenly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from algorithm.heads.measure import measure_image_features, offset_mm
from algorithm.heads.values import derive_stage
from contract import labels
from contract.editions import load_edition
from contract.images.geometry import Geometry
from tests.algorithm.heads.structures import Array, find_structure, make_ball, make_grid

# Shoulders of 400 mm about x = 200 mm, with spine and airway; x runs to the patient's left.
BODY = make_grid((12, 40, 200), (2.0, 4.0, 5.0))
MIDLINE_MM = 200.0
LEFT_NODE_MM, PRIMARY_MM = (30.0, 80.0, 212.0), (30.0, 110.0, 215.0)


def make_shoulders() -> Array:
    """Make muscle with a spine and an airway on the midline, and a humerus on each side."""
    ct = np.full(BODY.array_shape, 50, np.float32)
    ct[:, :2], ct[:, -2:] = -1000, -1000
    for y_mm, offset, radius_mm, hu in ((40, 0, 9, -1000), (100, 0, 16, 600), (90, -110, 12, 700), (90, 110, 12, 700)):
        y, x = np.arange(40) * 4.0 - y_mm, np.arange(200) * 2.0 - MIDLINE_MM - offset
        ct[:, y[:, None] ** 2 + x[None] ** 2 <= radius_mm**2] = hu
    return ct


def crop(image: Array, first: int, last: int) -> tuple[Array, Geometry]:
    """Return columns of an image and their grid."""
    return image[:, :, first:last], replace(BODY, size=(last - first, 40, 12), origin_mm=(first * 2.0, 0.0, 0.0))


# 125 mm to either side of the midline; up to 170 mm to the left, to the right, and by 10 mm.
EVEN = (38, 163)
WIDENED = [(38, 186), (15, 163), (38, 168)]


@pytest.mark.parametrize("columns", [EVEN, *WIDENED])
@pytest.mark.parametrize("mirrored", [False, True])
def test_a_region_widened_to_one_side_measures_the_same_offset(columns: tuple[int, int], mirrored: bool) -> None:
    """A node lies 12 mm to the left. In columns 38 to 186 the middle of the body is at 223 mm, 11 mm to the right."""
    ct, grid = crop(make_shoulders(), *columns)
    node, _ = crop(make_ball(BODY, LEFT_NODE_MM, 6), *columns)
    if mirrored:
        grid = replace(grid, direction=(-1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0))
    assert offset_mm(find_structure(node, grid), ct, grid) == pytest.approx(-12 if mirrored else 12, abs=1)


@pytest.mark.parametrize("columns", WIDENED[:2])
def test_a_region_widened_to_one_side_gives_the_same_n_stage(columns: tuple[int, int]) -> None:
    """Primary and nodes are ipsilateral, 15 and 12 mm to the left: N1 for an oropharynx."""
    mask = np.zeros(BODY.array_shape, np.uint8)
    mask[make_ball(BODY, LEFT_NODE_MM, 6)] = labels.GTVN
    mask[make_ball(BODY, PRIMARY_MM, 8)] = labels.GTVP
    rule = next(answer.rule for answer in load_edition("hecktor2026").algorithms[0].answers if answer.name == "n_stage")
    assert rule is not None
    stages = []
    for part in (EVEN, columns):
        ct, grid = crop(make_shoulders(), *part)
        features = measure_image_features(mask[:, :, slice(*part)], ct, None, grid)
        assert features["gtvn_contralateral"] == 0
        stages.append(derive_stage(rule, features))
    assert stages[0] == stages[1]


def test_a_body_within_its_region_keeps_its_centre() -> None:
    """Nothing is cut: the mean of the body's columns 20 to 119 is the midline, wherever spine and airway lie."""
    ct = np.full(BODY.array_shape, -1000, np.float32)
    ct[:, 5:35, 20:120] = make_shoulders()[:, 5:35, 20:120]
    ct[ct > -300] = 50
    inside = np.argwhere(ct > -300)
    expected_mm = LEFT_NODE_MM[2] - inside[np.isin(inside[:, 0], (5, 6, 7))][:, 2].mean() * 2
    node = make_ball(BODY, LEFT_NODE_MM, 6)
    assert offset_mm(find_structure(node, BODY), ct, BODY) == pytest.approx(expected_mm, abs=0.5)
