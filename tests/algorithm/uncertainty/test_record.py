"""Uncertainty by hand on four voxels, then end to end beside unchanged answers."""

from __future__ import annotations

import numpy as np
import pytest

from algorithm.masks.confidence import expected_dsc, lesions_of
from algorithm.masks.segmentation import Segmentation
from algorithm.network.windows import Pass
from algorithm.region.grids import restore_bytes
from algorithm.uncertainty.disagreement import Disagreement
from algorithm.uncertainty.record import (
    describe,
)
from contract.images.geometry import Geometry
from tests.algorithm.edition import SEGMENTATION
from tests.algorithm.uncertainty.two_passes import FIRST, SECOND

MASK = f"{SEGMENTATION.answers[0].socket.relative_path}/output.mha"
GRID = Geometry((2, 2, 1), (2.0, 3.0, 4.0), (10.0, 20.0, 30.0))


def both_passes() -> tuple[Segmentation, Disagreement]:
    """The two passes of four voxels, whose averaged logits leave the second voxel to the background."""
    disagreement = Disagreement()
    disagreement.add(Pass(0), FIRST)
    disagreement.add(Pass(1), SECOND)
    empty = np.zeros(GRID.array_shape, np.float32)
    return Segmentation((FIRST + SECOND) / 2, empty, None, GRID, 2, 4, "by hand"), disagreement


def test_four_voxels_by_hand() -> None:
    """GTVp's probabilities are 1/2, 3/8, 3/4, 1/8 and its mask the first and third voxel, each 0.024 ml.

    Expected DSC: 2 (1/2 + 3/4) / (2 + 7/4) = 2/3. Expected volume: 7/4 voxels. The lesion lies at x 10 and between
    y 20 and 23; both passes have all of it. GTVn is in no mask, but 3/4 of a voxel of it is expected.
    """
    record = describe(*both_passes())
    assert record["passes"]["done"] == 2
    assert record["passes"]["planned"] == 4
    assert record["why_not"] is None
    primary, nodes = record["labels"]["GTVp"], record["labels"]["GTVn"]
    expected = {"volume_ml": 0.048, "expected_volume_ml": 0.042, "expected_dsc": 2 / 3, "pairwise_dsc": 0.8}
    assert primary == pytest.approx(expected, rel=1e-5)
    assert nodes == {
        "volume_ml": 0.0,
        "expected_volume_ml": pytest.approx(0.018),
        "expected_dsc": None,
        "pairwise_dsc": None,
    }
    (lesion,) = record["lesions"]
    assert lesion.pop("label") == "GTVp"
    assert lesion.pop("centroid_mm") == [10.0, 21.5, 30.0]
    assert lesion == pytest.approx({"volume_ml": 0.048, "mean_probability": 0.625, "found_by": 1, "mean_overlap": 1})


def test_a_lesion_in_only_some_passes() -> None:
    """The mask of the second pass is three voxels, all of one lesion: the first pass has two of them."""
    segmentation, disagreement = both_passes()
    second = Segmentation(SECOND, segmentation.ct, None, GRID, 2, 2, "by hand")
    (lesion,) = describe(second, disagreement)["lesions"]
    assert lesion["found_by"] == 1
    assert lesion["mean_overlap"] == pytest.approx((2 / 3 + 1) / 2)
    assert lesion["mean_probability"] == pytest.approx((1 / 2 + 3 / 8 + 3 / 4) / 3)


def test_expected_dsc_against_all_truths() -> None:
    """Eight independent voxels, all 256 truths: the true expectation of the DSC is within 0.03 of the ratio."""
    p = np.array([0.95, 0.9, 0.8, 0.7, 0.6, 0.3, 0.2, 0.05])
    mask = p > 0.5
    truths = (np.arange(256)[:, None] >> np.arange(8)) & 1
    weight = np.where(truths == 1, p, 1 - p).prod(1)
    dsc = 2 * truths[:, mask].sum(1) / (truths.sum(1) + mask.sum())
    assert expected_dsc(mask, p.astype(np.float32)) == pytest.approx(float(weight @ dsc), abs=0.03)


def test_lesions_touch_by_corners() -> None:
    """Two voxels that touch by a corner are one lesion, a third one apart is another; the largest comes first."""
    mask = np.zeros((4, 4, 4), np.uint8)
    mask[3, 3, 3] = mask[0, 0, 0] = mask[1, 1, 1] = 2
    assert [found.tolist() for found in lesions_of(mask, 2)] == [[0, 21], [63]]
    assert lesions_of(mask, 1) == []


def test_a_map_on_the_cts_grid_is_in_hundredths_of_a_bit() -> None:
    """1.5 and 0.25 bits at x = 10 and 12; 10.5 lies a quarter of the way, 11.5 three quarters, 13.5 beyond."""
    values = np.array([[[1.5, 0.25]]], np.float32)
    ct = Geometry((5, 1, 1), (1.0, 3.0, 4.0), (9.5, 20.0, 30.0))
    found = restore_bytes(values, Geometry((2, 1, 1), (2.0, 3.0, 4.0), (10.0, 20.0, 30.0)), ct, 100)
    assert found.dtype == np.uint8
    assert found.ravel().tolist() == [150, 119, 56, 25, 0]
    far = Geometry((2, 1, 1), (1.0, 3.0, 4.0), (900.0, 20.0, 30.0))
    assert not restore_bytes(values, GRID, far, 100).any()
