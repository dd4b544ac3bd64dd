"""Paired bootstrap differences against hand calculations, naive loops and invariants."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evaluation.metrics.overlap import mean_metric
from evaluation.statistics.bootstrap import draw_replicates, leave_one_out
from evaluation.statistics.gains import PairedGains, compute_gains, degrees_of_freedom

NAN, INF = float("nan"), float("inf")
PARTS = ("difference", "sd", "ci95_low", "ci95_high", "p")


def compare_with_zero(value, gains, left_out=(0.0, 0.0)):
    """Return the gains of a team with these replicates over a team that is 0 throughout."""
    drawn, left = (np.array([values, [0.0] * len(values)]) for values in (gains, left_out))
    return compute_gains(np.array([value, 0.0]), drawn, left)


def list_figures(gains: PairedGains, a=0, b=1):
    return [getattr(gains, part)[a, b] for part in PARTS]


def count_freedom(values):
    """Match mean and variance of n times a sum of squared influences to a multiple of chi-square; at most n - 1."""
    values = [value for value in values if not np.isnan(value)]
    most = max(len(values) - 1, 1)
    if not np.isfinite(values).all():
        return most
    squares = [(np.mean(values) - value) ** 2 for value in values]
    variance = len(squares) * np.var(squares)
    return min(2 * sum(squares) ** 2 / variance if variance > 1e-9 * sum(squares) ** 2 else INF, most)


def compare_naively(value_a, value_b, draws_a, draws_b, left_a, left_b):
    """Return difference, deviation, interval and p of one pair by loops."""

    def gap(a, b):
        return 0.0 if a == b else round(a - b, 12)

    gaps = [gap(a, b) for a, b in zip(draws_a, draws_b, strict=True)]
    gaps = [value for value in gaps if not np.isnan(value)]
    difference = gap(value_a, value_b)
    sd = np.std(gaps, ddof=1) if all(np.isfinite(value) for value in gaps) else NAN
    df = count_freedom([gap(a, b) for a, b in zip(left_a, left_b, strict=True)])
    if not sd > 0 or df < 5:
        return [difference, sd, NAN, NAN, NAN]
    reach = stats.t.ppf(0.975, df) * sd
    return [difference, sd, difference - reach, difference + reach, max(stats.t.sf(difference / sd, df), 2.0**-12)]


def test_a_pair_by_hand():
    """Gains of 0.1, 0.2, 0.3 have a deviation of 0.1; 0.2 / 0.1 = 2.

    Left out, the cases give 0.1, 0.2, 0.3 and five times 0.2: influences 0.1, 0, -0.1 and 0. V = 0.02, sum of fourth
    powers 0.0002, less V^2 / 8 = 0.00005, so 2 x 0.0004 / 0.00015 = 5.333 degrees of freedom. P(t_5.333 > 2) = 0.0492,
    and the interval is 0.2 -+ 2.5230 x 0.1.
    """
    gains = compare_with_zero(0.2, [0.1, 0.2, 0.3], [0.1, 0.2, 0.3, *[0.2] * 5])
    assert gains.df[0, 1] == pytest.approx(16 / 3)
    p, reach = stats.t.sf(2, 16 / 3), stats.t.ppf(0.975, 16 / 3) * 0.1
    assert (p, reach) == pytest.approx((0.0492, 0.2523), abs=5e-5)
    assert list_figures(gains) == pytest.approx([0.2, 0.1, 0.2 - reach, 0.2 + reach, p])
    assert list_figures(gains, 1, 0) == pytest.approx([-0.2, 0.1, -0.2 - reach, -0.2 + reach, 1 - p])


def test_the_influence_of_few_cases_leaves_few_degrees_of_freedom():
    """Let k of 100 cases count 1 and the rest 0, centred k (1 - k/100)^4 + (100 - k) (k/100)^4 and so on.

    With one case that matters V = 0.99, the fourth powers 0.9606 + 99e-8, less V^2 / 100: 2 x 0.9801 / 0.9508 = 2.06.
    With 50 of 100 all influences are of one size: no more than 99.
    """
    rows = (np.arange(100) < np.array([[1], [5], [50]])).astype(float)
    freedom = degrees_of_freedom(rows)
    assert freedom[0] == pytest.approx(2.06, abs=0.005)
    assert freedom[1] == pytest.approx(count_freedom(rows[1]))
    assert freedom[1] == pytest.approx(2 * 5, rel=0.2)
    assert freedom[2] == 99
    normal = np.random.default_rng(0).normal(size=(1, 20_000))
    assert degrees_of_freedom(normal)[0] == pytest.approx(20_000, rel=0.05)
    assert degrees_of_freedom(np.array([[1.0, INF, 0, 0]]))[0] == 3
    assert degrees_of_freedom(np.array([[NAN, NAN]]))[0] == 1


@pytest.mark.parametrize(
    ("gains", "left_out"),
    [
        ([0.1, 0.2, 0.3], [0.1, 0.2, 0.3, 0.2]),  # four cases have at most three degrees of freedom
        ([0.1] * 1000, [0.1] * 12),  # no deviation; the mean of 1000 gains of 0.1 is not 0.1 in floating point
        ([0.1, INF, 0.2], [0.1, 0.2, 0.3, *[0.2] * 5]),
        ([1e-16, -1e-16, 0.0], [1e-16] * 12),  # two teams that differ only by rounding
    ],
)
def test_where_too_few_patients_differ_there_is_no_p(gains, left_out):
    gains_of_pair = compare_with_zero(0.2, gains, left_out)
    assert gains_of_pair.difference[0, 1] == 0.2
    assert np.isnan([*list_figures(gains_of_pair)[2:], *list_figures(gains_of_pair, 1, 0)[2:]]).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.2]), st.sampled_from([1, 12]))
def test_all_pairs_at_once_agree_with_loops(seed, odd, digits):
    """Five teams; some figures infinite or undefined, some tied by rounding."""
    rng = np.random.default_rng(seed)
    values, draws, left_out = (rng.normal(size=shape).round(digits) for shape in ((5,), (5, 30), (5, 12)))
    draws[rng.random(draws.shape) < odd] = INF
    left_out[rng.random(left_out.shape) < odd / 10] = INF
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gains = compute_gains(values, draws, left_out)
    for a, b in itertools.permutations(range(5), 2):
        expected = compare_naively(values[a], values[b], draws[a], draws[b], left_out[a], left_out[b])
        assert list_figures(gains, a, b) == pytest.approx(expected, nan_ok=True, rel=1e-6, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(3, 60), st.sampled_from([2, 12]), st.sampled_from([0.0, 0.01, 0.3]))
def test_an_interval_excludes_0_where_p_is_at_most_a_fortieth(seed, cases, digits, odd):
    """Some teams differ little, some figures are infinite; without a p there is no interval."""
    rng = np.random.default_rng(seed)
    values = (rng.normal(0.5, 0.2, (4, cases)) + np.array([[0.0], [0.1], [0.2], [0.0]])).round(digits)
    values[3] = values[0] + rng.choice([0, 0.25], cases)
    metrics = {team: mean_metric(of_team) for team, of_team in enumerate(values)}
    draws, _ = draw_replicates(metrics, cases, 100, seed)
    drawn = np.stack(list(draws.values()))
    drawn[rng.random(drawn.shape) < odd] = INF
    left_out = np.stack([leave_one_out(metric, cases) for metric in metrics.values()])
    gains = compute_gains(values.mean(axis=1), drawn, left_out)
    tested = ~np.isnan(gains.p)
    np.testing.assert_array_equal(tested, ~np.isnan(gains.ci95_low))
    np.testing.assert_array_equal((gains.ci95_low > 0)[tested], (gains.p <= 0.025)[tested])
    np.testing.assert_array_equal((gains.ci95_high < 0)[tested], (gains.p.T <= 0.025)[tested])


def test_a_mean_is_compared_like_a_paired_t_test():
    """For normal values the bootstrap's deviation and the degrees of freedom come close to Student's test."""
    rng, n = np.random.default_rng(4), 60
    cases = rng.normal(size=(2, n)) + rng.normal(size=n) + np.array([[0.3], [0.0]])
    metrics = {team: mean_metric(of_team) for team, of_team in enumerate(cases)}
    draws, _ = draw_replicates(metrics, n, 4000, 4)
    drawn, left_out = (
        np.stack(list(draws.values())),
        np.stack([leave_one_out(metric, n) for metric in metrics.values()]),
    )
    gains = compute_gains(cases.mean(axis=1), drawn, left_out)
    expected = stats.ttest_rel(cases[0], cases[1], alternative="greater")
    assert gains.p[0, 1] == pytest.approx(expected.pvalue, rel=0.15)
    assert gains.sd[0, 1] == pytest.approx(stats.sem(cases[0] - cases[1]), rel=0.04)


def test_undefined_replicates_do_not_count():
    some, all_of_them = (
        compare_with_zero(0.2, [0.1, NAN, 0.2, 0.3], [0.1, 0.3, 0.2, 0.1, *[0.2] * 5, NAN]),
        compare_with_zero(0.2, [0.1, 0.2, 0.3], [0.1, 0.3, 0.2, 0.1, *[0.2] * 5]),
    )
    assert list_figures(some) == pytest.approx(list_figures(all_of_them))
    assert some.df[0, 1] > 5
