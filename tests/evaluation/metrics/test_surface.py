"""Surface distances against closed forms and a naive oracle."""

from __future__ import annotations

import math

import numpy as np
import pytest

from evaluation.metrics.surface import (
    BOTH_EMPTY,
    MEASURED,
    NO_PREDICTION,
    ONE_EMPTY,
    SurfaceValues,
    compare_surfaces,
    compute_surface_distances,
    find_surface_voxels,
    make_missing_values,
)

SPACING = (3.0, 2.0, 1.0)


def find_surface(mask):
    padded = np.pad(mask, 1)
    steps = [(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)]
    voxels = [
        voxel for voxel in np.argwhere(mask) if any(not padded[tuple(voxel + 1 + np.array(step))] for step in steps)
    ]
    return np.array(voxels)


def measure_distances(first, second, spacing):
    a, b = find_surface(first) * np.array(spacing), find_surface(second) * np.array(spacing)
    table = np.sqrt(((a[:, None] - b[None]) ** 2).sum(axis=2))
    return table.min(axis=1), table.min(axis=0)


def draw_pair(seed):
    rng = np.random.default_rng(seed)
    return rng.random((5, 6, 7)) < 0.4, rng.random((5, 6, 7)) < 0.2


@pytest.mark.parametrize("seed", range(5))
def test_the_oracle_agrees(rules, seed):
    first, second = draw_pair(seed)
    there, back = measure_distances(first, second, SPACING)
    row = compare_surfaces(first, second, SPACING, rules(surfaces="gtvp"))
    both = np.concatenate([there, back])
    assert row.state == MEASURED
    assert row.values["hd95_mm"] == pytest.approx(max(np.percentile(there, 95), np.percentile(back, 95)))
    assert row.values["asd_mm"] == pytest.approx(both.mean())
    assert row.values["surface_dsc"] == pytest.approx((both <= 2.0 + 1e-9).mean())


@pytest.mark.parametrize("seed", range(3))
def test_tree_and_transform_agree(seed, monkeypatch):
    first, second = (find_surface_voxels(mask) for mask in draw_pair(seed))
    distances = []
    for limit in (0, 10**9):
        monkeypatch.setattr("evaluation.metrics.surface._MAX_BOX_VOXELS_PER_SURFACE_VOXEL", limit)
        distances.append(compute_surface_distances(first, second, SPACING))
    for by_tree, by_transform in zip(*distances, strict=True):
        np.testing.assert_allclose(by_tree, by_transform)


@pytest.mark.parametrize(("axis", "step_mm"), list(enumerate(SPACING)))
def test_single_voxels_lie_as_far_apart_as_their_spacing(rules, axis, step_mm):
    """Two voxels, four apart along one axis of (z, y, x) = (3, 2, 1) mm: 12, 8 or 4 mm."""
    first, second = np.zeros((6, 6, 6), bool), np.zeros((6, 6, 6), bool)
    first[1, 1, 1] = True
    second[tuple(np.eye(3, dtype=int)[axis] * 4 + 1)] = True
    row = compare_surfaces(first, second, SPACING, rules())
    assert (row.values["hd95_mm"], row.values["asd_mm"], row.values["surface_dsc"]) == (4 * step_mm, 4 * step_mm, 0.0)


def test_nested_cubes(rules):
    """A 3-cube lies in a 5-cube, 1 mm: the 26 inner surface voxels are 1 mm off; of the 98 outer ones 54 (face) are
    1 mm, 36 (edge) sqrt 2 and 8 (corner) sqrt 3 mm off. 95% of the outer ones: place 92.15 of 0..97, among the corners.
    """
    outer, inner = np.zeros((9, 9, 9), bool), np.zeros((9, 9, 9), bool)
    outer[2:7, 2:7, 2:7] = True
    inner[3:6, 3:6, 3:6] = True
    row = compare_surfaces(outer, inner, (1.0, 1.0, 1.0), rules(surface_tolerance_mm=1.0))
    assert row.values["hd95_mm"] == pytest.approx(math.sqrt(3))
    assert row.values["asd_mm"] == pytest.approx((26 + 54 + 36 * math.sqrt(2) + 8 * math.sqrt(3)) / 124)
    assert row.values["surface_dsc"] == pytest.approx(80 / 124)


def test_equal_and_empty_masks(rules):
    """Without a prediction nothing of the reference's surface is found: a surface DSC of exactly 0."""
    empty, some, (mask, _) = np.zeros((3, 3, 3), bool), np.ones((3, 3, 3), bool), draw_pair(1)
    names = ("hd95_mm", "asd_mm", "surface_dsc")
    worst = dict(zip(names, (math.inf, math.inf, 0.0), strict=True))
    perfect = SurfaceValues(MEASURED, dict(zip(names, (0.0, 0.0, 1.0), strict=True)))
    assert compare_surfaces(mask, mask, SPACING, rules()) == perfect
    assert compare_surfaces(empty, empty, SPACING, rules()) == SurfaceValues(BOTH_EMPTY, dict.fromkeys(names))
    for pair in ((empty, some), (some, empty)):
        assert compare_surfaces(*pair, SPACING, rules()) == SurfaceValues(ONE_EMPTY, worst)
    assert make_missing_values() == SurfaceValues(NO_PREDICTION, worst)


@pytest.mark.parametrize(
    ("spacing_mm", "shift"),
    [(0.4, 5), (0.2, 10), (2 / 3, 3), (0.5, 4), (1 / 6, 12)],
)
@pytest.mark.parametrize("store", [float, np.float32, lambda value: float(f"{value:.6g}")])
def test_the_tolerance_does_not_depend_on_the_precision_of_the_header(rules, spacing_mm, shift, store):
    """Move a block by `shift` voxels of `spacing_mm`, 2 mm: every surface voxel is within 2 mm, bound included.

    NIfTI stores the spacing in single precision, where 5 x 0.4 becomes 2.00000003; text headers may have six digits,
    where 12 x 0.166667 becomes 2.000004. One voxel further no voxel of the two end faces is within 2 mm.
    """
    spacing = (3.0, 1.0, float(store(spacing_mm)))
    masks = np.zeros((3, 8, 10, 60), dtype=np.bool_)
    for mask, start in zip(masks, (5, 5 + shift, 6 + shift), strict=True):
        mask[2:6, 2:8, start : start + 30] = True
    limits = rules(surfaces="gtvp", surface_tolerance_mm=2.0)
    assert compare_surfaces(masks[0], masks[1], spacing, limits).values["surface_dsc"] == 1.0
    assert compare_surfaces(masks[0], masks[2], spacing, limits).values["surface_dsc"] < 1.0
