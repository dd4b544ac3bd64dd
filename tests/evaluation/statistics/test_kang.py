"""Kang's test against its definition over four patients and a bootstrap."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from evaluation.statistics.tests import TeamRisks, kang

NAN = float("nan")


def make_cohort(seed, n, noise=1.0, missing=0.0):
    rng = np.random.default_rng(seed)
    hazard = rng.normal(size=n)
    times, limit = rng.exponential(np.exp(-hazard)).round(2), rng.exponential(2.0, n).round(2)
    a, b = (hazard + rng.normal(0, noise, n)).round(1), (hazard + rng.normal(0, 2 * noise, n)).round(1)
    a[rng.random(n) < missing] = NAN
    b[rng.random(n) < missing] = NAN
    return TeamRisks(np.minimum(times, limit), times <= limit, np.stack([a, b]), 0.0)


def compute_kang(patients):
    """D = C_a - C_b and its variance by the four-index definition, pair of pairs by pair of pairs.

    The variance is the square of the mean kernel (0) less its mean product over pairs that share no patient.
    """
    n = len(patients.times)
    times, events = patients.times, patients.events

    def value(i, j):
        for first, second in ((i, j), (j, i)):
            later = times[first] < times[second] or (times[first] == times[second] and not events[second])
            if events[first] and later:
                risks = patients.risks
                score = [1.0 if r[first] > r[second] else 0.5 if r[first] == r[second] else 0.0 for r in risks]
                return 1.0, score[0] - score[1]
        return 0.0, 0.0

    q, d = np.zeros((n, n)), np.zeros((n, n))
    for i, j in itertools.permutations(range(n), 2):
        q[i, j], d[i, j] = value(i, j)
    difference = d.sum() / q.sum()
    w = (d - difference * q) / (q.sum() / (n * (n - 1)))
    disjoint = sum(w[i, j] * w[k, m] for i, j, k, m in itertools.permutations(range(n), 4))
    return difference, -disjoint / (n * (n - 1) * (n - 2) * (n - 3))


def compute_p(difference, variance):
    return stats.norm.sf(difference / np.sqrt(variance)) if variance > 0 else 1.0


@pytest.mark.parametrize("seed", range(6))
def test_the_direct_definition_agrees(seed):
    patients = make_cohort(seed, 9)
    difference, variance = compute_kang(patients)
    comparison = kang(patients)
    assert comparison.difference[0, 1] == pytest.approx(difference)
    assert comparison.p[0, 1] == pytest.approx(compute_p(difference, variance))


@pytest.mark.parametrize("missing_score", [0.0, 0.5])
@pytest.mark.parametrize("at_once", [1, 500])
def test_blocks_of_rows_give_the_numbers_of_one_block(monkeypatch, at_once, missing_score):
    patients = replace(make_cohort(3, 90, missing=0.1), missing_score=missing_score)
    whole = kang(patients)
    monkeypatch.setattr("evaluation.statistics.tests._MAX_SCORES_IN_MEMORY", at_once)
    comparison = kang(patients)
    assert comparison.difference[0, 1] == pytest.approx(whole.difference[0, 1], rel=1e-12)
    assert comparison.p[0, 1] == pytest.approx(whole.p[0, 1], rel=1e-9)


def test_both_directions_share_one_p_and_equal_risks_have_p_1():
    patients = make_cohort(2, 60)
    comparison = kang(patients)
    np.testing.assert_allclose(comparison.difference, -comparison.difference.T)
    assert comparison.p[0, 1] == pytest.approx(1 - comparison.p[1, 0])
    equal = replace(patients, risks=patients.risks[[0, 0]])
    without_events = replace(patients, events=np.zeros(60, dtype=bool))
    three = TeamRisks(np.arange(3.0), np.ones(3, dtype=bool), np.array([np.arange(3.0), -np.arange(3.0)]), 0.0)
    for cohort in (equal, without_events, three):
        assert (kang(cohort).p == 1).all()


def test_all_teams_at_once_give_the_numbers_of_each_pair():
    """Two of five teams are equal and two lack some risks."""
    first, second = make_cohort(5, 80), make_cohort(6, 80, missing=0.2)
    risks = np.concatenate([first.risks, second.risks, first.risks[:1]])
    comparison = kang(replace(first, risks=risks))
    for a, b in itertools.permutations(range(5), 2):
        of_two = kang(replace(first, risks=risks[[a, b]]))
        assert comparison.p[a, b] == pytest.approx(of_two.p[0, 1], rel=1e-12)
        assert comparison.difference[a, b] == pytest.approx(of_two.difference[0, 1], abs=1e-12)
    assert comparison.p[0, 4] == comparison.p[4, 0] == 1
