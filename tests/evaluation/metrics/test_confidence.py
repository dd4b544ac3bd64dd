"""Risk-coverage curve and rank correlation: figures by hand and against plain code."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import spearmanr

from evaluation.metrics.confidence import aurc, aurc_metric, risk_coverage, spearman, spearman_metric


def test_three_cases_by_hand() -> None:
    """Risks 0.1, 0.5, 0.3 by falling confidence: means 0.1, 0.3, 0.3, area 0.7 / 3; the oracle's 0.1, 0.2, 0.3: 0.2.

    Where none is surer than another, every mean is expected to be 0.3.
    """
    confidence, risk = np.array([0.8, 0.7, 0.6]), np.array([0.1, 0.5, 0.3])
    assert risk_coverage(confidence, risk) == pytest.approx([0.1, 0.3, 0.3])
    assert aurc(confidence, risk) == pytest.approx(0.7 / 3)
    assert aurc(-risk, risk) == pytest.approx(0.2)
    assert risk_coverage(np.ones(3), risk) == pytest.approx([0.3, 0.3, 0.3])


def test_ties_are_the_mean_over_their_orders() -> None:
    """If the second and third are equally sure, the second mean is (0.1 + 0.5) / 2 or (0.1 + 0.3) / 2, 0.25 on average."""
    assert risk_coverage(np.array([0.8, 0.6, 0.6]), np.array([0.1, 0.5, 0.3])) == pytest.approx([0.1, 0.25, 0.3])


@given(st.integers(0, 10_000))
def test_weights_repeat_cases(seed: int) -> None:
    rng = np.random.default_rng(seed)
    confidence, risk = rng.integers(0, 4, 6) / 4, rng.random(6)
    weights = rng.integers(0, 4, (3, 6)).astype(float)
    weights[:, 0] += 1
    samples = [np.repeat(np.arange(6), row.astype(int)) for row in weights]
    expected = [aurc(confidence[drawn], risk[drawn]) for drawn in samples]
    assert aurc_metric(confidence, risk)(weights) == pytest.approx(expected)


@given(st.integers(0, 10_000))
def test_no_order_beats_the_oracle(seed: int) -> None:
    rng = np.random.default_rng(seed)
    risk = rng.random(8)
    assert aurc(-risk, risk) <= aurc(rng.random(8), risk) + 1e-12
    assert aurc(risk, risk) >= risk.mean() - 1e-12


@given(st.integers(0, 10_000))
def test_spearman_is_scipys_on_drawn_patients(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = rng.integers(0, 5, 9).astype(float), rng.integers(0, 5, 9).astype(float)
    weights = np.vstack([np.ones(9), rng.multinomial(9, np.full(9, 1 / 9), 3)])
    correlations = spearman_metric(first, second)(weights)
    for row, value in zip(weights.astype(int), correlations, strict=True):
        drawn = np.repeat(np.arange(9), row)
        if np.ptp(first[drawn]) and np.ptp(second[drawn]):
            assert value == pytest.approx(spearmanr(first[drawn], second[drawn]).statistic)
        else:
            assert np.isnan(value)


@given(values=hnp.arrays(np.float64, (2, 12), elements=st.integers(0, 6).map(float)))
def test_spearman_equals_scipy_with_ties(values):
    if min(np.ptp(values, axis=1)) == 0:
        assert spearman(*values) is None
    else:
        assert spearman(*values) == pytest.approx(spearmanr(*values).statistic, abs=1e-12)
