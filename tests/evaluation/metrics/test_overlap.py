"""Overlap counts and aggregates against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from evaluation.metrics.overlap import (
    Overlap,
    count_overlaps,
    dsc_agg_metric,
    find_foreground_box,
    mean_metric,
    median_metric,
    score_overlap,
)

label_masks = hnp.arrays(np.uint8, (4, 5, 6), elements=st.integers(0, 2))


def compute_dsc(reference, predicted, label=1):
    counts = count_overlaps(reference, predicted, 3)[label]
    return 2 * counts.intersection / (counts.reference + counts.predicted)


def make_ball(centre_x, radius=10, size=33):
    z, y, x = np.ogrid[:size, :size, :size]
    return ((z - 16) ** 2 + (y - 16) ** 2 + (x - centre_x) ** 2 <= radius**2).astype(np.uint8)


def test_sphere_shifted_by_one_voxel():
    """Two balls of radius R at distance d share V(d) = pi/12 (4R + d)(2R - d)^2 of 4/3 pi R^3.

    DSC = V(d) / V(0) = (4R + d)(2R - d)^2 / (16 R^3); for R = 10, d = 1: 41 * 361 / 16000 = 0.92506. Voxels
    along x that enter or leave are the ball's disc of pi R^2 = 314.16: 1 - 314.16 / 4188.8 = 0.925. The
    discrete disc and ball of radius 10 hold 317 and 4169 voxels, so DSC = 1 - 317 / 4169 exactly.
    """
    assert int(make_ball(16).sum()) == 4169
    assert int(make_ball(16)[:, :, 16].sum()) == 317
    assert compute_dsc(make_ball(16), make_ball(17)) == pytest.approx(1 - 317 / 4169, abs=1e-12)
    assert compute_dsc(make_ball(16), make_ball(17)) == pytest.approx(41 * 361 / 16000, abs=2e-3)


@settings(max_examples=40)
@given(label_masks, label_masks)
def test_dsc_is_symmetric_and_the_naive_counts_agree(a, b):
    forward, backward = count_overlaps(a, b, 3), count_overlaps(b, a, 3)
    for label in (0, 1, 2):
        assert forward[label].intersection == backward[label].intersection == int(((a == label) & (b == label)).sum())
        assert forward[label].reference == backward[label].predicted == int((a == label).sum())


@settings(max_examples=40)
@given(label_masks, label_masks)
def test_the_box_holds_every_foreground_voxel_and_is_tight(a, b):
    box = find_foreground_box(a, b)
    assert a[box].sum() == a.sum()
    assert b[box].sum() == b.sum()
    occupied = np.argwhere((a > 0) | (b > 0))
    if occupied.size == 0:
        assert a[box].size == 0
    else:
        assert [s.start for s in box] == occupied.min(axis=0).tolist()
        assert [s.stop for s in box] == (occupied.max(axis=0) + 1).tolist()


def test_aggregated_dsc_weighs_cases_by_volume():
    """Case 1: 10 of 10 and 10 shared wholly; case 2: 90 and 90 share nothing: 2 * 10 / 200 = 0.1, their mean 0.5."""
    metric = dsc_agg_metric(np.array([10.0, 0.0]), np.array([10.0, 90.0]), np.array([10.0, 90.0]))
    assert metric(np.array([[1.0, 1], [0, 0]])) == pytest.approx([0.1, np.nan], nan_ok=True)


def test_mean_leaves_cases_out_and_follows_weights():
    """Weights 2, 1, 5 on 0.5, left out, 1.0: (2 * 0.5 + 5 * 1) / 7."""
    metric = mean_metric(np.array([0.5, np.nan, 1.0]))
    np.testing.assert_allclose(metric(np.array([[1.0, 1, 1], [2, 1, 5], [0, 3, 0]])), [0.75, 6 / 7, np.nan])


@pytest.mark.parametrize(
    ("rule", "both_empty", "only_predicted", "failed"),
    [
        ("skip", None, 0.0, 0.0),
        ("one", 1.0, 0.0, 0.0),
        ("zero", 0.0, 0.0, 0.0),
        ("drop_empty_reference", None, None, None),
    ],
)
def test_empty_reference(rule, both_empty, only_predicted, failed):
    assert score_overlap(Overlap(0, 0, 0), failed=False, rule=rule).dsc == both_empty
    assert score_overlap(Overlap(0, 0, 9), failed=False, rule=rule).dsc == only_predicted
    assert score_overlap(Overlap(0, 0, 0), failed=True, rule=rule).dsc == failed


@pytest.mark.parametrize("rule", ["skip", "one", "zero", "drop_empty_reference"])
@pytest.mark.parametrize(
    ("voxels", "expected"),
    [(Overlap(3, 4, 8), (0.5, 3 / 8, 3 / 4)), (Overlap(0, 4, 5), (0, 0, 0)), (Overlap(0, 4, 0), (0, 0, 0))],
)
def test_dsc_precision_and_recall_of_a_present_reference(rule, voxels, expected):
    """3 of 8 predicted and of 4 reference voxels are shared; an empty prediction of a tumour has precision 0."""
    assert score_overlap(voxels, failed=False, rule=rule) == expected


def test_the_median_of_an_even_count_is_the_mean_of_the_middle_two():
    """1, 2, 4, 9: 3; with the first twice 1, 1, 2, 4, 9: 2; only 2 and 9: 5.5; NaN does not count."""
    metric = median_metric(np.array([4.0, 1.0, np.nan, 9.0, 2.0]))
    weights = np.array([[1.0, 1, 1, 1, 1], [1, 2, 0, 1, 1], [0, 0, 3, 1, 1], [0, 0, 1, 0, 0]])
    np.testing.assert_allclose(metric(weights), [3, 2, 5.5, np.nan])
