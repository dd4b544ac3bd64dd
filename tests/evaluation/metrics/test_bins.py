"""Spearman's correlation against scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import spearmanr

from evaluation.metrics.overlap import spearman


@given(values=hnp.arrays(np.float64, (2, 12), elements=st.integers(0, 6).map(float)))
def test_spearman_equals_scipy_with_ties(values):
    if min(np.ptp(values, axis=1)) == 0:
        assert spearman(*values) is None
    else:
        assert spearman(*values) == pytest.approx(spearmanr(*values).statistic, abs=1e-12)
