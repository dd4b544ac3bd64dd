"""Differences of recalls: hand calculations, invariants, and rejections without a difference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t

from evaluation.metrics.classification import make_binary_metrics, make_multiclass_metrics
from evaluation.metrics.overlap import WeightedSum, extend_to_cohort, mean_metric
from evaluation.statistics.gains import compute_recall_gains
from evaluation.statistics.recall_differences import compute_recall_deviations


def compare(metrics, n_cases):
    """Return the gains of teams by one metric."""
    values = np.array([metric(np.ones((1, n_cases)))[0] for metric in metrics])
    return compute_recall_gains(metrics, values)


def compare_classes(reference, right, n_classes, name="balanced_accuracy"):
    """Return the gains of teams that are right in these patients; `right` has shape (teams, patients)."""
    metrics = [
        make_multiclass_metrics(reference, np.where(right_of_team, reference, -1), n_classes)[name]
        for right_of_team in right
    ]
    return compare(metrics, reference.size)


def test_teams_that_differ_on_every_patient_of_a_small_class():
    """24 of 54 and 6 of 6 right against 54 of 54 and 0 of 6.

    Positives: b' = 0.5, c' = 30.5, N = 56: (31 - 900 / 56) / 56^2 = 0.0047605. Negatives: b' = 6.5, c' = 0.5, N = 8:
    (7 - 36 / 8) / 64 = 0.0390625. The variance is (0.0047605 + 0.0390625) / 4 = 0.0109558, the standard error 0.104670,
    the degrees of freedom 0.0109558^2 / (0.00119012^2 / 53 + 0.00976563^2 / 5) = 6.284. The difference is
    (-30 / 54 + 1) / 2 = 0.2222, t = 2.1231 and p = 0.0379, where the bootstrap gave 4e-9.
    """
    positive = np.arange(60) < 54
    cautious, always = np.where(positive, np.arange(60) < 24, True), positive
    gains = compare([make_binary_metrics(positive, right)["balanced_accuracy"] for right in (cautious, always)], 60)
    assert gains.difference[0, 1] == pytest.approx(2 / 9)
    assert (gains.sd[0, 1], gains.df[0, 1]) == pytest.approx((0.104670, 6.284), rel=1e-4)
    assert gains.p[0, 1] == pytest.approx(0.0379, abs=5e-5)
    half = t.ppf(0.975, gains.df[0, 1]) * gains.sd[0, 1]
    assert (gains.ci95_low[0, 1], gains.ci95_high[0, 1]) == pytest.approx((2 / 9 - half, 2 / 9 + half))


def test_accuracy_is_one_stratum():
    """Ten patients, b = 5, c = 1: (7 - 16 / 12) / 144 = 0.0393519, nine degrees of freedom, a difference of 0.4."""
    reference = np.arange(10) % 3
    right = np.array([[1, 1, 1, 1, 1, 0, 1, 0, 1, 0], [0, 0, 0, 0, 0, 1, 1, 0, 1, 0]], dtype=bool)
    gains = compare_classes(reference, right, 3, "accuracy")
    assert (gains.difference[0, 1], gains.df[0, 1]) == pytest.approx((0.4, 9))
    assert gains.sd[0, 1] ** 2 == pytest.approx(0.0393519, rel=1e-5)
    assert gains.p[0, 1] == pytest.approx(t.sf(0.4 / 0.0393519**0.5, 9), rel=1e-5)


def test_a_class_without_patients_has_no_weight():
    rng = np.random.default_rng(0)
    reference, right = rng.integers(0, 2, 30), rng.random((3, 30)) < 0.6
    with_empty, without = compare_classes(2 * reference, right, 4), compare_classes(reference, right, 2)
    for part in ("difference", "sd", "df", "p"):
        np.testing.assert_allclose(getattr(with_empty, part), getattr(without, part))


def test_other_metrics_keep_the_bootstrap():
    positive = np.arange(20) < 5
    recall, mean = make_binary_metrics(positive, positive)["balanced_accuracy"], mean_metric(np.linspace(0, 1, 20))
    assert compute_recall_deviations([mean, mean]) is None
    assert compute_recall_deviations([WeightedSum([(0.5, recall), (0.5, mean)])] * 2) is None
    halves = compute_recall_deviations([WeightedSum([(0.5, recall), (0.5, WeightedSum([(1.0, recall)]))])] * 2)
    assert halves is not None
    np.testing.assert_allclose(halves.sd, compute_recall_deviations([recall] * 2).sd)


def test_teams_that_do_not_count_the_same_patients():
    """Patients 0 to 9 count for both teams, patient 10 only for the first: each team's own recall is compared."""
    rng = np.random.default_rng(1)
    metrics = []
    for patients in (11, 10):
        metric = make_binary_metrics(np.ones(patients, dtype=bool), rng.random(patients) < 0.5)["sensitivity"]
        metrics.append(extend_to_cohort(metric, np.arange(patients), 11))
    gains = compare(metrics, 11)
    assert gains.difference[0, 1] == pytest.approx(metrics[0](np.ones((1, 11)))[0] - metrics[1](np.ones((1, 11)))[0])
    assert (gains.df[0, 1], gains.df[0, 0], gains.df[1, 1]) == pytest.approx((9, 10, 9))
    assert 0 < gains.sd[0, 1] < 1


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(2, 5))
def test_the_closed_form(seed, n_classes, teams):
    """Against the formula with loops; the difference is the metric's; both directions share one p."""
    rng = np.random.default_rng(seed)
    reference = np.repeat(np.arange(n_classes), rng.integers(2, 30, n_classes))
    right = rng.random((teams, reference.size)) < rng.uniform(0, 1, (teams, 1))
    gains = compare_classes(reference, right, n_classes)
    for a in range(teams):
        for b in range(teams):
            difference, parts, sizes = 0.0, [], []
            for code in range(n_classes):
                first, second = right[a][reference == code], right[b][reference == code]
                n, only_first, only_second = first.size, (first & ~second).sum(), (second & ~first).sum()
                difference += (only_first - only_second) / n / n_classes
                b_more, c_more = only_first + 0.5, only_second + 0.5
                variance = (b_more + c_more - (b_more - c_more) ** 2 / (n + 2)) / (n + 2) ** 2
                parts.append(variance / n_classes**2)
                sizes.append(n)
            df = sum(parts) ** 2 / sum(part**2 / (n - 1) for part, n in zip(parts, sizes, strict=True))
            assert gains.difference[a, b] == pytest.approx(difference, abs=1e-9)
            assert (gains.sd[a, b], gains.df[a, b]) == pytest.approx((sum(parts) ** 0.5, df))
            assert gains.p[a, b] == pytest.approx(t.sf(difference / sum(parts) ** 0.5, df), abs=1e-9)
    np.testing.assert_allclose(gains.p + gains.p.T, 1)
    np.testing.assert_allclose(gains.ci95_low, -gains.ci95_high.T, atol=1e-12)
    np.testing.assert_array_equal(gains.ci95_low > 0, gains.p <= 0.025)


def count_rejections(sizes, draw, cohorts, seed=0):
    """Return the fractions of cohorts with p <= 0.05 and p <= 0.001 for the first of two teams."""
    rng = np.random.default_rng(seed)
    reference = np.repeat(np.arange(len(sizes)), sizes)
    p = np.array([compare_classes(reference, draw(rng, reference), len(sizes)).p[0, 1] for _ in range(cohorts)])
    return (p <= 0.05).mean(), (p <= 0.001).mean()


def draw_random_caller(rng, reference):
    """Draw a random caller and 'always positive', which is right in class 0: balanced accuracies of 0.5."""
    return np.stack([rng.random(reference.size) < 0.5, reference == 0])


def draw_equal_teams(rng, reference):
    """Draw two teams with 75% right, which share half of what makes a patient easy."""
    ease, own = rng.standard_normal(reference.size), rng.standard_normal((2, reference.size))
    return (ease + own) * np.sqrt(0.5) < 0.6745


def draw_operating_points(rng, reference):
    """Draw recalls of 0.6 and 0.8 against 0.8 and 0.6."""
    limits = np.where(reference == 0, [[0.6], [0.8]], [[0.8], [0.6]])
    return rng.random(limits.shape) < limits


@pytest.mark.parametrize(
    ("sizes", "draw"),
    [
        ((58, 2), draw_random_caller),
        ((54, 6), draw_random_caller),
        ((54, 6), draw_equal_teams),
        ((54, 6), draw_operating_points),
        ((48, 12), draw_random_caller),
    ],
)
def test_without_a_difference_few_cohorts_reject(draw, sizes):
    """1,000 cohorts, standard error 0.007 and 0.001: the bootstrap gave p <= 0.001 to 11.6% with six negatives."""
    at_5_percent, at_1_permille = count_rejections(sizes, draw, 1000)
    assert at_5_percent <= 0.075
    assert at_1_permille <= 0.004


def test_a_difference_is_found():
    """Recalls are 0.9 and 0.8 against 0.55 and 0.55 in 100 patients, ten of the second class."""

    def draw(rng, reference):
        return np.stack(
            [rng.random(reference.size) < np.where(reference == 0, 0.9, 0.8), rng.random(reference.size) < 0.55]
        )

    assert count_rejections((90, 10), draw, 200)[0] > 0.65


def test_t_and_n_stage_together_without_a_difference():
    """Mean of two balanced accuracies on the same 60 patients: a team that errs in T errs in N, too.

    500 cohorts: 25 on average at a level of 5%, with a standard deviation of 4.9.
    """
    rng, n, rejected = np.random.default_rng(3), 60, 0
    for _ in range(500):
        t_stage, n_stage = np.arange(n) % 10 == 0, np.arange(n) % 6 == 1
        metrics = []
        for right in rng.random((2, n)) < 0.7:
            terms = [make_binary_metrics(stage, right)["balanced_accuracy"] for stage in (t_stage, n_stage)]
            metrics.append(WeightedSum([(0.5, term) for term in terms]))
        rejected += compare(metrics, n).p[0, 1] <= 0.05
    assert rejected <= 40
