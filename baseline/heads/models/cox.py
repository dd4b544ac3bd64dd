"""Elastic-net Cox regression (lifelines)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from algorithm.heads.linear import LinearHead, Term
from baseline.heads.cohort import Floats, HeadCohort
from baseline.heads.models.terms import matrix, weighted
from contract.errors import MetricError

KIND: Final = "log partial hazard"
# lifelines smooths the absolute value, so coefficients below this size stand for zero.
NEARLY_ZERO: Final = 1e-3


def fit_cox(
    cohort: HeadCohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], _rng: np.random.Generator
) -> list[LinearHead]:
    """One head per setting: `penalty` is the size of the penalty, `l1_ratio` the share of its L1 part.

    Raises:
        MetricError: lifelines does not converge.
    """
    columns = matrix(terms, cohort)
    return [LinearHead(KIND, 0.0, weighted(terms, cox_weights(columns, cohort, setting)), None) for setting in settings]


def cox_weights(columns: Floats, cohort: HeadCohort, setting: Mapping[str, float]) -> Floats:
    """Coefficients of standardised columns (patients, terms)."""
    import pandas as pd
    from lifelines import CoxPHFitter
    from lifelines.exceptions import ConvergenceError

    if not columns.shape[1]:
        return np.zeros(0)
    table = pd.DataFrame(columns, columns=[str(number) for number in range(columns.shape[1])])
    table["days"], table["event"] = cohort.outcomes.times_days, cohort.outcomes.values
    fitter = CoxPHFitter(penalizer=setting["penalty"], l1_ratio=setting["l1_ratio"])
    with warnings.catch_warnings():
        # lifelines warns of low variance within events, which the penalty handles
        warnings.simplefilter("ignore")
        try:
            fitted = fitter.fit(table, "days", "event")
        except ConvergenceError as problem:
            raise MetricError(f"Cox regression with {dict(setting)}", f"no convergence ({problem})") from None
    weights = np.asarray(fitted.params_.to_numpy(), dtype=np.float64)
    if setting["l1_ratio"] > 0:
        weights[np.abs(weights) < NEARLY_ZERO] = 0.0
    return weights
