"""Labels of logits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from algorithm.masks.segmentation import argmax


@given(arrays(np.float32, (3, 2, 3, 2), elements=st.sampled_from([-np.inf, -1.0, 0.0, 0.5, np.inf])))
def test_the_highest_logit_wins_as_in_numpy(logits: npt.NDArray[np.float32]) -> None:
    """Equal logits give the lower label."""
    labels = argmax(logits)
    assert labels.dtype == np.uint8
    np.testing.assert_array_equal(labels, logits.argmax(0))
