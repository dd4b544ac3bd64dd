"""Elastic-net Cox regression (lifelines)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from algorithm.heads.linear import LinearHead, Term
from baseline.heads.models.shared import Cohort, Floats, matrix, weighted
from contract.errors import MetricError

KIND: Final = "log partial hazard"
# lifelines' smooth approximation of the absolute value leaves coefficients of this size instead of zeros.
NEARLY_ZERO: Final = 1e-3


def fit_cox(
    cohort: Cohort, terms: Sequence[Term], settings: Sequence[Mapping[str, float]], _rng: np.random.Generator
) -> list[LinearHead]:
    """One head for each setting: `penalty` is the penalty's size, `l1_ratio` its share of absolute values.

    Raises:
        MetricError: lifelines finds no solution; the message names the setting.
    """
    columns = matrix(terms, cohort)
    return [LinearHead(KIND, 0.0, weighted(terms, cox_weights(columns, cohort, setting)), None) for setting in settings]


def cox_weights(columns: Floats, cohort: Cohort, setting: Mapping[str, float]) -> Floats:
    """Coefficients of standardised columns (patients, terms)."""
    import pandas as pd
    from lifelines import CoxPHFitter
    from lifelines.exceptions import ConvergenceError

    if not columns.shape[1]:
        return np.zeros(0)
    table = pd.DataFrame(columns, columns=[str(number) for number in range(columns.shape[1])])
    table["rfs_days"], table["relapse"] = cohort.outcomes.rfs_days, cohort.outcomes.relapse.astype(int)
    fitter = CoxPHFitter(penalizer=setting["penalty"], l1_ratio=setting["l1_ratio"])
    with warnings.catch_warnings():
        # lifelines warns of low variance within events, which the penalty is there for
        warnings.simplefilter("ignore")
        try:
            fitted = fitter.fit(table, "rfs_days", "relapse")
        except ConvergenceError as problem:
            raise MetricError(f"Cox regression with {dict(setting)}", f"no solution found ({problem})") from None
    weights = np.asarray(fitted.params_.to_numpy(), dtype=np.float64)
    if setting["l1_ratio"] > 0:
        weights[np.abs(weights) < NEARLY_ZERO] = 0.0
    return weights
