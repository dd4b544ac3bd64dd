"""Distributions: the same values as scipy's, also far in the tails and for undefined arguments."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr, stdtr, stdtrit

from evaluation.statistics.distributions import normal_cdf, student_t_cdf, student_t_quantile

DEGREES = np.concatenate([np.linspace(0.5, 12, 24), np.arange(13.0, 400), np.geomspace(400, 5000, 50)])


def test_the_normal_distribution_is_scipys_in_both_tails() -> None:
    z = np.array([*np.linspace(-37, 9, 1001), -np.inf, np.inf, np.nan, -0.0])
    np.testing.assert_allclose(normal_cdf(z), ndtr(z), rtol=1e-12)
    assert normal_cdf(np.zeros((2, 0))).shape == (2, 0)


def test_students_t_is_scipys_in_both_tails() -> None:
    # For smaller values, scipy loses digits.
    t = np.concatenate([-np.geomspace(1e-3, 60, 100), [0.0, -0.0], np.geomspace(1e-3, 60, 100)])
    df, t = (values.ravel() for values in np.meshgrid(DEGREES, t))
    expected = stdtr(df, t)
    is_normal = expected > 1e-300
    np.testing.assert_allclose(student_t_cdf(df, t)[is_normal], expected[is_normal], rtol=2e-12)
    assert (student_t_cdf(df, t)[~is_normal] < 1e-299).all()


@pytest.mark.parametrize("df", [1.0, 5.0, 399.0, np.inf, np.nan])
def test_odd_values_have_the_chances_that_scipy_gives(df: float) -> None:
    t = np.array([-np.inf, np.inf, np.nan, 0.0, -0.0, 1e200, -1e200, 1e-200])
    expected = np.full(t.shape, np.nan) if np.isnan(df) else stdtr(df, t)
    np.testing.assert_allclose(student_t_cdf(np.full(t.shape, df), t), expected, rtol=1e-12)


def test_the_quantile_is_scipys() -> None:
    df = np.array([*DEGREES, np.inf, np.nan])
    np.testing.assert_allclose(student_t_quantile(df), stdtrit(df, 0.975), rtol=1e-12)
    assert student_t_quantile(np.zeros(0)).size == 0
