"""Attacks on results decode what they claim to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.studies.public_results import (
    brier_attack,
    c_index_attack,
    count_attack,
    detecting_sets,
    statuses_from_counts,
)
from evaluation.metrics.survival import SurvivalCohort


def test_seven_sets_detect_twelve_patients():
    """The sets are the subsets 1 to 7 of three elements, each with as many patients as elements: 3 + 3 x 2 + 3 = 12."""
    assert detecting_sets(12)[0].shape == (7, 12)
    assert detecting_sets(13)[0].shape == (8, 13)


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_counts_of_detecting_sets_give_every_status(statuses):
    sets, patients = detecting_sets(len(statuses))
    positive = np.array(statuses)
    assert (statuses_from_counts(sets @ positive.astype(int), sets, patients) == positive).all()


@pytest.mark.parametrize("digits", [3, 4])
def test_rounded_figures_give_every_count(digits):
    positive = np.random.default_rng(5).random(40) < 0.7
    assert count_attack(positive, digits) == {"submissions": len(detecting_sets(40)[0]), "right": 1.0}


def test_a_brier_score_gives_39_statuses():
    positive = np.random.default_rng(6).random(60) < 0.7
    assert brier_attack(positive) == {"submissions": 2, "right": 1.0}


def test_an_early_relapse_shows_in_the_c_index():
    """Relapses at 1 and 3 of times 1 to 4, 3 + 1 pairs: the second is the later patient of one, the earlier of one."""
    cohort = SurvivalCohort(np.array([1.0, 2, 3, 4]), np.array([True, False, True, False]), np.zeros(4))
    assert c_index_attack(cohort, 3) == {"submissions": 4, "right": 0.75}
