"""Uno's C-index and the cumulative/dynamic AUC against naive oracles."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.metrics.concordance import SharedFollowUp
from evaluation.metrics.survival import SurvivalCohort, c_index_metric, dynamic_auc_metric, uno_c_metric


def make_cohort(seed, n=40, censoring=0.5):
    rng = np.random.default_rng(seed)
    times = rng.integers(1, 15, n).astype(float)
    return SurvivalCohort(times, rng.random(n) >= censoring, rng.normal(size=n).round(1))


def compute_g(patients, time):
    """Kaplan-Meier of censoring just before `time`; recurrences at a time leave before the censored do."""
    g = 1.0
    for t in sorted(set(patients.times_days[patients.times_days < time])):
        at = patients.times_days == t
        exposed = (patients.times_days >= t).sum() - (at & patients.events).sum()
        g *= 1 - (at & ~patients.events).sum() / exposed if exposed else 1.0
    return g


def score(risk, later_risk):
    return 1.0 if risk > later_risk else 0.5 if risk == later_risk else 0.0


def compute_uno(patients):
    top = bottom = 0.0
    for i in np.flatnonzero(patients.events):
        worth = compute_g(patients, patients.times_days[i]) ** -2
        for j in range(patients.times_days.size):
            later = patients.times_days[j] > patients.times_days[i]
            if later or (patients.times_days[j] == patients.times_days[i] and not patients.events[j]):
                top += worth * score(patients.risks[i], patients.risks[j])
                bottom += worth
    return top / bottom


def compute_auc(patients, time):
    top = bottom = 0.0
    for i in np.flatnonzero(patients.events & (patients.times_days <= time)):
        worth = 1 / compute_g(patients, patients.times_days[i])
        for j in np.flatnonzero(patients.times_days > time):
            top += worth * score(patients.risks[i], patients.risks[j])
            bottom += worth
    return top / bottom


@pytest.mark.parametrize("seed", range(4))
def test_the_oracles_agree(seed):
    patients = make_cohort(seed)
    once = np.ones((1, patients.times_days.size))
    assert uno_c_metric(patients, "non_concordant")(once)[0] == pytest.approx(compute_uno(patients))
    assert dynamic_auc_metric(patients, "non_concordant", 6.0)(once)[0] == pytest.approx(compute_auc(patients, 6.0))


def test_weights_are_repetitions():
    """Patients of weight 2 count twice, and patients of weight 0 do not count."""
    patients = make_cohort(5)
    weights = np.random.default_rng(1).integers(0, 3, patients.times_days.size)
    drawn = np.repeat(np.arange(patients.times_days.size), weights)
    repeated = SurvivalCohort(patients.times_days[drawn], patients.events[drawn], patients.risks[drawn])
    once = np.ones((1, drawn.size))
    for make in (uno_c_metric, lambda c, rule: dynamic_auc_metric(c, rule, 6.0)):
        whole, weighted = make(repeated, "tie")(once), make(patients, "tie")(weights[None].astype(float))
        assert weighted[0] == pytest.approx(whole[0])


def test_without_censoring_uno_is_harrell():
    patients = make_cohort(2, censoring=0.0)
    once = np.ones((1, 40))
    harrell = c_index_metric(patients, "non_concordant")(once)[0]
    assert uno_c_metric(patients, "non_concordant")(once)[0] == pytest.approx(harrell)


def test_uncensored_before_by_hand():
    """Times 1 (recurrence), 2 (censored), 3, 4: of three at risk at 2 one is censored, so G is 2/3 from then on."""
    weighted = SharedFollowUp(np.array([1.0, 2, 3, 4]), np.array([True, False, True, False])).weigh(np.ones((1, 4)))
    np.testing.assert_allclose(weighted.censoring_survival[0], [1, 1, 2 / 3, 2 / 3])


def test_an_auc_without_cases_or_controls_does_not_exist():
    patients = make_cohort(3)
    once = np.ones((1, 40))
    assert np.isnan(dynamic_auc_metric(patients, "tie", 0.5)(once)[0])
    assert np.isnan(dynamic_auc_metric(patients, "tie", 99.0)(once)[0])


def test_a_perfect_order_is_never_above_one():
    """Sums of the weights 1 / G^2 depend on the order of their terms."""
    times = np.arange(1.0, 41.0)
    perfect = SurvivalCohort(times, times % 3 != 0, -times)
    drawn = np.random.default_rng(3).multinomial(40, np.full(40, 1 / 40), 500).astype(float)
    for metric in (uno_c_metric(perfect, "tie"), dynamic_auc_metric(perfect, "tie", 20.0)):
        values = metric(drawn)
        assert values.max() == 1.0
        assert values.min() >= 1.0 - 1e-12
