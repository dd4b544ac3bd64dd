"""The penalty of a logistic head against a fit by hand."""

from __future__ import annotations

import numpy as np
import pytest

from baseline.heads.cohort import Outcomes
from baseline.heads.models.logistic import fit_logistic
from baseline.heads.models.terms import scaled_terms
from tests.baseline.heads.cohorts import head_cohort


@pytest.mark.parametrize("patients", [4, 40])
def test_the_penalty_of_a_logistic_regression_applies_to_the_mean_loss(patients: int) -> None:
    """Half of the patients are positive with x = 1, half negative with x = -1: the mean loss is log(1 + exp(-w)).

    With p w^2 / 2 added its slope is 0 where 1 / (1 + exp(w)) = p w, for p = 1 / (1 + e) at w = 1, however many
    patients there are.
    """
    positive = np.arange(patients) % 2 == 1
    rows = [{"x": 1.0 if one else -1.0} for one in positive]
    cohort = head_cohort(rows, Outcomes(positive.astype(np.int64), classes=("0", "1")))
    terms = scaled_terms(cohort, {"x": "identity"})
    (head,) = fit_logistic(cohort, terms, [{"penalty": 1 / (1 + np.e)}], np.random.default_rng(0))
    assert [term.weights[0] for term in head.terms] == pytest.approx([1.0], abs=1e-3)
    assert head.intercepts == pytest.approx([0], abs=1e-3)
