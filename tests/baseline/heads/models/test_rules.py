"""Comparators of classes without a model, by hand."""

from __future__ import annotations

import numpy as np

from algorithm.heads.measure import Features
from baseline.heads.cohort import HeadCohort, Outcomes
from baseline.heads.models.rules import most_frequent, staging_rule


def cohort_of(values: list[int], rows: list[Features]) -> HeadCohort:
    outcomes = Outcomes(np.array(values), classes=("T1", "T2", "T3", "T4"))
    return HeadCohort(tuple(map(str, range(len(values)))), ("A",) * len(values), tuple(rows), outcomes)


def test_the_most_frequent_class_is_that_of_the_training_patients() -> None:
    """T3 twice in training, and T2 and T4 once; of equally frequent ones the lower."""
    others = cohort_of([0, 0, 0], [{}] * 3)
    assert most_frequent(cohort_of([2, 1, 2, 3], [{}] * 4), others).tolist() == [2, 2, 2]
    assert most_frequent(cohort_of([3, 1], [{}] * 2), others).tolist() == [1, 1, 1]


def test_the_rule_reads_the_features_and_falls_back_to_the_most_frequent_class() -> None:
    """The 7th edition: up to 20 mm T1, up to 40 mm T2, above T3. Without a primary: T4 of the training patients."""
    rows: list[Features] = [{"gtvp_diameter_mm": value} for value in (15.0, 30.0, 50.0)] + [{}]
    train = cohort_of([3, 3, 1], [{}] * 3)
    assert staging_rule("t_stage_7th")(train, cohort_of([0] * 4, rows)).tolist() == [0, 1, 2, 3]
