"""Paired tests, Holm's correction and Kendall's tau against hand calculations, naive oracles and second opinions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evaluation.statistics import (
    bootstrap_difference,
    comparable_pairs,
    concordance_scores,
    holm,
    kang,
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


def cohort(seed, n, noise=1.0):
    rng = np.random.default_rng(seed)
    hazard = rng.normal(size=n)
    times, limit = rng.exponential(np.exp(-hazard)).round(2), rng.exponential(2.0, n).round(2)
    events = times <= limit
    a, b = (hazard + rng.normal(0, noise, n)).round(1), (hazard + rng.normal(0, 2 * noise, n)).round(1)
    return np.minimum(times, limit), events, a, b


def direct_kang(times, events, a, b):
    """D = C_a - C_b and its variance by the four-index definition, pair of pairs by pair of pairs.

    The variance is the square of the mean kernel (0) less its mean product over pairs that share no patient.
    """
    n = len(times)

    def value(i, j):
        for first, second in ((i, j), (j, i)):
            later = times[first] < times[second] or (times[first] == times[second] and not events[second])
            if events[first] and later:
                score = [1.0 if r[first] > r[second] else 0.5 if r[first] == r[second] else 0.0 for r in (a, b)]
                return 1.0, score[0] - score[1]
        return 0.0, 0.0

    q, d = np.zeros((n, n)), np.zeros((n, n))
    for i, j in itertools.permutations(range(n), 2):
        q[i, j], d[i, j] = value(i, j)
    difference = d.sum() / q.sum()
    w = (d - difference * q) / (q.sum() / (n * (n - 1)))
    disjoint = sum(w[i, j] * w[k, m] for i, j, k, m in itertools.permutations(range(n), 4))
    return difference, -disjoint / (n * (n - 1) * (n - 2) * (n - 3))


@pytest.mark.parametrize("seed", range(6))
def test_kang_agrees_with_the_direct_definition(seed):
    times, events, a, b = cohort(seed, 9)
    difference, variance = direct_kang(times, events, a, b)
    found = kang(comparable_pairs(times, events), concordance_scores(a, 0.0), concordance_scores(b, 0.0))
    assert found.difference == pytest.approx(difference)
    expected = stats.norm.sf(difference / np.sqrt(variance)) if variance > 0 else 1.0
    assert found.p == pytest.approx(expected)


def test_kang_agrees_with_a_bootstrap():
    """The standard error that p implies is within a tenth of the deviation of 2,000 paired bootstrap differences."""
    from evaluation.survival import Cohort, c_index_metric

    n = 300
    times, events, a, b = cohort(1, n)
    found = kang(comparable_pairs(times, events), concordance_scores(a, 0.0), concordance_scores(b, 0.0))
    weights = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), 2000).astype(float)
    first, second = (c_index_metric(Cohort(times, events, r), "non_concordant")(weights) for r in (a, b))
    error = found.difference / stats.norm.isf(found.p)
    assert error == pytest.approx((first - second).std(), rel=0.1)


def test_kang_mirrors_itself_and_says_nothing_of_equal_risks():
    times, events, a, b = cohort(2, 60)
    pairs, mine, theirs = comparable_pairs(times, events), concordance_scores(a, 0.0), concordance_scores(b, 0.0)
    there, back = kang(pairs, mine, theirs), kang(pairs, theirs, mine)
    assert there.difference == pytest.approx(-back.difference)
    assert there.p == pytest.approx(1 - back.p)
    assert kang(pairs, mine, mine).p == 1.0
    assert kang(np.zeros((60, 60)), mine, theirs).p == 1.0
    assert kang(pairs[:3, :3], mine[:3, :3], theirs[:3, :3]).p == 1.0


def test_pairs_and_scores_give_the_c_index():
    """The golden cohorts of the C-index: 0.75, and 0.4 or 0.7 with a missing risk."""
    pairs = comparable_pairs(np.array([1.0, 2, 2, 2, 3]), np.array([1, 1, 1, 0, 0], dtype=bool))
    assert (pairs * concordance_scores(np.array([5.0, 4, 1, 3, 2]), 0.0)).sum() / pairs.sum() == 0.75
    pairs = comparable_pairs(np.array([1.0, 2, 3, 4]), np.array([1, 1, 0, 1], dtype=bool))
    for missing, expected in ((0.0, 0.4), (0.5, 0.7)):
        score = concordance_scores(np.array([4.0, NAN, 2, 1]), missing)
        assert (pairs * score).sum() / pairs.sum() == pytest.approx(expected)


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
