"""Paired tests, Holm's correction and Kendall's tau against hand calculations, naive oracles and second opinions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evaluation.statistics.tests import (
    bootstrap_difference,
    holm,
    kendall_tau,
    mcnemar,
    signed_rank,
)

NAN, INF = float("nan"), float("inf")


def test_holm_by_hand():
    """Sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1: 0.04, 0.06, 0.06, 0.04, made monotone 0.04, 0.06, 0.06, 0.06."""
    np.testing.assert_allclose(holm(np.array([0.03, 0.01, 0.04, 0.02])), [0.06, 0.04, 0.06, 0.06])
    np.testing.assert_allclose(holm(np.array([0.6, 0.7])), [1.0, 1.0])
    assert holm(np.array([])).size == 0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_lies_between_the_value_and_bonferroni(values):
    p = np.array(values)
    corrected = holm(p)
    assert (corrected >= p).all()
    assert (corrected <= np.minimum(1, p * p.size)).all()


def test_signed_rank_by_hand():
    """Three gains of different size: of the 8 signings just one has a positive rank sum of 6: p = 1/8."""
    found = signed_rank(np.array([0.5, 0.6, 0.9]), np.array([0.4, 0.4, 0.4]))
    assert found.p == pytest.approx(1 / 8)
    assert found.difference == pytest.approx(0.8 / 3)
    assert signed_rank(np.array([0.4, 0.4, 0.4]), np.array([0.5, 0.6, 0.9])).p == 1.0


def test_signed_rank_of_odd_values():
    """A NaN leaves the case out, two infinite values are equal, one infinite gap is the largest."""
    a, b = np.array([0.5, 0.6, 0.9, NAN, -INF]), np.array([0.4, 0.4, -INF, 0.3, -INF])
    assert signed_rank(a, b).p == pytest.approx(1 / 8)
    assert signed_rank(a, a) == signed_rank(np.array([NAN]), np.array([0.2]))
    assert signed_rank(a, a).p == 1.0


@settings(max_examples=20)
@given(st.integers(0, 10_000))
def test_signed_rank_agrees_with_all_signings(seed):
    """The p is the share of the 2^n signings of the ranks whose positive sum is at least the one seen."""
    gaps = np.random.default_rng(seed).normal(0.3, 1, 7)
    ranks = stats.rankdata(np.abs(gaps))
    seen = ranks[gaps > 0].sum()
    sums = [
        sum(r for r, plus in zip(ranks, signs, strict=True) if plus) for signs in itertools.product([0, 1], repeat=7)
    ]
    assert signed_rank(gaps, np.zeros(7)).p == pytest.approx(np.mean(np.array(sums) >= seen))


def test_mcnemar_by_hand():
    """The first alone is right 5 times, the second once: P(5 or 6 heads of 6) = 7/64."""
    a = np.array([1, 1, 1, 1, 1, 0, 1, 0], dtype=bool)
    b = np.array([0, 0, 0, 0, 0, 1, 1, 0], dtype=bool)
    found = mcnemar(a, b)
    assert found.p == pytest.approx(7 / 64)
    assert found.difference == pytest.approx(4 / 8)
    assert mcnemar(a, a).p == 1.0


def test_bootstrap_difference_by_hand():
    """Of 9 replicates one is a loss and one a tie: (1.5 + 1) / 10."""
    gains = np.array([0.1, 0.2, -0.1, 0.0, 0.3, 0.1, 0.1, 0.2, 0.2])
    assert bootstrap_difference(0.1, gains).p == pytest.approx(0.25)
    assert bootstrap_difference(0.1, np.append(gains, NAN)).p == pytest.approx(0.25)
    assert bootstrap_difference(0.0, np.zeros(5)).p == 1.0


@settings(max_examples=30)
@given(st.lists(st.integers(1, 4), min_size=2, max_size=7), st.randoms())
def test_kendall_agrees_with_scipy(ranks, random):
    reference = np.array(ranks, dtype=float)
    other = reference.copy()
    random.shuffle(other)
    found = kendall_tau(other[None], reference)[0]
    np.testing.assert_allclose(found, stats.kendalltau(other, reference).statistic, atol=1e-12)


def test_kendall_by_hand():
    """Of the three pairs one is turned: (2 - 1) / 3."""
    rankings = np.array([[1.0, 2, 3], [2, 1, 3], [3, 2, 1], [1, 1, 1]])
    np.testing.assert_allclose(kendall_tau(rankings, np.array([1.0, 2, 3])), [1, 1 / 3, -1, NAN])
