"""Heads find effects that are there, find none in permuted outcomes, and never see whom they are judged on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.heads import LinearHead, parse_head
from baseline import heads as module
from baseline.heads import Outcomes, best_threshold, concordance, fit_hpv, fit_rfs
from contract.errors import MetricError

TRANSFORMS = {"volume": "log1p", "age": "identity", "noise": "identity"}
Rows = list[dict[str, float | None]]


def cohort(patients: int = 240, seed: int = 3) -> tuple[Rows, np.ndarray]:
    """Features on their own scales, a tenth of the ages missing, and the standardised true drivers."""
    rng = np.random.default_rng(seed)
    drivers = rng.normal(0, 1, (patients, 3))
    rows: Rows = [
        {
            "volume": float(np.exp(2 + 0.8 * a)),
            "age": None if rng.random() < 0.1 else float(60 + 9 * b),
            "noise": float(c),
        }
        for a, b, c in drivers
    ]
    return rows, drivers


def outcomes_of(risk: np.ndarray, logit: np.ndarray, seed: int = 4) -> Outcomes:
    rng = np.random.default_rng(seed)
    event, censored = rng.exponential(1000 / np.exp(risk)), rng.exponential(1500, len(risk))
    return Outcomes(np.minimum(event, censored), event <= censored, rng.random(len(logit)) < 1 / (1 + np.exp(-logit)))


def weights(head: LinearHead) -> dict[str, float]:
    return {term.feature: term.weight for term in head.terms}


def test_cox_recovers_the_signs_and_sizes_of_known_effects() -> None:
    """True log hazard ratios a standard deviation: +1 for log volume, -0.5 for age, 0 for noise.

    The ridge shrinks, and 150 events leave a standard error near 0.1.
    """
    rows, drivers = cohort()
    fitted = fit_rfs(rows, outcomes_of(drivers @ [1, -0.5, 0], drivers[:, 0]), TRANSFORMS, np.random.default_rng(0))
    found = weights(fitted.head)
    assert 0.6 < found["volume"] < 1.3
    assert -0.8 < found["age"] < -0.2
    assert abs(found["noise"]) < 0.3
    assert 0.70 < fitted.out_of_fold < 0.85
    assert fitted.head.threshold is None
    assert parse_head(fitted.head.as_json(), "rfs") == fitted.head


def test_logistic_recovers_the_signs_of_known_effects() -> None:
    """One HPV negative in eight: the class weights keep the threshold from answering positive for everyone."""
    rows, drivers = cohort()
    logit = drivers @ [-2.0, 1.0, 0] + 3
    fitted = fit_hpv(rows, outcomes_of(drivers[:, 0], logit), TRANSFORMS, np.random.default_rng(0))
    found = weights(fitted.head)
    assert found["volume"] < -0.5
    assert found["age"] > 0.2
    assert abs(found["noise"]) < 0.5
    assert fitted.out_of_fold > 0.75
    threshold = fitted.head.threshold
    assert threshold is not None
    answers = np.array([fitted.head.score(row) >= threshold for row in rows])
    assert 0.05 < np.mean(~answers) < 0.5


def test_nothing_is_found_in_permuted_outcomes() -> None:
    """With 150 events the standard error of C is near 0.025, and the best of five penalties is taken: 0.5 +- 0.1.

    Balanced accuracy is that of the best threshold, so it starts at 0.5.
    """
    rows, drivers = cohort()
    true = outcomes_of(drivers @ [1, -0.5, 0], drivers @ [-2.0, 1.0, 0] + 2)
    order = np.random.default_rng(1).permutation(len(rows))
    permuted = Outcomes(true.rfs_days[order], true.relapse[order], true.hpv[order])
    assert 0.4 < fit_rfs(rows, permuted, TRANSFORMS, np.random.default_rng(0)).out_of_fold < 0.6
    assert 0.5 <= fit_hpv(rows, permuted, TRANSFORMS, np.random.default_rng(0)).out_of_fold < 0.65


def test_whoever_is_judged_was_not_learnt_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each patient's out-of-fold score comes from fits that this patient was in no part of."""
    rows: Rows = [{"x": float(n)} for n in range(23)]
    relapse = np.arange(23) % 3 == 0
    folds = module._stratified_folds(relapse, np.random.default_rng(0))
    assert sorted(np.concatenate(folds)) == list(range(23))
    trained: list[set[int]] = []

    class Spy:
        def __init__(self, train: np.ndarray) -> None:
            self.train = set(train.tolist())

        def score(self, row: dict[str, float | None]) -> float:
            number = int(row["x"] or 0)
            assert number not in self.train
            trained.append(self.train)
            return 0.0

    module._best_penalty(rows, folds, lambda train, penalty: Spy(train), lambda scores: 0.0)  # type: ignore[arg-type, return-value]
    assert len(trained) == 23 * len(module.PENALTIES)
    for fold in folds:
        assert abs(np.sum(relapse[fold]) - 8 / 5) < 1


def test_filling_and_scaling_are_learnt_from_the_rows_given() -> None:
    """Ages 50, 70 and a missing one: median 60, mean 60, standard deviation sqrt(200 / 3)."""
    (term,) = module._terms([{"age": 50.0}, {"age": 70.0}, {"age": None}], {"age": "identity", "absent": "identity"})
    assert (term.fill, term.mean, term.sd) == (60.0, 60.0, pytest.approx(np.sqrt(200 / 3)))
    assert module._terms([{"age": 50.0}] * 3, {"age": "identity"}) == []


def test_of_equally_good_penalties_the_strongest_is_kept() -> None:
    rows: Rows = [{"x": 0.0}] * 10
    head = LinearHead("none", 0.0, (), None)
    folds = [np.arange(5), np.arange(5, 10)]
    assert module._best_penalty(rows, folds, lambda train, penalty: head, lambda scores: 0.7)[1] == max(
        module.PENALTIES
    )


def test_features_that_say_nothing_give_a_head_without_terms() -> None:
    rows: Rows = [{"volume": None, "age": 60.0} for _ in range(20)]
    outcomes = Outcomes(np.arange(1.0, 21), np.arange(20) % 2 == 0, np.arange(20) % 3 > 0)
    rfs = fit_rfs(rows, outcomes, TRANSFORMS, np.random.default_rng(0))
    assert (rfs.head.terms, rfs.out_of_fold) == ((), 0.5)
    hpv = fit_hpv(rows, outcomes, TRANSFORMS, np.random.default_rng(0))
    assert (hpv.head.terms, hpv.out_of_fold) == ((), 0.5)


def test_too_few_of_a_class() -> None:
    rows: Rows = [{"age": float(n)} for n in range(10)]
    one = np.arange(10) == 0
    outcomes = Outcomes(np.arange(1.0, 11), one, ~one)
    with pytest.raises(MetricError, match="1 relapses among the training patients, expected 2"):
        fit_rfs(rows, outcomes, TRANSFORMS, np.random.default_rng(0))
    with pytest.raises(MetricError, match="1 training patients of the rarer class, expected at least 2"):
        fit_hpv(rows, outcomes, TRANSFORMS, np.random.default_rng(0))


# Metrics


def test_concordance_by_hand() -> None:
    """Events at 1 and 3, censored at 2 and 4. Comparable: (1, 2), (1, 3), (1, 4), (3, 4). Risks 4, 3, 1, 2 order all
    but the last: 3 of 4."""
    days, relapse = np.array([1.0, 2, 3, 4]), np.array([True, False, True, False])
    assert concordance(days, relapse, np.array([4.0, 3, 1, 2])) == 0.75
    assert concordance(days, relapse, np.zeros(4)) == 0.5
    with pytest.raises(MetricError, match="no comparable pair"):
        concordance(days, np.zeros(4, dtype=bool), np.zeros(4))


@pytest.mark.parametrize(
    ("negative", "positive", "threshold", "accuracy"),
    [
        ([0, 1], [3, 4], 2.0, 1.0),
        # sensitivity 1 and specificity 2/3 at 1.25; 2/3 and 1 at 2.5: equal, the upper of the two is taken
        ([0, 1, 2], [1.5, 3, 4], 2.5, 5 / 6),
        # upside down: nothing beats answering one class for all
        ([3, 4], [0, 1], 5.0, 0.5),
        ([7], [7], 8.0, 0.5),
    ],
)
def test_thresholds_by_hand(negative: list[float], positive: list[float], threshold: float, accuracy: float) -> None:
    labels = np.array([False] * len(negative) + [True] * len(positive))
    assert best_threshold(labels, np.array([*negative, *positive], dtype=float)) == (threshold, pytest.approx(accuracy))


@given(st.lists(st.tuples(st.booleans(), st.integers(-5, 5)), min_size=2, max_size=20), st.integers(-12, 12))
def test_no_other_threshold_is_better(scored: list[tuple[bool, int]], half_steps: int) -> None:
    positive = np.array([flag for flag, _ in scored])
    if positive.all() or not positive.any():
        return
    scores = np.array([float(score) for _, score in scored])

    def accuracy(threshold: float) -> float:
        return float((np.mean(scores[positive] >= threshold) + np.mean(scores[~positive] < threshold)) / 2)

    threshold, claimed = best_threshold(positive, scores)
    assert accuracy(threshold) == pytest.approx(claimed)
    assert accuracy(half_steps / 2) <= claimed + 1e-12
