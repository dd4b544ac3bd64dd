"""Labels of logits, and the expected DSC of a mask by hand and over all references."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from algorithm.masks.segmentation import argmax, expected_dsc


@given(arrays(np.float32, (3, 2, 3, 2), elements=st.sampled_from([-np.inf, -1.0, 0.0, 0.5, np.inf])))
def test_the_highest_logit_wins_as_in_numpy(logits: npt.NDArray[np.float32]) -> None:
    """Equal logits give the lower label."""
    labels = argmax(logits)
    assert labels.dtype == np.uint8
    np.testing.assert_array_equal(labels, logits.argmax(0))


def test_four_voxels_by_hand() -> None:
    """GTVp has 0.7, 0.3, 0.8 and 0.1; its mask is the first and third voxel: 2 (0.7 + 0.8) / (2 + 1.9) = 3 / 3.9.

    GTVn wins in no voxel.
    """
    p = np.array([[0.2, 0.6, 0.1, 0.5], [0.7, 0.3, 0.8, 0.1], [0.1, 0.1, 0.1, 0.4]], np.float32)
    assert expected_dsc(np.log(p).reshape(3, 2, 1, 2)) == {"GTVp": pytest.approx(3 / 3.9), "GTVn": None}


def test_it_is_close_to_the_expectation_over_all_references() -> None:
    """Eight independent voxels, all 256 truths: the true expectation of the DSC is within 0.03 of the ratio."""
    p = np.array([0.95, 0.9, 0.8, 0.7, 0.6, 0.3, 0.2, 0.05])
    mask = p > 0.5
    truths = (np.arange(256)[:, None] >> np.arange(8)) & 1
    weight = np.where(truths == 1, p, 1 - p).prod(1)
    dsc = 2 * truths[:, mask].sum(1) / (truths.sum(1) + mask.sum())
    logits = np.log(np.stack([1 - p, p, np.full(8, 1e-9)])).astype(np.float32).reshape(3, 2, 2, 2)
    assert expected_dsc(logits)["GTVp"] == pytest.approx(float(weight @ dsc), abs=0.03)
