"""Uno's C-index and the cumulative/dynamic AUC against naive oracles."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.metrics.concordance import SharedFollowUp
from evaluation.metrics.survival import SurvivalCohort, c_index_metric, dynamic_auc_metric, uno_c_metric


def cohort(seed, n=40, censoring=0.5):
    rng = np.random.default_rng(seed)
    times = rng.integers(1, 15, n).astype(float)
    return SurvivalCohort(times, rng.random(n) >= censoring, rng.normal(size=n).round(1))


def naive_g(of, time):
    """Kaplan-Meier of censoring just before `time`; recurrences at a time leave before the censored do."""
    g = 1.0
    for t in sorted(set(of.times_days[of.times_days < time])):
        at = of.times_days == t
        exposed = (of.times_days >= t).sum() - (at & of.events).sum()
        g *= 1 - (at & ~of.events).sum() / exposed if exposed else 1.0
    return g


def score(risk, other):
    return 1.0 if risk > other else 0.5 if risk == other else 0.0


def naive_uno(of):
    top = bottom = 0.0
    for i in np.flatnonzero(of.events):
        worth = naive_g(of, of.times_days[i]) ** -2
        for j in range(of.times_days.size):
            later = of.times_days[j] > of.times_days[i]
            if later or (of.times_days[j] == of.times_days[i] and not of.events[j]):
                top += worth * score(of.risks[i], of.risks[j])
                bottom += worth
    return top / bottom


def naive_auc(of, time):
    top = bottom = 0.0
    for i in np.flatnonzero(of.events & (of.times_days <= time)):
        worth = 1 / naive_g(of, of.times_days[i])
        for j in np.flatnonzero(of.times_days > time):
            top += worth * score(of.risks[i], of.risks[j])
            bottom += worth
    return top / bottom


@pytest.mark.parametrize("seed", range(4))
def test_the_oracles_agree(seed):
    of = cohort(seed)
    once = np.ones((1, of.times_days.size))
    assert uno_c_metric(of, "non_concordant")(once)[0] == pytest.approx(naive_uno(of))
    assert dynamic_auc_metric(of, "non_concordant", 6.0)(once)[0] == pytest.approx(naive_auc(of, 6.0))


def test_weights_are_repetitions():
    """A patient of weight 2 is two patients, one of weight 0 none."""
    of = cohort(5)
    weights = np.random.default_rng(1).integers(0, 3, of.times_days.size)
    drawn = np.repeat(np.arange(of.times_days.size), weights)
    repeated = SurvivalCohort(of.times_days[drawn], of.events[drawn], of.risks[drawn])
    once = np.ones((1, drawn.size))
    for make in (uno_c_metric, lambda c, rule: dynamic_auc_metric(c, rule, 6.0)):
        whole, weighted = make(repeated, "tie")(once), make(of, "tie")(weights[None].astype(float))
        assert weighted[0] == pytest.approx(whole[0])


def test_without_censoring_uno_is_harrell():
    of = cohort(2, censoring=0.0)
    once = np.ones((1, 40))
    harrell = c_index_metric(of, "non_concordant")(once)[0]
    assert uno_c_metric(of, "non_concordant")(once)[0] == pytest.approx(harrell)


def test_uncensored_before_by_hand():
    """Times 1 (recurrence), 2 (censored), 3, 4: of three at risk at 2 one is censored, so G is 2/3 from then on."""
    weighted = SharedFollowUp(np.array([1.0, 2, 3, 4]), np.array([True, False, True, False])).weigh(np.ones((1, 4)))
    np.testing.assert_allclose(weighted.censoring_survival[0], [1, 1, 2 / 3, 2 / 3])


def test_an_auc_without_cases_or_controls_does_not_exist():
    of = cohort(3)
    once = np.ones((1, 40))
    assert np.isnan(dynamic_auc_metric(of, "tie", 0.5)(once)[0])
    assert np.isnan(dynamic_auc_metric(of, "tie", 99.0)(once)[0])


def test_a_perfect_order_is_never_above_one():
    """Weights 1 / G^2 are no whole numbers: their sums differ by the order in which they are added up."""
    times = np.arange(1.0, 41.0)
    perfect = SurvivalCohort(times, times % 3 != 0, -times)
    drawn = np.random.default_rng(3).multinomial(40, np.full(40, 1 / 40), 500).astype(float)
    for metric in (uno_c_metric(perfect, "tie"), dynamic_auc_metric(perfect, "tie", 20.0)):
        values = metric(drawn)
        assert values.max() == 1.0
        assert values.min() >= 1.0 - 1e-12
