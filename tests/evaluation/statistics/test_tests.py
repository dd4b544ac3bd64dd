"""Paired tests, Holm's correction and Kendall's tau against hand calculations, naive oracles and second opinions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evaluation.statistics.tests import compare_signed_ranks, holm, kendall_tau, rank_values

NAN, INF = float("nan"), float("inf")


def test_holm_by_hand():
    """Sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1: 0.04, 0.06, 0.06, 0.04, made monotone 0.04, 0.06, 0.06, 0.06."""
    np.testing.assert_allclose(holm(np.array([0.03, 0.01, 0.04, 0.02])), [0.06, 0.04, 0.06, 0.06])
    np.testing.assert_allclose(holm(np.array([0.6, 0.7])), [1.0, 1.0])
    assert holm(np.array([])).size == 0


def compute_p(a, b):
    """Return the p of a over b, and of b over a."""
    p = compare_signed_ranks(np.stack([np.asarray(a, dtype=float), np.asarray(b, dtype=float)])).p
    return p[0, 1], p[1, 0]


def test_signed_ranks_by_hand():
    """Three gains of different size: of the 8 signings just one has a positive rank sum of 6: p = 1/8.

    Cases with NaN are left out, two infinite values are equal, one infinite gap is the largest.
    """
    assert compute_p([0.5, 0.6, 0.9], [0.4, 0.4, 0.4]) == pytest.approx((1 / 8, 1.0))
    a, b = [0.5, 0.6, 0.9, NAN, -INF], [0.4, 0.4, -INF, 0.3, -INF]
    assert compute_p(a, b) == pytest.approx((1 / 8, 1.0))
    assert compute_p(a, a) == compute_p([NAN], [0.2]) == (1.0, 1.0)


def test_gaps_that_differ_only_by_rounding_are_tied():
    """Five gaps of 0.1, one of them negative, all of rank 3: a sum of 12 or 15 has four or five heads of five, 6 / 32."""
    assert compute_p([0.8, 0.7, 0.9, 0.6, 0.5], [0.7, 0.6, 0.8, 0.7, 0.4])[0] == 6 / 32
    assert compute_p([0.1 + 0.2], [0.3]) == (1.0, 1.0)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(5, 90), st.integers(0, 2))
def test_signed_ranks_agree_with_scipy(seed, cases, digits):
    """Compare all pairs of four teams, with ties where values are rounded; scipy leaves out equal pairs as well.

    Scipy has no exact p with ties, which all signs of up to ten gaps give.
    """
    values = np.random.default_rng(seed).normal(size=(4, cases)).round(digits)
    test = compare_signed_ranks(values)
    p = test.p
    for a, b in itertools.permutations(range(4), 2):
        gap = (values[a] - values[b]).round(12)
        gap = gap[gap != 0]
        is_exact = gap.size <= 50 and np.unique(np.abs(gap)).size == gap.size
        expected = 1.0
        ranks = stats.rankdata(np.abs(gap))
        if gap.size > 50 or (gap.size and is_exact):
            expected = stats.wilcoxon(gap, alternative="greater", method="exact" if is_exact else "asymptotic").pvalue
        elif 0 < gap.size <= 10:
            signs = np.array(list(itertools.product((0, 1), repeat=gap.size)))
            expected = (signs @ ranks >= ranks[gap > 0].sum()).mean()
        if gap.size > 50 or is_exact or gap.size <= 10:
            assert p[a, b] == pytest.approx(expected, rel=1e-9)
        share = ranks[gap > 0].sum() / ranks.sum() if gap.size else 0.5
        assert test.difference[a, b] == pytest.approx(2 * share - 1)
    assert (np.diag(p) == 1).all()


def test_signed_ranks_with_ties_and_infinite_distances_by_hand():
    """Six distances in mm; lower is better, so the test gets their negatives.

    Gaps of the first team: +1, +1, -2, infinite for it, equal, and infinite for both. The fourth has the largest rank
    of the four that differ: ranks 1.5, 1.5, 3, 4. In favour are 1.5 + 1.5 + 4 = 7 of 10; of the 16 ways to give signs
    the sums 7 (1.5 + 1.5 + 4 and 3 + 4), 8.5 twice and 10 are as large: 5 / 16. Against are 3: all ways but those with
    0, 1.5 and 1.5, that is 13 / 16.
    """
    first, second = [2, 3, 5, 9, 4, INF], [3, 4, 3, INF, 4, INF]
    assert compute_p([-mm for mm in first], [-mm for mm in second]) == (5 / 16, 13 / 16)


def test_signed_ranks_of_whole_millimetres_reject_five_in_a_hundred():
    """1,000 cohorts of two equally good teams whose distances share half of what makes a patient easy, in steps of 1 mm.

    The standard error is 0.007. The difference of medians over its bootstrap standard error rejected 11%.
    """
    rng, rejected = np.random.default_rng(7), 0
    for _ in range(1000):
        easy = rng.normal(size=30)
        teams = np.rint(np.exp(1.5 + 0.6 * (easy + rng.normal(size=(2, 30)))))
        rejected += compare_signed_ranks(-teams).p[0, 1] <= 0.05
    assert 0.03 < rejected / 1000 < 0.07


def test_a_tiny_p_is_not_0():
    """With 4,000 gains of one sign z is 54.8 and the normal tail is below the smallest floating-point number."""
    assert 0 < compute_p(np.arange(1, 4001), np.zeros(4000))[0] < 1e-300


@settings(max_examples=30)
@given(st.lists(st.integers(1, 4), min_size=2, max_size=7), st.randoms())
def test_kendall_agrees_with_scipy(ranks, random):
    reference = np.array(ranks, dtype=float)
    shuffled = reference.copy()
    random.shuffle(shuffled)
    tau = kendall_tau(shuffled[None], reference)[0]
    np.testing.assert_allclose(tau, stats.kendalltau(shuffled, reference).statistic, atol=1e-12)


@pytest.mark.parametrize("ties", ["min", "max", "average", "dense"])
@settings(max_examples=40)
@given(
    st.lists(st.lists(st.sampled_from([-1.0, 0.0, 2.5, float("inf")]), min_size=3, max_size=3), min_size=1, max_size=4)
)
def test_ranks_equal_those_of_scipy(ties, rows):
    values = np.array(rows)
    np.testing.assert_array_equal(rank_values(values, ties), stats.rankdata(values, ties, axis=-1))
